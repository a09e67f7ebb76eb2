"""Fresh ETDumps of the product's own runner and of the Python runtime, as Inspector reads them.

Real models, SME2 on and off, native and emulated. The exports are those that the suite needs too.
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import pytest

from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import PAIR, Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.targets.base import Target
from tests.device.provision import MODELS
from tests.support import etdump_programs
from tests.support.inspector import assert_equal_to_inspector

# torch and torchao warn at import about matters of their own.
pytestmark = pytest.mark.filterwarnings("ignore")

BY_DAY = ("toy_cnn", "fp32"), ("toy_cnn", "int8")
CASES = [
    pytest.param(*case, marks=() if case in BY_DAY else pytest.mark.nightly)
    for case in itertools.product(("toy_cnn", "mobilenet_v3_small"), ("fp32", "fp16", "int8"))
]


@functools.cache
def exported(model: str, precision: str) -> Artifact:
    return export_model(discover([MODELS]).get(model), parse_variant(precision))


def traced(
    place: tuple[Target, Sme2Runner], artifact: Artifact, arm: Arm, folder: Path, runs: int
) -> bytes:
    target, runner = place
    request = RunRequest(
        artifact=artifact, arm=arm, threads=1, warmup=0, runs=runs, traced=True, keep_outputs=False
    )
    run = target.run(runner, request, folder)
    return run.etdump.read_bytes()


@pytest.mark.parametrize(("model", "precision"), CASES)
def test_the_runner_s_dumps(
    place: tuple[Target, Sme2Runner], model: str, precision: str, tmp_path: Path
) -> None:
    arms = PAIR if place[0].capabilities().sme2 else (Arm.OFF,)
    for arm in arms:
        dump = traced(place, exported(model, precision), arm, tmp_path / str(arm), runs=2)
        columns = assert_equal_to_inspector(dump)
        assert columns.runs == 2


@pytest.mark.parametrize(("model", "precision"), CASES)
def test_the_python_runtime_s_dumps(model: str, precision: str) -> None:
    program = exported(model, precision).pte.read_bytes()
    columns = assert_equal_to_inspector(etdump_programs.trace(program, ["forward"] * 2))
    assert columns.runs == 2
