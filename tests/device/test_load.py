"""A real process of this machine that gets less and less of its core."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_sme2.results.run import Arm, RunRequest
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.device import HeldDevice, measure_sustained
from pytest_sme2.session.settings import Settings
from pytest_sme2.targets.local import this_machine
from pytest_sme2.verdict.times import check_sustained
from tests.support.gate_examples import measured, with_limits
from tests.support.phones import make_artifact

SECONDS = 20.0
PERIOD = 0.1
Share = Callable[[], float]


@contextlib.contextmanager
def stopped_and_continued(share: Share) -> Iterator[None]:
    """The runner is stopped for a part of each period, as a quota of the kernel does it."""

    def once() -> None:
        tasks = Path("/proc/self/task").iterdir()
        found = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        for sign, part in ((signal.SIGSTOP, 1 - share()), (signal.SIGCONT, share())):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
            time.sleep(PERIOD * part)

    with repeated(once):
        yield


@contextlib.contextmanager
def repeated(do: Callable[[], object]) -> Iterator[None]:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            do()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_process_that_gets_less_of_its_core_is_found(
    programs: dict[str, Path],
    tmp_path: Path,
) -> None:
    said: list[float] = []

    def share() -> float:
        """All of it for a third of the load, then half as much again and again."""
        part = (time.monotonic() - said[0]) / SECONDS if said else 0.0
        return float(max(0.04, min(1.0, 0.5 ** ((part - 0.33) * 15))))

    settings = Settings(device=this_machine().name, sustain_seconds=SECONDS)

    def say(line: str) -> None:
        # It may have to wait for others that measure.
        if "under load" in line:
            said.append(time.monotonic())

    bench = HeldDevice(settings, say)
    request = RunRequest(make_artifact(programs["toy_fp32"]), Arm.OFF)
    with stopped_and_continued(share):
        found = measure_sustained(bench, "toy", request, tmp_path)
    (check,) = check_sustained(
        measured(sustained=found), with_limits(max_sustained_loss=0.15), True
    )
    # Where others use the core as well, the bounds may be too wide to be sure.
    assert check.verdict in (Outcome.FAILED, Outcome.INCONCLUSIVE), check.message
    assert check.new is not None
    assert check.new > 0.15
    assert found.seconds >= SECONDS
