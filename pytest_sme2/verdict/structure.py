"""Evidence, coverage, operators, delegation, kernels: exact, and the same on any machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_sme2.results import (
    RUNTIME,
    Arm,
    Baseline,
    CaseResult,
    Check,
    Executor,
    KernelFamily,
    Limits,
    OperatorCount,
    Outcome,
    Structure,
)
from pytest_sme2.system.wording import as_given, count
from pytest_sme2.verdict.judging import CREATE_HINT, UPDATE_HINT


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


def _unknown(metric: str, arm: Arm, new: float | None) -> Check:
    """Of what did not run, or has no baseline."""
    if new is None:
        return Check(metric, Outcome.INVALID, f"The {arm} arm did not run.")
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
    structure = measured.structures.get(arm)
    if structure is None:
        message = f"The {arm} arm did not run, so nothing is known of it."
        return Check(metric, Outcome.INVALID, message)
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
    metric, old, new = f"operators ({arm})", _structure(baseline, arm), measured.structures.get(arm)
    if old is None or new is None:
        return _unknown(metric, arm, None if new is None else new.total)
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
        measured.structures.get(arm),
    )
    if old is None or new is None:
        return _unknown(metric, arm, None if new is None else new.executed_by(Executor.PORTABLE))
    before, portable = (each.executed_by(Executor.PORTABLE) for each in (old, new))
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
    new = measured.kernels.get(arm)
    if new is None:
        return Check(metric, Outcome.INVALID, "Which kernels ran is not known on this target.")
    old = None if baseline is None else baseline.kernels.get(arm)
    names = {kernel.name: kernel.family for kernel in new.kernels}
    if old is None:
        return _unknown(metric, arm, len(names))
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
