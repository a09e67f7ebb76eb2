"""A comment for a pull request: the verdict in one line, and a small table. Pure.

The Markdown is what GitHub and GitLab share. The first line is a hidden mark, by which a
workflow finds the comment again and replaces it.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_sme2.export.rewrites import REWRITES
from pytest_sme2.export.variant import precision_of
from pytest_sme2.report.findings import trial_text
from pytest_sme2.report.text import NOTHING, code, document, json_text, prose, table
from pytest_sme2.report.versus_baseline import (
    check_cells,
    count_cases,
    deciding,
    headline,
    outcome_of,
    worst_first,
)
from pytest_sme2.results import Arm, CaseResult, Check, Executor, Outcome
from pytest_sme2.session.reproduce import advise_command
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.session.trials import Edit, Trial
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import FAILING, PASSING, WARNING

MARK = "<!-- pytest-sme2 -->"
# A character of no width after it makes it plain text.
_ALIVE = re.compile(r"@(?=\w)|:(?=//)|www(?=\.)|#(?=\d)", re.IGNORECASE)
MOST_CASES = 20
MOST_FAILURES = 5
_SIGNS = dict.fromkeys(FAILING, "❌") | dict.fromkeys(WARNING, "⚠️") | dict.fromkeys(PASSING, "✅")


def comment_text(records: Sequence[CaseRecord]) -> str:
    """What to post about a run; failing cases first."""
    ranked = worst_first(records)
    lines = [MARK, f"**SME2: {_verdict(ranked)}**", ""]
    lines += table(
        ["case", "check", "baseline", "now", "change", "limit", "verdict"],
        [_row(record) for record in ranked[:MOST_CASES]],
    )
    left = len(ranked) - MOST_CASES
    if left > 0:
        lines += ["", f"{count(left, 'more case')} in report.md."]
    failed = [
        (record, check) for record in ranked for check in record.checks if check.verdict in FAILING
    ]
    if failed:
        lines += ["", "<details><summary>What failed</summary>", ""]
        # What is wrong on both arms is said once.
        told = list(dict.fromkeys(_failure(record, check) for record, check in failed))
        lines += told[:MOST_FAILURES]
        more = len(told) - MOST_FAILURES
        if more > 0:
            lines.append(f"- {count(more, 'more check')} in report.md")
        lines += ["", "</details>"]
    devices = dict.fromkeys(record.measured.fingerprint.target for record in records)
    if devices:
        notes = [f"Device: {', '.join(map(code, devices))}."]
        if any(record.measured.emulated for record in records):
            notes.append("Emulated: cost is executed instructions (Minst: a million), no time.")
        lines += ["", " ".join(notes)]
    return document(lines)


def fix_text(record: CaseRecord, best: Trial, edit: Edit | None) -> str:
    """What to add to the comment: the best tested rewrite, as a change of the model's file."""
    trial = best if edit is None else edit.trial
    names = " and ".join(trial.rewrites)
    head = f"A tested fix for {record.id}: {names} {trial_text(trial)}"
    lines = ["", f"<details open><summary>{_words(head)}</summary>", ""]
    for name in trial.rewrites:
        rewrite = next(known for known in REWRITES if known.name == name)
        lines.append(f"- {rewrite.what}: {rewrite.why}; {rewrite.remedy}.")
    again = advise_command(record, ",".join(trial.rewrites))
    if edit is None:
        lines += ["", f"What calls it is not in the model's own file. To see it: {code(again)}"]
    else:
        lines += ["", "```diff", *edit.diff.splitlines(), "```"]
        lines += ["", f"To apply it: {code('git apply')}. To try it again: {code(again)}"]
    return document([*lines, "", "</details>"])


def _words(sentence: str) -> str:
    """A sentence without mentions and links: names come from outside."""
    return _ALIVE.sub("\\g<0>\u200b", prose(sentence))


def _verdict(ranked: Sequence[CaseRecord]) -> str:
    """``❌ 28x more instructions: `x.flip(-1)` at net.py:8 in toy-fp16 (1 failed, 2 passed)``."""
    if not ranked:
        return "nothing was measured"
    worst = ranked[0]
    outcome = outcome_of(worst.checks)
    if outcome not in (*FAILING, *WARNING):
        return f"{_sign(outcome)} {_counted(ranked)}"
    effect, where = headline(worst.checks)
    place = f": {_place(where)}" if where else ""
    return f"{_sign(outcome)} {_words(effect)}{place}, {code(worst.id)} ({_counted(ranked)})"


def _counted(records: Sequence[CaseRecord]) -> str:
    """``1 failed, 2 passed``."""
    return ", ".join(f"{number} {word}" for word, number in count_cases(records).items() if number)


def _place(where: str) -> str:
    return code(where.replace("`", ""))


def _sign(outcome: Outcome | None) -> str:
    return "❔" if outcome is None else _SIGNS.get(outcome, "❔")


def _row(record: CaseRecord) -> list[str]:
    check = deciding(record.checks)
    if check is None:
        return [code(record.id), *[NOTHING] * 6]
    old, new, change, interval, limit = check_cells(check)
    change = _words(change if interval == NOTHING else f"{change} {interval}")
    verdict = f"{_sign(check.verdict)} {check.verdict}"
    return [code(record.id), _words(check.metric), old, new, change, limit, verdict]


def _failure(record: CaseRecord, check: Check) -> str:
    metric = check.metric.removesuffix(" (on)").removesuffix(" (off)")
    place = f" {_place(check.where)}" if check.where else ""
    return f"- {code(record.id)}: **{_words(metric)}**:{place} {_words(check.message)}"


class Metric(NamedTuple):
    """One number of which less is better."""

    measure: str
    """As Bencher calls a kind of number: ``latency-on``."""
    unit: str
    value: float
    bounds: tuple[float, float] | None = None


def metrics(measured: CaseResult) -> Iterator[Metric]:
    """Every number of a result that gets better by getting smaller."""
    for arm in Arm:
        for measure, times in (("latency", measured.medians_ns), ("load-time", measured.loads_ns)):
            values = (times or {}).get(arm)
            if values:
                bounds = (min(values), max(values))
                yield Metric(f"{measure}-{arm}", "ns", statistics.median(values), bounds)
        peak = (measured.peak_bytes or {}).get(arm)
        if peak is not None:
            yield Metric(f"peak-memory-{arm}", "bytes", peak)
        cost = measured.costs.get(arm)
        if cost is not None:
            yield Metric(f"instructions-{arm}", "instructions", cost.total.instructions)
    speedup = measured.speedup
    if speedup is not None and speedup.low > 0:
        # Time with SME2 over time without: a speedup whose smaller value is better.
        bounds = (1 / speedup.high, 1 / speedup.low)
        yield Metric("time-on-over-off", "ratio", 1 / speedup.value, bounds)
    if measured.pte_bytes is not None:
        yield Metric("program-size", "bytes", measured.pte_bytes)
    structure = measured.structures.get(measured.arm)
    if structure is not None:
        yield Metric("operators", "operators", structure.total)
        portable = structure.executed_by(Executor.PORTABLE)
        yield Metric("portable-operators", "operators", portable)
    if Arm.ON in measured.structures:
        on = measured.structures[Arm.ON]
        yield Metric("matrix-operators-without-sme2", "operators", on.matrix - on.sme2)


def _name(measured: CaseResult) -> str:
    threads = f" ({measured.threads} threads)" if measured.threads != 1 else ""
    return f"{measured.model}-{measured.variant} on {measured.fingerprint.target}{threads}"


def github_action_benchmark(records: Sequence[CaseRecord]) -> str:
    """The JSON of github-action-benchmark's tool ``customSmallerIsBetter``."""
    entries: list[dict[str, Any]] = []
    for measured in (record.measured for record in records):
        versions = "\n".join(f"{name} {text}" for name, text in sorted(measured.versions.items()))
        for measure, unit, value, bounds in metrics(measured):
            entry = {"name": f"{_name(measured)}: {measure}", "unit": unit, "value": value}
            if bounds is not None:
                entry["range"] = f"{bounds[0]:g} to {bounds[1]:g}"
            entries.append({**entry, "extra": versions})
    return json_text(entries)


def bencher_metric_format(records: Sequence[CaseRecord]) -> str:
    """The JSON of Bencher's Metric Format: benchmark, then measure, then value and bounds."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for measured in (record.measured for record in records):
        measures = found.setdefault(_name(measured), {})
        for measure, _, value, bounds in metrics(measured):
            ends = zip(("lower_value", "upper_value"), bounds or (), strict=False)
            measures[measure] = {"value": value, **dict(ends)}
    return json_text(found, sort_keys=True)


def pytorch_benchmark(records: Sequence[CaseRecord]) -> str:
    """The JSON of PyTorch's benchmark database, version 3; what is extra is text there."""
    entries: list[dict[str, Any]] = []
    for measured in (record.measured for record in records):
        device = measured.fingerprint
        of = {
            "benchmark": {
                "name": "ExecuTorch",
                "mode": "inference",
                "dtype": precision_of(measured.variant),
                "extra_info": {
                    "variant": measured.variant,
                    "threads": str(measured.threads),
                    "emulated": str(measured.emulated).lower(),
                },
            },
            "model": {"name": measured.model, "type": "OSS model", "backend": "xnnpack"},
            "runners": [
                {"name": device.key, "type": device.target, "extra_info": dict(device.facts)}
            ],
            "dependencies": {
                package: {"version": version} for package, version in measured.versions.items()
            },
        }
        for measure, unit, value, bounds in metrics(measured):
            ends = zip(("low", "high"), bounds or (), strict=False)
            metric = {
                "name": f"{measure}({unit})",
                "benchmark_values": [value],
                "target_value": 0,
                "extra_info": {name: f"{end:g}" for name, end in ends},
            }
            entries.append({**of, "metric": metric})
    return json_text(entries)


FORMATS: Mapping[str, Callable[[Sequence[CaseRecord]], str]] = {
    "comment": comment_text,
    "github": github_action_benchmark,
    "bencher": bencher_metric_format,
    "pytorch": pytorch_benchmark,
}
