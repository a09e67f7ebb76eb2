from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.export.lowering import LoweringRequest
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.export.variant import Variant
from pytest_sme2.system.files import encode

# As if a model's own code met the full disk.
FAILS = """
import sys
from pytest_sme2.errors import ModelError
from pytest_sme2.export import lowering

def fail(request, progress):
    raise ModelError(f"{request.entry.name}: no space left on device")

lowering.lower = fail
lowering.main(sys.argv[1])
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_the_answer_arrives_when_the_log_cannot_be_written(tmp_path: Path) -> None:
    entry, variant = ModelEntry("net", (), file=tmp_path / "model.py"), Variant("fp32", 8)
    asked = LoweringRequest(entry, variant, 0, None, tmp_path)
    file = tmp_path / "request.json"
    file.write_text(json.dumps(encode(asked)))
    assert LoweringRequest.read(file) == asked
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(
            [sys.executable, "-c", FAILS, str(file)],
            # It stays open: the child ends when it is closed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=full,
        ) as process,
    ):
        answer = json.loads(process.stdout.read().splitlines()[-1])
    assert answer == {"error": "ModelError", "message": "net: no space left on device"}
