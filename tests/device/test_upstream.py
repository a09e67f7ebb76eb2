"""The reports in docs/upstream: each fails here as soon as a new version behaves differently."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.export.server import export_environment

UPSTREAM = Path(__file__).parents[2] / "docs" / "upstream"
# One process for all of them: importing torch takes longer than a report.
CHILD = """
import importlib.util, json, os, sys
answers = {}
for name in json.loads(sys.argv[2]):
    path = os.path.join(sys.argv[1], name, "reproduce.py")
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answers[name] = module.observed()
print("ANSWERS" + json.dumps(answers))
"""

pytestmark = [
    # Of others' code, which changes with their releases.
    pytest.mark.nightly,
    pytest.mark.skipif(importlib.util.find_spec("executorch") is None, reason="needs executorch"),
]


FLOAT16, INT4 = "executorch-fp16-pointwise-convolution", "executorch-int4-per-channel"
# What each report has observed, and what has to hold of it.
HOLDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "executorch-fp16-layer-norm": lambda errors: (
        max(errors["128"], errors["255"]) < 0.01 and min(errors["256"], errors["512"]) > 0.5
    ),
    "executorch-group-norm-precision": lambda decibels: (
        decibels["16384"] > 100 and decibels["1048576"] < 85
    ),
    # Twice as many layers, more than three times as many entries of maps.
    "torch-export-repeated-work": lambda work: (
        work["20"]["inputs"] > 3 * work["10"]["inputs"]
        and work["10"]["lists"] > 100
        and work["10"]["traces"] == 2
    ),
    # Weights of 256 by 256 are 128 KiB in fp16, and 256 KiB in fp32.
    FLOAT16: lambda sizes: sizes["linear"] < 160 * 1024 and sizes["convolution"] > 256 * 1024,
    INT4: lambda found: (
        found
        == {
            "torchao PerGroup(32)": "xnn_datatype_qbint4",
            "torchao PerAxis(0)": "xnn_datatype_qbint4",
            "XNNPACKQuantizer, per channel": "xnn_datatype_qcint4",
        }
    ),
}


@pytest.fixture(scope="module")
def observed() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(UPSTREAM), json.dumps([*HOLDS])],
        capture_output=True, text=True, env=export_environment(), check=False,
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS")]
    assert found, done.stderr[-2000:]
    answers: dict[str, Any] = json.loads(found[0].removeprefix("ANSWERS"))
    return answers


@pytest.mark.parametrize("name", HOLDS)
def test_a_report_is_still_true(name: str, observed: dict[str, Any]) -> None:
    assert HOLDS[name](observed[name]), observed[name]
