from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.system.processes import _Watcher, run_process, whitelisted_environment
from tests.support.gone import wait_for, wait_until_gone


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_exit_code_are_returned(tmp_path):
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    finished = run_process(python(code), timeout_seconds=600)
    assert (finished.returncode, finished.stdout, finished.stderr) == (7, "out\n", "err\n")
    assert not finished.timed_out
    with (tmp_path / "log").open("wb") as file:
        finished = run_process(python("print('hello')"), timeout_seconds=600, stdout=file)
    assert finished.stdout == ""
    assert (tmp_path / "log").read_text() == "hello\n"
    with pytest.raises(FileNotFoundError):
        run_process(["/nowhere/at all"], timeout_seconds=1)


def test_only_whitelisted_variables_reach_the_child(monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("PIP_INDEX", "y")
    monkeypatch.setenv("WANTED", "z")
    monkeypatch.setenv("LD_PRELOAD", "")
    environment = whitelisted_environment(["WANTED"], prefixes=("PIP_",))
    code = "import os; print(sorted(os.environ))"
    finished = run_process(python(code), timeout_seconds=600, environment=environment)
    asked = ("WANTED", "PIP_INDEX", "SECRET", "LD_PRELOAD")
    assert [name in finished.stdout for name in asked] == [True, True, False, False]


# Writes its own number and that of a child into a file.
PROGRAM = """
import os, subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
Path(sys.argv[1] + '.part').write_text(f'{os.getpid()} {child.pid}')
os.replace(sys.argv[1] + '.part', sys.argv[1])
time.sleep(600)
"""


@pytest.mark.slow
def test_a_program_that_takes_too_long_ends_with_its_children(tmp_path):
    mark = tmp_path / "pids"
    # A busy machine may need longer to start the child.
    for seconds in (1, 10, 60):
        start = time.monotonic()
        finished = run_process([*python(PROGRAM), str(mark)], timeout_seconds=seconds)
        assert finished.timed_out
        assert finished.returncode == -signal.SIGKILL
        assert time.monotonic() - start < 500
        if mark.exists():
            break
    for pid in mark.read_text().split():
        wait_until_gone(int(pid))


def test_an_interrupt_ends_the_program(monkeypatch):
    started: list[Any] = []
    real = subprocess.Popen.communicate

    def interrupted(self, *arguments, **options):
        if not started:
            started.append(self.pid)
            raise KeyboardInterrupt
        return real(self, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_process(python("import time; time.sleep(600)"), timeout_seconds=600)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin")
def test_a_program_can_be_pinned():
    core = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    code = "import os; print(os.sched_getaffinity(0))"
    finished = run_process(python(code), timeout_seconds=600, cpus=(core,))
    assert finished.stdout.strip() == f"{{{core}}}"
    assert os.sched_getaffinity(0) == before


def test_programs_end_when_their_starter_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    code = "import sys; from pytest_sme2.system.processes import run_process\n"
    code += "run_process([sys.executable, '-c', *sys.argv[1:]], timeout_seconds=600)"
    starter = subprocess.Popen([*python(code), PROGRAM, str(mark)])
    wait_for(mark.exists)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    for pid in mark.read_text().split():
        wait_until_gone(int(pid))


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(python("import time; time.sleep(600)"), start_new_session=True)


def test_release_ends_only_the_given_processes() -> None:
    watcher = _Watcher()
    tied, untied = sleeper(), sleeper()
    for process in (tied, untied):
        watcher.end_with_this_process(process.pid)
    watcher.has_ended(untied.pid)
    watcher._let_go()
    assert tied.wait(timeout=600) == -signal.SIGKILL
    assert untied.poll() is None
    untied.kill()
    untied.wait()
