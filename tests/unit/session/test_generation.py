"""Whole generations through the session, on a device of known times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.results import (
    DECODE,
    PREFILL,
    Arm,
    Artifact,
    CountedInference,
    GenerationPlan,
    Outcome,
    Segment,
    Toolchain,
)
from pytest_sme2.session.bench import Bench
from pytest_sme2.session.generation import generate, step_costs
from pytest_sme2.session.reference import OpenReference, Reference
from pytest_sme2.session.settings import Settings
from pytest_sme2.session.versus import Versus
from pytest_sme2.verdict.limits import default_limits
from tests.support.artifacts import make_artifact
from tests.support.pretended_target import PretendedTarget

PROMPT, NEW = 32, 96
PLAN = GenerationPlan(PROMPT, NEW, (), ())
USUAL = (8.0,) + (1.0,) * NEW


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Artifact, Artifact]:
    old, new = (make_artifact(tmp_path / side, "toy", "fp16", side.encode()) for side in ("a", "b"))
    return replace(old, generation=PLAN, outputs=()), replace(new, generation=PLAN, outputs=())


def bench() -> Bench:
    return Bench(Settings(device="linux"), lambda: "run", lambda line: None)


def slowed(prefill: float = 1.0, decode: float = 1.0, since: int = PROMPT + 1) -> tuple[float, ...]:
    """The decode from a context on."""
    place = since - PROMPT
    return (USUAL[0] * prefill, *USUAL[1:place], *(decode * step for step in USUAL[place:]))


@pytest.mark.parametrize(
    ("steps", "verdicts", "begins"),
    [
        (slowed(), (Outcome.PASS, Outcome.PASS), None),
        (slowed(prefill=1.1), (Outcome.REGRESSED, Outcome.PASS), None),
        (slowed(decode=1.1), (Outcome.PASS, Outcome.REGRESSED), PROMPT + 1),
        (slowed(decode=1.1, since=100), (Outcome.PASS, Outcome.REGRESSED), 100),
    ],
)
def test_a_slowdown_is_found_in_its_phase_and_where_it_begins(
    target: PretendedTarget,
    sides: tuple[Artifact, Artifact],
    tmp_path: Path,
    steps: tuple[float, ...],
    verdicts: tuple[Outcome, Outcome],
    begins: int | None,
) -> None:
    old, new = sides
    target.steps = {old.sha256: USUAL, new.sha256: steps}
    reference = OpenReference(Reference("bundle", "main"), None, {("toy", "fp16"): old})
    found = Versus(bench(), "toy", tmp_path, bench().request(new, Arm.ON, 1), reference)
    checks = found.check_generation(default_limits())
    assert [check.metric for check in checks] == [
        "prefill latency against main", "decode latency against main"
    ]  # fmt: skip
    assert tuple(check.verdict for check in checks) == verdicts
    if begins is not None:
        (place,) = [int(word) for word in checks[1].message.rstrip(".").split()[-1:]]
        assert abs(place - begins) <= 2


def test_another_generation_is_not_compared(
    target: PretendedTarget, sides: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    old = replace(sides[0], generation=replace(PLAN, new_tokens=8))
    reference = OpenReference(Reference("bundle", "main"), None, {("toy", "fp16"): old})
    request = bench().request(sides[1], Arm.ON, 1)
    assert (
        Versus(bench(), "toy", tmp_path, request, reference).check_generation(default_limits())
        == []
    )
    assert not target.requests


def test_the_figures_of_a_case_are_those_of_its_phases(
    target: PretendedTarget, sides: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    artifact = sides[0]
    target.steps = {artifact.sha256: USUAL}
    requests = {arm: bench().request(artifact, arm, 1) for arm in (Arm.ON, Arm.OFF)}
    assert generate(bench(), "toy", requests, tmp_path, None) is None
    found = generate(bench(), "toy", requests, tmp_path, timing=object())
    assert found is not None
    assert found.steps_ns[Arm.OFF][0] == pytest.approx(24e6, rel=0.05)
    assert found.steps_ns[Arm.ON][-1] == pytest.approx(1.5e6, rel=0.05)
    assert found.decode_p95_ns[Arm.ON] > found.steps_ns[Arm.ON][-1]
    for phase in (PREFILL, DECODE):
        assert found.speedups[phase].value == pytest.approx(2, rel=0.01)
    assert found.peak_bytes[Arm.ON] == (50_000_000,) * (1 + NEW)
    none = {arm: replace(request, artifact=replace(artifact, generation=None))
            for arm, request in requests.items()}  # fmt: skip
    assert generate(bench(), "toy", none, tmp_path, timing=object()) is None


def test_the_steps_of_a_log_are_counted_apart() -> None:
    def segment(mark: str, **code: int) -> Segment:
        return Segment(mark, {name: (count, 0) for name, count in code.items()})

    counted = CountedInference(
        512,
        (
            segment("inference"), segment("clock", kernel=5), segment("done", kernel=3, libc=2),
            segment("inference"), segment("done", kernel=7),
        ),
    )  # fmt: skip
    costs = step_costs(counted, Toolchain(frozenset({"libc"}), "gcc"))
    assert (costs.instructions, costs.system, costs.toolchain) == ((10, 7), (2, 0), "gcc")
