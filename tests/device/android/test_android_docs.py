"""What docs/phones.md promises: its example runs, and its table is what is done."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_sme2.targets.phone.power import POWER_COMMANDS
from tests.support.phones import start_lab

PAGE = (Path(__file__).parents[3] / "docs" / "phones.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    start_lab().close()
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (program,) = [block for block in blocks if "FakeLab" in block]
    exec(compile(program, "docs/phones.md", "exec"), {})


def test_documented_power_modes_match_the_code() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\S*) ?\| (\S*) ?\| (\S*) ?\|$", PAGE, re.MULTILINE)
    told = {
        mode: {(*name.split(), row[column]) for name, *row in rows if row[column]}
        for column, mode in enumerate(("boost", "app", "keep"))
    }
    done = {
        mode: {tuple(word.removeprefix("/system/bin/") for word in words) for words in commands}
        for mode, commands in POWER_COMMANDS.items()
    }
    assert told == done
