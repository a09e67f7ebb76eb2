"""Executed instructions against the baseline's: exact, so the least growth counts. And
what makes two programs differ, operator by operator, and what of it is the cause. Pure.

Each operator is the same, changed, added or removed. What these come to, with what is executed
outside of operators, is the whole difference, to the instruction.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pytest_sme2.profile.categories import canonical_name, classify
from pytest_sme2.profile.compare import Traits, align
from pytest_sme2.profile.cost import stored
from pytest_sme2.profile.matching import place_text, read_place, source_text
from pytest_sme2.results.case import Baseline, CaseResult, Check, Limits
from pytest_sme2.results.evidence import InferenceCost, StoredCost, StoredOperator
from pytest_sme2.results.profile import Executor, Profile
from pytest_sme2.results.run import Arm, ChangedLines, Origin
from pytest_sme2.results.timing import Outcome
from pytest_sme2.system.wording import as_given, count, some_of
from pytest_sme2.verdict.judging import CREATE_HINT, UPDATE_HINT

# A growth of less than this part of the total is not worth a verdict of its own.
_LEAST_GROWTH = 1e-4
# malloc takes another way through the heap where earlier allocations differ, as they do in another
# version of the runner. Of an operator for which the C library executes little, up to 200
# instructions more were seen; 886 where it executes 5,066, for eight products that allocate each.
_HEAP, _HEAP_PART, _MOST_HEAP = 500, 0.2, 1000
_BASELINE = "the baseline"


def check_cost(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm = Arm.ON
) -> Check:
    """The total, every category and every operator against the baseline."""
    metric = f"cost ({arm})"
    cost = measured.costs.get(arm)
    if cost is None:
        reason = measured.uncounted or "the arm did not run"
        return Check(metric, Outcome.INVALID, f"It was not counted: {reason}.")
    now = stored(cost, measured.profiles.get(arm))
    new = now.total.instructions
    before = None if baseline is None else baseline.costs.get(arm)
    if before is not None and before.cpu == now.cpu:
        profile = measured.profiles.get(arm)
        return _judged(metric, before, now, limits.max_cost_growth, _BASELINE, profile)
    text = f"{new:,} instructions; there is no baseline. {CREATE_HINT}"
    if before is not None:
        text = (
            f"{new:,} instructions on the CPU {now.cpu}; the baseline was counted on {before.cpu}, "
            "so the two are not compared."
        )
    return Check(metric, Outcome.NO_BASELINE, text, new=new, unit="count")


def compare_costs(
    metric: str,
    old: InferenceCost | str,
    new: InferenceCost | str,
    limits: Limits,
    name: str,
    profiles: Sequence[Profile | None] = (None, None),
) -> Check:
    """The same for two versions that were counted in one run; a text says why one was not."""
    if isinstance(old, str):
        return Check(metric, Outcome.INVALID, f"{name} was not counted: {old}.")
    if isinstance(new, str):
        return Check(metric, Outcome.INVALID, f"It was not counted: {new}.")
    before, now = map(stored, (old, new), profiles)
    return _judged(metric, before, now, limits.max_cost_growth, name, profiles[1])


def _judged(
    metric: str,
    before: StoredCost,
    now: StoredCost,
    limit: float,
    name: str,
    profile: Profile | None,
) -> Check:
    note = ""
    if before.toolchain not in ("", now.toolchain):
        before, now = _without_system(before), _without_system(now)
        left_out = "so their instructions are left out"
        note = f" The C and C++ libraries are not those of {name}, {left_out}."
    old, new = before.total.instructions, now.total.instructions
    adjusted = _with_heap_of(before, now)
    judged = adjusted.total.instructions
    change = f"the same as in {name}" if old == new else f"{name} has {old:,}"
    if old and old != new:
        change += f" ({new / old - 1:+.2%})"
    message = (
        f"{new:,} instructions per inference; {change}; {as_given(limit)}% more is allowed.{note}"
    )
    verdict, beyond = Outcome.PASS, judged > old * (1 + limit)
    # Report work that moved to another operator. Less work in total is not a regression.
    if beyond or (judged >= old and _grew(before, adjusted, limit)):
        verdict = Outcome.REGRESSED
        if name == _BASELINE:
            message += f" {UPDATE_HINT}"
    elif judged * (1 + limit) < old:
        verdict = Outcome.IMPROVED
    check = Check(metric, verdict, message, old, new, "count", None, old * (1 + limit))
    if verdict is Outcome.PASS:
        return check
    found = difference(before.operators, now.operators, profile, now.runtime - before.runtime)
    cause = found.cause()
    return replace(check, details=found.lines(), cause=cause.what, where=cause.where)


def steady_costs(old: Mapping[Arm, StoredCost], measured: CaseResult) -> dict[Arm, StoredCost]:
    """The new costs as they are stored; the old one where the state of the heap is all the
    difference, so that an update of the same thing changes no line.
    """
    costs = dict(old)
    for arm, cost in measured.costs.items():
        now = stored(cost, measured.profiles.get(arm))
        before = costs.get(arm, now)
        adjusted = _with_heap_of(before, now)
        costs[arm] = before if replace(adjusted, system=before.system) == before else now
    return costs


def _with_heap_of(before: StoredCost, now: StoredCost) -> StoredCost:
    """``now``, but where the C library's part of an operator differs by so little that the state of
    the heap explains it, with the part that ``before`` has.
    """
    if not _same_operators(before, now):
        return now
    shifts = [
        new - old if abs(new - old) <= min(max(_HEAP, _HEAP_PART * old), _MOST_HEAP) else 0
        for old, new in zip(_system_parts(before), _system_parts(now), strict=True)
    ]
    return _less(now, shifts)


def _without_system(cost: StoredCost) -> StoredCost:
    """What came with ExecuTorch alone: it is the same code wherever a runner was built."""
    return _less(cost, _system_parts(cost))


def _system_parts(cost: StoredCost) -> list[int]:
    """The C library's part of each operator, and outside of them."""
    parts = [entry.system for entry in cost.operators]
    return [*parts, cost.system - sum(parts)]


def _less(cost: StoredCost, parts: Sequence[int]) -> StoredCost:
    """Without so many instructions of the C library in each operator, and outside of them."""
    operators = tuple(
        replace(entry, instructions=entry.instructions - part, system=entry.system - part)
        for entry, part in zip(cost.operators, parts[:-1], strict=True)
    )
    total = replace(cost.total, instructions=cost.total.instructions - sum(parts))
    system, runtime = cost.system - sum(parts), cost.runtime - parts[-1]
    return replace(cost, total=total, operators=operators, system=system, runtime=runtime)


def _same_operators(before: StoredCost, now: StoredCost) -> bool:
    return [entry.name for entry in before.operators] == [entry.name for entry in now.operators]


def _grew(before: StoredCost, now: StoredCost, limit: float) -> bool:
    """Whether a category did, or an operator; those of one name together if the programs differ."""
    # The category that an operator has today: another rule, or a newer version of this package,
    # may have moved it, which makes nothing slower.
    today = {entry.name: entry.category for entry in now.operators}
    same = _same_operators(before, now)
    sums: list[Counter[object]] = []
    for cost in (before, now):
        found: Counter[object] = Counter()
        for place, entry in enumerate(cost.operators):
            found[today.get(entry.name, entry.category)] += entry.instructions
            found[place if same else f"operator {entry.name}"] += entry.instructions
        sums.append(found)
    least = max(1.0, _LEAST_GROWTH * before.total.instructions)
    growths = ((new - sums[0][key], sums[0][key]) for key, new in sums[1].items())
    return any(by >= least and by > limit * old for by, old in growths)


MOST_NAMED = 5
"""Groups of operators that have a line of their own."""
MOST_LINES = 3
"""That changed, and are named."""
MAIN = 0.5
"""Of the difference: what makes so much of it is its cause."""
EVERYWHERE = 0.75
"""Of the operators: if so many grew, none of them is the cause."""
NOTABLE = 0.01
"""Of what an operator cost, or of the difference: what grew by less did not change."""


@dataclass(frozen=True)
class OperatorPair:
    """One operator on both sides, or on the one where it is."""

    old: StoredOperator | None
    new: StoredOperator | None
    origin: Origin = field(default_factory=lambda: Origin(""))
    """Of the new one; of the old one as far as the baseline has kept it."""

    @property
    def by(self) -> int:
        return _amount(self.new) - _amount(self.old)

    @property
    def left(self) -> bool:
        """Whether it left the delegate."""
        return bool(self.old and self.new) and _is_portable(self.new) > _is_portable(self.old)

    @property
    def stayed(self) -> bool:
        """Whether both sides have it, and it did not leave the delegate."""
        return None not in (self.old, self.new) and not self.left

    @property
    def shapes(self) -> tuple[str, ...]:
        """The shapes of both sides where they are known and differ."""
        shapes = [side.shapes for side in (self.old, self.new) if side and side.shapes]
        return tuple(shapes) if len({*shapes}) == 2 else ()

    def _inputs(self) -> list[str]:
        """The shapes without the output, unless that alone differs."""
        inputs = [shapes.rpartition(" to ")[0] for shapes in self.shapes]
        return inputs if inputs[0] != inputs[1] else [*self.shapes]

    def resized(self, sign: int) -> bool:
        """Whether its tensors are larger; with -1, smaller."""
        sizes = [sum(map(_volume, shapes.split())) for shapes in self.shapes]
        return bool(sizes) and sign * (sizes[1] - sizes[0]) > 0

    @property
    def how(self) -> str:
        """``added``, ``removed``, ``left the delegate``, or in which way it changed."""
        old, new = self.old, self.new
        if old is None or new is None:
            return "added" if old is None else "removed"
        if self.left:
            return "left the delegate"
        names = [canonical_name(classify(each.name)) for each in (old, new)]
        if self.shapes:
            return f"changed: {' → '.join(self._inputs())}"
        if names[0] != names[1]:
            return f"changed its data type (was {old.name})"
        if old.name != new.name or _kernel(old) != _kernel(new) != "":
            return f"changed its kernel (was {_kernel(old) or old.name})"
        return "grew" if self.by > 0 else "shrank" if self.by < 0 else ""

    @property
    def name(self) -> str:
        side = self.new or self.old
        return "" if side is None else operation_of(side.name)


def _amount(operator: StoredOperator | None) -> int:
    return 0 if operator is None else operator.instructions


def _kernel(operator: StoredOperator) -> str:
    """Older files name a place in a library where the kernel has no name."""
    return "" if re.search(r"\.(so|dylib)\b", operator.kernel) else operator.kernel


def _is_portable(operator: StoredOperator | None) -> bool:
    return operator is not None and classify(operator.name).executor is Executor.PORTABLE


def operation_of(name: str) -> str:
    """What it does, in words. XNNPACK calls an int8 operator that looks its results up invalid."""
    return "Unary Operator" if name == "Invalid Unary Op" else classify(name).operation


class Cause(NamedTuple):
    """Why a program costs more, or less, and where the model has it."""

    what: str = ""
    where: str = ""
    origin: Origin = Origin("")
    gone: bool = False
    """Whether the place is one of the old program."""

    def among(self, changed: Sequence[ChangedLines]) -> str:
        """The place, as sure as it is among the lines that ``changed``; else these beside it."""
        origin = self.origin
        if not self.where or not changed:
            return self.where
        places = [(origin.file, origin.line), *((at.file, at.line) for at in origin.way)]
        sure = any(
            each.holds(*place, old=self.gone) for each in changed for place in places if place[0]
        )
        if sure:
            return self.where.replace("near ", "", 1) if origin.near else self.where
        lines = [f"{each.file.name}:{_line_text(new)}" for each in changed for _, new in each.edits]
        return f"changed: {some_of(lines, MOST_LINES)}; the cost is {self.where}"


def _line_text(lines: range) -> str:
    """``31``, ``31-34``; where lines are gone, the one that is there now."""
    first, last = lines.start, max(lines.start, lines.stop - 1)
    return str(first) if first == last else f"{first}-{last}"


@dataclass(frozen=True)
class Difference:
    """All of it; the parts in the order of the program."""

    parts: tuple[OperatorPair, ...]
    rest: int = 0
    """What changed outside of operators."""

    @property
    def by(self) -> int:
        return self.rest + sum(part.by for part in self.parts)

    def lines(self) -> tuple[str, ...]:
        """The largest parts, and what is left; together the whole difference."""
        groups = _groups(
            [part for part in self.parts if part.by],
            lambda part: (part.how[:7], part.name, *_place(part)),
        )
        groups.sort(key=lambda group: -abs(_sum(group)))
        named, others = groups[:MOST_NAMED], groups[MOST_NAMED:]
        lines = [f"{_sum(group):+,}: {_said(group)}" for group in named]
        if others:
            number = sum(map(len, others))
            lines.append(f"{sum(map(_sum, others)):+,}: {count(number, 'other operator')}")
        if self.rest:
            lines.append(f"{self.rest:+,}: outside of operators")
        return tuple(lines)

    def cause(self) -> Cause:
        """The largest that is explained by one thing; see the comments for the order."""
        total = self.by
        counted = any(_amount(side) for part in self.parts for side in (part.old, part.new))
        sign = -1 if total < 0 else 1

        def worth(part: OperatorPair) -> float:
            return sign * part.by if counted else part.old is None or part.left

        def main(parts: Iterable[OperatorPair]) -> bool:
            found = sum(map(worth, parts))
            return found > 0 and found >= MAIN * abs(total)

        pairs = [part for part in self.parts if part.stayed]
        sides = [(part, part.new if sign > 0 else part.old) for part in self.parts]
        new = [part for part, side in sides if side and not part.stayed]
        grown = [part for part in pairs if part.resized(sign) or _notable(part, worth(part))]
        # What is new; a program of which all grew has nothing new.
        if main(new):
            return _named(_largest(new, worth), new, worth)
        # Not all have shapes that are known, and those of conversions cost nearly nothing.
        sized = [part for part in pairs if part.new and part.new.shapes]
        most = any(
            len(found) >= max(3, EVERYWHERE * len(all_))
            for found, all_ in ((grown, pairs), ([p for p in sized if p.resized(sign)], sized))
        )
        if most and main(grown):
            every = "all" if len(grown) == len(pairs) else f"{len(grown)} of"
            what = f"{every} {count(len(pairs), 'operator')} {'grew' if sign > 0 else 'shrank'}"
            origin = next((part.origin for part in grown if source_text(part.origin)), Origin(""))
            return Cause(f"{what}{_sizes(grown)}", _from(origin), origin)
        if not grown:
            return Cause()
        group = _largest(grown, worth)
        if main(group):
            return _named(group, group, worth)
        largest = max(grown, key=worth)
        part = worth(largest) / max(1, abs(total))
        what = f"spread over {count(len(grown), 'operator')}, the largest {100 * part:.0f} %"
        return Cause(what, source_text(largest.origin), largest.origin)


def difference(
    old: Sequence[StoredOperator],
    new: Sequence[StoredOperator],
    profile: Profile | None = None,
    rest: int = 0,
) -> Difference:
    """``profile`` is of the new side, and tells more of its places than is stored."""
    origins = [] if profile is None else [member.origin for member in profile.operators]
    if len(origins) != len(new):
        origins = [None] * len(new)

    def part(a: int | None, b: int | None) -> OperatorPair:
        before, after = None if a is None else old[a], None if b is None else new[b]
        known = None if b is None else origins[b]
        side = after or before
        return OperatorPair(before, after, known or read_place(side.place if side else ""))

    pairs = align([_traits(each) for each in old], [_traits(each) for each in new])
    parts = [part(a, b) for a, b in _rejoined(pairs, old, new)]
    return Difference(tuple(parts), rest)


def _traits(stored: StoredOperator) -> Traits:
    operator, origin = classify(stored.name), read_place(stored.place)
    file = " ".join([origin.file, *(frame.function for frame in origin.way)]).strip()
    name = canonical_name(operator)
    return Traits(name, operator.operation, stored.shapes, origin.module, file, origin.line)


Places = tuple[int | None, int | None]


def _rejoined(
    pairs: Sequence[Places], old: Sequence[StoredOperator], new: Sequence[StoredOperator]
) -> Iterator[Places]:
    """What is gone in one place and has come in another as one, which no alignment says: it moved,
    or, within one gap, it left the delegate.
    """
    gaps = [*itertools.accumulate(None not in pair for pair in pairs)]
    gone = {a: gap for (a, b), gap in zip(pairs, gaps, strict=True) if a is not None and b is None}
    come = {b: gap for (a, b), gap in zip(pairs, gaps, strict=True) if b is not None and a is None}
    by_traits: dict[Traits, list[int]] = {}
    for a in gone:
        by_traits.setdefault(_traits(old[a])._replace(line=0), []).append(a)
    taken: dict[int, int] = {}
    for b in come:
        if same := by_traits.get(_traits(new[b])._replace(line=0)):
            taken[b] = same.pop(0)
    for b in sorted(come.keys() - taken):
        near = (one for one, gap in gone.items() if gap == come[b] and one not in taken.values())
        if (found := next((one for one in near if _left(old[one], new[b])), None)) is not None:
            taken[b] = found
    again = {*taken.values()}
    for place, now in pairs:
        if now is not None or place not in again:
            yield (place if now is None else taken.get(now, place)), now


def _left(old: StoredOperator, new: StoredOperator) -> bool:
    """Whether it does the same, outside of the delegate."""
    same = classify(old.name).kind == classify(new.name).kind
    return same and _is_portable(new) and not _is_portable(old)


def _groups(
    parts: Iterable[OperatorPair], key: Callable[[OperatorPair], object]
) -> list[list[OperatorPair]]:
    found: dict[object, list[OperatorPair]] = {}
    for part in parts:
        found.setdefault(key(part), []).append(part)
    return [*found.values()]


def _place(part: OperatorPair) -> tuple[object, ...]:
    """Operators of one line belong together, whichever module runs it."""
    origin = part.origin
    return (origin.file, origin.line) if origin.file else ("", origin.module)


def _sum(group: Iterable[OperatorPair]) -> int:
    return sum(part.by for part in group)


def _largest(
    parts: Iterable[OperatorPair], worth: Callable[[OperatorPair], float]
) -> list[OperatorPair]:
    """Those of one line that are worth most."""
    return max(_groups(parts, _place), key=lambda group: sum(map(worth, group)))


def _named(
    group: Sequence[OperatorPair],
    parts: Sequence[OperatorPair],
    worth: Callable[[OperatorPair], float],
) -> Cause:
    """``48 operators added``, and the line of most of it."""
    known = [part for part in group if source_text(part.origin) and not part.origin.near]
    origin = max(known or group, key=worth).origin
    if len(parts) == 1 or len({(part.name, part.how) for part in parts}) == 1:
        what = f"{_counted(parts)} {parts[0].how}"
    else:
        hows = _groups(parts, lambda part: "grew" if part.how.startswith("changed") else part.how)
        what = " and ".join(f"{count(len(each), 'operator')} {_plain(each)}" for each in hows)
    gone = all(part.new is None for part in group if part.origin is origin)
    return Cause(what, source_text(origin), origin, gone)


def _plain(group: Sequence[OperatorPair]) -> str:
    how = group[0].how
    return how if not how.startswith("changed") else "grew" if _sum(group) > 0 else "shrank"


def _counted(group: Sequence[OperatorPair]) -> str:
    return f"{len(group)} " * (len(group) > 1) + group[0].name


def _said(group: Sequence[OperatorPair]) -> str:
    """``2 Transpose added at net/model.py:17 in stem``."""
    origin = group[0].origin
    place = place_text(replace(origin, way=(), near=False))
    at = "near" if origin.near else "" if place.startswith("in ") else "at"
    return " ".join(filter(None, (_counted(group), group[0].how, at * bool(place), place)))


def _from(origin: Origin) -> str:
    text = source_text(origin)
    return f"from {text} on" if text else ""


def _sizes(grown: Sequence[OperatorPair]) -> str:
    """What became larger in the first operator that tells: its input, or its channels."""
    for part in grown:
        sides = [shapes.split(" ") for shapes in part.shapes]
        if sides and sides[0][0] != sides[1][0]:
            return f": {sides[0][0]} → {sides[1][0]}"
        if sides:
            return ": {} → {} channels".format(*(side[-1].rpartition("x")[2] for side in sides))
    return ""


def _notable(part: OperatorPair, worth: float) -> bool:
    return worth > NOTABLE * max(1, _amount(part.old))


def _volume(shape: str) -> int:
    """``1x3x64x64``; 0 of a word between shapes."""
    sizes = shape.split("x")
    return math.prod(map(int, sizes)) if all(map(str.isdecimal, sizes)) else 0
