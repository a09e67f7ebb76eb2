"""How much of a measuring run's time is inference: on this machine, and over adb.

    python -m benchmarks.orchestration [--pairs 10] [--repeats 3] [--json FILE]

Here: `toy_cnn` is timed as the suite times it, on this machine, with the program and the runner
made before. Inference is what the runner's processes themselves report, warm-up and pilot included;
the rest is starting processes, loading programs, waiting and reading results. A second row takes
the whole command `sme2 run`, with the start of Python, the traced run, analysis and all files; of
processes that leave their result in the same place only the last is counted as inference there.

Over adb: a real adb server and a real adbd in a sandbox, and a runner that sleeps for a second in
place of inferring, so that this machine's cores are not the phone's as well. Preparing the phone,
pushing and putting it back are part of the run. Beside it the same with 0.3 s, which is what a
process infers when the number of runs is chosen by itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims import Claim, finish
from benchmarks.faults import make_artifact
from pytest_sme2.export.variant import Variant
from pytest_sme2.fake_phone.lab import FakeLab, fake_target
from pytest_sme2.fake_phone.sleep_runner import make_sleep_runner
from pytest_sme2.results import Arm, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.targets.base import RESULT_NAME, Target
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.sampling import SamplingPlan

MODELS = Path(__file__).parents[1] / "models"
LEAST_LOCAL_SHARE = 0.80
LEAST_ADB_SHARE = 1 / 1.10
"""At most 10 % over the inferences themselves, for runs of 1 s and more."""


def inference_seconds(folder: Path) -> float:
    """What all processes below ``folder`` spent on inferences, as they say."""
    total = 0
    for path in folder.rglob(RESULT_NAME):
        document = json.loads(path.read_text(encoding="utf-8"))
        total += sum(document["wall_ns"]) + sum(document["warmup_wall_ns"])
    return total / 1e9


def count_inferences(target: Target) -> list[float]:
    """From now on, the seconds of inference of every process that the target runs by itself."""
    counted: list[float] = []
    start = target.run

    def run(runner: Runner, request: RunRequest, folder: Path) -> Run:
        done = start(runner, request, folder)
        counted.append((sum(done.wall_ns) + sum(done.warmup_wall_ns)) / 1e9)
        return done

    target.run = run  # type: ignore[method-assign]
    return counted


def local_share(out: Path, device: str) -> tuple[float, int]:
    """The measuring stage alone; its share, and how many processes it started."""
    session = Session(Settings(device=device, model_folders=(MODELS,), out=out))
    case = Case("toy_cnn", Variant("fp32"), 1, session.registry.get("toy_cnn"))
    try:
        for arm in session.bench.arms:
            session.traced(case, arm)
        counted = count_inferences(session.bench.target)
        started = time.perf_counter()
        session.timing(case)
        seconds = time.perf_counter() - started
    finally:
        session.close()
    return sum(counted) / seconds, len(counted)


def command_share(out: Path, device: str) -> float:
    """A whole command; the program and the runner are in the cache by now."""
    program = "import sys; from pytest_sme2.cli.main import main; sys.exit(main())"
    started = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-c", program, "run", "toy_cnn", "--variant", "fp32"),
            *("--device", device, "--models-folder", str(MODELS), "--out", str(out)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return inference_seconds(out) / (time.perf_counter() - started)


def adb_share(folder: Path, lab: FakeLab, pairs: int, seconds: float) -> float:
    """A whole session on a phone, from connecting to putting it back."""
    runner = make_sleep_runner(folder / "runner", seconds)
    pte = folder / "model.pte"
    pte.write_bytes(b"model")
    artifact = make_artifact(pte)
    # Its times are those of a sleep, but here it is not latency that is asked for.
    target = fake_target(lab.add(), emulated=False)
    processes = 0

    def run_arm(arm: str, *, warmup: int, runs: int) -> Run:
        nonlocal processes
        processes += 1
        request = RunRequest(artifact, Arm(arm), warmup=warmup, runs=runs)
        return target.run(runner, request, folder / "out")

    plan = SamplingPlan(
        threshold=None, ratio_width=0, looks=(pairs,), split=(1.0,), runs=3, warmup=0
    )
    started = time.perf_counter()
    try:
        target.prepare()
        target.put([pte])
        measure_pairs(run_arm, str(Arm.OFF), str(Arm.ON), plan)
    finally:
        target.restore()
    return processes * seconds / (time.perf_counter() - started)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=10, help="over adb")
    parser.add_argument("--repeats", type=int, default=3, help="on this machine")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    device = LocalTarget().name
    over_adb: dict[float, float] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        stages = [local_share(root / f"stage-{n}", device) for n in range(arguments.repeats)]
        commands = [command_share(root / f"run-{n}", device) for n in range(arguments.repeats)]
        with FakeLab() as lab:
            for seconds in (1.0, 0.3):
                folder = root / f"adb-{seconds}"
                folder.mkdir()
                over_adb[seconds] = adb_share(folder, lab, arguments.pairs, seconds)
    # Few pairs leave connecting and putting back too large a part to judge.
    limit = LEAST_ADB_SHARE if arguments.pairs >= 10 else None
    session = f"a session of {arguments.pairs} pairs over adb"
    return finish(
        [
            Claim(
                "local",
                f"inference, of the time to measure `toy_cnn` on `{device}`",
                statistics.median(share for share, _ in stages),
                "%",
                limit=LEAST_LOCAL_SHARE,
                least=True,
            ),
            Claim(
                "command",
                f"inference, of all of `sme2 run toy_cnn --device {device}`",
                statistics.median(commands),
                "%",
            ),
            Claim(
                "adb",
                f"inference, of {session}, processes of 1 s",
                over_adb[1.0],
                "%",
                limit=limit,
                least=True,
            ),
            Claim("adb short", f"inference, of {session}, processes of 0.3 s", over_adb[0.3], "%"),
        ],
        arguments.json,
        {
            "local_shares": [share for share, _ in stages],
            "local_processes": [count for _, count in stages],
            "command_shares": commands,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
