"""A file that others made costs little time and memory, and reaches nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.system.processes import SECONDS_VARIABLE

CONFINED = "from pytest_sme2.system.processes import confine; import os; "


def said(code: str, **variables: str) -> str:
    """The last line of a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    return (done.stdout or done.stderr).strip().splitlines()[-1]


@pytest.mark.slow
def test_what_takes_too_long_is_ended() -> None:
    code = f"{CONFINED}confine([])\nwhile True: pass"
    last = said(code, SME2_READ_SECONDS="1")
    assert "more than 1 s of CPU time" in last
    assert SECONDS_VARIABLE in last
    assert "'soon' is not a number of seconds" in said(code, SME2_READ_SECONDS="soon")


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no limit of memory")
def test_what_takes_too_much_memory_is_ended() -> None:
    assert said(f"{CONFINED}confine([]); bytes(9 << 30)") == "MemoryError"


def test_a_user_without_rights_loses_the_network_too() -> None:
    """Where the system lets users have namespaces; the user keeps the number."""
    code = f"{CONFINED}\nos.geteuid() or os.setresuid(12345, 12345, 12345)\n"
    # Who changes the user may not be looked into, even by itself; a user's own process may.
    code += "import ctypes; ctypes.CDLL(None).prctl(4, 1)\n"
    code += "user = os.geteuid(); left = confine([])\n"
    code += "names = {row.split(':')[0].strip() for row in [*open('/proc/net/dev')][2:]}\n"
    code += "print(not left or names == {'lo'}, os.geteuid() == user)"
    assert said(code) == "True True"


@pytest.mark.parametrize(
    ("more", "limits"), [((), "(78, 88)"), (("--format=model-explorer", "--open"), "(-1, -1)")]
)
def test_a_reading_command_confines_itself_unless_it_serves(
    tmp_path: Path, more: tuple[str, ...], limits: str
) -> None:
    """The limit is the one of the variable, so the command obeys it."""
    words = ["report", str(tmp_path / "none"), *more]
    code = f"import sys; sys.argv[1:] = {words}\nfrom pytest_sme2.cli import main\n"
    code += "code = main.main(); import resource; print(resource.getrlimit(resource.RLIMIT_CPU))"
    assert said(code, SME2_READ_SECONDS="77") == limits
