"""Evidence, coverage, operators, delegation, kernels: exact, and the same on any machine.

And what explains a slowdown: first what the program has more of, then what takes longer. A time is
named only if it is significant: an innocent operator in a failure message costs more than a missing
one.
"""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from pytest_sme2.profile.cost import stored, stored_operator
from pytest_sme2.profile.matching import source_text
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results.case import (
    RUNTIME,
    Baseline,
    CaseResult,
    Check,
    Limits,
    OperatorCount,
    Structure,
)
from pytest_sme2.results.evidence import KernelFamily
from pytest_sme2.results.profile import Change, Executor, OperatorProfile, Profile
from pytest_sme2.results.run import Arm, ChangedLines
from pytest_sme2.results.timing import Outcome
from pytest_sme2.system.wording import as_given, count
from pytest_sme2.verdict.cost import Cause, difference
from pytest_sme2.verdict.judging import CREATE_HINT, FAILING, UPDATE_HINT, reference_of


def check_evidence(measured: CaseResult) -> Check:
    """Whether the pair shows what it claims to: SME2 kernels on, none off."""
    evidence = measured.evidence
    if evidence is None:
        message = (
            f"Only the off arm ran: {measured.fingerprint.target} has no SME2, so nothing is shown "
            "about it. Choose a device that has it, or --device=emulated."
        )
        return Check("evidence", Outcome.INVALID, message)
    verdict = Outcome.PASS if evidence.valid else Outcome.INVALID
    return Check("evidence", verdict, evidence.message, new=evidence.sme2_on, unit="count")


def _structure(baseline: Baseline | None, arm: Arm) -> Structure | None:
    return None if baseline is None else baseline.structures.get(arm)


def _unknown(metric: str, new: float) -> Check:
    return Check(metric, Outcome.NO_BASELINE, f"No baseline. {CREATE_HINT}", new=new, unit="count")


def _versions_note(measured: CaseResult, baseline: Baseline | None) -> str:
    """A changed ExecuTorch explains most changes of structure: say so before anybody searches."""
    then, now = {} if baseline is None else baseline.versions, measured.versions
    return "".join(
        f" The baseline was made with {package} {then[package]}, this is with {now[package]}."
        for package in ("executorch", RUNTIME)
        if package in then and package in now and then[package] != now[package]
    )


def check_coverage(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm = Arm.ON
) -> Check:
    """How many matrix operators ran on SME2 kernels: against the least asked for, then exactly.

    A target that knows no kernels leaves some operators unproven. They may be on SME2, so they are
    not a regression against a baseline of a target that does know.
    """
    metric = "SME2 coverage" if arm is Arm.ON else f"coverage ({arm})"
    word = "SME1" if arm is Arm.SME1 or measured.fingerprint.sme1 else "SME2"
    structure = measured.structures[arm]
    new = structure.coverage
    least = limits.min_coverage if arm is Arm.ON else None
    before = _structure(baseline, arm)
    old = None if before is None else before.coverage
    if new is None and before is not None and old is not None:
        message = (
            f"The program has no matrix operators any more; in the baseline {before.sme2} of "
            f"{before.matrix} ran on {word} kernels. {UPDATE_HINT}"
        )
        return Check(metric, Outcome.REGRESSED, message, old, unit="share", limit=old)
    if new is None:
        return Check(metric, Outcome.PASS, "The program has no matrix operators.", unit="share")
    profile = measured.profiles.get(arm)
    details = tuple(
        f"{entry.label}{'' if entry.shapes is None else f' ({entry.shapes})'}: {reason}"
        for entry, reason in (() if profile is None else profile.coverage.missed)
    )
    text = f"{structure.sme2} of {count(structure.matrix, 'matrix operator')} ran on {word} kernels"
    if least is not None and structure.sme2 < least * structure.matrix:
        fallen = Outcome.FAILED if old is None else Outcome.REGRESSED
        text += f", less than the {as_given(least)}% asked for."
        return Check(metric, fallen, text, old, new, "share", None, least, details)
    if structure.unproven:
        text += f", {structure.unproven} may (their name does not tell)"
    if before is None or old is None:
        verdict = Outcome.NO_BASELINE if least is None else Outcome.PASS
        hint = f" There is no baseline. {CREATE_HINT}" if least is None else ""
        return Check(metric, verdict, f"{text}.{hint}", None, new, "share", None, least, details)
    message = f"{text}; in the baseline {before.sme2} of {before.matrix}."
    # One more operator on SME2 raises the share, and improves nothing.
    missed = [each.matrix - each.sme2 for each in (before, structure)]
    verdict = Outcome.IMPROVED if new > old and missed[1] < missed[0] else Outcome.PASS
    if new < old and structure.sme2 + structure.unproven >= old * structure.matrix:
        verdict = Outcome.NOT_MEASURED
        message += " This device does not tell which kernels ran; --device=emulated does."
    elif new < old:
        verdict = Outcome.REGRESSED
        message += f"{_versions_note(measured, baseline)} {UPDATE_HINT}"
    return Check(metric, verdict, message, old, new, "share", None, old, details)


def operator_differences(old: Structure, new: Structure) -> tuple[tuple[OperatorCount, int], ...]:
    """Each operator whose count changed, and by how many; grown ones first."""
    growths: Counter[tuple[str, Executor]] = Counter()
    entries = {}
    for structure, sign in ((old, -1), (new, 1)):
        for entry in structure.operators:
            key = entry.name, entry.executor
            growths[key] += sign * entry.count
            entries[key] = entry
    found = ((entries[key], growth) for key, growth in growths.items() if growth)
    return tuple(sorted(found, key=lambda item: (-item[1], item[0].name)))


def check_operators(measured: CaseResult, baseline: Baseline | None, arm: Arm = Arm.ON) -> Check:
    """The operators of the program, exactly: which were added, which are gone."""
    metric, old, new = f"operators ({arm})", _structure(baseline, arm), measured.structures[arm]
    if old is None:
        return _unknown(metric, new.total)
    differences = operator_differences(old, new)
    if not differences:
        message = f"The same {count(new.total, 'operator')} as in the baseline."
        return Check(metric, Outcome.PASS, message, old.total, new.total, "count")
    added = sum(growth for _, growth in differences if growth > 0)
    removed = -sum(growth for _, growth in differences if growth < 0)
    verdict = _structural_verdict(differences)
    hint = UPDATE_HINT if verdict is Outcome.REGRESSED else "Keep it with --update-baselines."
    message = (
        f"{count(added, 'operator')} more and {count(removed, 'operator')} fewer than in the "
        f"baseline.{_versions_note(measured, baseline)} {hint}"
    )
    details = difference_lines(old, new)
    return Check(metric, verdict, message, old.total, new.total, "count", None, old.total, details)


def _structural_verdict(differences: Sequence[tuple[OperatorCount, int]]) -> Outcome:
    """Better only if nothing was added, or if all that was added is matrix work on SME2 kernels
    that took the place of as much matrix work elsewhere.
    """
    grown = [(entry, growth) for entry, growth in differences if growth > 0]
    gone = [(entry, -growth) for entry, growth in differences if growth < 0]
    to_sme2 = all(operator.matrix and operator.sme2 for operator, _ in grown)
    from_others = sum(count for operator, count in gone if operator.matrix and not operator.sme2)
    lost = any(operator.sme2 for operator, _ in gone)
    moved = to_sme2 and not lost and sum(count for _, count in grown) <= from_others
    return Outcome.IMPROVED if moved or not grown else Outcome.REGRESSED


def difference_lines(old: Structure, new: Structure) -> tuple[str, ...]:
    """The operators that were added or removed, one line each; additions first."""
    return tuple(_difference_line(*difference) for difference in operator_differences(old, new))


def _difference_line(entry: OperatorCount, growth: int) -> str:
    return f"{growth:+d} {entry.name} ({entry.category}, {entry.kind}, {entry.executor})"


def check_delegation(measured: CaseResult, baseline: Baseline | None, arm: Arm = Arm.ON) -> Check:
    """How many operators run outside the delegate, exactly, naming those that fell out of it."""
    metric, old, new = (
        f"portable operators ({arm})",
        _structure(baseline, arm),
        measured.structures[arm],
    )
    portable = new.executed_by(Executor.PORTABLE)
    if old is None:
        return _unknown(metric, portable)
    before = old.executed_by(Executor.PORTABLE)
    details = tuple(
        _difference_line(entry, growth)
        for entry, growth in operator_differences(old, new)
        if entry.executor is Executor.PORTABLE
    )
    verdict = Outcome.IMPROVED if portable < before else Outcome.PASS
    message = f"{count(portable, 'operator')} outside the delegate, {before} in the baseline."
    if portable > before or (portable == before and details):
        verdict = Outcome.REGRESSED
        message += f"{_versions_note(measured, baseline)} {UPDATE_HINT}"
    return Check(metric, verdict, message, before, portable, "count", None, before, details)


def check_kernels(measured: CaseResult, baseline: Baseline | None, arm: Arm = Arm.ON) -> Check:
    """The kernels that ran, exactly by name. Only censuses of one source can be compared."""
    metric = f"kernels ({arm})"
    new = measured.kernels[arm]
    old = None if baseline is None else baseline.kernels.get(arm)
    names = {kernel.name: kernel.family for kernel in new.kernels}
    if old is None:
        return _unknown(metric, len(names))
    if old.source != new.source:
        message = (
            f"The baseline's kernels come from {old.source}, these from {new.source}; "
            "the two cannot be compared."
        )
        return Check(metric, Outcome.NO_BASELINE, message, new=len(names), unit="count")
    before = {kernel.name: kernel.family for kernel in old.kernels}
    added, removed = sorted({*names} - {*before}), sorted({*before} - {*names})
    details = (
        *(f"+ {name} ({names[name]})" for name in added),
        *(f"- {name} ({before[name]})" for name in removed),
    )
    verdict = Outcome.PASS
    message = f"The same {count(len(names), 'kernel')} as in the baseline."
    if details:
        gained = all(names[name] is KernelFamily.SME2 for name in added)
        lost = any(before[name] is KernelFamily.SME2 for name in removed)
        verdict = Outcome.IMPROVED if added and gained and not lost else Outcome.REGRESSED
        message = (
            f"{count(len(added), 'kernel')} ran that did not run in the baseline, {len(removed)} "
            f"ran there alone.{_versions_note(measured, baseline)} {UPDATE_HINT}"
        )
    return Check(
        metric, verdict, message, len(before), len(names), "count", None, len(before), details
    )


TRACED_PAIRS = 8
"""Traced processes of each side. That each of one side takes longer than each of the other happens
by chance in 1 of 12,870; that each takes longer than its partner, in 1 of 256. A program has dozens
of operators, so the latter would often name an innocent one."""
LEAST_PART = 0.10
"""Of the largest growth; what grew less is not named. More work leaves less of the caches to all
else and makes for more overhead: true, but not the cause."""
OVERHEAD = "overhead"


@dataclass(frozen=True)
class Growth:
    """What a program has more of than another one, and what took longer."""

    since: str
    """The name of the other side."""
    end_to_end: Change
    structure: tuple[str, ...] = ()
    """The operators that were added or removed, one line each."""
    operators: tuple[Change, ...] = ()
    """Those that took significantly longer, and what is outside of them."""


def growth_of(pairs: Sequence[tuple[Profile, Profile]], since: str) -> Growth:
    """What grew between two sides that were traced in interleaved pairs."""
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    medians = (statistics.median(each.end_to_end.median for each in side) for side in sides)
    return Growth(
        since,
        Change("end to end", *medians),
        difference_lines(*(structure_of(side[0]) for side in sides)),
        _grown(pairs),
    )


def _times(profile: Profile) -> dict[str, float]:
    """The time of each operator name, its occurrences added up, and of what is outside of them."""
    times = {OVERHEAD: profile.overhead_ns}
    for entry in profile.operators:
        times[entry.operator.name] = times.get(entry.operator.name, 0.0) + entry.time_ns
    return times


def _grown(pairs: Sequence[tuple[Profile, Profile]]) -> tuple[Change, ...]:
    """What took longer in each process of the new side than in each of the old, where there are
    enough processes to tell; without what is small beside the largest of it.
    """
    if len(pairs) < TRACED_PAIRS:
        return ()
    befores, afters = ([_times(pair[side]) for pair in pairs] for side in (0, 1))
    found = []
    for name in dict.fromkeys(name for times in (*befores, *afters) for name in times):
        old, new = ([times.get(name, 0.0) for times in side] for side in (befores, afters))
        if min(new) > max(old):
            found.append(Change(name, statistics.median(old), statistics.median(new)))
    least = LEAST_PART * max((change.delta_ns for change in found), default=0.0)
    return tuple(change for change in found if change.delta_ns >= least)


# These are about the measurement, not about an operator.
_NOT_OF_AN_OPERATOR = ("evidence", "baseline")


def located(
    checks: Sequence[Check],
    measured: CaseResult,
    baseline: Baseline | None,
    growth: Growth | None,
    changed: Sequence[ChangedLines] = (),
) -> list[Check]:
    """The checks, the failed ones with what they are about and its place in the model.

    ``changed`` are the lines that did since the baseline.
    """
    # Both arms run one program, and many checks are about one arm.
    cause_on = functools.cache(lambda arm: _cause(measured, baseline, arm))

    def one(check: Check) -> Check:
        if check.verdict not in FAILING or check.metric in _NOT_OF_AN_OPERATOR:
            return check
        arm = Arm.OFF if "(off)" in check.metric else measured.arm
        profile = measured.profiles.get(arm)
        if check.cause and check.metric == f"cost ({arm})":
            return replace(check, where=cause_on(arm).among(changed))
        if profile is None or check.where:
            return check
        slower = _slower(measured, arm, growth)
        if check.metric == "SME2 coverage":
            missed = [member for member, _ in profile.coverage.missed]
            names = {change.name for change in (growth.operators if growth else ())}
            grown = [member for member in missed if member.operator.name in names]
            return replace(check, where=_costliest(measured, arm, grown or missed))
        if slower or reference_of(check.metric) is not None:
            return replace(check, where=slower)
        cause = cause_on(arm)
        return replace(check, where=cause.among(changed), cause=cause.what)

    return [one(check) for check in checks]


def _slower(measured: CaseResult, arm: Arm, growth: Growth | None) -> str:
    """The place of what took most longer, and has one."""
    changes = () if growth is None else growth.operators
    for change in sorted(changes, key=lambda change: -change.delta_ns):
        members = measured.profiles[arm].operators
        same = [member for member in members if member.operator.name == change.name]
        text = _costliest(measured, arm, same)
        if text:
            return text
    return ""


def _cause(measured: CaseResult, baseline: Baseline | None, arm: Arm) -> Cause:
    """What the program on one arm has more of than the baseline's."""
    old = () if baseline is None else baseline.program(arm)
    if not old:
        return Cause()
    cost, profile = measured.costs.get(arm), measured.profiles[arm]
    if cost is None or baseline is None or arm not in baseline.costs:
        old = tuple(replace(entry, instructions=0) for entry in old)
        now = [stored_operator(member) for member in profile.operators]
        return difference(old, now, profile).cause()
    rest = cost.runtime.instructions - baseline.costs[arm].runtime
    return difference(old, stored(cost, profile).operators, profile, rest).cause()


def _costliest(measured: CaseResult, arm: Arm, members: Collection[OperatorProfile]) -> str:
    """The place of the one that costs most and has one."""
    cost = measured.costs.get(arm)
    executed = {} if cost is None else {e.index: e.counts.instructions for e in cost.operators}
    for member in sorted(members, key=lambda each: (-executed.get(each.index, 0), -each.share)):
        text = "" if member.origin is None else source_text(member.origin)
        if text:
            return text
    return ""
