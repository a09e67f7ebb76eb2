"""The real runner on this machine, tried out by the doctor."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from pytest_sme2.targets.local import this_machine
from tests.support import Command

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("executorch") is None, reason="the runner is built from executorch"
)


@pytest.mark.skipif(sys.platform == "darwin", reason="mac/ has the Mac's own")
def test_this_machine_is_tried_out(tmp_path: Path, sme2: Command) -> None:
    out = tmp_path / "found.json"
    printed = json.loads(sme2("doctor", "--device", "linux", "--json", "--out", out).out)
    found = json.loads(out.read_text())["machine"]
    assert printed["machine"]["runner_sha256"] == found["runner_sha256"]
    able = this_machine().capabilities()
    assert list(found["arms"]) == (["on", "off"] if able.sme2 else ["off"])
    assert found["arms"]["off"]["median_us"] > 1
    assert found["arms"]["off"]["matrix_operators"] == 10
    assert found["arms"]["off"]["performance_share"] is None
    assert bool(found["problems"]) is not able.sme2
    assert str(Path.home()) not in out.read_text()
