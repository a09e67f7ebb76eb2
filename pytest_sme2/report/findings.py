"""Findings and comparisons in sentences. Pure: values in, strings out.

What is found, and what it costs, is decided in ``profile/findings.py``.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_sme2.export.variant import GENERAL
from pytest_sme2.profile.compare import compare
from pytest_sme2.profile.findings import case_findings, find
from pytest_sme2.report.text import as_sentence, duration, percent, times
from pytest_sme2.report.versus_baseline import failed_cases, outcome_of
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.profile import Comparison, Cost, Finding, Profile, Topic
from pytest_sme2.results.run import AS_EXPORTED, Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import CaseRecord, advise_command, reproduce_command
from pytest_sme2.session.trials import LEAST_SAVING, Ran, Trial
from pytest_sme2.system.wording import count

# How many operators are named for one remedy.
MOST_NAMED = 5
# What costs less than this in every variant is not worth advice.
LEAST_SHARE = 0.001

_HEADING: Mapping[Topic, str] = {
    Topic.COVERAGE: "matrix operators on SME2: ",
    Topic.MISSED: "not on SME2: ",
    Topic.UNPROVEN: "not known to be on SME2: ",
    Topic.SINGLE_ROW: "measure it: ",
    Topic.DEPTHWISE: "not matrix work: ",
    Topic.BOTTLENECK: "most time goes to ",
    Topic.LAYOUT: "layout changes: ",
    Topic.PORTABLE: "outside of the delegate: ",
    Topic.COSTLY: "inside the delegate: ",
    Topic.UNKNOWN: "unknown operators: ",
    Topic.DATA_TYPE: "not in the variant's data type: ",
}


def profile_findings(profile: Profile, *, timed: bool = True) -> list[str]:
    return sentences(find(profile, timed=timed))


def sentences(findings: Iterable[Finding]) -> list[str]:
    """One sentence per remedy, in the order of the findings."""
    groups: dict[tuple[Topic, str, str], list[Finding]] = {}
    found = list(findings)
    # Why coverage is not complete is said with the operators that are missing.
    explained = any(finding.topic is Topic.MISSED for finding in found)
    for finding in found:
        apart = finding.what if finding.topic is Topic.NOTE else ""
        remedy = "" if finding.topic is Topic.COVERAGE and explained else finding.remedy
        groups.setdefault((finding.topic, remedy, apart), []).append(finding)
    return [_sentence(topic, remedy, members) for (topic, remedy, _), members in groups.items()]


def _sentence(topic: Topic, remedy: str, found: Sequence[Finding]) -> str:
    named = ", ".join(map(_named, found[:MOST_NAMED]))
    left = sum(finding.cost.operators for finding in found[MOST_NAMED:])
    more = f" and {left} more" if left else ""
    place = next((finding.place for finding in found if finding.place), "")
    where = f" (in the model: {place})" if place else ""
    return f"{_HEADING.get(topic, '')}{named}{more}{f': {remedy}' if remedy else ''}{where}"


def _named(finding: Finding) -> str:
    """``3 Transpose (ND, X16) (12.0 % of the time)``."""
    share = "" if finding.topic is Topic.COVERAGE else share_text(finding.cost)
    inside = "; ".join(filter(None, (share, finding.detail)))
    uncounted = finding.is_cause or finding.topic in (Topic.COVERAGE, Topic.UNKNOWN)
    number = "" if uncounted or not finding.cost.operators else f"{finding.cost.operators} "
    what = finding.one if finding.one and finding.cost.operators == 1 else finding.what
    return f"{number}{what}{f' ({inside})' if inside else ''}"


def share_text(cost: Cost) -> str:
    """``12.0 % of the time``; nothing where the number of operators says it all."""
    return "" if cost.of == "operators" else f"{percent(cost.share)} of the {cost.of}"


@dataclass(frozen=True)
class Advice(Finding):
    """One thing to change in a model; but for ``costs``, of the variant where it costs most."""

    costs: Mapping[str, Cost] = field(default_factory=dict)
    """By variant."""


def advice(variants: Mapping[str, Sequence[Finding]]) -> list[Advice]:
    """What to change, once for the model and not for each variant; the most expensive first."""
    groups: dict[tuple[Topic, str, str], dict[str, Finding]] = {}
    for variant, findings in variants.items():
        for finding in findings:
            if finding.topic not in (Topic.COVERAGE, Topic.NOTE):
                key = (finding.topic, finding.what, finding.remedy)
                groups.setdefault(key, {})[variant] = finding
    found = []
    for members in groups.values():
        costliest = max(members.values(), key=lambda finding: finding.cost.share)
        if costliest.cost.share >= LEAST_SHARE:
            what = f"{_HEADING.get(costliest.topic, '')}{costliest.what}"
            costs = {variant: finding.cost for variant, finding in members.items()}
            found.append(Advice(**{**vars(costliest), "what": what}, costs=costs))
    return sorted(found, key=lambda entry: -entry.cost.share)


def run_findings(records: Sequence[CaseRecord]) -> list[tuple[str, Advice]]:
    """What to change in each model of a run, the costliest first."""
    several = len({record.measured.fingerprint.target for record in records}) > 1
    models: dict[str, dict[str, Sequence[Finding]]] = {}
    for record in records:
        measured = record.measured
        label = record.id.removeprefix(f"{measured.model}-") or measured.variant
        label += f" on {measured.fingerprint.target}" * several
        models.setdefault(measured.model, {})[label] = case_findings(measured)
    found = [(model, entry) for model, variants in models.items() for entry in advice(variants)]
    return sorted(found, key=lambda one: -one[1].cost.share)


def cost_text(entry: Advice) -> str:
    """``outside of the delegate: SiLU: 45.2 % of the instructions in fp16 (98 …)``."""
    costs = ", ".join(f"{_cost_text(cost)} in {variant}" for variant, cost in entry.costs.items())
    found = ": ".join(filter(None, (entry.what, costs)))
    return f"{found}{f' ({entry.detail})' if entry.detail else ''}"


def remedy_text(entry: Advice) -> str:
    """``Write it out. In the model: features.0 (SiLU).``: what is known of it, in sentences."""
    place = f"In the model: {entry.place}." if entry.place else ""
    return " ".join(filter(None, (as_sentence(entry.evidence), as_sentence(entry.remedy), place)))


def advice_text(entry: Advice) -> str:
    return " ".join(filter(None, (f"{cost_text(entry)}.", remedy_text(entry))))


def _cost_text(cost: Cost) -> str:
    number = count(cost.operators, "operator") if cost.operators else ""
    return ", ".join(filter(None, (number, share_text(cost))))


def amount_text(amount: float | None, *, timed: bool) -> str:
    if amount is None:
        return "-"
    return duration(amount) if timed else f"{amount:,.0f}"


def outputs_text(ran: Ran) -> str:
    """How close to the model's own answer: ``46.9 dB``, ``identical``, or that it says nothing."""
    found = ran.agreement
    if found is None:
        return "-"
    if found.dead:
        return found.dead.partition(" (")[0]
    if found.identical:
        return "identical"
    return "wrong" if ran.varying_db is None else f"{ran.varying_db:.1f} dB"


def trial_text(trial: Trial, share: float = 0.0) -> str:
    """``saves 1,090,322 of 1,430,104 instructions (76.4 %), outputs 120.9 dB``.

    A rewrite of what takes this ``share`` and that brings less than half of it left most as it was.
    """
    if trial.problem:
        return f"left out: {trial.problem}"
    old, new = trial.before.amount, None if trial.after is None else trial.after.amount
    if trial.after is None or old is None or new is None:
        return "not counted"
    timed = trial.before.timed
    gone, whole = (amount_text(amount, timed=timed) for amount in (abs(old - new), old))
    unit = "in traced runs" if timed else "instructions"
    # What it was made for, where that is still there, stopped it.
    left = [entry for entry in trial.after.findings if entry.rewrite in trial.rewrites]
    if left and -LEAST_SAVING < trial.saving < share / 2:
        most = max(left, key=lambda entry: entry.cost.share)
        place = f" ({most.place})" if most.place else ""
        stays = percent(share - max(0.0, trial.saving))
        return f"not expressed: {stays} of {percent(share)} stay; most is {most.what}{place}"
    if trial.helps:
        effect = f"saves {gone} of {whole} {unit} ({percent(trial.saving)})"
    elif trial.saving > -LEAST_SAVING:
        return f"saves nothing of {whole} {unit}"
    else:
        effect = f"costs {gone} {unit} on top of {whole} ({percent(-trial.saving)})"
    before, after = trial.before.portable, trial.after.portable
    outside = f"{before} to {count(after, 'operator')} outside of the delegate"
    forms = "; ".join(trial.after.forms[:MOST_NAMED]) if trial.helps else ""
    how = f". Tried: {forms}" if forms else ""
    return f"{effect}, outputs {outputs_text(trial.after)}; {outside}{how}"


def next_step(records: Sequence[CaseRecord], typed: Sequence[str] = ()) -> str:
    """The command that this run calls for: about what failed, else the one that stores what has no
    baseline, which is ``typed`` with an option; advice only where there is nothing to mend first.
    """
    for record in failed_cases(records)[:1]:
        if outcome_of(record.checks) is Outcome.INVALID:
            return f"sme2 doctor --device {record.measured.fingerprint.target}"
        return reproduce_command(record)
    found = {outcome_of(record.checks) for record in records}
    if Outcome.NO_BASELINE in found and typed:
        return shlex.join([*typed, "--update-baselines"])
    # What else is open says itself what to do, and what was stored is to be committed.
    if found - {None, Outcome.NO_BASELINE, Outcome.PASS, Outcome.IMPROVED, Outcome.NOT_MEASURED}:
        return ""
    ranked = [
        (finding, record)
        for record in records
        if record.measured.variant != AS_EXPORTED
        for finding in advice({"": case_findings(record.measured)})
    ]
    if not ranked:
        return ""
    # What a rewrite can change comes first, then the costliest.
    named = {"": False, GENERAL: False}
    finding, record = max(ranked, key=lambda e: (named.get(e[0].rewrite, True), e[0].cost.share))
    return advise_command(record, finding.rewrite * named.get(finding.rewrite, True))


def compared(measured: CaseResult) -> Comparison | None:
    """SME2 off and on; None where one of them was not traced."""
    off, on = (measured.profiles.get(arm) for arm in (Arm.OFF, Arm.ON))
    return None if off is None or on is None else compare(off, on)


def case_sentences(measured: CaseResult) -> list[str]:
    """The findings of a case, and what SME2 changed in it."""
    found, comparison = sentences(case_findings(measured)), compared(measured)
    if comparison is not None:
        found += comparison_findings(comparison, timed=not measured.emulated)
    return found


def comparison_findings(comparison: Comparison, *, timed: bool = True) -> list[str]:
    """What changed between two profiles; without ``timed`` in structure alone."""
    if not timed:
        return [*_structure(comparison)]
    return [*_end_to_end(comparison), *_shift(comparison), *_structure(comparison)]


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


def _shift(comparison: Comparison) -> Iterator[str]:
    before, after = comparison.largest_before, comparison.largest_after
    if after is None:
        return
    if comparison.shifted:
        yield f"the bottleneck moved from {before} to {after}"
    else:
        yield f"the bottleneck is {after}" + (" on both sides" if before is after else "")


def _structure(comparison: Comparison) -> Iterator[str]:
    for word, members in (("removed", comparison.removed), ("added", comparison.added)):
        if members:
            names = Counter(member.operator.name for member in members)
            listed = ", ".join(f"{number} {name!r}" for name, number in names.most_common())
            yield f"{count(len(members), 'operator')} {word}: {listed}"
