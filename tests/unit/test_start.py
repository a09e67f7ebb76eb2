"""``start.py``: what pip was told is told to uv, and a missing index is said in our own words."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start() -> ModuleType:
    spec = importlib.util.spec_from_file_location("start", ROOT / "start.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_pip_was_told_is_told_to_uv(start: ModuleType) -> None:
    listed = (
        "global.index-url='https://mirror.example/simple'\n"
        "global.extra-index-url='https://one.example https://two.example'\n"
        ":env:.find-links='/wheels'\n"
        ":env:.timeout='180'\n"
    )
    assert start.settings_for_uv(listed, {"UV_FIND_LINKS": "/mine"}) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://one.example https://two.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert start.settings_for_uv(listed, {})["UV_FIND_LINKS"] == "/wheels"
    assert start.settings_for_uv("", {}) == {}


# What uv prints on a machine that reaches no index.
UV = """\
error: Failed to fetch: http://127.0.0.1:9/simple/nosuchpackage/
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""


@pytest.mark.slow
def test_without_an_index_it_says_what_is_missing(
    start: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "LOG", tmp_path / "start.log")
    # Nobody listens on port 9 of this machine.
    index = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull}
    pip = (sys.executable, "-m", "pip", "install", "--retries=0", "no-such-package-of-ours")
    uv = (sys.executable, "-c", f"raise SystemExit({UV!r})")
    for command in (pip, uv):
        with pytest.raises(SystemExit) as ended:
            start.install(*command, environment={"PATH": os.environ["PATH"], **index})
        assert str(ended.value) == start.NO_INDEX


@pytest.mark.parametrize("words", [[], ["dance"]])
def test_it_says_which_words_it_knows(words: list[str]) -> None:
    command = [sys.executable, str(ROOT / "start.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "python3 start.py suite" in done.stderr
