"""What a profile or a comparison means, in sentences. Pure: values in, strings out.

What stands here is about one profile; what a whole run means, across the variants of a model, is
in ``insights.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pytest_sme2.profile.compare import largest_category
from pytest_sme2.profile.coverage import could_run_on_sme2, precision
from pytest_sme2.profile.shapes import is_pointwise, told_shapes
from pytest_sme2.profile.transposes import transposes
from pytest_sme2.report.text import count, duration, percent, times
from pytest_sme2.results import Category, Comparison, Executor, OperatorProfile, Profile

FEW_RUNS = 5
LARGE_SPREAD = 0.10
LARGE_OVERHEAD = 0.10

_CONVOLUTIONS = frozenset({"Convolution", "Deconvolution"})
_ATEN_CONVOLUTIONS = ("aten.convolution", "aten.conv")


def profile_findings(profile: Profile, *, timed: bool = True) -> list[str]:
    """What a person should know about a profile, the most useful first.

    Without ``timed`` nothing is said of time or shares of it: those of an emulated CPU would
    mislead. Its operators, their counts and who ran them are exact.
    """
    return [
        *_coverage(profile, timed),
        *(_bottleneck(profile) if timed else ()),
        *_pointwise(profile, timed),
        *_transposes(profile, timed),
        *_portable(profile, timed),
        *(_weak_data(profile) if timed else ()),
        *(profile.notes if timed else ()),
    ]


def _of_the_time(share: float, timed: bool, before: str = ", ") -> str:
    """``, 12.0 % of the time``, or nothing where time means nothing."""
    return f"{before}{percent(share)} of the time" if timed else ""


def _coverage(profile: Profile, timed: bool) -> Iterator[str]:
    coverage = profile.coverage
    if not coverage.matrix_operators:
        yield "there are no matrix operators: SME2 has nothing to run here"
    elif coverage.sme2_operators:
        yield from _by_precision(profile)
        yield from _missed(profile, timed)
    elif not coverage.unproven:
        yield from _none_covered(profile, timed)
    if coverage.unproven:
        yield (
            f"{count(len(coverage.unproven), 'matrix operator')} on packed QP8 kernels: unproven "
            "by name, since SME2 and NEON kernels share it; a kernel census can settle it"
        )
    if coverage.depthwise_operators:
        share = _of_the_time(profile.share(coverage.depthwise_ns), timed, "")
        yield (
            f"{count(coverage.depthwise_operators, 'depthwise convolution')} "
            f"{f'({share}) ' if share else ''}not counted as matrix work: no SME2 kernel exists "
            "for them"
        )


def _none_covered(profile: Profile, timed: bool) -> Iterator[str]:
    coverage = profile.coverage
    sentence = (
        f"none of the {count(coverage.matrix_operators, 'matrix operator')} ran on an SME2 kernel"
    )
    if any(could_run_on_sme2(member.operator) for member, _ in coverage.missed):
        yield f"{sentence}: SME2 is off, the CPU has none, or the shapes do not fit"
    else:
        yield f"{sentence}: there is none for them in these data types"
        yield from _missed(profile, timed)


def _by_precision(profile: Profile) -> Iterator[str]:
    missed = {member.index for member, _ in profile.coverage.missed}
    unproven = {member.index for member in profile.coverage.unproven}
    total: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for member in profile.operators:
        if member.operator.matrix and member.index not in unproven:
            word = _executor_word(member)
            total[word] += 1
            covered[word] += member.index not in missed
    for word, number in total.items():
        yield (f"{word}: {covered[word]} of {count(number, 'matrix operator')} ran on SME2 kernels")


def _executor_word(member: OperatorProfile) -> str:
    portable = member.operator.executor is Executor.PORTABLE
    return "portable" if portable else precision(member.operator)


def _missed(profile: Profile, timed: bool) -> Iterator[str]:
    """One sentence for each operator name that missed SME2, the costliest first."""
    groups: dict[tuple[str, str], list[OperatorProfile]] = {}
    for member, reason in profile.coverage.missed:
        groups.setdefault((member.operator.name, reason), []).append(member)
    told = []
    for (name, reason), members in groups.items():
        share = sum(member.share for member in members)
        portable = members[0].operator.executor is Executor.PORTABLE
        stayed = "ran on portable kernels" if portable else "stayed on NEON"
        shapes = told_shapes((member.shapes, member.share if timed else 1.0) for member in members)
        sentence = (
            f"{name!r} ({count(len(members), 'operator')}{_of_the_time(share, timed)}"
            f"{f'; {shapes}' if shapes else ''}) {stayed}: {reason}"
        )
        told.append((share if timed else len(members), sentence))
    for _, sentence in sorted(told, key=lambda entry: -entry[0]):
        yield sentence


def _bottleneck(profile: Profile) -> Iterator[str]:
    category = largest_category(profile)
    if category is not None:
        member = max(
            (item for item in profile.operators if item.operator.category is category),
            key=lambda item: item.share,
        )
        yield (
            f"most time goes to {category} "
            f"({percent(profile.share(profile.category_ns[category]))}), most of that to "
            f"{member.label!r} ({percent(member.share)})"
        )
    share = profile.share(profile.overhead_ns)
    if share > LARGE_OVERHEAD:
        part = max(profile.overhead_parts_ns, key=lambda name: profile.overhead_parts_ns[name])
        yield (
            f"the framework's overhead takes {percent(share)} of the time, "
            f"most of it {'' if part == 'between calls' else 'in '}{part}"
        )


def _pointwise(profile: Profile, timed: bool) -> Iterator[str]:
    """XNNPACK runs 1x1 convolutions as Fully Connected; people look for them in vain."""
    certain = possible = 0
    place = "so their time is under GEMM" if timed else "so they are counted under GEMM"
    calls: dict[int, list[OperatorProfile]] = {}
    for member in profile.operators:
        calls.setdefault(member.call, []).append(member)
    for members in calls.values():
        operations = Counter(member.operator.operation for member in members)
        if any(member.shapes is not None for member in members):
            certain += sum(
                member.shapes is not None
                and member.operator.operation == "Fully Connected"
                and is_pointwise(member.shapes)
                for member in members
            )
            continue
        linear = operations["Fully Connected"]
        convolutions = sum(operations[name] for name in _CONVOLUTIONS)
        aten = members[0].aten
        if aten:
            wanted = sum(name.startswith(_ATEN_CONVOLUTIONS) for name in aten)
            certain += max(0, min(linear, wanted - convolutions))
        elif convolutions:
            possible += linear
    if certain:
        yield (
            f"{count(certain, 'pointwise (1x1) convolution')} of the model ran as Fully Connected: "
            f"XNNPACK rewrites them, {place}"
        )
    if possible:
        yield (
            f"{possible} Fully Connected beside convolutions in one delegate call: XNNPACK runs "
            f"pointwise (1x1) convolutions as Fully Connected, {place}"
        )


def _transposes(profile: Profile, timed: bool) -> Iterator[str]:
    report = transposes(profile)
    if report.operators:
        at_borders = sum(bool(chain.border) for chain in report.chains)
        yield (
            f"{count(report.operators, 'layout change')} in {count(len(report.chains), 'place')}"
            f"{_of_the_time(report.share, timed, ' take ')}, {at_borders} of them at a delegate's "
            f"border{f' ({percent(report.border_share)})' if timed else ''}"
        )


def _portable(profile: Profile, timed: bool) -> Iterator[str]:
    number = profile.executor_counts[Executor.PORTABLE]
    if number:
        share = profile.share(profile.executor_ns[Executor.PORTABLE])
        told = _of_the_time(share, timed, "")
        yield (
            f"{count(number, 'operator')} {f'({told}) ' if told else ''}ran outside of the delegate"
        )
    if profile.unknown:
        names = ", ".join(repr(name) for name in profile.unknown)
        yield f"unknown operators, counted as {Category.OTHER}: {names}; a rule can place them"


def _weak_data(profile: Profile) -> Iterator[str]:
    if profile.runs < FEW_RUNS:
        yield f"only {count(profile.runs, 'run')}: take at least {FEW_RUNS} to trust the shares"
    left_out = profile.runs - profile.typical_runs
    if left_out:
        yield f"{count(left_out, 'run')} with outlying latency left out of the shares"
    middle = profile.end_to_end
    spread = (middle.p75 - middle.p25) / middle.median if middle.median else 0.0
    if profile.runs >= FEW_RUNS and spread > LARGE_SPREAD:
        yield (
            f"latency is noisy: the middle half of the runs spreads over {percent(spread)} of the "
            "median; close other programs, pin the thread, or take more runs"
        )


def comparison_findings(comparison: Comparison, *, timed: bool = True) -> list[str]:
    """What changed between two profiles; without ``timed`` in structure alone."""
    if not timed:
        return [*_structure(comparison)]
    return [
        *_end_to_end(comparison),
        *_shift(comparison),
        *_largest_changes(comparison),
        *_structure(comparison),
    ]


def _end_to_end(comparison: Comparison) -> Iterator[str]:
    change = comparison.end_to_end
    ratio = change.ratio
    if not ratio:
        # One side took no time.
        return
    word = f"{times(ratio)} as fast as" if ratio >= 1 else f"{times(1 / ratio)} slower than"
    yield (
        f"{comparison.after_name!r} is {word} {comparison.before_name!r} in these traced runs "
        f"({duration(change.before_ns)} to {duration(change.after_ns)}); tracing itself costs "
        "time, so take latency from untraced runs"
    )


def bottleneck(comparison: Comparison) -> str:
    """Where most of the time goes, before and after, as the start of a sentence."""
    before, after = comparison.largest_before, comparison.largest_after
    if comparison.shifted:
        return f"the bottleneck moved from {before} to {after}"
    return f"the bottleneck is {after}" + (" on both sides" if before is after else "")


def _shift(comparison: Comparison) -> Iterator[str]:
    after = comparison.largest_after
    if after is None:
        return
    yield bottleneck(comparison)
    if comparison.amdahl is not None:
        yield (
            f"if {after} were free, {comparison.after_name!r} would be "
            f"{times(comparison.amdahl)} as fast as it is; no work on it can bring more"
        )


def _largest_changes(comparison: Comparison) -> Iterator[str]:
    grown = max(comparison.operators, key=lambda change: change.delta_ns, default=None)
    if grown is None or grown.delta_ns <= 0 or grown.after is None:
        return
    after = duration(grown.after.time_ns)
    if grown.before is None:
        yield f"{grown.after.label!r} is new and takes {after}"
    else:
        before = duration(grown.before.time_ns)
        yield f"{grown.after.label!r} grew most: {before} to {after}"


def _structure(comparison: Comparison) -> Iterator[str]:
    for word, members in (("removed", comparison.removed), ("added", comparison.added)):
        if members:
            names = Counter(member.operator.name for member in members)
            listed = ", ".join(f"{number} {name!r}" for name, number in names.most_common())
            yield f"{count(len(members), 'operator')} {word}: {listed}"
