"""Whole generations of the language models that ship answer as PyTorch does, in each data type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results.run import Arm, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.targets.local import LocalTarget

MODELS = Path(__file__).parents[2] / "models"


@pytest.mark.nightly
@pytest.mark.parametrize("variant", ["fp32", "int8_dynamic", "int4"])
@pytest.mark.parametrize("name", ["tiny_llama", "tiny_qwen3", "tiny_gemma"])
def test_a_decoder_generates(name: str, variant: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    artifact = export_model(discover([MODELS]).get(name), parse_variant(variant))
    request = RunRequest(artifact, Arm.OFF, warmup=0, runs=1, keep_outputs=True, generate=True)
    run = LocalTarget().run(wheel_runner(host_platform()), request, tmp_path / "run")
    found = np.fromfile(run.outputs[0].file, "float32")
    expected = np.fromfile(artifact.folder / "generated_0.bin", "float32")
    # Without the cache, the last answer would have nothing of what is expected.
    noise = np.square(found - expected).sum() / np.square(expected).sum()
    assert noise < {"fp32": 1e-8, "int8_dynamic": 0.01, "int4": 0.1}[variant]
    assert len(run.step_wall_ns) == 5
