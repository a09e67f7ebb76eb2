from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.export.discovery import discover
from pytest_sme2.export.lowering import LoweringRequest
from pytest_sme2.export.variant import parse_variant

FAILS = """\
from pytest_sme2 import register_model

@register_model("fails", variants=("fp32",))
class Fails:
    def get_eager_model(self):
        raise OSError(28, "No space left on device")

    def get_example_inputs(self):
        return ()
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_the_answer_arrives_when_the_log_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "models" / "fails").mkdir(parents=True)
    (tmp_path / "models" / "fails" / "model.py").write_text(FAILS)
    entry = discover([tmp_path / "models"]).get("fails")
    asked = LoweringRequest(entry, parse_variant("fp32"), 0, None, tmp_path, "fails", sys.path)
    (tmp_path / "request.json").write_text(asked.to_json())
    command = "import sys; from pytest_sme2.export.lowering import main; main(sys.argv[1])"
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(
            [sys.executable, "-c", command, str(tmp_path / "request.json")],
            # It stays open: the child ends when it is closed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=full,
        ) as process,
    ):
        answer = json.loads(process.stdout.read().splitlines()[-1])
    assert "No space left on device" in answer["message"]
