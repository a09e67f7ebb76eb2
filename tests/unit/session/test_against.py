"""A case, and its generations, on a device of known times: alone, and against a reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.results.case import DECODE, PREFILL
from pytest_sme2.results.evidence import CountedInference, Segment, Toolchain
from pytest_sme2.results.run import PAIR, Arm, Artifact, GenerationPlan
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.case_result import generate, step_costs
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.reference import CANDIDATE, AgainstReference, OpenReference
from pytest_sme2.session.settings import Reference, Settings
from pytest_sme2.verdict.limits import default_limits
from tests.support.artifacts import make_artifact
from tests.support.pretended_target import PretendedTarget

Sides = tuple[Artifact, Artifact]
PROMPT, NEW = 32, 96
PLAN = GenerationPlan(PROMPT, NEW, (), ())
USUAL = (8.0,) + (1.0,) * NEW


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    """The old program and the new one."""
    old, new = (
        replace(make_artifact(tmp_path / name, "toy", "fp16", name.encode()), generation=PLAN)
        for name in ("old", "new")
    )
    return replace(old, outputs=()), replace(new, outputs=())


def bench() -> HeldDevice:
    return HeldDevice(Settings(device="linux"), lambda line: None)


def against(sides: Sides, root: Path, family: int = 1) -> AgainstReference:
    old, new = sides
    reference = OpenReference(Reference("bundle", "release"), None, {("toy", "fp16"): old})
    return AgainstReference(
        bench(), "toy", root, bench().request(new, Arm.ON, 1), reference, family
    )


@pytest.mark.parametrize(
    ("slower", "outcome"),
    [(1.0, Outcome.PASS), (1.1, Outcome.REGRESSED), (0.9, Outcome.IMPROVED)],
)
def test_a_slower_program_is_a_regression(
    target: PretendedTarget, sides: Sides, tmp_path: Path, slower: float, outcome: Outcome
) -> None:
    target.slower = {sides[1].sha256: slower}
    found = against(sides, tmp_path).measure(0.02)
    assert (found.reference, found.candidate) == ("release", CANDIDATE)
    assert found.ratio == pytest.approx(slower, rel=0.01)
    assert found.decision.outcome is outcome
    # The files of both sides are apart, and so are those of each process.
    used = {(request.artifact.sha256, folder.parent.name) for request, folder in target.requests}
    assert used == {(sides[0].sha256, "reference"), (sides[1].sha256, "candidate")}
    assert len({folder for _, folder in target.requests}) == len(target.requests)


def test_the_same_operators_pass_and_fewer_on_sme2_are_a_regression(
    target: PretendedTarget, sides: Sides, tmp_path: Path
) -> None:
    check = against(sides, tmp_path).check_operators()
    assert check.verdict is Outcome.PASS
    assert check.message == "The same 7 operators as release."
    target.dumps = {sides[1].sha256: "toy_fp16_off"}
    check = against(sides, tmp_path).check_operators()
    assert check.verdict is Outcome.REGRESSED
    assert any(detail.startswith("Convolution (NHWC, PF16) IGEMM: -1") for detail in check.details)


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
    sides: Sides,
    tmp_path: Path,
    steps: tuple[float, ...],
    verdicts: tuple[Outcome, Outcome],
    begins: int | None,
) -> None:
    target.steps = {sides[0].sha256: USUAL, sides[1].sha256: steps}
    checks = against(sides, tmp_path).check_generation(default_limits())
    assert [check.metric for check in checks] == [
        "prefill latency against release", "decode latency against release"
    ]  # fmt: skip
    assert tuple(check.verdict for check in checks) == verdicts
    if begins is not None:
        (place,) = [int(word) for word in checks[1].message.rstrip(".").split()[-1:]]
        assert abs(place - begins) <= 2


@pytest.mark.parametrize(
    # Of 10 pairs, none of them says for sure that it is more than 2 % slower, or less.
    ("prefill", "found"),
    [
        (1.03, Outcome.REGRESSED),
        (1.015, Outcome.PASS),
        pytest.param(1.02, None, marks=pytest.mark.slow),
    ],
)
def test_what_is_open_after_the_first_look_is_measured_again(
    target: PretendedTarget, sides: Sides, tmp_path: Path, prefill: float, found: Outcome | None
) -> None:
    target.steps = {sides[0].sha256: USUAL, sides[1].sha256: slowed(prefill=prefill)}
    check, decode = against(sides, tmp_path).check_generation(default_limits())
    assert len(target.requests) > 2 * (1 + 10)
    assert decode.verdict is Outcome.PASS
    if found is None:
        assert check.verdict in (Outcome.INVALID, Outcome.INCONCLUSIVE)
        assert check.message.endswith("Measure longer (--sme2-budget).")
    else:
        assert check.verdict is found


def test_the_figures_of_a_case_are_those_of_its_phases(
    target: PretendedTarget, sides: Sides, tmp_path: Path
) -> None:
    artifact = sides[0]
    target.steps = {artifact.sha256: USUAL}
    requests = {arm: bench().request(artifact, arm, 1) for arm in PAIR}
    assert generate(bench(), "toy", requests, tmp_path, None) is None
    found = generate(bench(), "toy", requests, tmp_path, timing=object())
    assert found is not None
    assert found.steps_ns[Arm.OFF][0] == pytest.approx(24e6, rel=0.05)
    assert found.steps_ns[Arm.ON][-1] == pytest.approx(1.5e6, rel=0.05)
    assert found.decode_p95_ns[Arm.ON] > found.steps_ns[Arm.ON][-1]
    for phase in (PREFILL, DECODE):
        assert found.speedups[phase].value == pytest.approx(2, rel=0.02)
    assert found.peak_bytes[Arm.ON] == (50_000_000,) * (1 + NEW)
    silent = replace(artifact, generation=None)
    none = {arm: replace(request, artifact=silent) for arm, request in requests.items()}
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
