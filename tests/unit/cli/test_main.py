from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.cli.main import COMMANDS, EXIT_CODES, REMOVED, build_parser, main, module_of
from pytest_sme2.system import provision
from tests.support import Command

ROOT = Path(__file__).parents[3]
SCRIPT = "import sys; from pytest_sme2.cli.main import main; sys.exit(main())"
PROCESS = (sys.executable, "-c", SCRIPT)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_an_example_and_exit_codes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = module_of(command)
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    flat = " ".join(text.split())
    assert COMMANDS[command] in flat
    assert f"example: {' '.join(module.EXAMPLE.split())}" in flat
    assert EXIT_CODES in flat
    assert "--json" in text
    # The example is understood.
    assert module.EXAMPLE.startswith(f"sme2 {command}")
    words = shlex.split(module.EXAMPLE)[1 + len(command.split()) :]
    assert build_parser((command,)).parse_args([command, *words]).run is module.run


@pytest.mark.parametrize("words", REMOVED)
def test_a_command_that_is_gone_says_what_replaces_it(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "anything", "--at", "all"])
    assert ended.value.code == 2
    assert f"`sme2 {words}` is gone: {REMOVED[words]}." in capsys.readouterr().err


def test_there_are_few_commands() -> None:
    assert len({command.split()[0] for command in COMMANDS}) <= 17


def test_the_overview_imports_no_command() -> None:
    code = (
        "import sys; from pytest_sme2.cli.main import build_parser; build_parser(()).format_help();"
        "print([m for m in sys.modules if m.startswith('pytest_sme2.cli.commands')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        ("run --help", ("numpy", "adbutils", "msgspec", "pytest_sme2.results")),
        ("run toy --device emulated --variant fp32", ("adbutils", "requests", "torch")),
    ],
)
def test_run_loads_only_what_it_needs(
    tmp_path: Path, words: str, unneeded: tuple[str, ...]
) -> None:
    code = (
        "import contextlib, sys; from pytest_sme2.cli.main import main\n"
        f"with contextlib.suppress(SystemExit): main({words.split()})\n"
        f"print('loaded:', [name for name in {unneeded} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.endswith("loaded: []\n"), done.stderr


def test_a_system_error_is_one_line_with_its_place_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    def full(*words: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/some/where")

    monkeypatch.setattr(provision, "provision", full)
    monkeypatch.setattr("pytest_sme2.cli.commands.provision.provision", full, raising=False)
    assert sme2("provision", code=3).err.splitlines() == [
        "sme2: /some/where: No space left on device. Free some space there."
    ]


@pytest.mark.parametrize(
    ("words", "output", "code"),
    [
        ("provision --check --json", "closed", 1),
        ("provision --check --json", "nobody reads", 1),
        ("models --json", "full", 3),
        ("report {} --json", "full", 2),
    ],
)
def test_the_exit_code_does_not_depend_on_who_reads(
    tmp_path: Path, words: str, output: str, code: int
) -> None:
    """Without any tool on PATH something is missing, whoever hears of it."""
    command = [*PROCESS, *words.format(tmp_path).split()]
    reading, writing = os.pipe()
    os.close(reading)
    redirected = {"closed": ">&-", "nobody reads": "", "full": ">/dev/full"}[output]
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirected}', "-", *command],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )
    os.close(writing)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode == code
