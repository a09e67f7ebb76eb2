"""What becomes of a measurement on a phone when things break: counted, on fake phones.

    python -m benchmarks.faults                       # the full count
    python -m benchmarks.faults --only adbd --trial 7

Each trial sets a phone up, measures a traced pair with a runner that sleeps, and puts the phone
back, while one fault strikes at a random moment.
A trial is clean when it ends with a result or the error of ours that its fault may lead to, the
phone's settings are as before, nothing of the run is left on the phone, no file on this side is
half written, and the stored baseline is the old one or, after a result, the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

from benchmarks.trials import Subject, expect, run
from pytest_sme2.errors import Sme2Error
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone, fake_target
from pytest_sme2.results.run import PAIR, Arm, Artifact, Run, RunRequest
from pytest_sme2.runners.sme2 import PROGRAM, Sme2Runner
from pytest_sme2.system.files import write_text
from pytest_sme2.targets.phone.adb import AdbDevice
from pytest_sme2.targets.phone.power import NOTE
from pytest_sme2.targets.phone.target import AndroidTarget, redo_when_lost
from pytest_sme2.verdict import baselines
from tests.support import gate_examples
from tests.support.phone_profiles import HOSTILE, MOVING, move
from tests.support.phones import make_artifact, settings_of
from tests.support.sleep_runner import make_sleep_runner

RUN_SECONDS = 0.15
MODEL_BYTES = 12 << 20
OUTAGE_SECONDS = 0.3


@dataclass(frozen=True)
class Work:
    """What is measured, and where its files go; the stored baseline is among them."""

    runner: Sme2Runner
    artifact: Artifact
    out: Path
    timeout_seconds: float = 60.0

    def measure(self, target: AndroidTarget) -> None:
        """A traced pair, redone where the connection was lost; what was seen is stored last."""
        asked = RunRequest(
            self.artifact, Arm.ON, runs=2, traced=True, timeout_seconds=self.timeout_seconds
        )

        def pair() -> list[Run]:
            return [
                target.run(self.runner, replace(asked, arm=arm), self.out / str(arm))
                for arm in PAIR
            ]

        try:
            target.prepare()
            runs = redo_when_lost(target, pair, patience_seconds=60)
            write_text(self.out / "summary.json", json.dumps([str(run.etdump) for run in runs]))
            self.store("second", [run.wall_ns for run in runs])
        finally:
            target.restore()

    def store(self, session: str, runs_ns: Sequence[Sequence[float]]) -> None:
        """Bring the baseline up to date: the example's, with the times that were seen."""
        medians = {arm: (median(times),) for arm, times in zip(PAIR, runs_ns, strict=True)}
        now = gate_examples.measured(session=session, medians_ns=medians)
        baselines.store(self.out / "baselines", now)


Fault = Callable[[FakePhone, threading.Event], None]
"""Strikes a phone once, and heals it before it ends.

The event says that the trial is over, so that there is nothing left to hit.
"""


@contextlib.contextmanager
def struck(fault: Fault, phone: FakePhone, delay: float) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Timer(delay, fault, (phone, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def adbd_killed(phone: FakePhone, over: threading.Event) -> None:
    phone.kill_adbd()
    time.sleep(OUTAGE_SECONDS)
    phone.start_adbd()


def server_killed(phone: FakePhone, over: threading.Event) -> None:
    phone.lab.kill_server()
    time.sleep(OUTAGE_SECONDS)
    phone.lab.start_server()


def storage_full(phone: FakePhone, over: threading.Event) -> None:
    with contextlib.suppress(Sme2Error):
        device = AdbDevice(phone.lab.server, phone.serial)
        device.shell("cat /dev/zero > /data/local/tmp/somebody-elses-file")
    time.sleep(OUTAGE_SECONDS)
    phone.remove("data/local/tmp/somebody-elses-file")


def files_wiped(phone: FakePhone, over: threading.Event) -> None:
    phone.remove("data/local/tmp/pytest-sme2/files")


def clock_capped(phone: FakePhone, over: threading.Event) -> None:
    cap = "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
    usual = phone.read(cap)
    phone.write(cap, "1200000\n")
    time.sleep(OUTAGE_SECONDS)
    phone.write(cap, usual)


def moved(phone: FakePhone, over: threading.Event) -> None:
    """Its caps, its screen and its heat sensors, again and again, as stock phones move them."""
    for number, kind in enumerate(MOVING):
        for step in (number + 1, number + 2):
            move(phone, kind, (0,), step)
            over.wait(OUTAGE_SECONDS / 3)
    for kind in MOVING:
        move(phone, kind, (0,), 0)


def signal_runner(number: signal.Signals, phone: FakePhone, over: threading.Event) -> None:
    while not over.is_set():
        for pid, words in phone.processes().items():
            # As it is started; `ls` of its file, while it is pushed, is not the runner.
            if f"./{PROGRAM}" in words[:2]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                return
        time.sleep(0.01)


def push_cut(phone: FakePhone, over: threading.Event) -> None:
    while not over.is_set():
        if any(name.startswith("pytest-sme2/partial/") for name in phone.files()):
            adbd_killed(phone, over)
            return


def interrupted(phone: FakePhone, over: threading.Event) -> None:
    """The thread that measures is where Python tells of Ctrl-C."""
    if not over.is_set():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def problems(phone: FakePhone, work: Work, before: dict[str, str | None]) -> Iterator[str]:
    """What is not as it should be after a trial; a second look gives processes time to end."""
    after = settings_of(phone)
    if after != before:
        yield f"settings not restored: {after}"
    files = phone.files()
    if Path(NOTE).name in files:
        yield "the note is still there"
    yield from (
        f"left on the phone: {name}"
        for name in files
        if name.startswith(("pytest-sme2/runs/", "pytest-sme2/partial/"))
    )
    deadline = time.monotonic() + 20
    while (left := list(phone.processes().values())) and time.monotonic() < deadline:
        time.sleep(0.1)
    yield from (f"still running on the phone: {words}" for words in left)
    usual = {baselines.LOCK_NAME, ".gitignore"}
    here = {path.name for path in work.out.rglob(".*")} - usual
    yield from (f"half written here: {name}" for name in sorted(here))
    summary = work.out / "summary.json"
    (path,) = work.out.glob("baselines/*/*.json")
    stored = baselines.read(path)
    sessions = [] if stored is None else [entry.session for entry in stored.sessions]
    if sessions not in (["first"], ["first", "second"]):
        yield f"the baseline holds the sessions {sessions}"
    if "second" in sessions and not summary.exists():
        yield "the baseline was updated without a result"
    if summary.exists():
        for name in json.loads(summary.read_text(encoding="utf-8")):
            arm = Path(name).parent.name
            if Path(name).read_text(encoding="utf-8") != f"{arm}\n":
                yield f"{name} is not whole"


def fault(name: str, what: str, strike: Fault, expected: str = "") -> Subject:
    """On a phone of its own; a result or what is ``expected`` is a clean outcome."""

    def attempt(chance: Random, out: Path) -> str:
        with FakeLab() as lab:
            # Big enough for the push to take a while, different so that it is pushed.
            pte = out / "model.pte"
            pte.write_bytes(chance.randbytes(1024) * (MODEL_BYTES // 1024))
            phone = lab.add(**(HOSTILE if name == "maker" else {"storage_bytes": 64 << 20}))
            runner = make_sleep_runner(out / "runner", RUN_SECONDS)
            # What is meant to hang must not take a minute.
            work = Work(runner, make_artifact(pte), out, 3.0 if name == "hang" else 60.0)
            work.store("first", [(1,)] * len(PAIR))
            before = settings_of(phone)
            try:
                # A push is waited for, and cut then.
                with struck(strike, phone, 0.0 if name == "push" else chance.random() * 1.2):
                    work.measure(fake_target(phone))
                outcome = "result"
            except Sme2Error as error:
                outcome = type(error).__name__
            except KeyboardInterrupt:
                outcome = "interrupted"
            wrong = "; ".join(problems(phone, work, before))
        expect(outcome in ("result", *expected.split()), f"it ended with {outcome}")
        expect(not wrong, f"{outcome}: {wrong}")
        return outcome

    return Subject(name, what, 50, attempt)


SUBJECTS = (
    fault("adbd", "the phone's adbd is killed and comes back", adbd_killed),
    fault("server", "the adb server is killed and comes back", server_killed),
    fault("storage", "the phone's storage is full for a while", storage_full,
          "TargetError RunError"),
    fault("runner", "the runner is killed on the phone", partial(signal_runner, signal.SIGKILL),
          "RunError"),
    fault("hang", "the runner hangs on the phone", partial(signal_runner, signal.SIGSTOP),
          "RunError"),
    fault("wiped", "the files that were pushed are removed from the phone", files_wiped,
          "TargetError RunError"),
    fault("capped", "the highest clock is lowered for a while, without a word about heat",
          clock_capped),
    fault("moving", "caps, screen and heat sensors move as on stock phones", moved),
    fault("maker", "adbd is killed on a phone that refuses settings, and whose thermal service "
          "hangs", adbd_killed),
    fault("push", "the connection is cut while a model is pushed", push_cut),
    fault("interrupt", "Ctrl-C", interrupted, "interrupted"),
)  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    # Whoever runs this in the background may have had Ctrl-C ignored; here it is the point.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run(__doc__, SUBJECTS, words)


if __name__ == "__main__":
    sys.exit(main())
