"""The table of ``sme2 bound``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.cli.commands.bound import lines
from pytest_sme2.cli.main import main
from pytest_sme2.profile.bound import Bound, OperatorBound
from pytest_sme2.results import Arm, Artifact

TOY = Artifact("toy", "fp32", Path(), Path("toy.pte"), "", (), ())


def test_operators_stand_by_their_cycles_with_the_bytes_beside_them() -> None:
    add, conv = OperatorBound("Add", 900, 100.0, 5_000), OperatorBound("Conv", 2_000, 600.4, 60_000)
    bound = Bound((add, conv), 0.985)
    text = list(lines(TOY, {Arm.ON: bound}, "23.1.4"))
    assert text[0] == "toy (fp32): cycles on c1-ultra, modelled by llvm-mca 23.1.4"
    cells = [line.split() for line in text[3:6]]
    assert cells == [
        ["Conv", "2,000", "600", "0.060", "99.9"],
        ["Add", "900", "100", "0.005", "50.0"],
        ["all", "operators", "2,900", "700", "0.065"],
    ]
    assert "The model knows 98.5% of the instructions." in text
    assert text[-1].startswith("bound: compute only.")
    assert "it is not a latency" in text[-1]


def test_without_the_model_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path))
    assert main(["bound", "toy_cnn"]) != 0
    said = capsys.readouterr().err
    assert "No llvm-mca was found. Run `sme2 provision --for bound`" in said
    assert "Counting" not in said
