"""A project of a user with one model: one that is never exported, or toy_cnn with a suite."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import pytest

from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.system.cache import cache_folder

# As it is before a test changes the environment.
_CACHE = cache_folder()
_HOME = os.environ.get("HOME", "")
_TOY = Path(__file__).parents[2] / "models" / "toy_cnn"
_INI = "[pytest]\nsme2_models = models\nsme2_device = linux\n"
GATE_SUITE = """
def test_latency(sme2_gate):
    sme2_gate.check_latency()

def test_structure(sme2_gate):
    sme2_gate.check_operators()
    sme2_gate.check_evidence()
"""
Run = Callable[..., pytest.RunResult]

_MODEL = """
from pytest_sme2 import register_model

@register_model({name!r}, variants={variants!r})
class Model:
    def get_eager_model(self): ...
    def get_example_inputs(self): ...
"""


def add_model(project: Path, name: str = "toy", *variants: str, folder: str | None = None) -> Path:
    """The file of a new model, in fp32 and fp16 or other variants, which is never exported."""
    path = project / "models" / (folder or name) / "model.py"
    path.parent.mkdir(parents=True)
    text = _MODEL.format(name=name, variants=variants or ("fp32", "fp16"))
    path.write_text(text, encoding="utf-8")
    return path


def gate_project(project: Path) -> None:
    """The model ``toy`` in two variants, with a suite of two tests on this machine."""
    add_model(project)
    (project / "tox.ini").write_text(_INI, "utf-8")
    (project / "test_suite.py").write_text(GATE_SUITE, "utf-8")


def at_home() -> AbstractContextManager[object]:
    """The home folder that this process began with: with another one, torch is imported again."""
    return mock.patch.dict(os.environ, {"HOME": _HOME})


def export_here(models: Path, variant: str = "fp32", name: str = "toy_cnn") -> None:
    """Export for the run that a test starts next: this process imports torch once for all tests."""
    with at_home():
        entry = discover([models]).get(name)
        export_model(entry, parse_variant(variant), cache=_CACHE)


def toy_suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, suite: str, device: str, *usual: str
) -> Run:
    """Runs these tests of toy_cnn in fp32, with the exports of this machine's cache."""
    monkeypatch.setenv("SME2_CACHE_DIR", str(_CACHE))
    shutil.copytree(_TOY, pytester.path / "models" / "toy_cnn")
    pytester.makeini(f"[pytest]\nsme2_models = models\nsme2_device = {device}\n")
    pytester.makepyfile(suite)

    def run(*words: str) -> pytest.RunResult:
        export_here(pytester.path / "models")
        return pytester.runpytest_inprocess("--sme2-variants=fp32", *usual, *words)

    return run
