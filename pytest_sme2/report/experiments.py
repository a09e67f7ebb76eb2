"""The account of a whole experiment file at the top of its run directory.

The first pair's own files are there, so that older tools find them; this adds every other pair and
experiment to them.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_sme2.errors import Sme2Error
from pytest_sme2.report.csv_files import write_summary
from pytest_sme2.report.markdown import run_report
from pytest_sme2.report.writing import model_stem, pipeline_summary
from pytest_sme2.session.analysis import SUFFIX, analyze_file
from pytest_sme2.session.run_directory import MANIFEST, METRICS, CaseRecord
from pytest_sme2.system.files import inside, write_json, write_text
from pytest_sme2.system.reading import read_json

PAIRS = "pairs"


@dataclass(frozen=True)
class ExperimentAccount:
    """One experiment that ran, with one number of threads."""

    experiment: str
    threads: int
    mode: str
    sme2: str
    runs: int
    warmup: int
    runner: str
    etdump: Path | None
    log: Path | None
    latency_ns: Sequence[int] = ()
    """Of each inference; empty where times mean nothing."""


def write_experiments(
    root: Path,
    cases: Sequence[tuple[Path, CaseRecord]],
    accounts: Sequence[ExperimentAccount],
    file: Path | None = None,
) -> None:
    """Put every experiment into the files at the top, and the file that asked for them."""
    if cases:
        results = [_result(root, account) for account in accounts]
        config = None if file is None else str(file)
        _extend(root / METRICS, {"results": results, "config": config})
        rewrite_experiments(root, cases)


def rewrite_experiments(root: Path, cases: Sequence[tuple[Path, CaseRecord]]) -> None:
    """The same again from what ``metrics.json`` has, where it is that of an experiment file."""
    metrics = _object(root / METRICS)
    results = metrics.get("results")
    if not isinstance(results, list) or not cases:
        return
    records = [record for _, record in cases]
    told = {"config": metrics.get("config"), "results": results, "cases": _places(root, cases)}
    _extend(root / MANIFEST, told)
    stem = model_stem(records[0])
    runs = [pipeline_summary(record) for record in records]
    _extend(root / f"{stem}_pipeline_summary.json", {"runs": results, "cases": runs})
    if len(cases) > 1:
        write_text(root / f"{stem}_pipeline_summary.md", run_report(records))
        analyses = [
            analyze_file(inside(root, name), name=name.removesuffix(SUFFIX))
            for name in _dumps(results)
        ]
        write_summary(analyses, root, timed=not records[0].measured.emulated)


def _dumps(results: Sequence[Any]) -> Iterator[str]:
    for entry in results:
        metrics = entry.get("metrics") if isinstance(entry, dict) else None
        name = metrics.get("etdump") if isinstance(metrics, dict) else None
        if isinstance(name, str):
            yield name


def _places(root: Path, cases: Sequence[tuple[Path, CaseRecord]]) -> list[dict[str, str]]:
    return [
        {"case": record.id, "folder": Path(os.path.relpath(folder, root)).as_posix()}
        for folder, record in cases
    ]


def _result(root: Path, account: ExperimentAccount) -> dict[str, Any]:
    metrics: dict[str, Any] = {"runs": account.runs, "threads": account.threads}
    milliseconds = [value / 1e6 for value in account.latency_ns]
    if milliseconds:
        metrics |= {
            "latency_ms": milliseconds,
            "median_ms": statistics.median(milliseconds),
            "min_ms": min(milliseconds),
            "max_ms": max(milliseconds),
        }
    for name, path in (("etdump", account.etdump), ("log", account.log)):
        if path is not None:
            metrics[name] = path.relative_to(root).as_posix()
    return {
        "experiment": account.experiment,
        "mode": account.mode,
        "sme2": account.sme2,
        "warmup": account.warmup,
        "executorch": account.runner,
        "metrics": metrics,
    }


def _extend(path: Path, more: dict[str, Any]) -> None:
    write_json(path, {**_object(path), **more})


def _object(path: Path) -> dict[str, Any]:
    document = read_json(path, remedy="Run the experiments again.")
    if not isinstance(document, dict):
        raise Sme2Error(f"{path} is not an object. Run the experiments again.")
    return document
