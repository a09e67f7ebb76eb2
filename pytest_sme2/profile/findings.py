"""Finds what a profile means: what costs most, and what can be done about it.

Pure: profiles in, findings out, the costliest first. How they are worded is in ``report/`` and in
``sme2 advise``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_sme2.export.variant import (
    CHANNEL,
    DEPTHWISE,
    MOST_TAPS,
    SIGMOID,
    Rewrite,
    precision_of,
    rewrite_for,
    rewrite_named,
)
from pytest_sme2.profile.categories import ran_in
from pytest_sme2.profile.compare import largest_category
from pytest_sme2.profile.cost import multiply_accumulates
from pytest_sme2.profile.coverage import could_run
from pytest_sme2.profile.kernel_matrix import evidence
from pytest_sme2.profile.matching import kernel_size, rows, shapes_text
from pytest_sme2.profile.splits import (
    NO_BETTER,
    CostOf,
    is_layout_change,
    is_told,
    place_text,
    split_findings,
)
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.evidence import InferenceCost
from pytest_sme2.results.profile import (
    Category,
    Cost,
    Executor,
    Finding,
    OperatorProfile,
    Profile,
    Topic,
)
from pytest_sme2.system.wording import count, several, some_of

FEW_RUNS = 5
LARGE_SPREAD = 0.10
LARGE_OVERHEAD = 0.10
LARGE_PART = 0.10

_OTHERS = "Hugging Face's Conv1D and products of two activations"
_ONLY_LINEAR = f"only nn.Linear is quantized; {_OTHERS} are not"
_NOT_QUANTIZED = {
    "int8": "the quantizer takes convolutions, nn.Linear and additions that it recognizes; it does "
    f"not look into recurrent layers, and leaves {_OTHERS} alone",
    "int8_dynamic": _ONLY_LINEAR,
    "int4": f"only nn.Linear with a multiple of 32 inputs is quantized; {_OTHERS} are not",
    "int4_channel": _ONLY_LINEAR,
}
# Which matrix operators these are, and what can be done about them.
_SINGLE_ROW = (
    "on SME2 with a single row",
    "SME2 may lose here: XNNPACK#10719 measured packed SME2 kernels with one row at 1.4 to 3 times "
    "the time of NEON on a Dimensity 9500; time SME2 on against off on your device",
)
_UNPROVEN = (
    "on kernels that the emulator can tell",
    "SME2 and NEON kernels share this name, or none ran on the emulator yet: run it once with "
    "--device emulated",
)
ONLY_DEPTHWISE = f"{NO_BETTER}: no SME2 kernel exists for them in any data type"
_BATCH_NORM = (
    "no SME2 kernel exists for them; of 1x1 they are batch norms that follow an activation, and "
    "before the activation they would cost nothing"
)


def case_findings(measured: CaseResult) -> tuple[Finding, ...]:
    """The findings of a case; none where it has no profile."""
    profile = measured.profiles.get(measured.arm)
    if profile is None:
        return ()
    return find(
        profile,
        timed=not measured.emulated,
        counted=measured.costs.get(measured.arm),
        precision=precision_of(measured.variant),
    )


def find(
    profile: Profile,
    *,
    timed: bool = True,
    counted: InferenceCost | None = None,
    precision: str = "",
) -> tuple[Finding, ...]:
    """The findings of a profile: coverage, then what costs most, notes last.

    Without ``timed`` nothing is said of time: that of an emulated CPU would mislead. Operators,
    their counts and who ran them are exact. ``precision`` is the variant's, where it is known.
    """

    def cost_of(operators: Sequence[OperatorProfile]) -> Cost:
        """The one place that says what operators cost, and in which unit."""
        if timed:
            return Cost(len(operators), sum(member.share for member in operators), "time")
        if counted is not None:
            places = {member.index for member in operators}
            executed = sum(
                entry.counts.instructions for entry in counted.operators if entry.index in places
            )
            share = executed / max(1, counted.total.instructions)
            return Cost(len(operators), share, "instructions")
        return Cost(len(operators), len(operators) / max(1, len(profile.operators)))

    costly = [
        *_missed(profile, cost_of),
        *_counted(Topic.UNPROVEN, *_UNPROVEN, profile.coverage.unproven, cost_of),
        *_counted(Topic.SINGLE_ROW, *_SINGLE_ROW, _single_row(profile), cost_of),
        *_depthwise(profile, cost_of),
        *split_findings(profile, cost_of),
        *_data_types(profile, precision, cost_of),
        *_costly(profile, cost_of),
        *_unknown(profile, cost_of),
        *(_bottleneck(profile) if timed else ()),
        *(_overhead(profile) if timed else ()),
    ]
    costly.sort(key=lambda finding: -finding.cost.share)
    return (_coverage(profile, cost_of), *costly, *(_weak_data(profile) if timed else ()))


def _note(what: str, remedy: str = "") -> Finding:
    return Finding(Topic.NOTE, what, remedy=remedy)


def _costly(profile: Profile, cost_of: CostOf) -> Iterator[Finding]:
    """Operators in the delegate that other findings leave out."""
    groups: dict[str, list[OperatorProfile]] = {}
    for member in profile.operators:
        found = member.operator
        told = found.matrix or found.kind == "depthwise" or is_layout_change(member)
        told = told or is_told(member)
        if found.executor is not Executor.PORTABLE and found.known and not told:
            groups.setdefault(found.operation, []).append(member)
    for operation, members in groups.items():
        cost = cost_of(members)
        if cost.of != "operators" and cost.share >= LARGE_PART:
            remedy, name = NO_BETTER, ""
            if operation == "Sigmoid":
                rewrite = rewrite_named(name := SIGMOID)
                remedy = f"{rewrite.why}; {rewrite.remedy}"
            yield Finding(
                Topic.COSTLY, operation, cost, remedy, place=place_text(members), rewrite=name
            )


def _coverage(profile: Profile, cost_of: CostOf) -> Finding:
    found = profile.coverage
    number = found.matrix_operators
    if not number:
        return Finding(Topic.COVERAGE, "there are none, so SME2 has nothing to run")
    missed = [member for member, _ in found.missed]
    cost = cost_of(missed)
    if cost.of == "operators":
        cost = Cost(len(missed), len(missed) / number)
    all_on_sme2 = found.sme2_operators == number > 1
    what = f"all {number}" if all_on_sme2 else f"{found.sme2_operators} of {number}"
    remedy = "SME2 is off, the CPU has none, or the shapes do not fit"
    if not _is_off(profile):
        reasons: dict[str, float] = {}
        for member, reason in found.missed:
            reasons[reason] = reasons.get(reason, 0.0) + cost_of([member]).share
        remedy = max(reasons, key=lambda reason: reasons[reason], default="")
    return Finding(Topic.COVERAGE, what, cost, remedy, by_data_type(profile))


def by_data_type(profile: Profile) -> str:
    """``fp32``, or ``fp32 3 of 3, int8 1 of 2; by work fp32 80 %, int8 20 %``.

    What ran, how much of it on SME2, and the part of the multiply-accumulates where it is known.
    """
    total: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for member in _matrix(profile):
        word = ran_in(member.operator)
        total[word] += 1
        covered[word] += member.operator.sme2
    if len(total) == 1:
        return next(iter(total))
    text = ", ".join(f"{word} {covered[word]} of {number}" for word, number in total.items())
    work = _work_by_data_type(profile)
    shares = ", ".join(f"{word} {work[word] * 100:.0f} %" for word in total if word in work)
    return f"{text}; by work {shares}" if shares else text


def _matrix(profile: Profile) -> list[OperatorProfile]:
    return [member for member in profile.operators if member.operator.matrix]


def _work_by_data_type(profile: Profile) -> dict[str, float]:
    """The part of all multiply-accumulates; empty where those of an operator are not known."""
    work: Counter[str] = Counter()
    for member in _matrix(profile):
        number = multiply_accumulates(member.shapes)
        if number is None:
            return {}
        work[ran_in(member.operator)] += number
    total = sum(work.values())
    return {word: number / total for word, number in work.items()} if total else {}


def _data_types(profile: Profile, precision: str, cost_of: CostOf) -> Iterator[Finding]:
    """A variant mostly not in its name's data type: by work where that is known, else by count."""
    matrix = _matrix(profile)
    others = [member for member in matrix if ran_in(member.operator) != precision]
    if not precision or not others:
        return
    work = _work_by_data_type(profile)
    share = 1 - work.get(precision, 0.0) if work else len(others) / len(matrix)
    if share <= 0.5:
        return
    counts = Counter(ran_in(member.operator) for member in others)
    words = [word if len(counts) == 1 else f"{word} ({n})" for word, n in counts.most_common()]
    operators = f"{len(others)} of {count(len(matrix), 'matrix operator')}"
    what = f"{operators} ran in {' and '.join(words)}"
    detail = f"{share * 100:.0f} % of the multiply-accumulates" if work else ""
    cost = replace(cost_of(others), operators=0)
    yield Finding(Topic.DATA_TYPE, what, cost, _NOT_QUANTIZED.get(precision, ""), detail)


def _missed(profile: Profile, cost_of: CostOf) -> Iterator[Finding]:
    """One finding for all operators of the same name and reason."""
    groups: dict[tuple[str, str], list[OperatorProfile]] = {}
    for member, reason in () if _is_off(profile) else profile.coverage.missed:
        if member.operator.executor is Executor.PORTABLE:
            continue  # it is told with what else is outside of the delegate
        groups.setdefault((member.operator.name, reason), []).append(member)
    for (what, reason), found in groups.items():
        shapes = shapes_text((member.shapes, cost_of([member]).share) for member in found)
        rewrite = _rewrite_of(found[0])
        yield Finding(
            Topic.MISSED,
            what,
            cost_of(found),
            reason if rewrite is None else f"{rewrite.why}; {rewrite.remedy}",
            shapes,
            place_text(found) if rewrite else "",
            rewrite.name if rewrite else "",
            _proof(found, cost_of),
        )


def _rewrite_of(missed: OperatorProfile) -> Rewrite | None:
    if missed.operator.operation == "Deconvolution":
        return rewrite_for("aten.conv_transpose2d", constant=False)
    shapes = missed.shapes
    if shapes is not None and shapes.operation == "convolution" and shapes.inputs[0][-1] == 1:
        return rewrite_named(CHANNEL)
    return None


def _is_off(profile: Profile) -> bool:
    """Whether nothing runs on SME2 though something could: then all have the same reason."""
    found = profile.coverage
    return not (found.sme2_operators or found.unproven) and could_run(profile)


def _single_row(profile: Profile) -> list[OperatorProfile]:
    """Coverage is not a gain in itself where a kernel for tiles gets one row."""
    return [
        member
        for member in profile.operators
        if member.operator.sme2 and member.shapes is not None and rows(member.shapes) == 1
    ]


def _depthwise(profile: Profile, cost_of: CostOf) -> Iterator[Finding]:
    """By what can be done about them, which their kernels' sizes tell."""
    groups: dict[tuple[str, str, str], list[OperatorProfile]] = {}
    large = rewrite_named(DEPTHWISE)
    for member in profile.operators:
        operator = member.operator
        if operator.kind != "depthwise" or operator.executor is Executor.PORTABLE:
            continue
        key = ("", ONLY_DEPTHWISE, "")
        height, width = kernel_size(member.shapes) or (0, 0)
        if height * width > MOST_TAPS:
            key = (large.what, f"{large.why}; {large.remedy}", large.name)
        elif height * width == 1:
            key = ("of 1x1", _BATCH_NORM, "")
        groups.setdefault(key, []).append(member)
    for (which, remedy, rewrite), members in groups.items():
        shapes = shapes_text((member.shapes, cost_of([member]).share) for member in members)
        detail = shapes if rewrite else ""
        yield from _counted(Topic.DEPTHWISE, which, remedy, members, cost_of, detail, rewrite)


def _counted(
    topic: Topic,
    which: str,
    remedy: str,
    members: Sequence[OperatorProfile],
    cost_of: CostOf,
    detail: str = "",
    rewrite: str = "",
) -> Iterator[Finding]:
    """A finding about a noun that stands behind its number; ``which`` follows the noun."""
    noun = "depthwise convolution" if topic is Topic.DEPTHWISE else "matrix operator"
    what, one = (f"{word} {which}".strip() for word in (several(2, noun), noun))
    if members:
        proof = "" if topic is Topic.UNPROVEN else _proof(members, cost_of)
        said = (topic, what, cost_of(members), remedy, detail)
        yield Finding(*said, rewrite=rewrite, evidence=proof, one=one)


def _proof(members: Sequence[OperatorProfile], cost_of: CostOf) -> str:
    """What the kernel matrix says of the costliest of them."""
    costliest = max(members, key=lambda member: cost_of([member]).share)
    return evidence(costliest.operator, costliest.shapes)


def _unknown(profile: Profile, cost_of: CostOf) -> Iterator[Finding]:
    if profile.unknown:
        yield Finding(
            Topic.UNKNOWN,
            some_of([*map(repr, sorted(profile.unknown))], 3),
            cost_of([member for member in profile.operators if not member.operator.known]),
            f"they are counted as {Category.OTHER}",
        )


def _bottleneck(profile: Profile) -> Iterator[Finding]:
    category = largest_category(profile)
    if category is None:
        return
    costliest = max(
        (member for member in profile.operators if member.operator.category is category),
        key=lambda member: member.share,
    )
    share = profile.share(profile.category_ns[category])
    yield Finding(
        Topic.BOTTLENECK,
        str(category),
        Cost(0, share, "time"),
        detail=f"{costliest.share * 100:.1f} % in {costliest.label!r}",
    )


def _overhead(profile: Profile) -> Iterator[Finding]:
    share = profile.share(profile.overhead_ns)
    if share > LARGE_OVERHEAD:
        part = max(profile.overhead_parts_ns, key=lambda name: profile.overhead_parts_ns[name])
        yield Finding(
            Topic.OVERHEAD,
            "the framework's overhead",
            Cost(0, share, "time"),
            "fewer, larger delegate calls cost less: look for operators that split them",
            f"most of it {'' if part == 'between calls' else 'in '}{part}",
        )


def _weak_data(profile: Profile) -> Iterator[Finding]:
    if profile.runs < FEW_RUNS:
        remedy = f"take at least {FEW_RUNS} for shares that can be trusted"
        yield _note(f"only {count(profile.runs, 'run')}", remedy)
    left_out = profile.runs - profile.typical_runs
    if left_out:
        yield _note(f"{count(left_out, 'run')} with outlying latency left out of the shares")
    middle = profile.end_to_end
    spread = (middle.p75 - middle.p25) / middle.median if middle.median else 0.0
    if profile.runs >= FEW_RUNS and spread > LARGE_SPREAD:
        yield _note(
            f"latency is noisy: the middle half of the runs spreads over {spread * 100:.1f} % of "
            "the median",
            "close other programs, pin the thread, or take more runs",
        )
    yield from map(_note, profile.notes)
