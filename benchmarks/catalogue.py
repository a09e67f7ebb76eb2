"""The benchmarks there are: how each is called, how long it takes, and when it is run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Benchmark:
    """One script of this folder; all of them take ``--json FILE``."""

    name: str
    title: str
    minutes: float
    """What a full run takes on two cores: for the progress line, never a limit."""
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = ()
    """None where few trials would say nothing: it is then left out of a quick run."""
    quick_minutes: float = 0.5
    long: bool = False
    """Takes long in full: it is run only when it is named, or with --all."""
    samples: str | None = None
    """A file that has to be there, made by a command of its own."""

    def command(self, *, quick: bool) -> list[str]:
        """As it is typed after ``python``."""
        chosen = self.quick if quick else self.full
        return ["-m", f"benchmarks.{self.name}", *(chosen or ())]


BENCHMARKS = (
    Benchmark("startup", "start of pytest", 1.5, quick=("--rounds", "5"), quick_minutes=0.2),
    Benchmark(
        "etdump",
        "reading ETDumps",
        2,
        quick=("--runs", "1000", "--largest-mb", "10", "--repeats", "3"),
        quick_minutes=1,
    ),
    Benchmark(
        "first_run",
        "the main command from nothing, and where its time goes",
        30,
        quick=None,
        long=True,
    ),
    Benchmark(
        "first_insight",
        "from an empty folder to the first insight about a model of one's own",
        5,
        quick=None,
        long=True,
    ),
    Benchmark(
        "load",
        "memory of a large run",
        5,
        quick=("--cases", "4", "--operators", "200", "--runs", "200"),
        quick_minutes=0.3,
        long=True,
    ),
    Benchmark(
        "detection",
        "false alarms and missed slowdowns, against other rules",
        0.5,
        full=("report",),
        quick=None,
        long=True,
        samples="sme2-out/detection.jsonl",
    ),
    Benchmark(
        "detection_gate",
        "the whole gate on real programs where the truth is known",
        0.1,
        full=("report",),
        quick=None,
        long=True,
        samples="sme2-out/detection_gate/verdicts.jsonl",
    ),
    Benchmark(
        "culprits",
        "whether a failure names the operator that is to blame",
        10,
        quick=None,
        long=True,
    ),
    Benchmark(
        "simulated_gate",
        "the gate on pretended machines where the truth is known (a simulation)",
        5,
        quick=None,
        long=True,
    ),
    Benchmark(
        "history",
        "histories of 500 commits where every change is known (a simulation)",
        6,
        quick=None,
        long=True,
    ),
    Benchmark(
        "cost",
        "counted instructions: the same every time, one layer more, what counting adds",
        60,
        quick=("counting", "--rounds", "1", "--cases", "toy_cnn:int8"),
        long=True,
    ),
    Benchmark(
        "phone_turns",
        "turns on a phone whose clock has two speeds",
        25,
        quick=None,
        long=True,
    ),
    Benchmark(
        "frontier",
        "how many threads to ship, on a pretended chip whose cores share an SME unit",
        20,
        quick=None,
        long=True,
    ),
    Benchmark(
        "faults",
        "a phone that breaks while it is measured on",
        25,
        quick=("--trials", "1"),
        quick_minutes=1,
        long=True,
    ),
    Benchmark(
        "hostile",
        "kills, full disks, hostile files and names",
        20,
        quick=("--quick",),
        quick_minutes=3,
        long=True,
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
