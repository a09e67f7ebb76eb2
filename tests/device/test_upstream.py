"""The reports in docs/upstream: each fails here as soon as a new version behaves differently."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
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


@pytest.fixture(scope="module")
def observed() -> dict[str, Any]:
    asked = [
        "executorch-fp16-layer-norm",
        "executorch-group-norm-precision",
        "executorch-fp16-pointwise-convolution",
        "executorch-int4-per-channel",
        "torch-export-repeated-work",
    ]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(UPSTREAM), json.dumps(asked)],
        capture_output=True,
        text=True,
        env=export_environment(),
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS")]
    assert found, done.stderr[-2000:]
    answers: dict[str, Any] = json.loads(found[0].removeprefix("ANSWERS"))
    return answers


def test_fp16_layer_norm_is_wrong_from_a_width_of_256_on(observed: dict[str, Any]) -> None:
    errors = observed["executorch-fp16-layer-norm"]
    assert errors["128"] < 0.01
    assert errors["255"] < 0.01
    assert errors["256"] > 0.5
    assert errors["512"] > 0.5


def test_group_norm_loses_precision_with_the_size_of_its_groups(observed: dict[str, Any]) -> None:
    decibels = observed["executorch-group-norm-precision"]
    assert decibels["16384"] > 100
    assert decibels["1048576"] < 85


def test_exports_repeat_work(observed: dict[str, Any]) -> None:
    work = observed["torch-export-repeated-work"]
    # Twice as many layers, more than three times as many entries of maps.
    assert work["20"]["inputs"] > 3 * work["10"]["inputs"]
    assert work["10"]["lists"] > 100
    assert work["10"]["traces"] == 2


def test_fp16_convolutions_have_fp32_weights(observed: dict[str, Any]) -> None:
    """Weights of 256 by 256 are 128 KiB in fp16, and 256 KiB in fp32."""
    sizes = observed["executorch-fp16-pointwise-convolution"]
    assert sizes["linear"] < 160 * 1024
    assert sizes["convolution"] > 256 * 1024


def test_four_bits_per_channel_are_lowered_as_groups_when_torchao_makes_them(
    observed: dict[str, Any],
) -> None:
    assert observed["executorch-int4-per-channel"] == {
        "torchao PerGroup(32)": "xnn_datatype_qbint4",
        "torchao PerAxis(0)": "xnn_datatype_qbint4",
        "XNNPACKQuantizer, per channel": "xnn_datatype_qcint4",
    }
