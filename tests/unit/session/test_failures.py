"""A run that fails names the operator, its line in the model, and what to use instead."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError
from pytest_sme2.runners.sdk import find_sdk
from pytest_sme2.session.case_trace import _IN_XNNPACK, with_line
from pytest_sme2.system.platforms import host_platform
from tests.support.artifacts import make_artifact
from tests.support.needs import needs_export

ETRECORD = Path(__file__).parents[2] / "data" / "etrecords" / "toy.etrecord"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "kernel 'aten::cumsum.out' not found.",
            " Operator: aten.cumsum. At etrecord_program.py:27 `return self.last(torch.cumsum("
            "values.mean((2, 3)), 1))`. ExecuTorch has no kernel for it. Write it with others, or "
            "name a runner that has one.",
        ),
        (
            "KernelCall failed at instruction 0:0 in operator aten::convolution.out: 0x12",
            " Operator: aten.convolution. At conv.py:565 `return self._conv_forward(input, "
            "self.weight, self.bias)` of the module first.",
        ),
        (
            "kernel 'aten::_embedding_bag.out' not found.",
            " Operator: aten._embedding_bag. ExecuTorch has no kernel for it. Write it with "
            "others, or name a runner that has one.",
        ),
        (
            "Failed to create convolution node 3 with code: xnn_status_invalid_parameter",
            " Operator: aten.convolution. At conv.py:565 `return self._conv_forward(input, "
            "self.weight, self.bias)` of the module first. XNNPACK refuses it. Try another data "
            "type, or write it with other operators.",
        ),
        (
            "Failed to create Newest node 3 with code: xnn_status_invalid_parameter",
            " Operator: XNNPACK's Newest. XNNPACK refuses it. Try another data type, or write it "
            "with other operators.",
        ),
        ("something else", ""),
    ],
)
def test_the_operator_of_a_log_is_named(tmp_path: Path, log: str, said: str) -> None:
    artifact = dataclasses.replace(make_artifact(tmp_path / "a", "net", "fp32"), etrecord=ETRECORD)
    (tmp_path / "runner.log").write_text(f"I threadpool.cpp:66]\nE {log}\n")
    found = with_line(RunError("It failed."), artifact, tmp_path / "runner.log")
    assert str(found) == f"It failed.{said}"
    without = dataclasses.replace(artifact, etrecord=None)
    assert " At " not in str(with_line(RunError("It failed."), without, tmp_path / "runner.log"))
    assert str(with_line(RunError("It failed."), artifact, tmp_path / "none")) == "It failed."


@needs_export
def test_the_delegate_says_these_words() -> None:
    sdk = find_sdk(host_platform(), None)
    assert sdk is not None
    words = (sdk / "lib" / "libexecutorch_backend_xnnpack.so").read_bytes()
    for name in _IN_XNNPACK:
        assert f"Failed to create {name} node %i".encode() in words
