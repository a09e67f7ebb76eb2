"""A model with a cache, as the documentation writes it, run for real on the emulator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.report.cost import instructions_per_token
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.run_directory import find_records, read_record
from pytest_sme2.targets.base import Target
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


def exported(models: Path, name: str, variant: str) -> Artifact:
    return export_model(discover([models]).get(name), parse_variant(variant))


def logits(
    artifact: Artifact, folder: Path, runs: int = 1, target: Target | None = None
) -> np.ndarray:
    request = RunRequest(artifact, Arm.ON, warmup=0, runs=runs, keep_outputs=True)
    where = target or provision.emulator()
    (output,) = where.run(wheel_runner("linux-aarch64"), request, folder).outputs
    return np.fromfile(output.file, "float32")


def test_decode_sees_the_cache_that_earlier_tokens_filled(models: Path, tmp_path: Path) -> None:
    artifact = exported(models, "my_decode", "fp32@8")
    assert artifact.tokens == 1
    assert [path.stat().st_size for path in artifact.earlier_files] == [8 * 8, 8 * 8]
    (reference,) = (np.fromfile(path, "float32") for path in artifact.reference_files)

    found = logits(artifact, tmp_path / "a", runs=2)
    np.testing.assert_allclose(found, reference, atol=1e-4)
    # Without them the cache is empty, and the answer another one.
    empty = logits(replace(artifact, earlier_files=()), tmp_path / "b")
    assert np.abs(empty - reference).max() > 1e-2


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
