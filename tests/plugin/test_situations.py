"""Situations, their verdicts and exit codes; docs/measuring.md has a table of some.

The device is a pretended one with a virtual clock; session, measuring, baselines and gate are the
product's own, and pytest runs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.cli.commands import init
from pytest_sme2.results.run import Arm
from pytest_sme2.system.files import file_sha256
from pytest_sme2.verdict.baselines import parse, render
from tests.support.pretended_device import Burst, PretendedDevice, pretend, program
from tests.support.toy_project import add_model

DOCS = Path(__file__).parents[2] / "docs" / "measuring.md"
SUITE = """
def test_latency(sme2_gate):
    sme2_gate.check_latency()
"""
AGAINST_SUITE = """
def test_against(sme2_gate):
    sme2_gate.check_against()
"""
OLD, NEW = program("old"), program("new")
ON_NS, OFF_NS = 30e6, 90e6


@dataclass(frozen=True)
class Situation:
    """One row of the table; the program took 30 ms with SME2 and 90 ms without."""

    what: str
    verdict: str
    exit_code: int
    strict_exit_code: int
    factor: float = 1.0
    """How much slower the program is than the one that the baseline measured."""
    off_factor: float | None = None
    same_bytes: bool = False
    same_inputs: bool = True
    at_hand: bool = True
    """Whether the program that the baseline measured is still there."""
    sessions: int = 3
    scale: float = 1.0
    """Makes both programs slower alike, for slow models."""
    machine: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    against: bool = False
    """Whether the old program is named with ``--against``, and nothing is stored."""
    words: str = "*"


SITUATIONS = (
    Situation("no baseline yet", "NO_BASELINE", 0, 1, sessions=0,
              words="SKIPPED*NO_BASELINE: latency*--update-baselines*"),
    Situation("nothing changed", "PASS", 0, 0, same_bytes=True),
    Situation("other bytes, as fast as before", "PASS", 0, 0),
    Situation("other bytes, 10 % faster", "IMPROVED", 0, 0, factor=0.9),
    Situation("5 % slower", "REGRESSED", 1, 1, factor=1.05),
    Situation("a model of 1 s, 3 times slower, default budget", "REGRESSED", 1, 1,
              factor=3.0, scale=1000 / 30),
    Situation("only the off arm is slower, by 2 times", "REGRESSED", 1, 1, off_factor=2.0,
              words="*latency (off) against the baseline's program: REGRESSED*"),
    Situation("5 % slower beside a busy neighbour", "REGRESSED", 1, 1, factor=1.05,
              machine={"interference": 0.3}),
    Situation("as fast as before beside a busy neighbour", "PASS", 0, 0,
              machine={"interference": 0.3}),
    Situation("10 times slower, yardstick 6 % off, old program gone", "REGRESSED", 1, 1,
              factor=10.0, at_hand=False, machine={"speed": 1.06}),
    Situation("5 % slower, one session, old program gone", "INVALID", 125, 125, factor=1.05,
              at_hand=False, sessions=1, words="*Suspected regression: *slower than the baseline*"),
    Situation("as fast as before, one session, old program gone", "INCONCLUSIVE", 0, 125,
              at_hand=False, sessions=1, words="*latency (on): INCONCLUSIVE: *"),
    Situation("same bytes, the machine is 58.5 % slower", "INCONCLUSIVE", 0, 125,
              same_bytes=True, machine={"speed": 1.585},
              words="*it is the machine that*"),
    Situation("same bytes, 3 times slower, the machine is as fast as before", "INVALID", 125, 125,
              factor=3.0, same_bytes=True, words="*nothing measured explains the difference*"),
    Situation("same bytes, other inputs, 3 times slower", "REGRESSED", 1, 1, factor=3.0,
              same_bytes=True, same_inputs=False,
              words="*The inputs are not those of the baseline.*"),
    Situation("`--against` the old program, as fast", "PASS", 0, 0, against=True),
    Situation("`--against` the old program, only the off arm is slower, by 2 times", "REGRESSED",
              1, 1, off_factor=2.0, against=True,
              words="*latency (off) against old: REGRESSED *"),
    Situation("a model too slow for the time limit", "INVALID", 125, 125, factor=2.0,
              scale=20000 / 30, options=("--sme2-budget=,30s",), words="*TIME,LIMIT*"),
    Situation("a model of 1 s, as fast as before, neighbours too noisy to tell", "INVALID", 125,
              125, scale=1000 / 30,
              machine={"burst": Burst(2.0, 2.0), "interference": 0.3, "seed": 6},
              words="*The machine is too noisy for a verdict: * slower cannot be ruled out.*"),
)  # fmt: skip


def nanoseconds(
    factor: float = 1.0, off_factor: float | None = None, scale: float = 1.0
) -> dict[Arm, float]:
    off = factor if off_factor is None else off_factor
    return {Arm.ON: ON_NS * factor * scale, Arm.OFF: OFF_NS * off * scale}


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The baseline once it was made: its place and its text."""
    return {}


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, made: dict[str, str]
) -> pytest.Pytester:
    """A repository with one model, its test, and nothing stored."""
    add_model(pytester.path, "toy", "fp32")
    pytester.makeini("[pytest]\nsme2_models = models\nsme2_device = linux\n")
    pytester.makepyfile(SUITE)
    if not made:
        device = PretendedDevice({OLD.sha256: nanoseconds(1.0)}, seed=1)
        with monkeypatch.context() as patch:
            pretend(patch, device, OLD)
            pytester.runpytest_inprocess("--update-baselines").assert_outcomes(passed=1)
        (path,) = (pytester.path / "baselines").glob("*/toy-fp32.json")
        made[str(path.relative_to(pytester.path))] = path.read_text("utf-8")
        path.unlink()
    return pytester


def store(path: Path, text: str, count: int, scale: float) -> None:
    """A baseline of so many sessions of the measured one, each ``scale`` times as slow."""
    made = parse(text, path)
    (session,) = made.sessions
    slower = {
        arm: tuple(value * scale for value in values) for arm, values in session.medians_ns.items()
    }
    sessions = tuple(
        replace(session, session=f"s{index}", medians_ns=slower) for index in range(count)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(replace(made, sessions=sessions)), "utf-8")


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.what)
def test_verdict_and_exit_code(
    situation: Situation,
    project: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    made: dict[str, str],
) -> None:
    ((place, text),) = made.items()
    options, old, stored = situation.options, OLD.sha256, project.path / place
    if situation.against:
        path = project.mkdir("old") / "toy_xnnpack_fp32.pte"
        path.write_bytes(b"the old program")
        old = file_sha256(path)
        project.makepyfile(AGAINST_SUITE)
        options = (*options, "--against=old")
    elif situation.sessions:
        store(stored, text, situation.sessions, situation.scale)
    kept = stored.read_text("utf-8") if stored.exists() else None
    now = OLD if situation.same_bytes else NEW
    if not situation.same_inputs:
        (project.path / "input.bin").write_bytes(bytes(8 * 64 * 64 * 4))
        now = replace(now, input_files=(project.path / "input.bin",))
    before = nanoseconds(scale=situation.scale)
    after = nanoseconds(situation.factor, situation.off_factor, situation.scale)
    device = PretendedDevice({old: before, now.sha256: after}, **{"seed": 2, **situation.machine})
    with monkeypatch.context() as patch:
        pretend(patch, device, now, OLD if situation.at_hand else None)
        result = project.runpytest_inprocess("-rs", *options)
        assert result.ret == situation.exit_code
        assert kept is None or stored.read_text("utf-8") == kept
        result.stdout.fnmatch_lines([f"toy-fp32 * {situation.verdict}*"])
        result.stdout.fnmatch_lines([situation.words])
        if situation.exit_code != situation.strict_exit_code:
            strict = project.runpytest_inprocess("--sme2-strict", *options)
            assert strict.ret == situation.strict_exit_code


def test_a_changed_machine_is_told(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, made: dict[str, str]
) -> None:
    ((place, text),) = made.items()
    store(project.path / place, text, 3, 1.0)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "summary.md"))
    device = PretendedDevice({OLD.sha256: nanoseconds(1.0)}, seed=2, speed=1.585)
    with monkeypatch.context() as patch:
        pretend(patch, device, OLD)
        result = project.runpytest_inprocess()
    result.stdout.fnmatch_lines(["*58* slower*", "toy-fp32 * INCONCLUSIVE*"])
    summary = next(project.path.rglob("*summary.md")).read_text("utf-8")
    assert "INCONCLUSIVE" in summary
    assert "program that never changes took" in summary


def test_the_test_that_init_writes_measures_against_a_reference(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this device cannot measure (kernels) or compare (no baseline) does not skip the test."""
    # Nothing is right or wrong in a pretended output.
    lines = init.TEST.splitlines()
    project.makepyfile("\n".join(line for line in lines if "check_outputs" not in line))
    path = project.mkdir("old") / "toy_xnnpack_fp32.pte"
    path.write_bytes(b"the old program")
    before = {file_sha256(path): nanoseconds(1.0)}
    for factor, failed in ((1.0, 0), (1.05, 1)):
        device = PretendedDevice({**before, NEW.sha256: nanoseconds(factor)}, seed=2)
        with monkeypatch.context() as patch:
            pretend(patch, device, NEW)
            result = project.runpytest_inprocess("--against=old")
        result.assert_outcomes(passed=1 - failed, failed=failed)
        result.stdout.no_fnmatch_line("*was not used*")


def test_the_documentation_tells_situations_as_they_are() -> None:
    section = DOCS.read_text("utf-8").partition("| situation |")[2].partition("\n\n")[0]
    rows = section.splitlines()[2:]
    known = {
        f"| {one.what} | {one.verdict} | {one.exit_code} | {one.strict_exit_code} |"
        for one in SITUATIONS
    }
    assert len(rows) > 8
    assert known.issuperset(rows)
