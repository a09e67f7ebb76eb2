"""A file that others made costs little time and memory, and reaches nobody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import BundleError, Sme2Error, UsageError
from pytest_sme2.session.cases import program_cases
from pytest_sme2.system.confine import SECONDS_VARIABLE, is_isolated, run_confined
from tests.support import readers

PROGRAM = Path(__file__).parents[2] / "data" / "programs" / "toy_fp16.pte"


def test_an_answer_and_an_error_come_back(tmp_path: Path) -> None:
    assert run_confined(readers.say, "one", "two") == "one two"
    with pytest.raises(BundleError, match=rf"^{tmp_path} is not a bundle\.$"):
        run_confined(readers.refuse, tmp_path)
    with pytest.raises(Sme2Error, match=r"its reader ended early \(out of luck\)"):
        run_confined(readers.end_early)


@pytest.mark.slow
def test_what_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "1")
    with pytest.raises(Sme2Error, match=r"more than 1 s of CPU time.*SME2_READ_SECONDS"):
        run_confined(readers.take_long)
    monkeypatch.setenv(SECONDS_VARIABLE, "soon")
    with pytest.raises(UsageError, match="'soon' is not a number of seconds"):
        run_confined(readers.say)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no limit of memory")
def test_what_takes_too_much_memory_is_ended() -> None:
    with pytest.raises(Sme2Error, match="more than 8 GiB of memory"):
        run_confined(readers.take_memory)


def test_it_reaches_nobody_and_has_a_folder_of_its_own() -> None:
    if not run_confined(is_isolated):
        pytest.skip("this system allows no namespaces")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert readers.connect(port) == "reached"
        assert run_confined(readers.connect, port) == ""
    folder = Path(run_confined(readers.folder))
    assert folder != Path.cwd()
    assert not folder.exists()


def test_a_user_without_rights_loses_the_network_too() -> None:
    """Where the system lets users have namespaces; the user keeps the number."""
    code = "from pytest_sme2.system import confine; import os\n"
    code += "os.geteuid() or os.setresuid(12345, 12345, 12345)\n"
    # Who changes the user may not be looked into, even by itself; a user's own process may.
    code += "import ctypes; ctypes.CDLL(None).prctl(4, 1)\n"
    code += "user = os.geteuid(); left = confine.confine([])\n"
    code += "print(left == bool(confine.is_isolated()), os.geteuid() == user)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]


def test_a_reading_command_confines_itself(tmp_path: Path) -> None:
    """The limit is the one of the variable, so the command obeys it."""
    words = ["report", "analyze", PROGRAM.parents[1] / "etdumps" / "none.etdump"]
    code = "import sys; sys.argv[1:] = {}\nfrom pytest_sme2.cli import main\n"
    code += "code = main.main(); import resource; print(resource.getrlimit(resource.RLIMIT_CPU))"
    script = code.format([str(word) for word in words])
    environment = {**os.environ, SECONDS_VARIABLE: "77"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "(78, 88)"


def test_programs_of_a_run_are_read_apart_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good", "bad"):
        (tmp_path / f"{name}.pte").write_bytes(PROGRAM.read_bytes())

    def confined(_function: object, *files: Path) -> str:
        if any(file.stem == "bad" for file in files):
            raise Sme2Error("Reading took more than 60 s of CPU time.")
        return ""

    monkeypatch.setattr("pytest_sme2.session.cases.run_confined", confined)
    bad, good = program_cases([str(tmp_path / "*.pte")], (1,))
    assert bad.problem == f"{tmp_path / 'bad.pte'}: Reading took more than 60 s of CPU time."
    assert good.problem is None
