"""Nothing from outside reaches the terminal as anything but text."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import Sme2Error, plain
from pytest_sme2.system.terminal import clear_line, plain_output, terminal_line

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def controls(text: str) -> set[str]:
    return {letter for letter in text if not letter.isprintable() and letter not in "\n\t"}


def test_plain_text_is_only_shown() -> None:
    assert plain("naïve ✓\n\ttext") == "naïve ✓\n\ttext"
    assert plain(EVIL) == "\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u202e\\r"
    assert json.loads(f'"{plain(EVIL)}"') == EVIL
    assert controls(str(Sme2Error(f"{EVIL} is missing"))) == set()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_command_output_is_plain_text(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO]
) -> None:
    out, err = stream(), stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with plain_output():
        sys.stdout.write(f"{EVIL}\n")
        sys.stderr.write(EVIL)
        sys.stdout.flush()
    assert (sys.stdout, sys.stderr) == (out, err)
    assert out.getvalue() == f"{plain(EVIL)}\n"
    assert err.getvalue() == plain(EVIL)


def test_odd_bytes_reach_files_but_not_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"a{os.fsdecode(bytes([0xE9]))}{EVIL}"
    for stream, shown in ((io.StringIO(), "\udce9"), (Terminal(), "\\udce9")):
        monkeypatch.setattr(sys, "stdout", stream)
        with plain_output():
            sys.stdout.write(name)
        assert stream.getvalue() == f"a{shown}{plain(EVIL)}"


def test_only_the_progress_line_moves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with plain_output():
        terminal_line(sys.stderr)(EVIL)
        clear_line(sys.stderr)
    assert screen.getvalue() == f"\r\x1b[K{plain(EVIL)[:79]}\r\x1b[K"
    log = io.StringIO()
    terminal_line(log)(EVIL)
    assert log.getvalue() == f"{plain(EVIL)}\n"


def test_names_in_errors_and_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / EVIL
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps({EVIL: EVIL, "schema": EVIL}))
    for words in (["analyze"], [], ["--check"]):
        assert main(["report", *words, str(folder)]) != 0
    with pytest.raises(SystemExit):
        main(["report", "--no-such-option", EVIL])
    said = capsys.readouterr()
    assert controls(said.out + said.err) == set()
    assert "\\u001b[2J" in said.out + said.err
