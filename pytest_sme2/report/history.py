"""The history: one small record per case and run, kept for years, and what changed over them.

Each run writes one file of JSON lines and never touches another. So branches and machines merge by
having all files in one folder, and a diff shows what came. A run takes a few kilobytes, which text
holds as well as a binary format would.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.report.commit import project_commit
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.files import decode, encode, safe_name, write_text
from pytest_sme2.system.reading import json_value, read_bytes
from pytest_sme2.system.wording import count

SCHEMA = 1
SUFFIX = ".jsonl"
_REMEDY = "Take the file out of the folder, or get it again from where it came."
# Changed by less, a figure is shown as unchanged: the emulator counts the runner's start as well.
LEAST_CHANGE = 0.0005


@dataclass(frozen=True)
class HistoryRecord:
    """One case of one run. Figures that a device cannot give are None or missing."""

    schema: int
    case: str
    device: str
    recorded: str
    """When, as ISO 8601 in UTC."""
    session: str
    commit: str | None
    """Of the project; with a ``+`` where files were changed."""
    versions: Mapping[str, str] = field(default_factory=dict)
    latency_ms: Mapping[Arm, float] = field(default_factory=dict)
    """Never of an emulator."""
    speedup: float | None = None
    instructions: Mapping[Arm, int] = field(default_factory=dict)
    sme2_operators: int | None = None
    matrix_operators: int | None = None
    peak_bytes: Mapping[Arm, int] = field(default_factory=dict)
    pte_bytes: int | None = None
    pte_sha256: str = ""


def history_record(record: CaseRecord) -> HistoryRecord:
    measured = record.measured
    structure = measured.structures.get(Arm.ON)
    medians = {} if measured.emulated else measured.medians_ns or {}
    return HistoryRecord(
        schema=SCHEMA,
        case=record.id,
        device=measured.fingerprint.key,
        recorded=measured.recorded,
        session=measured.session,
        commit=project_commit(),
        versions=measured.versions,
        latency_ms={
            arm: round(statistics.median(values) / 1e6, 6)
            for arm, values in medians.items()
            if values
        },
        speedup=None if measured.speedup is None else round(measured.speedup.value, 4),
        instructions={arm: cost.total.instructions for arm, cost in measured.costs.items()},
        sme2_operators=None if structure is None else structure.sme2,
        matrix_operators=None if structure is None else structure.matrix,
        peak_bytes=measured.peak_bytes or {},
        pte_bytes=measured.pte_bytes,
        pte_sha256=measured.pte_sha256,
    )


def write_history(folder: Path, records: Sequence[CaseRecord]) -> Path | None:
    """Add this run; its file is complete or not there. None where it has no figures.

    What could not be exported has none to compare with later ones.
    """
    made = [record for record in records if record.measured.structures]
    if not made:
        return None
    lines = [json.dumps(encode(history_record(record)), sort_keys=True) for record in made]
    first = made[0].measured
    name = safe_name(f"{first.recorded}-{first.session}") + SUFFIX
    path = folder / name
    write_text(path, "".join(f"{line}\n" for line in lines))
    return path


def read_history(folder: Path) -> list[HistoryRecord]:
    """All records below a folder, the oldest first. Any damage is an error with its place."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {str(folder)!r}. Make one with --sme2-history.")
    found = [record for path in sorted(folder.rglob(f"*{SUFFIX}")) for record in _records_of(path)]
    return sorted(found, key=lambda record: (record.recorded, record.session, record.case))


def _records_of(path: Path) -> Iterator[HistoryRecord]:
    for number, line in enumerate(read_bytes(path, remedy=_REMEDY).splitlines(), start=1):
        where = f"{path}:{number}"
        document = json_value(line, where, remedy=_REMEDY, finite=True)
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema is not None and schema != SCHEMA:
            raise Sme2Error(f"{where} has schema {schema!r}, this version reads {SCHEMA}.")
        yield decode(document, HistoryRecord, Path(where), remedy=_REMEDY)


# --- what changed ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A figure that differs between two runs that follow each other."""

    before: HistoryRecord
    after: HistoryRecord
    old: float
    new: float

    @property
    def change(self) -> float | None:
        """As a share of the old figure; None where that is 0."""
        return self.new / self.old - 1 if self.old else None


def exact_figures(record: HistoryRecord) -> dict[str, float]:
    """What is the same whenever the same program is run, so that every change is real."""
    figures: dict[str, float] = {
        f"instructions ({arm})": count for arm, count in sorted(record.instructions.items())
    }
    named = {
        "operators on SME2": record.sme2_operators,
        "matrix operators": record.matrix_operators,
        "program bytes": record.pte_bytes,
    }
    return figures | {name: value for name, value in named.items() if value is not None}


def steps(records: Sequence[HistoryRecord], figure: str) -> list[Step]:
    """Where a figure changed, over the runs that have it.

    A slow drift of changes below ``LEAST_CHANGE`` is one step, when together they reach it.
    """
    found: list[Step] = []
    known: tuple[HistoryRecord, float] | None = None
    for record in records:
        value = exact_figures(record).get(figure)
        if value is None:
            continue
        if known is None:
            known = (record, value)
            last = record
            continue
        before = known[1]
        if abs(value - before) > LEAST_CHANGE * abs(before):
            found.append(Step(last, record, before, value))
            known = (record, value)
        last = record
    return found


def history_lines(records: Sequence[HistoryRecord]) -> Iterator[str]:
    """Each case on each device: what it is now, and every step on the way, with its commits."""
    series: dict[tuple[str, str], list[HistoryRecord]] = {}
    for record in records:
        series.setdefault((record.case, record.device), []).append(record)
    for (case, device), runs in sorted(series.items()):
        first, last = runs[0], runs[-1]
        days = " to ".join(dict.fromkeys(run.recorded[:10] for run in (first, last)))
        yield f"{case} on {device}: {count(len(runs), 'run')}, {days}"
        for arm, latency in sorted(last.latency_ms.items()):
            yield f"  latency ({arm}): {latency:.3f} ms in the last run"
        for figure in exact_figures(last):
            yield from _figure_lines(figure, runs)


def _figure_lines(figure: str, runs: Sequence[HistoryRecord]) -> Iterator[str]:
    known = [exact_figures(run) for run in runs]
    values = [figures[figure] for figures in known if figure in figures]
    now = f"  {figure}: {values[-1]:,.0f}"
    found = steps(runs, figure)
    if not found:
        yield f"{now}, unchanged"
        return
    whole = Step(runs[0], runs[-1], values[0], values[-1])
    yield f"{now}, {_percent(whole)} in {count(len(found), 'step')} from {values[0]:,.0f}"
    for step in found:
        yield f"    {_percent(step):>8}  {_range(step)}"


def _percent(step: Step) -> str:
    return f"{step.new - step.old:+,.0f}" if step.change is None else f"{step.change:+.2%}"


def _range(step: Step) -> str:
    """The commits, or the days where no commit is known, and the versions that changed."""
    commits = [run.commit or run.recorded[:10] for run in (step.before, step.after)]
    names = sorted({*step.before.versions, *step.after.versions})
    versions = [
        f"{name} {step.before.versions.get(name, 'none')} → {step.after.versions.get(name, 'none')}"
        for name in names
        if step.before.versions.get(name) != step.after.versions.get(name)
    ]
    return "; ".join([f"{commits[0]}..{commits[1]}", *versions])
