"""How cost grows with work: models, devices, runs and operators, stage by stage.

    python -m benchmarks.growth [--largest 1.0] [--repeats 3] [--json FILE]

A stage's cost is fitted with a power of the amount of work over its last decade: below that, what a
stage costs once hides how it grows. An exponent of 1 is linear, 2 is quadratic, below 1 means that
what is done once still shows. Limit: 1.2, which lets sorting through and nothing worse.

    models     1 to 50: discovery, pytest's collection, a traced process each, reading, writing
               every file of a case, the table, the Markdown report, the HTML report
    devices    1 to 8 fake phones, each with the same number of runs of a runner that sleeps: the
               time a run falls, and the exponent of the throughput is at least 0.9
    runs       10 to 10,000 in one real ETDump: the traced process itself, reading, profile, files
    operators  10 to 2,000 in a program: reading, profile, comparing off with on, files, the HTML

Costs are CPU time, with that of the processes a stage starts, the least of several times; only for
devices it is wall time. Sizes are measured in random order. Exporting is not in it: each model is
exported by a process of its own and kept, so it is linear by construction.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.claims import Claim, finish
from benchmarks.devices import throughput
from benchmarks.many_cases import dump, write_cases
from pytest_sme2.export.discovery import discover
from pytest_sme2.fake_phone.lab import FakeLab
from pytest_sme2.fake_phone.sleep_runner import make_sleep_runner
from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.compare import compare
from pytest_sme2.report.html import write_html
from pytest_sme2.report.markdown import run_report
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.report.writing import write_case
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.trace.etdump import read_etdump
from tests.support.programs import program_files
from tests.support.records import write_case as write_record_of

MOST_EXPONENT = 1.2
LEAST_DEVICES_EXPONENT = 0.9
DECADE = 10.0

MODELS = (1, 2, 5, 10, 20, 50)
DEVICES = (1, 2, 4, 8)
RUNS = (10, 30, 100, 300, 1000, 3000, 10_000)
OPERATORS = (10, 20, 50, 100, 200, 500, 1000, 2000)
CASE_OPERATORS = 200
DEVICE_RUNS = 12
DEVICE_SECONDS = 0.5

Costs = dict[str, dict[int, float]]
"""By stage, seconds by amount of work."""


def exponent(costs: Mapping[int, float]) -> float:
    """The power that cost grows with over the last decade: a straight line through logarithms."""
    largest = max(costs)
    points = [
        (math.log(size), math.log(max(cost, 1e-9)))
        for size, cost in costs.items()
        if size * DECADE >= largest
    ]
    if len(points) < 2:
        return math.nan
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


class Stopwatch:
    """Keeps the least cost of each stage at each size."""

    def __init__(self) -> None:
        self.costs: defaultdict[str, dict[int, float]] = defaultdict(dict)

    @contextmanager
    def time(self, stage: str, size: int) -> Iterator[None]:
        started = cpu_seconds()
        yield
        seconds = cpu_seconds() - started
        self.costs[stage][size] = min(seconds, self.costs[stage].get(size, math.inf))


def cpu_seconds() -> float:
    """The CPU time of this process and of those that it started and waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


MODEL = """\
import torch
from pytest_sme2 import register_model


@register_model("model_{index}", variants=("fp32", "fp16", "int8"))
class Model:
    def get_eager_model(self):
        return torch.nn.Linear(8, 8)

    def get_example_inputs(self):
        return (torch.randn(1, 8),)
"""
TEST = """\
def test_evidence(sme2_gate):
    sme2_gate.check_evidence()


def test_coverage(sme2_gate):
    sme2_gate.check_coverage()
"""


def write_models(folder: Path, count: int) -> Path:
    """A user's project with so many models."""
    for index in range(count):
        model = folder / "models" / f"model_{index}" / "model.py"
        model.parent.mkdir(parents=True)
        model.write_text(MODEL.format(index=index), encoding="utf-8")
    (folder / "test_models.py").write_text(TEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nsme2_models = models\n", encoding="utf-8")
    return folder


def collect(project: Path) -> None:
    """Six tests a model: two tests times three variants."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"),
            *("-p", "pytest_sme2.plugin.hooks", "--device=emulated"),
        ],
        cwd=project,
        # Other plugins that happen to be installed would only add what they cost once.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)


def traced(target: LocalTarget, pte: Path, runs: int, folder: Path) -> Path:
    """The ETDump of one traced process on this machine."""
    artifact = Artifact("toy", "fp32", pte.parent, pte, "", (), ())
    request = RunRequest(artifact, Arm.OFF, warmup=0, runs=runs, traced=True)
    etdump = target.run(wheel_runner(target.platform), request, folder).etdump
    assert etdump is not None
    return etdump


def grow_models(root: Path, sizes: Sequence[int]) -> Costs:
    watch = Stopwatch()
    target = LocalTarget()
    pte = program_files(cache_folder())["toy_fp32"]
    wheel_runner(target.platform)
    # Every case is as large as the next, or the amount of work would not be their number.
    cases = list(write_cases(root / "cases", max(sizes), (CASE_OPERATORS,)))
    records = [(folder, read_record(folder)) for folder in cases]
    for number, size in enumerate(sizes):
        project = write_models(root / f"project-{number}", size)
        with watch.time("discovery", size):
            discover([project / "models"])
        with watch.time("collection by pytest", size):
            collect(project)
        with watch.time("a traced process each", size):
            for index in range(size):
                traced(target, pte, 1, project / f"run-{index}")
        some = records[:size]
        only = [record for _, record in some]
        with watch.time("reading a run", size):
            for folder, _ in some:
                read_record(folder)
        with watch.time("files of cases", size):
            for folder, record in some:
                write_case(folder, record)
        with watch.time("table and findings", size):
            run_lines(only)
        with watch.time("Markdown report", size):
            run_report(only)
        with watch.time("HTML report", size):
            write_html(project / "report.html", some)
    return dict(watch.costs)


def grow_runs(root: Path, sizes: Sequence[int]) -> Costs:
    watch = Stopwatch()
    target = LocalTarget()
    pte = program_files(cache_folder())["toy_fp32"]
    for number, size in enumerate(sizes):
        folder = root / f"runs-{number}"
        with watch.time("the traced process", size):
            etdump = traced(target, pte, size, folder / "traced")
        data = etdump.read_bytes()
        with watch.time("reading the ETDump", size):
            columns = read_etdump(data)
        with watch.time("profile", size):
            build_profile(columns)
        case = write_record_of(folder, "toy", "fp32", {Arm.OFF: data})
        record = read_record(case)
        with watch.time("files of the case", size):
            write_case(case, record)
    return dict(watch.costs)


def grow_operators(root: Path, sizes: Sequence[int]) -> Costs:
    watch = Stopwatch()
    for number, size in enumerate(sizes):
        folder = root / f"operators-{number}"
        source = random.Random(size)
        dumps = {arm: dump(arm, size, source) for arm in Arm}
        with watch.time("reading the ETDump", size):
            columns = read_etdump(dumps[Arm.ON])
        with watch.time("profile", size):
            profile = build_profile(columns)
        off = build_profile(read_etdump(dumps[Arm.OFF]))
        with watch.time("off against on", size):
            compare(off, profile)
        case = write_record_of(folder, "toy", "fp32", dumps)
        record = read_record(case)
        with watch.time("files of the case", size):
            write_case(case, record)
        with watch.time("findings", size):
            run_lines([record])
        with watch.time("HTML report", size):
            write_html(folder / "report.html", [(case, record)])
    return dict(watch.costs)


def grow_devices(root: Path, sizes: Iterable[int], runs: int) -> Costs:
    """Seconds a run, with so many devices at once."""
    costs: dict[int, float] = {}
    with FakeLab() as lab:
        make_sleep_runner(root / "runner", DEVICE_SECONDS)
        (root / "model.pte").write_bytes(b"model")
        for size in sorted(sizes):
            while len(lab.phones) < size:
                lab.add()
            costs[size] = 1 / throughput(lab, root, size, runs * size)[0]
    return {"time a run": costs}


def shuffled(sizes: Sequence[int], largest: float, repeats: int, seed: int = 0) -> list[int]:
    """Every size so many times, up to a part of the largest, in random order."""
    kept = [size for size in sizes if size <= max(largest * sizes[-1], sizes[1])]
    return random.Random(seed).sample(kept * repeats, len(kept) * repeats)


def claims_of(axes: Mapping[str, Costs], *, judged: bool) -> list[Claim]:
    """The worst stage of each axis; for devices the throughput."""
    made = []
    for axis, stages in axes.items():
        sizes = sorted({size for costs in stages.values() for size in costs})
        span = f"{sizes[0]:,} to {sizes[-1]:,} {axis}"
        if axis == "devices":
            gained = -exponent(stages["time a run"])
            what = f"{span}: exponent of throughput"
            limit = LEAST_DEVICES_EXPONENT if judged else None
            made.append(Claim(axis, what, gained, limit=limit, least=True))
            continue
        worst = max(stages, key=lambda stage: exponent(stages[stage]))
        what = f"{span}: largest exponent of {len(stages)} stages ({worst})"
        limit = MOST_EXPONENT if judged else None
        made.append(Claim(axis, what, exponent(stages[worst]), limit=limit))
    return made


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--largest", type=float, default=1.0, help="part of the largest sizes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--axis", action="append", choices=("models", "devices", "runs", "operators")
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    axes: dict[str, Costs] = {}
    largest, repeats = arguments.largest, arguments.repeats
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for axis in arguments.axis or ("models", "devices", "runs", "operators"):
            if axis == "models":
                axes[axis] = grow_models(root, shuffled(MODELS, largest, repeats))
            elif axis == "devices":
                runs = max(2, round(DEVICE_RUNS * largest))
                axes[axis] = grow_devices(root, shuffled(DEVICES, max(0.25, largest), 1), runs)
            elif axis == "runs":
                axes[axis] = grow_runs(root, shuffled(RUNS, largest, repeats))
            else:
                axes[axis] = grow_operators(root, shuffled(OPERATORS, largest, repeats))
            for stage, costs in axes[axis].items():
                told = "  ".join(f"{size:,}: {costs[size]:.4g} s" for size in sorted(costs))
                print(f"{axis:10} {stage:24} n^{exponent(costs):.2f}   {told}", flush=True)
    details = {
        axis: {
            stage: {
                "exponent": exponent(costs),
                "seconds": {str(size): costs[size] for size in sorted(costs)},
            }
            for stage, costs in stages.items()
        }
        for axis, stages in axes.items()
    }
    return finish(claims_of(axes, judged=largest >= 1), arguments.json, details)


if __name__ == "__main__":
    sys.exit(main())
