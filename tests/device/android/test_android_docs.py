"""The example of docs/phones.md runs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.phones import start_lab

PAGE = (Path(__file__).parents[3] / "docs" / "phones.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    start_lab().close()
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (program,) = [block for block in blocks if "FakeLab" in block]
    exec(compile(program, "docs/phones.md", "exec"), {})
