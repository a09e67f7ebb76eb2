"""How much faster three devices are than one, with a runner whose work is a fixed sleep.

    python -m benchmarks.devices                    # 60 runs of 1 s
    python -m benchmarks.devices --runs 6 --seconds 0.2

Each worker is a process of its own that leases a device for its work, as the workers of a parallel
test run do. Devices are real adbds in a sandbox, and a sleep costs this machine nothing: what is
left is what leasing, adb and reading results cost. A real inference would keep the phone busy, not
this machine, so the sleep stands for it fairly. Also printed: what a run costs over the sleep.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims import Claim, finish
from pytest_sme2.fake_phone.lab import FakeLab
from pytest_sme2.fake_phone.sleep_runner import make_sleep_runner
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer
from pytest_sme2.targets.phone.leases import DevicePool
from pytest_sme2.targets.phone.target import AndroidTarget

LEAST_GAIN = 2.7
MOST_OVERHEAD = 0.10


def work(folder: Path, host: str, port: int, serials: list[str], index: int, runs: int) -> None:
    """One worker: waits for the others, leases a device, and runs its part."""
    pool = DevicePool(f"{host}:{port}", serials, run=str(folder), folder=folder / "leases")
    lease = pool.lease(prefer=index)
    target = AndroidTarget(
        AdbDevice(AdbServer(host, port), lease.serial), lease=lease, emulated=True
    )
    runner = Sme2Runner("sleep", AndroidTarget.platform, "none", folder / "runner")
    pte = folder / "model.pte"
    digest = hashlib.sha256(pte.read_bytes()).hexdigest()
    artifact = Artifact("sleep", "fp32", folder, pte, digest, (), ())
    target.prepare()
    target.put([pte])
    out = folder / f"out-{index}"
    target.run(runner, RunRequest(artifact, Arm.OFF, runs=3), out)
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    values = []
    for number in range(runs):
        arm = list(Arm)[number % 2]
        run = target.run(runner, RunRequest(artifact, arm, runs=3), out)
        values.append([str(arm), run.sme2_effective, list(run.wall_ns)])
    seconds = time.perf_counter() - started
    target.restore()
    print(json.dumps({"serial": lease.serial, "values": values, "seconds": seconds}), flush=True)


def throughput(lab: FakeLab, folder: Path, devices: int, runs: int) -> tuple[float, list[str]]:
    """Runs a second with so many workers, and the values each worker got."""
    serials = ",".join(phone.serial for phone in lab.phones[:devices])
    share = runs // devices
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.devices", "--work", str(folder), lab.host,
             str(lab.port), serials, str(index), str(share)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(devices)
    ]  # fmt: skip
    try:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline() != "ready\n":
                result_of(worker)
        started = time.perf_counter()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        answers = [json.loads(result_of(worker)) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    seconds = max(answer["seconds"] for answer in answers)
    assert seconds <= time.perf_counter() - started
    used = {answer["serial"] for answer in answers}
    assert len(used) == devices, f"{devices} workers used {len(used)} devices"
    return devices * share / seconds, [json.dumps(answer["values"]) for answer in answers]


def result_of(worker: subprocess.Popen[str]) -> str:
    """What a worker printed in the end; if it died, its last words are the error."""
    out, said = worker.communicate(timeout=600)
    if worker.returncode != 0:
        raise RuntimeError(f"A worker ended with {worker.returncode}:\n{said}")
    return out


def compare(runs: int, seconds: float) -> tuple[float, float, bool]:
    """The gain of three devices over one, the overhead of a run, and whether results agree."""
    with tempfile.TemporaryDirectory() as name, FakeLab() as lab:
        folder = Path(name)
        make_sleep_runner(folder / "runner", seconds)
        (folder / "model.pte").write_bytes(b"model")
        for _ in range(3):
            lab.add()
        one, values_of_one = throughput(lab, folder, 1, runs // 3)
        three, values_of_three = throughput(lab, folder, 3, runs)
    same = len({*values_of_one, *values_of_three}) == 1
    return three / one, 1 / (one * seconds) - 1, same


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Three devices against one.")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--work", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.work:
        folder, host, port, serials, index, runs = arguments.work
        work(Path(folder), host, int(port), serials.split(","), int(index), int(runs))
        return 0
    gain, overhead, same = compare(arguments.runs, arguments.seconds)
    # The limit on overhead was set for runs of a second and more.
    limit = MOST_OVERHEAD if arguments.seconds >= 1 else None
    what = f"a run of {arguments.seconds:g} s on a device: cost beyond it"
    claims = [
        Claim("gain", "throughput of 3 devices over 1", gain, "x", limit=LEAST_GAIN, least=True),
        Claim("overhead", what, overhead, "%", limit=limit),
        Claim("equal", "3 devices give the results of 1 (1: yes)", same, limit=1, least=True),
    ]
    return finish(claims, arguments.json, {"runs": arguments.runs, "seconds": arguments.seconds})


if __name__ == "__main__":
    sys.exit(main())
