"""Evidence, coverage, operators, delegation, kernels: exact, and the same on any machine."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_sme2.results import (
    RUNTIME,
    Arm,
    Baseline,
    CaseResult,
    Check,
    Executor,
    KernelCensus,
    KernelFamily,
    Limits,
    OperatorCount,
    Outcome,
    Profile,
    Structure,
)
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import CREATE_HINT, UPDATE_HINT


def check_evidence(measured: CaseResult) -> Check:
    """Whether the pair shows what it claims to: SME2 kernels on, none off."""
    evidence = measured.evidence
    if evidence is None:
        return Check(
            "evidence",
            Outcome.INVALID,
            f"Only the off arm ran: {measured.fingerprint.target} has no SME2, so nothing is shown "
            "about it. Choose a device that has it, or --device=emulated.",
        )
    return Check(
        "evidence",
        Outcome.PASS if evidence.valid else Outcome.INVALID,
        evidence.message,
        new=evidence.sme2_on,
        unit="count",
    )


def baseline_problem(error: Exception) -> Check:
    """A baseline that cannot be used is a verdict of its own, never a pass."""
    return Check("baseline", Outcome.INVALID, str(error))


def _structure(baseline: Baseline | None, arm: Arm) -> Structure | None:
    return None if baseline is None else baseline.structures.get(arm)


def _no_structure(metric: str, new: float | None) -> Check:
    return Check(metric, Outcome.NO_BASELINE, f"No baseline. {CREATE_HINT}", new=new, unit="count")


def _versions_note(measured: CaseResult, baseline: Baseline | None) -> str:
    """A changed ExecuTorch explains most changes of structure: say so before anybody searches."""
    if baseline is None:
        return ""
    differing = [
        f"{package} {baseline.versions[package]}, this is with {measured.versions[package]}"
        for package in ("executorch", RUNTIME)
        if package in baseline.versions
        and package in measured.versions
        and baseline.versions[package] != measured.versions[package]
    ]
    return "".join(f" The baseline was made with {text}." for text in differing)


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
    details = _missed(measured.profiles.get(arm))
    short = _short_of(structure, least)
    if short is not None:
        fallen = Outcome.FAILED if old is None else Outcome.REGRESSED
        return Check(metric, fallen, short, old, new, "share", None, least, details)
    text = f"{structure.sme2} of {count(structure.matrix, 'matrix operator')} ran on {word} kernels"
    if structure.unproven:
        text += f", {structure.unproven} may (their name does not tell)"
    if before is None or old is None:
        verdict = Outcome.NO_BASELINE if least is None else Outcome.PASS
        hint = f" There is no baseline. {CREATE_HINT}" if least is None else ""
        return Check(metric, verdict, f"{text}.{hint}", None, new, "share", None, least, details)
    message = f"{text}; in the baseline {before.sme2} of {before.matrix}."
    verdict = Outcome.IMPROVED if new > old else Outcome.PASS
    if new < old and structure.sme2 + structure.unproven >= old * structure.matrix:
        verdict = Outcome.NOT_MEASURED
        message += " This device does not tell which kernels ran; --device=emulated does."
    elif new < old:
        verdict = Outcome.REGRESSED
        message += f"{_versions_note(measured, baseline)} {UPDATE_HINT}"
    return Check(metric, verdict, message, old, new, "share", None, old, details)


def _short_of(structure: Structure, least: float | None) -> str | None:
    """What to say where fewer operators run on SME2 kernels than asked for."""
    if least is None or structure.sme2 >= least * structure.matrix:
        return None
    return (
        f"{structure.sme2} of {count(structure.matrix, 'matrix operator')} ran on SME2 kernels, "
        f"less than the {least:.0%} asked for."
    )


def _missed(profile: Profile | None) -> tuple[str, ...]:
    return tuple(
        f"{entry.label}{'' if entry.shapes is None else f' ({entry.shapes})'}: {reason}"
        for entry, reason in (() if profile is None else profile.coverage.missed)
    )


Key = tuple[str, Executor]


def _counts(structure: Structure) -> dict[Key, OperatorCount]:
    return {(entry.name, entry.executor): entry for entry in structure.operators}


def operator_differences(old: Structure, new: Structure) -> tuple[tuple[OperatorCount, int], ...]:
    """Each operator whose count changed, and by how many; grown ones first."""
    before, after = _counts(old), _counts(new)
    found = []
    for key in {*before, *after}:
        entry = after.get(key) or before[key]
        growth = (after[key].count if key in after else 0) - (
            before[key].count if key in before else 0
        )
        if growth:
            found.append((entry, growth))
    return tuple(sorted(found, key=lambda item: (-item[1], item[0].name)))


def check_operators(measured: CaseResult, baseline: Baseline | None, arm: Arm = Arm.ON) -> Check:
    """The operators of the program, exactly: which were added, which are gone."""
    metric = f"operators ({arm})"
    new = measured.structures.get(arm)
    if new is None:
        return Check(metric, Outcome.INVALID, f"The {arm} arm did not run.")
    old = _structure(baseline, arm)
    if old is None:
        return _no_structure(metric, new.total)
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
    details = tuple(_difference_line(entry, growth) for entry, growth in differences)
    return Check(metric, verdict, message, old.total, new.total, "count", None, old.total, details)


def _structural_verdict(differences: Sequence[tuple[OperatorCount, int]]) -> Outcome:
    """Better only if nothing was added, or if all that was added is matrix work on SME2 kernels
    that took the place of as much matrix work elsewhere.
    """
    grown = [(entry, growth) for entry, growth in differences if growth > 0]
    gone = [(entry, -growth) for entry, growth in differences if growth < 0]
    if not grown:
        return Outcome.IMPROVED
    to_sme2 = all(operator.matrix and operator.sme2 for operator, _ in grown)
    from_others = sum(count for operator, count in gone if operator.matrix and not operator.sme2)
    lost = any(operator.sme2 for operator, _ in gone)
    if to_sme2 and not lost and sum(count for _, count in grown) <= from_others:
        return Outcome.IMPROVED
    return Outcome.REGRESSED


def difference_lines(old: Structure, new: Structure) -> tuple[str, ...]:
    """The operators that were added or removed, one line each; additions first."""
    differences = sorted(operator_differences(old, new), key=lambda found: found[1] < 0)
    return tuple(_difference_line(entry, growth) for entry, growth in differences)


def _difference_line(entry: OperatorCount, growth: int) -> str:
    return f"{growth:+d} {entry.name} ({entry.category}, {entry.kind}, {entry.executor})"


def check_delegation(measured: CaseResult, baseline: Baseline | None, arm: Arm = Arm.ON) -> Check:
    """How many operators run outside the delegate, exactly, naming those that fell out of it."""
    metric = f"portable operators ({arm})"
    new = measured.structures.get(arm)
    if new is None:
        return Check(metric, Outcome.INVALID, f"The {arm} arm did not run.")
    portable = new.executed_by(Executor.PORTABLE)
    old = _structure(baseline, arm)
    if old is None:
        return _no_structure(metric, portable)
    before = old.executed_by(Executor.PORTABLE)
    details = tuple(
        _difference_line(entry, growth)
        for entry, growth in operator_differences(old, new)
        if entry.executor is Executor.PORTABLE
    )
    grown = any(line.startswith("+") for line in details)
    if portable > before or (portable == before and grown):
        verdict = Outcome.REGRESSED
    else:
        verdict = Outcome.IMPROVED if portable < before else Outcome.PASS
    message = f"{count(portable, 'operator')} outside the delegate, {before} in the baseline."
    if verdict is Outcome.REGRESSED:
        message += f"{_versions_note(measured, baseline)} {UPDATE_HINT}"
    return Check(metric, verdict, message, before, portable, "count", None, before, details)


def check_kernels(measured: CaseResult, baseline: Baseline | None, arm: Arm = Arm.ON) -> Check:
    """The kernels that ran, exactly by name. Only censuses of one source can be compared."""
    metric = f"kernels ({arm})"
    new = measured.kernels.get(arm)
    if new is None:
        return Check(metric, Outcome.INVALID, "Which kernels ran is not known on this target.")
    old = None if baseline is None else baseline.kernels.get(arm)
    names = _kernel_names(new)
    if old is None:
        return _no_structure(metric, len(names))
    if old.source != new.source:
        return Check(
            metric,
            Outcome.NO_BASELINE,
            f"The baseline's kernels come from {old.source}, these from {new.source}; "
            "the two cannot be compared.",
            new=len(names),
            unit="count",
        )
    before = _kernel_names(old)
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


def _kernel_names(census: KernelCensus) -> dict[str, KernelFamily]:
    return {kernel.name: kernel.family for kernel in census.kernels}
