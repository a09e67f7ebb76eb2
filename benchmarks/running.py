"""Runs benchmarks one after another, each alone in a process of its own, and keeps their results.

A result is a JSON file that is written whole at the end, so a run that was broken off goes on with
what is missing. What the figures mean is for harness.py and page.py to say.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from benchmarks.harness import Claim, claim_from, write_json
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.targets.local import LocalTarget


@dataclass(frozen=True)
class Benchmark:
    """One script of this folder; all of them take ``--json FILE``."""

    name: str
    title: str
    minutes: float
    """What a full run takes on two cores: for the progress line, never a limit."""
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = None
    """None where few trials would say nothing: it is then left out of a quick run."""
    quick_minutes: float = 0.5
    long: bool = True
    """Takes long in full: it is run only when it is named, or with --all."""
    samples: str | None = None
    """A file that has to be there, made by a command of its own."""

    def command(self, *, quick: bool) -> list[str]:
        """As it is typed after ``python``."""
        chosen = self.quick if quick else self.full
        return ["-m", f"benchmarks.{self.name}", *(chosen or ())]


BENCHMARKS = (
    Benchmark(
        "startup", "start of pytest", 1.5, quick=("--rounds", "5"), quick_minutes=0.2, long=False
    ),
    Benchmark(
        "etdump",
        "reading ETDumps",
        2,
        quick=("--runs", "1000", "--largest-mb", "10", "--repeats", "3"),
        quick_minutes=1,
        long=False,
    ),
    Benchmark("first_run", "the main command from nothing, and where its time goes", 30),
    Benchmark(
        "first_insight", "from an empty folder to the first insight about a model of one's own", 5
    ),
    Benchmark(
        "detection",
        "false alarms and missed slowdowns, against other rules",
        0.5,
        full=("report",),
        samples="sme2-out/detection.jsonl",
    ),
    Benchmark(
        "detection_gate",
        "the whole gate on real programs where the truth is known",
        0.1,
        full=("report",),
        samples="sme2-out/detection_gate/verdicts.jsonl",
    ),
    Benchmark("culprits", "whether a failure names the operator that is to blame", 10),
    Benchmark(
        "simulated_gate",
        "the gate on pretended machines where the truth is known (a simulation)",
        5,
    ),
    Benchmark(
        "frontier",
        "how many threads to ship, on a pretended chip whose cores share an SME unit",
        25,
    ),
    Benchmark(
        "generation",
        "slowdowns in one phase of a language model's generation",
        300,
        quick=("--quick",),
        quick_minutes=1.5,
    ),
    Benchmark("history", "histories of 500 commits where every change is known (a simulation)", 6),
    Benchmark("attacks", "whole runs of pytest that must not end green", 3),
    Benchmark("fleet", "300 programs over four shards, then a new machine with a warm store", 16),
    Benchmark(
        "faults",
        "a phone that breaks while it is measured on",
        25,
        quick=("--trials", "1"),
        quick_minutes=1,
    ),
    Benchmark(
        "hostile",
        "kills, full disks, hostile files and names",
        20,
        quick=("--quick",),
        quick_minutes=3,
    ),
)

BY_NAME = {benchmark.name: benchmark for benchmark in BENCHMARKS}


def chosen(names: list[str], *, quick: bool, everything: bool) -> list[Benchmark]:
    """What to run: what is named, else all that fits the kind of run."""
    if names:
        return [BY_NAME[name] for name in names]
    return [
        benchmark
        for benchmark in BENCHMARKS
        if (benchmark.quick is not None if quick else everything or not benchmark.long)
    ]


# --- running --------------------------------------------------------------------------------------


PACKAGES = ("pytest-sme2", "pytest", "pytest-benchmark", "executorch", "torch", "numpy", "scipy")


def machine() -> dict[str, str]:
    facts = dict(LocalTarget().fingerprint().facts)
    return {
        "cpu": facts["cpu"],
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": _system(),
        "platform": host_platform(),
    }


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "unknown"
    return f"{total / 2**30:.0f} GiB"


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit(folder: Path) -> str:
    """The checkout's commit, with a mark where files differ from it."""
    asked = subprocess.run(
        ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"


ROOT = Path(__file__).parents[1]
SCHEMA = 1
SECONDS_TO_END = 20.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """One benchmark's figures, and how they came about."""

    name: str
    command: str
    finished: str
    seconds: float
    commit: str
    machine: dict[str, str]
    versions: dict[str, str]
    claims: tuple[Claim, ...]
    details: dict[str, Any]

    @property
    def missed(self) -> list[Claim]:
        return [claim for claim in self.claims if claim.met is False]

    def claim(self, key: str) -> Claim:
        return next(claim for claim in self.claims if claim.key == key)


def read_result(path: Path) -> Result | None:
    """A finished result; None where there is none, or one of another form."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return None
    claims = tuple(claim_from(claim) for claim in document["claims"])
    fields = {name: document[name] for name in Result.__dataclass_fields__ if name != "claims"}
    return Result(claims=claims, **fields)


def typed(benchmark: Benchmark, *, quick: bool) -> str:
    """The command as a person types it."""
    return shlex.join(["python", *benchmark.command(quick=quick)])


def run_one(
    benchmark: Benchmark, folder: Path, *, quick: bool, python: str = sys.executable
) -> Result | str:
    """Run one benchmark alone; its result, or in a word why there is none."""
    if benchmark.samples and not quick and not (ROOT / benchmark.samples).is_file():
        return (
            f"{benchmark.samples} is not there; collect it first: "
            f"python -m benchmarks.{benchmark.name} collect --minutes 60"
        )
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{benchmark.name}.log"
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary, log.open("w", encoding="utf-8") as output:
        path = Path(temporary) / "result.json"
        code = _run_alone([python, *benchmark.command(quick=quick), "--json", str(path)], output)
        seconds = time.monotonic() - begun
        # 1: a limit was missed, which is a result.
        if code not in (0, 1) or not path.is_file():
            return f"it ended with exit code {code}: {_last_line(log)} (all of it: {log})"
        measured = json.loads(path.read_text(encoding="utf-8"))
    document = {
        "schema": SCHEMA,
        "name": benchmark.name,
        "command": typed(benchmark, quick=quick),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(seconds, 1),
        "commit": commit(ROOT),
        "machine": machine(),
        "versions": versions(),
        "claims": measured["claims"],
        "details": measured["details"],
    }
    write_json(folder / f"{benchmark.name}.json", document)
    result = read_result(folder / f"{benchmark.name}.json")
    assert result is not None
    return result


def _run_alone(arguments: list[str], output: TextIO) -> int:
    """The exit code; where this is interrupted, the benchmark and what it started end as well."""
    process = subprocess.Popen(
        arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait()
    except BaseException:
        # As Ctrl-C does, so that it can take its files along.
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(timeout=SECONDS_TO_END)
        raise


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def run_all(
    benchmarks: Sequence[Benchmark], folder: Path, *, quick: bool, again: bool, say: Say
) -> tuple[list[Result], dict[str, str]]:
    """Every benchmark that has no result yet, or all again; the results, and what failed why."""
    results: list[Result] = []
    failed: dict[str, str] = {}
    for index, benchmark in enumerate(benchmarks, start=1):
        place = f"[{index}/{len(benchmarks)}] {benchmark.name}"
        found = read_result(folder / f"{benchmark.name}.json")
        if found is not None and not again and found.command == typed(benchmark, quick=quick):
            say(f"{place}: finished at {found.finished}, commit {found.commit}; {_told(found)}")
            results.append(found)
            continue
        minutes = benchmark.quick_minutes if quick else benchmark.minutes
        say(f"{place}: {benchmark.title}, about {minutes:g} min …")
        answer = run_one(benchmark, folder, quick=quick)
        if isinstance(answer, str):
            failed[benchmark.name] = answer
            say(f"{place}: no result: {answer}")
        else:
            results.append(answer)
            say(f"{place}: {answer.seconds:.0f} s; {_told(answer)}")
    return results, failed


def _told(result: Result) -> str:
    judged = [claim for claim in result.claims if claim.met is not None]
    return f"{len(judged) - len(result.missed)} of {len(judged)} limits met"
