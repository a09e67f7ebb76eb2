"""What a generation says in a sentence, and what the checks of its phases make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_sme2.results.case import (
    DECODE,
    PREFILL,
    Baseline,
    Check,
    Generated,
    PhaseRatio,
    StepCosts,
)
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Estimate, Outcome
from pytest_sme2.verdict.baselines import parse, render, update
from pytest_sme2.verdict.generation import (
    check_against,
    check_costs,
    check_outputs,
    figure_lines,
    sentence,
    stored_generation,
)
from pytest_sme2.verdict.judging import reference_of
from pytest_sme2.verdict.times import check_phases
from tests.support.gate_examples import LIMITS, agreement, emulated, measured, medians

ON = (1_600_000, 400_000, 400_000, 400_000)
OFF = (6_400_000, 360_000, 360_000, 360_000)


def costs(steps: tuple[int, ...], system: int = 5000, toolchain: str = "gcc") -> StepCosts:
    return StepCosts(steps, (system,) * len(steps), toolchain)


def counted(on: StepCosts | None = None, tokens: int = 16) -> Generated:
    return Generated(tokens, 3, costs={Arm.ON: on or costs(ON), Arm.OFF: costs(OFF)})


def estimate(value: float, width: float = 0.01) -> Estimate:
    return Estimate(value, value * (1 - width), value * (1 + width), 0.99, 14)


def timed(prefill: float = 4.1, decode: float = 0.9) -> Generated:
    arms = (Arm.OFF, Arm.ON)
    return Generated(
        16,
        3,
        steps_ns=dict.fromkeys(arms, (8e6, 2e6, 2e6, 2e6)),
        decode_p95_ns=dict.fromkeys(arms, 3e6),
        loads_ns=dict.fromkeys(arms, 5e6),
        peak_bytes=dict.fromkeys(arms, (1_000_000, 1_000_000, 1_000_000, 2_000_000)),
        speedups={PREFILL: estimate(prefill), DECODE: estimate(decode)},
    )


def kept(found: Generated) -> Baseline:
    return update(None, emulated(generation=found))[0]


def judged(found: Generated, old: Baseline | None = None) -> dict[str, Check]:
    checks = check_costs(emulated(generation=found), old or kept(counted()), LIMITS)
    return {check.metric: check for check in checks}


def test_the_sentence_says_what_sme2_users_meet() -> None:
    assert sentence(timed()) == "prefill 4.1x, decode 0.9x: one row does not fill a tile"
    assert sentence(timed(2.0, 1.9)) == "prefill 2.0x, decode 1.9x"
    assert sentence(counted()) == (
        "instructions: prefill 4.00x fewer, decode 1.11x more: one row does not fill a tile"
    )
    assert sentence(Generated(16, 3, costs={Arm.OFF: costs(OFF)})) == ""


def test_the_figures_are_what_a_user_waits_for() -> None:
    assert next(figure_lines(counted())) == (
        "SME2 on: 100,000 instructions per token of the prompt (16), 400,000 per new token "
        "(context 17 to 19)"
    )
    assert list(figure_lines(timed()))[1] == (
        "SME2 on: load 5.0 ms, first token after 13.0 ms, prefill 2,000.0 tokens/s, decode 500.0 "
        "tokens/s (a step 2.000 ms, 95 % within 3.000 ms), memory 2.0 MB"
    )


def test_the_same_generation_passes_in_each_phase_and_arm() -> None:
    checks = judged(counted())
    assert [*checks] == [
        "prefill cost (on)", "decode cost (on)", "prefill cost (off)", "decode cost (off)"
    ]  # fmt: skip
    assert {check.verdict for check in checks.values()} == {Outcome.PASS}
    assert check_costs(emulated(), None, LIMITS) == []


def test_a_slowdown_is_named_with_its_phase_and_where_it_begins() -> None:
    later = counted(costs((ON[0], ON[1], 500_000, 500_000)))
    checks = judged(later)
    found = checks.pop("decode cost (on)")
    assert found.verdict is Outcome.REGRESSED
    begins = "It begins at context 18: 395,000 to 495,000 instructions (+25.32%)."
    assert begins in found.message
    assert len(found.details) == 2
    assert {check.verdict for check in checks.values()} == {Outcome.PASS}

    checks = judged(counted(costs((2_000_000, *ON[1:]))))
    found = checks.pop("prefill cost (on)")
    assert found.verdict is Outcome.REGRESSED
    assert "It begins in the prompt" in found.message
    assert {check.verdict for check in checks.values()} == {Outcome.PASS}


def test_less_work_is_an_improvement_and_the_heap_is_neither() -> None:
    less = judged(counted(costs((ON[0], 300_000, 300_000, 300_000))))
    assert less["decode cost (on)"].verdict is Outcome.IMPROVED
    shifted = StepCosts(tuple(step + 900 for step in ON), (5900,) * 4, "gcc")
    assert judged(counted(shifted))["decode cost (on)"].verdict is Outcome.PASS
    # Of another C library nothing counts, of the same one a large change does.
    library = tuple(step + 90_000 for step in ON)
    other = StepCosts(library, (95_000,) * 4, "clang")
    assert judged(counted(other))["decode cost (on)"].verdict is Outcome.PASS
    same = StepCosts(library, (95_000,) * 4, "gcc")
    assert judged(counted(same))["decode cost (on)"].verdict is Outcome.REGRESSED


def test_another_generation_or_none_is_not_compared() -> None:
    assert judged(counted(tokens=8))["decode cost (on)"].verdict is Outcome.INVALID
    none = judged(counted(), kept(Generated(16, 3)))
    assert none["decode cost (on)"].verdict is Outcome.NO_BASELINE


def test_a_lost_cache_shows_in_the_last_step() -> None:
    right = agreement(against="reference", max_rel=1e-3, sqnr_db=60.0)
    wrong = replace(right, max_rel=0.5, sqnr_db=3.0)
    for entry, verdict in ((right, Outcome.PASS), (wrong, Outcome.FAILED)):
        found = replace(counted(), agreements=(entry,))
        (check,) = check_outputs(emulated(generation=found), LIMITS, "reference")
        assert check.metric == "generated outputs against reference"
        assert check.verdict is verdict
    assert check_outputs(emulated(generation=counted()), LIMITS, "reference") == []


def test_a_baseline_keeps_it_and_a_steady_one_changes_no_line() -> None:
    old = kept(counted())
    shifted = StepCosts(tuple(step + 900 for step in ON), (5900,) * 4, "gcc")
    assert (
        stored_generation(old.generation, emulated(generation=counted(shifted))) == old.generation
    )
    assert parse(render(old), Path("a.json")).generation == old.generation
    assert "generation" not in render(replace(old, generation=None))
    _, changed = update(old, emulated(generation=counted(costs((2_000_000, *ON[1:])))))
    assert "instructions of the prompt (on)" in {change.what for change in changed}


def test_against_another_version_the_worst_stretch_speaks_for_a_decode() -> None:
    parts = [
        PhaseRatio(PREFILL, 16, 16, estimate(1.0), Outcome.PASS),
        PhaseRatio(DECODE, 17, 80, estimate(1.0), Outcome.PASS),
        PhaseRatio(DECODE, 81, 144, estimate(1.2), Outcome.REGRESSED),
    ]
    prefill, decode = check_against(parts, 97, LIMITS, "main", Arm.ON)
    assert (prefill.verdict, decode.verdict) == (Outcome.PASS, Outcome.REGRESSED)
    assert "Decode at context 81 to 144 takes 1.20x [1.19, 1.21]" in decode.message
    assert decode.message.endswith("It begins at context 97.")
    assert reference_of(decode.metric) == "main"
    few = replace(parts[0], ratio=replace(parts[0].ratio, high=float("inf")))
    assert check_against([few, *parts[1:]], 97, LIMITS, "main", None)[0].verdict is Outcome.INVALID


def test_each_phase_is_held_against_the_stored_sessions() -> None:
    def generated(**now: float) -> Generated:
        usual = {PREFILL: 8.0, DECODE: 2.0, **now}
        phases = {
            phase: dict.fromkeys((Arm.OFF, Arm.ON), medians(each)) for phase, each in usual.items()
        }
        return replace(timed(), phases_ns=phases)

    old = None
    for number in range(3):
        old, _ = update(old, measured(generation=generated(), session=f"s{number}"))
    assert old is not None
    assert parse(render(old), Path("a.json")) == old
    for now, verdicts in (
        ({}, [Outcome.PASS, Outcome.PASS]),
        ({DECODE: 2.5}, [Outcome.PASS, Outcome.REGRESSED]),
        ({PREFILL: 10.0}, [Outcome.REGRESSED, Outcome.PASS]),
    ):
        new = measured(generation=generated(**now), pte_sha256="ef" * 32)
        checks = check_phases(new, old, LIMITS, Arm.ON)
        assert [check.metric for check in checks] == ["prefill latency (on)", "decode latency (on)"]
        assert [check.verdict for check in checks] == verdicts
    before = update(None, measured())[0]
    checks = check_phases(measured(generation=generated()), before, LIMITS, Arm.ON)
    assert {check.verdict for check in checks} == {Outcome.NO_BASELINE}
    assert check_phases(measured(), old, LIMITS, Arm.ON) == []
