"""One case against a reference on the same device: its time, and its operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.results import Arm, Artifact, Outcome
from pytest_sme2.session.bench import Bench
from pytest_sme2.session.reference import OpenReference, Reference
from pytest_sme2.session.settings import Settings
from pytest_sme2.session.versus import CANDIDATE, Versus
from pytest_sme2.timing.sampling import SamplingPlan
from tests.support.artifacts import make_artifact
from tests.support.pretended_target import PretendedTarget


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Artifact, Artifact]:
    """The old program and the new one."""
    return (
        make_artifact(tmp_path / "old", "toy", "fp16", b"old"),
        make_artifact(tmp_path / "new", "toy", "fp16", b"new"),
    )


def versus(sides: tuple[Artifact, Artifact], root: Path, family: int = 1) -> Versus:
    old, new = sides
    bench = Bench(Settings(device="linux"), lambda: "run", lambda line: None)
    reference = OpenReference(Reference("bundle", "release"), None, {("toy", "fp16"): old})
    return Versus(bench, "toy", root, bench.request(new, Arm.ON, 1), reference, family)


@pytest.mark.parametrize(
    ("slower", "outcome"),
    [(1.0, Outcome.PASS), (1.1, Outcome.REGRESSED), (0.9, Outcome.IMPROVED)],
)
def test_a_slower_program_is_a_regression(
    target: PretendedTarget,
    sides: tuple[Artifact, Artifact],
    tmp_path: Path,
    slower: float,
    outcome: Outcome,
) -> None:
    target.slower = {sides[1].sha256: slower}
    found = versus(sides, tmp_path).measure(0.02)
    assert (found.reference, found.candidate) == ("release", CANDIDATE)
    assert found.ratio == pytest.approx(slower, rel=0.01)
    assert found.decision.outcome is outcome


def test_the_files_of_both_sides_are_apart(
    target: PretendedTarget, sides: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    versus(sides, tmp_path).measure(0.02)
    used = {(request.artifact.sha256, folder.parent.name) for request, folder in target.requests}
    assert used == {(sides[0].sha256, "reference"), (sides[1].sha256, "candidate")}
    assert len({folder for _, folder in target.requests}) == len(target.requests)


def test_one_of_many_verdicts_needs_clearer_evidence(
    target: PretendedTarget,
    sides: tuple[Artifact, Artifact],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[SamplingPlan] = []
    monkeypatch.setattr(
        "pytest_sme2.session.bench.measure_pairs",
        lambda arms, reference, candidate, plan, **choices: plans.append(plan),
    )
    for family in (1, 10):
        versus(sides, tmp_path, family).measure(0.03)
    assert [(plan.family, plan.threshold) for plan in plans] == [(1, 0.03), (10, 0.03)]


def test_the_same_operators_pass(
    target: PretendedTarget, sides: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    check = versus(sides, tmp_path).check_operators()
    assert check.verdict is Outcome.PASS
    assert check.message == "The same 7 operators as release."


def test_fewer_operators_on_sme2_are_a_regression(
    target: PretendedTarget, sides: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    target.dumps = {sides[1].sha256: "toy_fp16_off"}
    check = versus(sides, tmp_path).check_operators()
    assert check.verdict is Outcome.REGRESSED
    assert any(detail.startswith("Convolution (NHWC, PF16) IGEMM: -1") for detail in check.details)
