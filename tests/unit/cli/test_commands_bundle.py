from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sme2.cli.commands import bundle as command
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.export.variant import Variant
from pytest_sme2.results.run import Artifact
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session.bundle import open_bundle
from tests.support import Command
from tests.support.artifacts import make_artifact

MODEL = """
from pytest_sme2 import register_model

@register_model("{name}", variants=("fp32", "fp16"))
class Model:
    pass
"""


@pytest.fixture(autouse=True)
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without torch, exports without an export, a runner without a compiler."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("toy", "other"):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(MODEL.format(name=name))
    runner_folder = tmp_path / "runner"
    runner_folder.mkdir()
    (runner_folder / "sme2_runner").write_bytes(b"")

    def export(entry: ModelEntry, variant: Variant, **options: object) -> Artifact:
        return make_artifact(tmp_path / f"{entry.name}-{variant}", entry.name, str(variant))

    def provision(platform: str, *, executorch: str | None, **options: object) -> Sme2Runner:
        return Sme2Runner("wheel", platform, executorch or "1.5.1", runner_folder)

    monkeypatch.setattr(command, "export_model", export)
    monkeypatch.setattr(command, "wheel_runner", provision)


def test_everything_by_default(tmp_path: Path, sme2: Command) -> None:
    printed = sme2("bundle", "b.tar.gz", "--platform", "linux-aarch64").out
    assert "pytest --against=b.tar.gz" in printed
    opened = open_bundle(tmp_path / "b.tar.gz")
    assert set(opened.artifacts) == {
        (model, variant) for model in ("toy", "other") for variant in ("fp32", "fp16")
    }


def test_what_was_asked_for(sme2: Command) -> None:
    arguments = ["--models", "toy", "--variants", "fp16@256", "--executorch", "1.5.0", "--json"]
    printed = sme2("bundle", "b.tar.gz", "--platform", "macos-arm64", *arguments).out
    document = json.loads(printed)
    assert document["programs"] == [["toy", "fp16@256"]]
    assert (document["platform"], document["executorch"]) == ("macos-arm64", "1.5.0")


def test_for_phones_the_runner_alone(tmp_path: Path, sme2: Command) -> None:
    assert "--sme2-phone bundle=b.tar.gz" in sme2("bundle", "--phone", "b.tar.gz").out
    opened = open_bundle(tmp_path / "b.tar.gz")
    assert opened.artifacts == {}
    assert opened.runner.platform == "linux-aarch64"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["b.tar.gz", "--phone", "--models", "toy"], "--phone takes no --models"),
        (["b.zip", "--platform", "linux-aarch64"], "ends in .tar.gz"),
        (["b.tar.gz", "--platform", "amiga"], "'amiga' is not a platform. Choose one of"),
        (["b.tar.gz", "--device", "phone"], "'phone' is not a device. Choose one of"),
        (["b.tar.gz", "--platform", "linux-aarch64", "--models", "none"], "none"),
        (["b.tar.gz", "--platform", "linux-aarch64", "--models", ""], "No model was found"),
        (["b.tar.gz", "--platform", "linux-aarch64", "--variants", "fp8"], "not a variant"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, sme2: Command) -> None:
    assert message in sme2("bundle", *arguments, code=2).err
    assert not Path("b.tar.gz").exists()
