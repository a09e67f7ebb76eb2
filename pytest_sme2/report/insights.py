"""What a whole run means: sentences merged across the variants of a model, costliest first. Pure.

Each says one thing about one model and knows what it costs and what to do about it. Nothing is said
of time where the CPU was emulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pytest_sme2.profile.compare import compare
from pytest_sme2.profile.transposes import transposes
from pytest_sme2.report.findings import LARGE_OVERHEAD
from pytest_sme2.report.text import count, percent, times
from pytest_sme2.results import Arm, CaseResult, Category, Executor, OperatorProfile, Profile
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.timing import stats
from pytest_sme2.timing.processes import thread_warnings

# What can be done about a category once it is the largest.
_ADVICE = {
    Category.CONV: "Look for convolutions that stayed on NEON kernels, and for a smaller "
    "precision.",
    Category.GEMM: "Look for matrix products that stayed on NEON kernels, and for a smaller "
    "precision.",
    Category.DATA_MOVEMENT: "Remove layout changes: keep one layout through the model, and fold "
    "transposes and reshapes into their neighbours.",
    Category.ELEMENTWISE: "Fuse activations and arithmetic into the operators before them.",
    Category.OTHER: "Look at the operators of this category one by one.",
}


@dataclass(frozen=True)
class Insight:
    """One sentence about one model."""

    model: str
    text: str
    cost: float
    """The part it concerns: of end-to-end time or, where time means nothing, of the operators."""
    advice: str = ""


@dataclass(frozen=True)
class _Member:
    """One variant of a model, as far as it is spoken of."""

    label: str
    measured: CaseResult
    profile: Profile
    timed: bool

    def part(self, operators: Sequence[OperatorProfile]) -> float:
        """What these operators cost: their share of the time, or of the number of operators."""
        if self.timed:
            return sum(member.share for member in operators)
        return len(operators) / len(self.profile.operators) if self.profile.operators else 0.0

    def told(self, number: int, share: float) -> tuple[str, str]:
        """``126, 31.0 % of the time`` and whose that is."""
        return f"{number}" + (f", {percent(share)} of the time" if self.timed else ""), self.label


def insights(records: Sequence[CaseRecord]) -> list[Insight]:
    """All there is to say about a run, the costliest first."""
    groups: dict[str, list[_Member]] = {}
    several = len({record.measured.fingerprint.target for record in records}) > 1
    for record in records:
        measured = record.measured
        profile = measured.profiles.get(measured.arm)
        if profile is not None:
            label = record.id.removeprefix(f"{measured.model}-") or measured.variant
            if several:
                label = f"{label} on {measured.fingerprint.target}"
            member = _Member(label, measured, profile, not measured.emulated)
            groups.setdefault(measured.model, []).append(member)
    found = [
        Insight(model, text, cost, advice)
        for model, members in groups.items()
        for rule in _RULES
        for text, cost, advice in rule(members)
    ]
    found += _slower_together(records)
    return sorted(found, key=lambda insight: -insight.cost)


def _slower_together(records: Sequence[CaseRecord]) -> Iterator[Insight]:
    """What is slower than its reference when the comparisons of a run are judged as one family.

    Each verdict was given before the others were known, with the error split equally; Holm's
    procedure, which needs them all, may show more.
    """
    compared = [
        (record, check, check.p_value)
        for record in records
        for check in record.checks
        if check.p_value is not None
    ]
    if len(compared) < 2:
        return
    adjusted = stats.holm([value for _, _, value in compared])
    for (record, check, _), value in zip(compared, adjusted, strict=True):
        if value < stats.FALSE_ALARM_RATE:
            change = check.new / check.old - 1 if check.new and check.old else 0.0
            yield Insight(
                record.measured.model,
                f"{record.id}: {check.metric} is worse than tolerated among the "
                f"{len(compared)} comparisons of this run (Holm's p {value:.2g})",
                max(0.0, change),
                "It is a regression even where its own verdict, given first, was INCONCLUSIVE.",
            )


def _merged(told: Sequence[tuple[str, str]]) -> str:
    """``2 (fp16, fp32); 3 (int8)``: what is the same of several variants is said once."""
    labels: dict[str, list[str]] = {}
    for text, label in told:
        labels.setdefault(text, []).append(label)
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in labels.items())


def _joined(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


_Found = tuple[str, float, str]
_Rule = Callable[[Sequence[_Member]], Iterator[_Found]]


def _coverage(members: Sequence[_Member]) -> Iterator[_Found]:
    """Which variants run on SME2 kernels, and which do not."""
    asked = [member for member in members if member.measured.arm is Arm.ON]
    asked = [member for member in asked if member.profile.coverage.matrix_operators]
    short = [member for member in asked if member.profile.coverage.missed]
    full = [
        member
        for member in asked
        if member.profile.coverage.sme2_operators == member.profile.coverage.matrix_operators
    ]
    if short:
        parts = [_shortfall(member) for member in short]
        parts += _complete(full)
        yield "; ".join(parts), max(map(_missing, short)), _remedy(short)
    elif full:
        yield "; ".join(_complete(full, " matrix operators")), 0.0, ""
    for member in asked:
        unproven = member.profile.coverage.unproven
        if unproven:
            text = (
                f"{member.label}: {count(len(unproven), 'matrix operator')} on packed QP8 kernels, "
                "which SME2 and NEON share"
            )
            yield text, member.part(unproven), "A kernel census can settle it: `sme2 kernels`."


def _missing(member: _Member) -> float:
    """What the shortfall costs; of the matrix operators alone where time means nothing."""
    coverage = member.profile.coverage
    if not member.timed:
        return len(coverage.missed) / coverage.matrix_operators
    return member.part([entry for entry, _ in coverage.missed])


def _complete(full: Sequence[_Member], what: str = "") -> Iterator[str]:
    """``fp32 and int8 run all 81 on SME2``."""
    labels: dict[int, list[str]] = {}
    for member in full:
        labels.setdefault(member.profile.coverage.matrix_operators, []).append(member.label)
    for number, names in labels.items():
        verb = "runs" if len(names) == 1 else "run"
        whole = f"all {number}{what}" if number > 1 else "the only matrix operator"
        yield f"{_joined(names)} {verb} {whole} on SME2"


def _shortfall(member: _Member) -> str:
    coverage = member.profile.coverage
    portable = any(entry.operator.executor is Executor.PORTABLE for entry, _ in coverage.missed)
    where = "without SME2" if portable else "on NEON kernels"
    return (
        f"{member.label}: {len(coverage.missed)} of "
        f"{count(coverage.matrix_operators, 'matrix operator')} ran {where}"
    )


def _remedy(short: Sequence[_Member]) -> str:
    """The reason behind most of what was missed."""
    cost: dict[str, float] = {}
    for member in short:
        for entry, reason in member.profile.coverage.missed:
            cost[reason] = cost.get(reason, 0.0) + member.part([entry])
    reason = max(cost, key=lambda key: cost[key])
    return f"{reason[0].upper()}{reason[1:]}."


def _bottleneck(members: Sequence[_Member]) -> Iterator[_Found]:
    """Where the time goes once the matrix work is fast, by category."""
    told: dict[Category, list[tuple[str, float, float]]] = {}
    for member in members:
        if not member.timed or len(member.measured.profiles) != len(Arm):
            continue
        found = compare(member.measured.profiles[Arm.OFF], member.measured.profiles[Arm.ON])
        after = found.largest_after
        if after is not None:
            share = member.profile.share(member.profile.category_ns[after])
            moved = f", before {found.largest_before}" if found.shifted else ""
            words = f"{member.label} {percent(share)}{moved}"
            told.setdefault(after, []).append((words, share, found.amdahl or 0.0))
    if not told:
        return
    listed = "; ".join(
        f"{category} ({', '.join(words for words, _, _ in variants)})"
        for category, variants in told.items()
    )
    share, limit, category = max(
        (share, limit, category)
        for category, variants in told.items()
        for _, share, limit in variants
    )
    bound = f"Were it free, this would be {times(limit)} as fast, and no more. " if limit else ""
    yield f"with SME2 most time goes to {listed}", share, bound + _ADVICE[category]


def _layout(members: Sequence[_Member]) -> Iterator[_Found]:
    told: list[tuple[str, str]] = []
    cost, borders = 0.0, False
    for member in members:
        report = transposes(member.profile)
        if report.operators:
            told.append(member.told(report.operators, report.share))
            chained = [entry for chain in report.chains for entry in chain.operators]
            cost = max(cost, member.part(chained))
            borders |= any(chain.border for chain in report.chains)
    if told:
        advice = _ADVICE[Category.DATA_MOVEMENT]
        if borders:
            advice += " Those at a delegate's border go away where the model keeps one layout."
        yield f"layout changes: {_merged(told)}", cost, advice


def _portable(members: Sequence[_Member]) -> Iterator[_Found]:
    told, cost = [], 0.0
    for member in members:
        entries = [
            entry
            for entry in member.profile.operators
            if entry.operator.executor is Executor.PORTABLE
        ]
        if entries:
            told.append(member.told(len(entries), sum(entry.share for entry in entries)))
            cost = max(cost, member.part(entries))
    if told:
        yield (
            f"operators outside of the delegate: {_merged(told)}",
            cost,
            "Replace them with operators that XNNPACK takes, so that data stays in the delegate.",
        )


def _depthwise(members: Sequence[_Member]) -> Iterator[_Found]:
    told, cost = [], 0.0
    for member in members:
        entries = [
            entry for entry in member.profile.operators if entry.operator.kind == "depthwise"
        ]
        if entries:
            told.append(member.told(len(entries), sum(entry.share for entry in entries)))
            cost = max(cost, member.part(entries))
    if told:
        yield f"depthwise convolutions, for which no SME2 kernel exists: {_merged(told)}", cost, ""


def _overhead(members: Sequence[_Member]) -> Iterator[_Found]:
    told, cost = [], 0.0
    for member in members:
        share = member.profile.share(member.profile.overhead_ns)
        if member.timed and share > LARGE_OVERHEAD:
            told.append(f"{member.label} {percent(share)}")
            cost = max(cost, share)
    if told:
        yield (
            f"the framework's overhead takes a large part of the time: {', '.join(told)}",
            cost,
            "Fewer, larger delegate calls cost less: look for operators that split them.",
        )


def _threads(members: Sequence[_Member]) -> Iterator[_Found]:
    """Thread counts that cost more time than fewer would."""
    sweeps: dict[str, dict[int, Sequence[float]]] = {}
    for member in members:
        medians = (member.measured.medians_ns or {}).get(member.measured.arm)
        if medians:
            sweeps.setdefault(member.measured.variant, {})[member.measured.threads] = medians
    for variant, sweep in sweeps.items():
        for warning in thread_warnings(sweep):
            yield f"{variant}: {warning}", 0.0, "Use fewer threads for this model."


def _unknown(members: Sequence[_Member]) -> Iterator[_Found]:
    names = sorted({name for member in members for name in member.profile.unknown})
    if names:
        listed = ", ".join(repr(name) for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield (
            f"unknown operators, counted as {Category.OTHER}: {listed}{more}",
            0.0,
            "Place them with a rule: the ini value sme2_categories, or --rule.",
        )


_RULES: tuple[_Rule, ...] = (
    _coverage,
    _bottleneck,
    _layout,
    _portable,
    _depthwise,
    _overhead,
    _threads,
    _unknown,
)
