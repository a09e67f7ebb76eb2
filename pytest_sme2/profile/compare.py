"""Two profiles side by side: what got faster, what was added or removed, what the bottleneck is.

Pure. Whether a pair of runs proves anything is asked in ``coverage.py``; whether a difference is
more than noise, in ``timing/stats.py`` and ``verdict/``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from types import SimpleNamespace
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

MOST_STEPS = 20_000_000
"""Of matching two programs: a few seconds. A thousand operators of which all changed take 0.1 %."""


def compare(before: Profile, after: Profile, names: tuple[str, str] = ("off", "on")) -> Comparison:
    """Compare ``after`` with ``before``; a ratio above 1 means that ``after`` is faster."""
    largest = largest_category(after)
    rest = 0.0 if largest is None else 1.0 - after.share(after.category_ns[largest])
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
        largest_after=largest,
        amdahl=1.0 / rest if rest > 0 else None,
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
    """Pair the operators of two programs by order and by name modulo SME2.

    First by data type as well; what is left between two matches, by the operation alone, so that
    an fp16 program can be laid beside the fp32 one.
    """
    names = (canonical_name, lambda operator: operator.operation)
    return tuple(_matched(before, after, names, SimpleNamespace(left=MOST_STEPS)))


def _matched(
    before: Operators,
    after: Operators,
    names: Sequence[Callable[[Operator], str]],
    steps: SimpleNamespace,
) -> Iterator[OperatorChange]:
    """``steps.left`` is how many steps of comparing are left."""
    if not names:
        yield from (OperatorChange(profile, None) for profile in before)
        yield from (OperatorChange(None, profile) for profile in after)
        return
    name, *coarser = names
    old, new = ([name(profile.operator) for profile in side] for side in (before, after))
    here = there = 0
    for start, start_after, size in _equal_parts(old, new, steps):
        if start > here or start_after > there:
            yield from _matched(before[here:start], after[there:start_after], coarser, steps)
        here, there = start + size, start_after + size
        yield from map(OperatorChange, before[start:here], after[start_after:there])


def _equal_parts(
    old: Sequence[str], new: Sequence[str], steps: SimpleNamespace
) -> list[tuple[int, int, int]]:
    """Where each part that is in both starts, in one and the other, and its length; in order.

    Both ends first: what is the same there is most of it, and the matcher's cost grows with the
    square. Then the longest part, and the same on both sides of it, as long as there are steps
    left. After that the operators at the same place are compared.
    """
    head = _equal_items(zip(old, new, strict=False))
    most = min(len(old), len(new)) - head
    tail = min(most, _equal_items(zip(reversed(old), reversed(new), strict=False)))
    found = [(0, 0, head), (len(old) - tail, len(new) - tail, tail)]
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]
    # Without autojunk=False, names that occur often in a long program would not be matched at all.
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    often = Counter(new)
    cost = [0, *itertools.accumulate(often[name] + 1 for name in old)]
    windows = [(0, len(old), 0, len(new))]
    while windows:
        start, end, start_after, end_after = windows.pop()
        if cost[end] - cost[start] > steps.left:
            pairs = zip(range(start, end), range(start_after, end_after), strict=False)
            found += [(head + a, head + b, 1) for a, b in pairs if old[a] == new[b]]
            continue
        steps.left -= cost[end] - cost[start]
        a, b, size = matcher.find_longest_match(start, end, start_after, end_after)
        if size:
            found.append((head + a, head + b, size))
            windows += [(a + size, end, b + size, end_after), (start, a, start_after, b)]
    return sorted(found)


def _equal_items(pairs: Iterable[tuple[str, str]]) -> int:
    """How many pairs from the start are of equal items."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
