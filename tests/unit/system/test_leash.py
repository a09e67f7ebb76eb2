from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.system.processes import _Leash
from tests.unit.system.test_processes import wait_until_gone

STARTER = """
import sys
from pathlib import Path
from pytest_sme2.system.processes import run_process

program = "import os, subprocess, sys, time; from pathlib import Path; " \\
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); " \\
    "Path(sys.argv[1] + '.part').write_text(f'{os.getpid()} {child.pid}'); " \\
    "os.replace(sys.argv[1] + '.part', sys.argv[1]); time.sleep(600)"
run_process([sys.executable, "-c", program, sys.argv[1]], timeout_seconds=600)
"""


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(12_000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within ten minutes")


def test_programs_end_when_their_starter_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(mark)])
    wait_for(mark.exists)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    for pid in mark.read_text().split():
        wait_until_gone(int(pid))


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )


def test_release_ends_only_the_given_processes() -> None:
    leash = _Leash()
    tied, untied = sleeper(), sleeper()
    for process in (tied, untied):
        leash.tie(process.pid)
    leash.untie(untied.pid)
    leash._let_go()
    assert tied.wait(timeout=600) == -signal.SIGKILL
    assert untied.poll() is None
    untied.kill()
    untied.wait()


def test_another_shell_takes_over_from_one_that_was_killed() -> None:
    leash = _Leash()
    first, second = sleeper(), sleeper()
    leash.tie(first.pid)
    shell = leash._shell
    assert shell is not None
    shell.kill()
    shell.wait()
    leash.tie(second.pid)
    assert leash._shell is not None
    assert leash._shell.pid != shell.pid
    leash._let_go()
    assert first.wait(timeout=600) == second.wait(timeout=600) == -signal.SIGKILL


def test_without_a_shell_programs_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*words: object, **named: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/bin/sh")

    monkeypatch.setattr(subprocess, "Popen", missing)
    leash = _Leash()
    leash.tie(12345678)
    leash.untie(12345678)
    assert leash._shell is None
