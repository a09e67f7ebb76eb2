from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import BaselineError
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.evidence import Pair
from pytest_sme2.results.profile import Category
from pytest_sme2.results.run import PAIR, Arm, Artifact, Run, RunRequest
from pytest_sme2.results.timing import Look, Outcome, PairedTiming, PairSample
from pytest_sme2.session.case_result import Timing, assemble, shares_of, speedup_of
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.limits import default_limits
from tests.support.artifacts import make_artifact, make_output
from tests.support.every_check import check_all
from tests.support.gate_examples import CONV_ON, EMULATED, LINUX, TRANSPOSE
from tests.support.pretended_machine import make_run
from tests.support.profiles import columns_of, real, run_of

NAMES: dict[str, Any] = {"session": "s", "recorded": "2025-01-01T00:00:00Z", "runtime": "1.5.0"}


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return make_artifact(tmp_path / "artifact", "toy", "fp16")


def run(artifact: Artifact, arm: Arm, **changes: Any) -> Run:
    facts: dict[str, Any] = {"request": RunRequest(artifact, arm), "load_ns": 500}
    facts |= {"peak_rss_bytes": 2_000}
    return dataclasses.replace(make_run((3_000, 1_000, 2_000)), **{**facts, **changes})


def pair_of(artifact: Artifact, **changes: Any) -> Pair:
    facts: dict[str, Any] = {str(arm): (run(artifact, arm),) for arm in PAIR}
    facts |= {"artifact": artifact, "target": "linux", "traced": {}, "evidence": None}
    return Pair(**{**facts, **changes})


def test_shares_carry_the_spread_of_the_runs() -> None:
    blocks = [
        run_of([[(CONV_ON, 800_000), (TRANSPOSE, time)]]) for time in (100_000, 200_000, 300_000)
    ]
    shares = shares_of(build_profiles(columns_of(*blocks))[0])
    share = shares[Category.DATA_MOVEMENT]
    assert share.low < share.value < share.high
    assert share.value == pytest.approx(0.2, abs=0.01)
    assert (share.low, share.high) == pytest.approx((0.12, 0.26), abs=0.02)
    absent = shares.get(Category.GEMM)
    assert absent is None or absent.high == 0.0


def measurement(interval: tuple[float, float] | None) -> PairedTiming:
    look = Look(10, 0.005, 0.5, interval, 0.5)
    half = math.log(0.5)
    first = PairSample(0, "on", 20.0, 10.0, half, 0.0)
    pairs = first, PairSample(1, "off", 22.0, 11.0, half, 0.0)
    return PairedTiming(
        "off", "on", 0, 3, 10, 1, pairs, (), None, (look,), "precise", None, None, (), (), 1.0
    )


def test_speedup_is_the_inverse_of_the_ratio() -> None:
    found = speedup_of(measurement((0.4, 0.8)))
    assert (found.value, found.low, found.high) == (2.0, 1.25, 2.5)
    assert (found.confidence, found.pairs) == (0.99, 10)
    weak = speedup_of(measurement(None))
    assert (weak.low, weak.high) == (0.0, math.inf)


def test_everything_of_a_timed_pair(artifact: Artifact) -> None:
    profiles = {Arm.ON: real("cpp_toy_fp16_on"), Arm.OFF: real("cpp_toy_fp16_off")}
    evidence = check_pair(profiles[Arm.ON], profiles[Arm.OFF])
    on = run(artifact, Arm.ON), run(artifact, Arm.ON, load_ns=700)
    timing = Timing({}, measurement((0.4, 0.8)))
    pair = pair_of(artifact, evidence=evidence, on=on)
    found = assemble(pair, LINUX, profiles=profiles, timing=timing, **NAMES)
    assert (found.model, found.variant, found.emulated) == ("toy", "fp16", False)
    assert found.medians_ns == {Arm.ON: (10.0, 11.0), Arm.OFF: (20.0, 22.0)}
    assert found.speedup == speedup_of(measurement((0.4, 0.8)))
    assert found.loads_ns == {Arm.ON: (500.0, 700.0), Arm.OFF: (500.0,)}
    assert found.peak_bytes == {Arm.ON: 2_000, Arm.OFF: 2_000}
    assert found.pte_bytes == artifact.pte.stat().st_size
    assert found.versions == {"executorch": "1.5.1", "executorch runtime": "1.5.0"}
    assert found.coverage == profiles[Arm.ON].coverage
    structure = found.structures[Arm.ON]
    assert structure.matrix == profiles[Arm.ON].coverage.matrix_operators
    assert structure.sme2 == profiles[Arm.ON].coverage.sme2_operators


def test_without_pairs_the_processes_speak(artifact: Artifact) -> None:
    found = assemble(pair_of(artifact), LINUX, profiles={}, **NAMES)
    assert found.medians_ns == {Arm.ON: (2_000.0,), Arm.OFF: (2_000.0,)}
    assert found.speedup is None


def test_several_threads_are_as_busy_as_the_machine_was(artifact: Artifact) -> None:
    request = RunRequest(artifact, Arm.OFF, threads=2)
    runs = (run(artifact, Arm.OFF, request=request),)
    pair = pair_of(artifact, on=(), off=runs)
    assert assemble(pair, LINUX, profiles={}, **NAMES).interference is None
    waited = tuple(time // 2 for time in runs[0].wall_ns)
    pair = pair_of(artifact, on=(), off=(replace(runs[0], waited_ns=waited),))
    found = assemble(pair, LINUX, profiles={}, timing=Timing({}, None), **NAMES)
    with pytest.raises(BaselineError, match="the machine was busy: wall time was 50% over"):
        baselines.refuse_unfit(found)


def from_dumps(artifact: Artifact, name: str) -> CaseResult:
    profiles = {Arm.ON: real(f"{name}_on"), Arm.OFF: real(f"{name}_off")}
    facts: dict[str, Any] = {"evidence": check_pair(*profiles.values()), "target": "emulated"}
    traced = {arm: run(artifact, arm, emulated=True, target="emulated") for arm in PAIR}
    pair = pair_of(artifact, on=(), off=(), traced=traced, **facts)
    return assemble(pair, EMULATED, profiles=profiles, **NAMES)


def test_emulated_pairs_have_no_times(artifact: Artifact) -> None:
    found = from_dumps(artifact, "cpp_toy_fp16")
    timed = found.medians_ns, found.speedup, found.shares, found.loads_ns, found.peak_bytes
    assert timed == (None,) * 5


def test_real_dumps_become_a_baseline_and_agree_with_it(tmp_path: Path, artifact: Artifact) -> None:
    found = from_dumps(artifact, "cpp_mobile_fp32")
    baselines.store(tmp_path, found)
    known = baselines.load(tmp_path, "toy", "fp16", EMULATED)
    assert known.structures == found.structures
    checks = check_all(found, known, default_limits())
    assert {check.verdict for check in checks} == {Outcome.PASS}
    assert baselines.update(known, found)[1] == ()


def test_a_real_other_program_is_caught_by_its_operators(artifact: Artifact) -> None:
    """fp16 instead of fp32, from real dumps: no timing is needed to see it."""
    known, _ = baselines.update(None, from_dumps(artifact, "cpp_mobile_fp32"))
    checks = check_all(from_dumps(artifact, "cpp_mobile_fp16"), known, default_limits())
    failed = {check.metric: check for check in checks if check.verdict is Outcome.REGRESSED}
    assert "operators (on)" in failed
    assert any("F16" in line for line in failed["operators (on)"].details)


def test_outputs_are_held_against_each_other_and_the_reference(
    tmp_path: Path, artifact: Artifact
) -> None:
    on = run(artifact, Arm.ON, outputs=(make_output(tmp_path / "on", [1.5]),))
    off = run(artifact, Arm.OFF, outputs=(make_output(tmp_path / "off", [1.0]),))
    pair = pair_of(artifact, on=(on,), off=(off,))
    found = assemble(pair, LINUX, profiles={}, **NAMES).agreements
    assert [(a.against, a.arm, a.max_abs) for a in found] == [
        ("off", Arm.ON, 0.5),
        ("reference", Arm.ON, 1.5),
        ("reference", Arm.OFF, 1.0),
    ]


def test_outputs_that_were_not_kept_are_not_compared(tmp_path: Path, artifact: Artifact) -> None:
    outputs = (make_output(tmp_path / "on", [1.5], file=None, has_nan=True),)
    pair = pair_of(artifact, on=(run(artifact, Arm.ON, outputs=outputs),))
    found = assemble(pair, LINUX, profiles={}, **NAMES)
    assert found.agreements == ()
    assert found.nan_arms == (Arm.ON,)
