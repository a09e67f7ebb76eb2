"""A program of several methods, each run for real on the emulator."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.session.analysis import analyze_folder
from pytest_sme2.system.qemu import Qemu
from tests.support import Command

METHODS = Path(__file__).parents[1] / "data" / "programs" / "methods.pte"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """With an input of the method ``scale``, and what it should answer."""
    program = Path(shutil.copy(METHODS, tmp_path / "net.pte"))
    values = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype("float32")
    values.tofile(tmp_path / "net.scale.input_0.bin")
    np.cumsum(values * 2, axis=3).tofile(tmp_path / "net.scale.reference_0.bin")
    return program


def test_a_named_method_runs_and_gives_its_own_outputs(
    net: Path, qemu: Qemu, emulated_runner: object, sme2: Command
) -> None:
    out = net.parent / "out"
    device = ["--device", "emulated"]
    # Unlike forward, this method has nothing for SME2.
    printed = sme2("run", net, "--method", "scale", "--out", out, "--json", *device, code=1)
    assert "The model has no matrix operators" in printed.err
    record = json.loads(printed.out)
    assert record["measured"]["model"] == "net:scale"
    assert record["reproduce"].startswith(f"sme2 run {net} --method scale --device emulated")
    compared = {entry["against"]: entry["max_abs"] for entry in record["measured"]["agreements"]}
    assert compared["off"] == 0
    assert compared["reference"] < 1e-4
    for analysis in analyze_folder(out, []):
        operators = [member.operator.name for member in analysis.profile.operators]
        assert "native_call_cumsum.out" in operators
        assert not any("Convolution" in name for name in operators)


def test_methods_are_advised_on_side_by_side(
    net: Path, qemu: Qemu, emulated_runner: object, sme2: Command
) -> None:
    device = ["--device", "emulated"]
    printed = sme2("advise", net, "--out", net.parent / "out", "--json", *device).out
    found = json.loads(printed)
    assert {entry["variant"]: entry["matrix_operators"] for entry in found["variants"]} == {
        "forward": 3,
        "scale": 0,
    }
    assert found["problems"] == {}


def test_a_program_that_does_not_run_is_one_failure(
    pytester: pytest.Pytester, qemu: Qemu, emulated_runner: object
) -> None:
    """The other tests of its case would only say the same again."""
    content = bytearray(METHODS.with_name("toy_fp16.pte").read_bytes())
    half = len(content) // 2
    content[half : half + 2000] = bytes(2000)
    (pytester.path / "broken.pte").write_bytes(content)
    pytester.makepyfile(
        """
        def test_a(sme2_pair):
            pass

        def test_b(sme2_profile):
            pass

        def test_c(sme2_gate):
            sme2_gate.check_coverage()

        def test_d(sme2_gate):
            sme2_gate.check_cost()
        """
    )
    result = pytester.runpytest_inprocess("--device=emulated", "--sme2-models=broken.pte", "-rs")
    result.assert_outcomes(errors=1, skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED*it does not run: *test_a*says why"])
    assert result.ret == 125
