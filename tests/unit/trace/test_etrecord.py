"""ETRecords through ExecuTorch's Inspector; the only tests here that need torch."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import EtdumpError, MissingExtraError
from pytest_sme2.report.findings import profile_findings
from pytest_sme2.session.analysis import analyze_file
from pytest_sme2.trace.etrecord import read_attribution
from tests.support.profiles import ETDUMPS

TOY = ETDUMPS / "cpp_toy_fp32_on.etdump"


ETRECORDS = ETDUMPS.parent / "etrecords"


needs_torch = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "executorch")),
    reason="ETRecords are read by ExecuTorch's Inspector, which needs torch",
)


@pytest.fixture
def traced() -> tuple[Path, Path]:
    """An ETDump and the ETRecord of the same program: see ``tests/support/etrecord_program.py``."""
    return ETRECORDS / "toy.etdump", ETRECORDS / "toy.etrecord"


@needs_torch
def test_calls_carry_their_aten_operators_and_modules(traced: tuple[Path, Path]) -> None:
    etdump, etrecord = traced
    profile = analyze_file(etdump, etrecord=etrecord).profile
    by_label = {member.label: member for member in profile.operators}
    conv = next(member for label, member in by_label.items() if label.startswith("Convolution"))
    assert conv.aten.count("aten.convolution.default") == 2
    assert conv.modules == ("first", "pointwise")
    assert by_label["native_call_cumsum.out"].aten == ("aten.cumsum.default",)
    assert profile.operators[-1].modules == ("last",)


@needs_torch
def test_with_an_etrecord_pointwise_convolutions_are_counted(traced: tuple[Path, Path]) -> None:
    etdump, etrecord = traced
    text = " ".join(profile_findings(analyze_file(etdump, etrecord=etrecord).profile))
    assert "1 pointwise (1x1) convolution of the model ran as Fully Connected" in text


@needs_torch
def test_a_broken_etrecord_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    broken = tmp_path / "broken.etrecord"
    broken.write_bytes(b"this is no ETRecord")
    with pytest.raises(EtdumpError, match=r"broken\.etrecord.*same version of ExecuTorch"):
        read_attribution(TOY, broken)


def test_without_executorch_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "executorch.devtools", None)
    with pytest.raises(MissingExtraError, match=r"pytest-sme2\[export\]"):
        read_attribution(TOY, tmp_path / "any.etrecord")
