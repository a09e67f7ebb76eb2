"""What ``--against`` names, for real: unpacked, downloaded, built, and measured in pairs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.results.run import Arm, Artifact, Run, RunRequest
from pytest_sme2.results.timing import Outcome
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session.bundle import write_bundle
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.reference import (
    AgainstReference,
    OpenReference,
    open_reference,
    parse_against,
)
from pytest_sme2.session.settings import Reference, Settings
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.verdict.limits import default_limits
from tests.support.artifacts import make_artifact

OLDER = "1.5.0"


@pytest.fixture
def program(tmp_path: Path, programs: dict[str, Path]) -> Artifact:
    made = make_artifact(tmp_path / "a", "toy", "fp32", programs["toy_fp32"].read_bytes())
    return dataclasses.replace(made, input_files=())


@pytest.fixture(scope="session")
def older() -> OpenReference:
    """The wheel of another version, downloaded without its dependencies, and our runner on it."""
    return open_reference(parse_against(f"executorch=={OLDER}"), LocalTarget().platform)


def run_off(runner: Runner, artifact: Artifact, folder: Path, **options: Any) -> Run:
    request = RunRequest(artifact, Arm.OFF, **{"warmup": 1, "runs": 2, **options})
    return LocalTarget().run(runner, request, folder)


def test_bundle_runs_like_its_parts(
    tmp_path: Path, local_runner: Sme2Runner, program: Artifact
) -> None:
    path = write_bundle(tmp_path / "b.tar.gz", local_runner, [program])
    opened = open_reference(
        parse_against(str(path)), local_runner.platform, cache=tmp_path / "cache"
    )
    theirs, runner = opened.side(program, local_runner)
    assert runner.folder.is_relative_to(tmp_path / "cache")
    theirs = dataclasses.replace(theirs, input_files=())
    runs = [
        run_off(side, artifact, tmp_path / name)
        for name, side, artifact in (("a", local_runner, program), ("b", runner, theirs))
    ]
    hashes = [[output.sha256 for output in run.outputs] for run in runs]
    assert hashes[0] == hashes[1] != []


def test_the_same_runner_builds_against_another_executorch(
    tmp_path: Path, local_runner: Sme2Runner, older: OpenReference, program: Artifact
) -> None:
    same, runner = older.side(program, local_runner)
    assert same is program
    assert runner.executorch == OLDER
    assert runner.folder != local_runner.folder
    assert len(run_off(runner, program, tmp_path).wall_ns) == 2


@pytest.mark.parametrize(
    ("now", "verdicts"),
    [
        ("toy_fp32", (Outcome.PASS, Outcome.PASS)),
        # As many operators on SME2, but a few more instructions.
        ("toy_fp16", (Outcome.PASS, Outcome.REGRESSED)),
    ],
)
def test_on_the_emulator_instructions_are_compared(
    tmp_path: Path,
    program: Artifact,
    programs: dict[str, Path],
    now: str,
    verdicts: tuple[Outcome, Outcome],
) -> None:
    made = make_artifact(tmp_path / "now", "toy", "fp32", programs[now].read_bytes())
    candidate = dataclasses.replace(made, input_files=())
    bench = HeldDevice(Settings(device="emulated"), lambda line: None)
    before = OpenReference(Reference("programs", "before"), None, {("toy", "fp32"): program})
    request = bench.request(candidate, Arm.ON, 1)
    against = AgainstReference(bench, "toy", tmp_path / "out", request, before)
    operators, cost = against.check_operators(), against.check_cost(default_limits(), Arm.ON)
    assert (operators.verdict, cost.verdict) == verdicts
    assert cost.metric == "cost (on) against before"
    assert cost.old > 10_000
    bench.close()
