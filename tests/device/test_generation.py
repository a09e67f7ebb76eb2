"""Whole generations by the real runner: the cache is carried, in the program or outside of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.errors import RunError
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results.run import Arm, Artifact, Run, RunRequest, Turn
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.targets.base import Job, count_turns
from pytest_sme2.targets.local import LocalTarget
from tests.device import provision

# The cache is an input and an output, and shapes are fixed: so there is a method for the prompt.
WINDOW = """
import torch
from pytest_sme2 import Generation, register_model

class Window(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(8, 8)

    def forward(self, tokens, cache):
        cache = torch.cat((cache, self.mix(tokens)), 1)[:, tokens.shape[1]:]
        return cache.sum(1) + tokens[:, -1], cache

@register_model("window", variants=("fp32",))
class WindowModel:
    def get_eager_model(self):
        return Window()

    def get_example_inputs(self):
        return torch.randn(1, 1, 8), torch.zeros(1, 16, 8)

    def get_generation(self):
        return Generation(
            prompt=(torch.randn(1, 5, 8), torch.zeros(1, 16, 8)),
            steps=[(torch.randn(1, 1, 8), None) for _ in range(6)],
            fed_back={1: 1},
        )
"""


@pytest.fixture(scope="module", params=["state", "fed back"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    if request.param == "state":
        entry = discover([provision.MODELS]).get("tiny_llama")
    else:
        folder = tmp_path_factory.mktemp("models") / "window"
        folder.mkdir()
        (folder / "model.py").write_text(WINDOW)
        entry = discover([folder.parent]).get("window")
    return export_model(entry, parse_variant("fp32"))


def generated(artifact: Artifact, folder: Path, runs: int = 2) -> Run:
    request = RunRequest(artifact, Arm.OFF, warmup=1, runs=runs, keep_outputs=True, generate=True)
    return LocalTarget().run(wheel_runner(host_platform()), request, folder)


def last(run: Run) -> np.ndarray:
    return np.fromfile(run.outputs[0].file, "float32")


def test_every_step_finds_the_cache_of_the_steps_before(artifact: Artifact, tmp_path: Path) -> None:
    plan = artifact.generation
    expected = np.fromfile(artifact.folder / "generated_0.bin", "float32")
    run = generated(artifact, tmp_path / "a")
    # The second generation starts as the first one did.
    np.testing.assert_allclose(last(run), expected, atol=1e-5)
    assert len(run.step_wall_ns) == len(run.step_peak_bytes) == 2 * (1 + plan.new_tokens)
    assert run.wall_ns == tuple(
        sum(run.step_wall_ns[at : at + 1 + plan.new_tokens]) for at in (0, 1 + plan.new_tokens)
    )
    # With another prompt the cache, and so the last answer, is another one.
    other = tmp_path / "other"
    other.mkdir()
    for file in artifact.folder.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    prompt = np.fromfile(artifact.folder / "prompt_0.bin", "uint8")
    (other / "prompt_0.bin").write_bytes(
        prompt[::-1].tobytes() if prompt[0] > 200 else bytes(prompt.size)
    )
    moved = generated(replace(artifact, folder=other), tmp_path / "b")
    assert np.abs(last(moved) - expected).max() > 1e-4


def test_two_processes_take_turns_within_a_generation(artifact: Artifact, tmp_path: Path) -> None:
    expected = np.fromfile(artifact.folder / "generated_0.bin", "float32")
    request = RunRequest(artifact, Arm.OFF, warmup=1, runs=2, keep_outputs=True, generate=True)
    # The last turn of a generation has fewer steps.
    request = replace(request, turn=Turn(request.steps - 2))
    runner = wheel_runner(host_platform())
    jobs = [Job(runner, request, tmp_path / name) for name in "ab"]
    assert count_turns(jobs) == 4
    for run in LocalTarget().run_in_turns(jobs):
        assert len(run.step_wall_ns) == request.inferences
        np.testing.assert_allclose(last(run), expected, atol=1e-5)


def test_the_traced_inference_is_one_step(artifact: Artifact, tmp_path: Path) -> None:
    request = RunRequest(artifact, Arm.OFF, warmup=0, runs=1, keep_outputs=True, traced=True)
    run = LocalTarget().run(wheel_runner(host_platform()), request, tmp_path)
    assert run.step_wall_ns == ()
    assert run.etdump is not None
    np.testing.assert_allclose(
        last(run), np.fromfile(artifact.reference_files[0], "float32"), atol=1e-5
    )


def test_what_does_not_fit_is_said_before_anything_runs(artifact: Artifact, tmp_path: Path) -> None:
    plan = artifact.generation
    more = replace(artifact, generation=replace(plan, new_tokens=plan.new_tokens + 1))
    with pytest.raises(RunError, match=f"input 0 of {plan.new_tokens + 1} steps is .* bytes, but"):
        generated(more, tmp_path / "a")
    wrong = replace(plan, fed_back=(0, *plan.fed_back[1:]))
    with pytest.raises(RunError, match="output 0 cannot be input 0 of the next step: it is float"):
        generated(replace(artifact, generation=wrong), tmp_path / "b")
    large = replace(plan.prompt[0], shape=tuple(9 * size for size in plan.prompt[0].shape))
    unfit = replace(plan, prompt=(large, *plan.prompt[1:]))
    with pytest.raises(RunError, match=r"input 0 is at most .*, which '.*' does not fit"):
        generated(replace(artifact, generation=unfit), tmp_path / "c")
