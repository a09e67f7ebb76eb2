"""The Mac's runner beside Linux's: the same operators, the same outputs, the same refusals."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.errors import RunError
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import PAIR, Arm, Run, RunRequest, Turn
from pytest_sme2.targets.base import Job, run_here, run_here_in_turns
from pytest_sme2.trace.etdump import read_etdump
from tests.device import provision
from tests.device.conftest import artifact
from tests.device.mac.rig import mac, other_answers
from tests.support import HANGS

VARIANTS = ("fp32", "int8")
EVERY = (*VARIANTS, pytest.param("fp16", marks=pytest.mark.nightly))
NO_SME2 = {
    "machdep.cpu.brand_string": "Apple M2",
    "hw.optional.arm.FEAT_SME": None,
    "hw.optional.arm.FEAT_SME2": None,
}


def request(variant: str, arm: Arm, **choices: object) -> RunRequest:
    known = {"warmup": 0, "runs": 1, "traced": True, "keep_outputs": True, **choices}
    known["timeout_seconds"] = HANGS
    return RunRequest(provision.artifact(variant), arm, **known)  # type: ignore[arg-type]


def run_on_mac(asked: RunRequest, where: Path, **choices: object) -> Run:
    runner = mac().runner(where / "mac", **choices)  # type: ignore[arg-type]
    return run_here("mac", Job(runner, asked, where), emulated=True)


class Runs:
    """Runs that several tests look at, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.on_mac = functools.cache(self._on_mac)
        self.on_linux = functools.cache(self._on_linux)

    def _on_mac(self, variant: str, arm: Arm) -> Run:
        return run_on_mac(request(variant, arm), self.folder / f"mac-{variant}-{arm}")

    def _on_linux(self, variant: str, arm: Arm) -> Run:
        target = provision.emulator(switch_cpu=False)
        folder = self.folder / f"linux-{variant}-{arm}"
        return target.run(provision.runner(), request(variant, arm), folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("mac"))


def profile(run: Run) -> Profile:
    return build_profiles(read_etdump(run.etdump))[0]


def operators(run: Run) -> list[str]:
    return [member.operator.name for member in profile(run).operators]


def values(run: Run) -> np.ndarray:
    (output,) = run.outputs
    return np.fromfile(output.file, np.dtype(output.dtype)).astype(np.float64)


@pytest.mark.parametrize("arm", Arm)
@pytest.mark.parametrize("variant", EVERY)
def test_the_operators_and_outputs_are_those_of_linux(runs: Runs, variant: str, arm: Arm) -> None:
    """To the last bit with SME2; without it other NEON kernels round otherwise."""
    here, there = runs.on_mac(variant, arm), runs.on_linux(variant, arm)
    assert len(operators(here)) > 3
    assert operators(here) == operators(there)
    if arm is Arm.ON:
        assert here.outputs[0].sha256 == there.outputs[0].sha256
    scale = np.abs(values(there)).max()
    assert np.abs(values(here) - values(there)).max() <= 1e-3 * scale


@pytest.mark.parametrize("variant", EVERY)
def test_a_pair_on_a_mac_is_evidence(runs: Runs, variant: str) -> None:
    on, off = runs.on_mac(variant, Arm.ON), runs.on_mac(variant, Arm.OFF)
    assert (on.sme2_effective, off.sme2_effective) == (True, False)
    evidence = check_pair(
        profile(on), profile(off), effective_on=on.sme2_effective, effective_off=off.sme2_effective
    )
    assert evidence.valid, evidence.message
    assert evidence.sme2_on > 0


@pytest.mark.parametrize("dyld", ["drops", "inserts"])
def test_sme2_is_off_whatever_dyld_drops(runs: Runs, tmp_path: Path, dyld: str) -> None:
    """Without DYLD_* the linked library hides it; where that one may not, the inserted one does."""
    run = run_on_mac(request("int8", Arm.OFF), tmp_path, dyld=dyld)
    assert run.sme2_effective is False
    assert operators(run) == operators(runs.on_mac("int8", Arm.OFF))


def test_a_switch_that_cannot_work_is_tried_once_and_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="lets no library replace sysctlbyname") as caught:
        run_on_mac(request("int8", Arm.OFF), tmp_path, dyld="refuses")
    assert "two runners built from source" in str(caught.value)


def test_a_mac_without_sme2_runs_the_off_arm_alone(runs: Runs, tmp_path: Path) -> None:
    answers = other_answers(tmp_path / "m2.txt", NO_SME2)
    # The strictest dyld: nothing needs hiding, so nothing needs to be allowed.
    off = run_on_mac(request("int8", Arm.OFF), tmp_path / "off", answers=answers, dyld="refuses")
    on = run_on_mac(request("int8", Arm.ON), tmp_path / "on", answers=answers)
    assert operators(off) == operators(on) == operators(runs.on_mac("int8", Arm.OFF))
    evidence = check_pair(
        profile(on), profile(off), effective_on=on.sme2_effective, effective_off=False
    )
    assert not evidence.valid
    assert "The CPU has no SME2" in evidence.message


def test_several_threads_compute_the_same_all_on_fast_cores(runs: Runs, tmp_path: Path) -> None:
    """A thread that does not ask for fast cores works on slow ones here."""
    run = run_on_mac(request("fp32", Arm.ON, threads=3, traced=False), tmp_path)
    assert run.outputs[0].sha256 == runs.on_mac("fp32", Arm.ON).outputs[0].sha256
    assert run.cores.efficiency_ns == 0 < run.cores.performance_ns


def test_a_failure_keeps_its_code_and_its_words(tmp_path: Path) -> None:
    """The runner throws, and the Mac's own tables tell the unwinder who catches."""
    broken = tmp_path / "broken.pte"
    broken.write_bytes(b"no program at all, but long enough to be read as one")
    asked = RunRequest(artifact(broken), Arm.ON)
    with pytest.raises(RunError, match="is not an ExecuTorch program"):
        run_on_mac(asked, tmp_path)


def test_clocks_are_finer_than_a_microsecond(runs: Runs) -> None:
    """Apple's CLOCK_MONOTONIC is not, nor is the CPU time of a process."""
    all_runs = [runs.on_mac(variant, arm) for variant in VARIANTS for arm in PAIR]
    assert any(run.wall_ns[0] % 1000 for run in all_runs)
    assert any(run.cpu_ns[0] % 1000 for run in all_runs)


def test_the_runner_asks_for_fast_cores_and_says_what_it_got(runs: Runs, tmp_path: Path) -> None:
    run = run_on_mac(request("int8", Arm.ON, traced=False), tmp_path, efficiency_percent=25)
    assert run.cores.quality == "user interactive"
    assert run.cores.efficiency_share == pytest.approx(0.25, abs=0.01)
    assert run.clock_ghz == pytest.approx(4.0, abs=0.01)
    # In nanoseconds, though the system counts in ticks: no more than the CPU time of the run.
    assert 0 < run.cores.performance_ns + run.cores.efficiency_ns < 3 * sum(run.cpu_ns)
    assert runs.on_mac("int8", Arm.ON).cores.efficiency_ns == 0


def test_two_of_them_take_turns(runs: Runs, tmp_path: Path) -> None:
    runner = mac().runner(tmp_path / "mac")
    asked = request("int8", Arm.ON, traced=False, runs=4, turn=Turn(2, lead=1))
    jobs = [Job(runner, asked, tmp_path / name) for name in "ab"]
    found = [(len(run.wall_ns), run.outputs[0].sha256) for run in run_here_in_turns("mac", jobs)]
    assert found == [(4, runs.on_mac("int8", Arm.ON).outputs[0].sha256)] * 2


def test_the_runner_looks_beside_itself_and_nowhere_twice() -> None:
    """Older linkers keep a search path that is given twice, and newer dyld refuses such a file."""
    link = (mac().build / "build.ninja").read_text()
    (flags,) = re.findall(r"^  LINK_FLAGS = (.*-rpath.*)$", link, re.MULTILINE)
    given = re.findall(r"-rpath(?:,| -Xlinker )(\S+)", flags)
    assert given[0] == "@loader_path"
    assert len({*given}) == len(given)
    assert "-rpath" not in link.replace(flags, "")
