"""Two profiles side by side: what got faster, what was added or removed, what the bottleneck is.

Pure. Whether a pair of runs proves anything is asked in ``evidence.py``; whether a difference is
more than noise, in ``timing/stats.py`` and ``verdict/``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TypeVar

from pytest_sme2.profile.categories import canonical_name
from pytest_sme2.results import (
    Category,
    Change,
    Comparison,
    Operator,
    OperatorChange,
    OperatorProfile,
    Profile,
)

Operators = Sequence[OperatorProfile]
Key = TypeVar("Key")


def compare(before: Profile, after: Profile, names: tuple[str, str] = ("off", "on")) -> Comparison:
    """Compare ``after`` with ``before``; a ratio above 1 means that ``after`` is faster."""
    largest_after = largest_category(after)
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
        largest_after=largest_after,
        amdahl=_amdahl(after, largest_after),
    )


def largest_category(profile: Profile) -> Category | None:
    """Where most time goes; None where no operator took any."""
    category = max(profile.category_ns, key=lambda key: profile.category_ns[key], default=None)
    return category if category is not None and profile.category_ns[category] else None


def _amdahl(profile: Profile, largest: Category | None) -> float | None:
    """How many times faster the program were if its largest category took no time."""
    if largest is None:
        return None
    rest = 1.0 - profile.share(profile.category_ns[largest])
    return 1.0 / rest if rest > 0 else None


def _changes(
    before: Mapping[Key, float], after: Mapping[Key, float], word: Callable[[Key], str]
) -> tuple[Change, ...]:
    return tuple(
        Change(word(key), before.get(key, 0.0), after.get(key, 0.0))
        for key in dict.fromkeys([*before, *after])
    )


def match_operators(before: Operators, after: Operators) -> tuple[OperatorChange, ...]:
    """Pair the operators of two programs by order and by name modulo SME2.

    First by data type as well; what is left between two matches, by the operation alone, so that
    an fp16 program can be laid beside the fp32 one.
    """
    return tuple(_matched(before, after, (canonical_name, lambda operator: operator.operation)))


def _matched(
    before: Operators, after: Operators, names: Sequence[Callable[[Operator], str]]
) -> Iterator[OperatorChange]:
    if not names:
        yield from (OperatorChange(profile, None) for profile in before)
        yield from (OperatorChange(None, profile) for profile in after)
        return
    name, *coarser = names
    old = [name(profile.operator) for profile in before]
    new = [name(profile.operator) for profile in after]
    head = _equal_items(zip(old, new, strict=False))
    most = min(len(old), len(new)) - head
    tail = min(most, _equal_items(zip(reversed(old), reversed(new), strict=False)))
    yield from map(OperatorChange, before[:head], after[:head])
    # What is the same at both ends is most of it, and the matcher's cost grows with the square.
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]
    # Without autojunk=False, names that occur often in a long program would not be matched at all.
    for tag, start, end, start_after, end_after in SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        these = before[head + start : head + end]
        those = after[head + start_after : head + end_after]
        if tag == "equal":
            yield from map(OperatorChange, these, those)
        else:
            yield from _matched(these, those, coarser)
    yield from map(OperatorChange, before[len(before) - tail :], after[len(after) - tail :])


def _equal_items(pairs: Iterable[tuple[str, str]]) -> int:
    """How many pairs from the start are of equal items."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
