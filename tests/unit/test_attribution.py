"""ETRecords through ExecuTorch's Inspector; the only tests here that need torch."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from pytest_sme2.analysis import analyze_file
from pytest_sme2.attribution import read_attribution
from pytest_sme2.errors import EtdumpError, MissingExtraError
from pytest_sme2.report.findings import profile_findings
from tests.profiles import ETDUMPS

TOY = ETDUMPS / "cpp_toy_fp32_on.etdump"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An ETDump of the Python runtime and the ETRecord of the same program."""
    pytest.importorskip("torch")
    pytest.importorskip("executorch")
    folder = tmp_path_factory.mktemp("etrecord")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _export_and_run(folder)


def _export_and_run(folder: Path) -> tuple[Path, Path]:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    class Toy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.pointwise = torch.nn.Conv2d(8, 8, 1)
            self.last = torch.nn.Linear(8, 4)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            values = self.pointwise(torch.relu(self.first(values)))
            return self.last(torch.cumsum(values.mean((2, 3)), 1))

    inputs = (torch.ones(1, 3, 8, 8),)
    lowered = to_edge_transform_and_lower(
        torch.export.export(Toy().eval(), inputs),
        partitioner=[XnnpackPartitioner()],
        generate_etrecord=True,
    )
    program = lowered.to_executorch()
    etrecord, etdump = folder / "toy.etrecord", folder / "toy.etdump"
    program.get_etrecord().save(str(etrecord))
    module = portable_lib._load_for_executorch_from_buffer(program.buffer, enable_etdump=True)
    module.run_method("forward", inputs)
    module.write_etdump_result_to_file(str(etdump))
    return etdump, etrecord


def test_calls_carry_their_aten_operators_and_modules(traced: tuple[Path, Path]) -> None:
    etdump, etrecord = traced
    profile = analyze_file(etdump, etrecord=etrecord).profile
    by_label = {member.label: member for member in profile.operators}
    conv = next(member for label, member in by_label.items() if label.startswith("Convolution"))
    assert conv.aten.count("aten.convolution.default") == 2
    assert conv.modules == ("first", "pointwise")
    assert by_label["native_call_cumsum.out"].aten == ("aten.cumsum.default",)
    assert profile.operators[-1].modules == ("last",)


def test_with_an_etrecord_pointwise_convolutions_are_counted(traced: tuple[Path, Path]) -> None:
    etdump, etrecord = traced
    text = " ".join(profile_findings(analyze_file(etdump, etrecord=etrecord).profile))
    assert "1 pointwise (1x1) convolution of the model ran as Fully Connected" in text


def test_a_broken_etrecord_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("executorch")
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
