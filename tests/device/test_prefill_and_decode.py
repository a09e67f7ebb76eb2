"""A model with a cache, as the documentation writes it, run for real on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.report.case_summary import instructions_per_token
from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import find_records, read_record
from tests.device import provision
from tests.docs.pages import ROOT, blocks


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (page,) = [
        block
        for block in blocks(ROOT / "docs" / "models.md")
        if block.language == "python" and "my_decode" in block.text
    ]
    folder = tmp_path_factory.mktemp("models") / "net"
    folder.mkdir()
    (folder / "model.py").write_text(page.text)
    return folder.parent


def test_both_phases_say_what_a_token_costs(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    provision.emulator()
    costs = {}
    for name, tokens in (("my_prefill", 8), ("my_decode", 1)):
        words = ["run", name, "--variant", "fp32@8", "--device", "emulated"]
        where = ["--models-folder", str(models), "--out", str(tmp_path / name)]
        code = main([*words, *where])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        (folder,) = find_records(tmp_path / name)
        measured = read_record(folder).measured
        assert measured.tokens == tokens
        assert instructions_per_token(measured) in " ".join(printed.out.split())
        compared = {entry.against: entry.max_rel for entry in measured.agreements}
        assert set(compared) == {"off", "reference"}
        assert max(compared.values()) < 1e-3
        costs[name] = measured.costs[Arm.ON].total.instructions / tokens
    # One row at a time uses a tile badly.
    assert costs["my_prefill"] < costs["my_decode"]
