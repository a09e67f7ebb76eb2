"""This repository's models: each answers its own inputs, and says where it is from."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.export.registry import ModelEntry, Registry, discover
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.export.weights import upstream_of

ROOT = Path(__file__).parents[3]
REGISTRY: Registry = discover([ROOT / "models"])
NEEDS = {
    "edgetam_image_encoder": ("timm", "transformers", "torchvision"),
    "efficient_sam": ("executorch",),
    "mobilenet_v3_small": ("torchvision",),
}

# One process builds them all: torch is slow to import, and warns while it is imported. Beside each
# model that has a source: the whole model, as its authors build and save it.
SCRIPT = """
import json, sys
from pathlib import Path
import torch
from torch.utils._pytree import tree_leaves
from pytest_sme2.export.registry import discover
from pytest_sme2.export.imports import import_torchvision
from pytest_sme2.export.weights import select_state, upstream_of

def mobilenet():
    return import_torchvision().models.mobilenet_v3_small(weights=None).state_dict()

def edgetam():
    import_torchvision()
    from transformers import EdgeTamConfig, EdgeTamModel, EdgeTamVisionConfig, TimmWrapperConfig
    # Without a network the configuration does not find its own backbone.
    arguments = {"features_only": True, "out_indices": [0, 1, 2, 3], "in_chans": 3}
    backbone = TimmWrapperConfig(architecture="repvit_m1", model_args=arguments)
    vision = EdgeTamVisionConfig(backbone_config=backbone)
    return EdgeTamModel(EdgeTamConfig(vision_config=vision)).state_dict()

def efficient_sam():
    from executorch.examples.models.efficient_sam.efficient_sam_core import efficient_sam
    return {"model": efficient_sam.build_efficient_sam(192, 3).state_dict()}

built = {"mobilenet_v3_small": mobilenet, "edgetam_image_encoder": edgetam,
         "efficient_sam": efficient_sam}
registry = discover([Path("models")])
for line in sys.stdin:
    name, size = json.loads(line)
    found = {"name": name}
    torch.manual_seed(0)
    try:
        entry = registry.get(name)
        model = entry.instantiate(size)
        network = model.get_eager_model().eval()
        with torch.no_grad():
            answer = tree_leaves(network(*model.get_example_inputs()))
        found |= {
            "outputs": [list(tensor.shape) for tensor in answer],
            "finite": all(bool(tensor.isfinite().all()) for tensor in answer),
            "largest": max(float(tensor.abs().max()) for tensor in answer),
            "spread": min(float(tensor.std()) for tensor in answer),
        }
        if upstream_of(entry) is not None:
            torch.manual_seed(1)
            state = select_state(built[name](), upstream_of(entry))
            network.load_state_dict(state)
            loaded = network.state_dict().items()
            equal = all(torch.equal(value, state[key]) for key, value in loaded)
            found |= {"weights": len(state), "equal": equal}
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    print("MODEL " + json.dumps(found))
"""


def installed(entry: ModelEntry) -> bool:
    packages = ("torch", *NEEDS.get(entry.name, ()))
    return all(importlib.util.find_spec(package) for package in packages)


def smallest(entry: ModelEntry) -> int | None:
    sizes = [variant.size for variant in entry.defaults(emulated=True) if variant.size]
    return min(sizes, default=None)


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """What each model answered to its own example inputs at its smallest size."""
    asked = [[entry.name, smallest(entry)] for entry in REGISTRY.entries if installed(entry)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(map(json.dumps, asked)),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    lines = [line[6:] for line in done.stdout.splitlines() if line.startswith("MODEL ")]
    assert len(lines) == len(asked), done.stderr
    return {found["name"]: found for found in map(json.loads, lines)}


def test_weights_in_the_layout_of_their_source_are_loaded(
    answers: dict[str, dict[str, Any]],
) -> None:
    described = {entry.name for entry in REGISTRY.entries if upstream_of(entry) is not None}
    assert described == set(NEEDS)
    if not answers:
        pytest.skip("the models need torch")
    for name in described & set(answers):
        found = answers[name]
        assert "error" not in found, found["error"]
        assert found["weights"] > 50
        assert found["equal"]


def test_every_folder_registers_its_models() -> None:
    assert REGISTRY.problems == ()
    folders = {path.parent.name for path in (ROOT / "models").glob("*/model.py")}
    assert {entry.folder.name for entry in REGISTRY.entries if entry.folder} == folders


@pytest.mark.parametrize("entry", REGISTRY.entries, ids=lambda entry: entry.name)
def test_model_accepts_its_example_inputs(
    entry: ModelEntry, answers: dict[str, dict[str, Any]]
) -> None:
    if not installed(entry):
        pytest.skip(f"{entry.name} needs {', '.join(NEEDS.get(entry.name, ('torch',)))}")
    found = answers[entry.name]
    assert "error" not in found, found["error"]
    assert found["finite"]
    # Neither dead nor about to overflow in fp16: else comparing outputs would mean nothing.
    assert found["spread"] > 1e-3
    assert found["largest"] < 1e4


@pytest.mark.parametrize("entry", REGISTRY.entries, ids=lambda entry: entry.name)
def test_its_readme_names_source_licence_input_and_weights(entry: ModelEntry) -> None:
    assert entry.folder is not None
    text = (entry.folder / "README.md").read_text(encoding="utf-8")
    assert entry.name in text
    for row in ("Source", "Licence", "Input", "Weights"):
        assert re.search(rf"^\| {row}.* \| \S", text, re.MULTILINE), row
    described = upstream_of(entry) is not None
    assert ("`weights.toml` names the trained ones" in text) == described


def test_the_language_model_block_has_every_data_type_of_linear_layers() -> None:
    entry = REGISTRY.get("llama_block_prefill")
    found = {variant.precision for variant in entry.defaults(emulated=True)}
    # bf16 and one scale per channel run when they are named.
    assert found == set(PRECISIONS) - {"bf16", "int8", "int4_channel"}
