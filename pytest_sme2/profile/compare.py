"""Two profiles side by side: what got faster, what was added or removed, what the bottleneck is.

Pure. Whether a pair of runs proves anything is asked in ``coverage.py``; whether a difference is
more than noise, in ``timing/stats.py`` and ``verdict/``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.profile.categories import canonical_name
from pytest_sme2.results.profile import (
    Category,
    Change,
    Comparison,
    OperatorChange,
    OperatorProfile,
    Profile,
)

Operators = Sequence[OperatorProfile]
Key = TypeVar("Key")


def compare(before: Profile, after: Profile, names: tuple[str, str] = ("off", "on")) -> Comparison:
    """Compare ``after`` with ``before``; a ratio above 1 means that ``after`` is faster."""
    return Comparison(
        before_name=names[0],
        after_name=names[1],
        end_to_end=Change("end to end", before.end_to_end.median, after.end_to_end.median),
        categories=tuple(
            change
            for change in _changes(before.category_ns, after.category_ns, str)
            if change.before_ns or change.after_ns
        ),
        kinds=_changes(before.kind_ns, after.kind_ns, lambda place: f"{place[0]} {place[1]}"),
        operators=match_operators(before.operators, after.operators),
        overhead=Change("overhead", before.overhead_ns, after.overhead_ns),
        largest_before=largest_category(before),
        largest_after=largest_category(after),
    )


def largest_category(profile: Profile) -> Category | None:
    """Where most time goes; None where no operator took any."""
    category = max(profile.category_ns, key=profile.category_ns.__getitem__)
    return category if profile.category_ns[category] else None


def _changes(
    before: Mapping[Key, float], after: Mapping[Key, float], word: Callable[[Key], str]
) -> tuple[Change, ...]:
    return tuple(
        Change(word(key), before.get(key, 0.0), after.get(key, 0.0))
        for key in dict.fromkeys([*before, *after])
    )


def match_operators(before: Operators, after: Operators) -> tuple[OperatorChange, ...]:
    """Pair the operators of two programs, of which one may be the other in another data type."""
    pairs = align([_traits(member) for member in before], [_traits(member) for member in after])
    return tuple(
        OperatorChange(
            None if old is None else before[old],
            None if new is None else after[new],
        )
        for old, new in pairs
    )


def _traits(member: OperatorProfile) -> Traits:
    operator, origin = member.operator, member.origin
    return Traits(
        canonical_name(operator),
        operator.operation,
        str(member.shapes or ""),
        member.module,
        *(("", 0) if origin is None else (origin.file, origin.line)),
    )


class Traits(NamedTuple):
    """By what an operator is known again in another program, and what each of it weighs."""

    name: str
    """Modulo SME2."""
    operation: str
    """Only operators of one operation are the same, whatever else is alike."""
    shapes: str = ""
    module: str = ""
    file: str = ""
    """With the function, where it is known."""
    line: int = 0


# The same name and module say more than the same line, which moves with what is written above it.
_WEIGHTS = (4, 4, 3, 4, 2, 1)


def align(old: Sequence[Traits], new: Sequence[Traits]) -> list[tuple[int | None, int | None]]:
    """Pairs of places in both programs, in order; None where an operator is in one alone.

    Of all ways to lay one beside the other, that in which most is alike. What is removed stands
    where it stood, before what was added there.
    """
    head = _equal(zip(old, new, strict=False))
    tail = _equal(zip(reversed(old[head:]), reversed(new[head:]), strict=False))
    ends = len(old) - tail, len(new) - tail
    inside = _aligned(old[head : ends[0]], new[head : ends[1]])
    return [
        *((place, place) for place in range(head)),
        *((_moved(a, head), _moved(b, head)) for a, b in inside),
        *((ends[0] + place, ends[1] + place) for place in range(tail)),
    ]


def _equal(pairs: Iterable[tuple[Traits, Traits]]) -> int:
    """How many pairs from the start are of equal operators."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _moved(place: int | None, by: int) -> int | None:
    return None if place is None else place + by


def _aligned(old: Sequence[Traits], new: Sequence[Traits]) -> list[tuple[int | None, int | None]]:
    """Row by row of the table of all pairs, as texts are aligned."""
    codes: dict[object, int] = {}
    numbers = [
        np.array(
            [[codes.setdefault(value, len(codes)) for value in each] for each in side],
            dtype=np.int32,
        ).reshape(len(side), len(_WEIGHTS))
        for side in (old, new)
    ]
    # What is not known is not alike.
    unknown = [codes.get(value, -1) for value in ("", 0)]
    weights = np.array(_WEIGHTS, dtype=np.int32)
    known = ~np.isin(numbers[1], unknown)
    best = np.zeros(len(new) + 1, dtype=np.int32)
    taken = np.zeros((len(old), len(new)), dtype=np.int8)
    for row, mine in enumerate(numbers[0]):
        alike = (numbers[1] == mine) & known
        worth = np.where(alike[:, 1], alike @ weights, -1)
        paired = np.where(worth > 0, best[:-1] + worth, -1)
        found = np.maximum.accumulate(np.maximum(paired, best[1:]))
        left = np.concatenate(([0], found[:-1]))
        taken[row] = np.select([found == left, paired == found], [_ADDED, _PAIR], _REMOVED)
        best = np.concatenate(([0], found))
    return _read_back(taken)


_REMOVED, _ADDED, _PAIR = range(3)


def _read_back(taken: NDArray[np.int8]) -> list[tuple[int | None, int | None]]:
    """The way through the table, from its end."""
    found: list[tuple[int | None, int | None]] = []
    a, b = taken.shape
    while a and b:
        step = taken[a - 1, b - 1]
        a, b = a - (step != _ADDED), b - (step != _REMOVED)
        found.append((None if step == _ADDED else a, None if step == _REMOVED else b))
    found += [(None, place) for place in reversed(range(b))]
    found += [(place, None) for place in reversed(range(a))]
    return found[::-1]
