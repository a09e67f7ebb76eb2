"""A project of a user with one model, for tests that never export it."""

from __future__ import annotations

from pathlib import Path

_MODEL = """
from pytest_sme2 import register_model

@register_model("toy", variants=("fp32", "fp16"))
class Toy:
    def get_eager_model(self): ...
    def get_example_inputs(self): ...
"""


def add_toy_model(project: Path) -> None:
    """The model ``toy`` in its folder, in fp32 and fp16."""
    folder = project / "models" / "toy"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(_MODEL)
