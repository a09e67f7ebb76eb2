"""The stock pair: built by the product from a source tree, run by it, with SME2 in the emulator."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from pytest_sme2.cli import main as cli
from pytest_sme2.errors import RunError
from pytest_sme2.results.evidence import KernelFamily
from pytest_sme2.results.run import PAIR, Arm, Artifact, RunRequest
from pytest_sme2.runners import stock
from pytest_sme2.runners.stock import PairRunner, pair_runner
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.targets.emulated import collect_census
from pytest_sme2.trace.etdump import read_etdump
from tests.device import provision


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[Arm, Path]:
    provision.emulator()
    provision.runner()
    return provision.build_stock_pair(
        provision.stock_request(tmp_path_factory.mktemp("stock"), variant="xnnlog")
    )


@pytest.fixture(scope="module")
def pair(binaries: dict[Arm, Path], tmp_path_factory: pytest.TempPathFactory) -> PairRunner:
    cache = tmp_path_factory.mktemp("cache")
    return pair_runner(binaries[Arm.ON], binaries[Arm.OFF], cache=cache)


def request(arm: Arm, *, warmup: int = 1, runs: int = 2, model: Path | None = None) -> RunRequest:
    artifact: Artifact = provision.artifact("int8")
    if model is not None:
        artifact = dataclasses.replace(artifact, pte=model, input_files=())
    return RunRequest(artifact, arm, warmup=warmup, runs=runs)


def test_source_build_has_different_kernels_on_and_off(binaries: dict[Arm, Path]) -> None:
    on, off = (stock.families_in(binaries[arm]) for arm in (Arm.ON, Arm.OFF))
    assert on == {KernelFamily.NEON, KernelFamily.SME, KernelFamily.SME2}
    assert off == {KernelFamily.NEON}


def test_the_pair_runs_with_sme2_and_without(tmp_path: Path, pair: PairRunner) -> None:
    assert pair.kind == "pair"
    assert pair.platform == LINUX_AARCH64
    names = {}
    for arm in PAIR:
        # The CPU keeps its SME2 in both: only the build makes the difference.
        run = provision.emulator(switch_cpu=False).run(pair, request(arm), tmp_path / str(arm))
        assert len(run.wall_ns) == 2
        assert len(run.warmup_wall_ns) == 1
        assert all(value > 0 for value in (*run.wall_ns, *run.warmup_wall_ns))
        assert run.load_ns > 0
        assert run.sme2_effective is None
        names[arm] = " ".join(read_etdump(run.etdump).names)
    assert "PQS8" in names[Arm.ON]
    assert "PQS8" not in names[Arm.OFF]


def test_its_census_is_the_wheel_runners(tmp_path: Path, pair: PairRunner) -> None:
    target = provision.emulator()
    found = {
        runner.kind: {
            kernel.name
            for kernel in collect_census(
                target, runner, request(Arm.ON), tmp_path / runner.kind
            ).of(KernelFamily.SME2)
        }
        for runner in (pair, provision.runner())
    }
    assert found["pair"]
    assert found["pair"] == found["wheel"]


def test_xnnlog_build_lists_kernels_on_any_device(tmp_path: Path, pair: PairRunner) -> None:
    device = provision.OtherDevice()
    found = collect_census(device, pair, request(Arm.ON), tmp_path)  # type: ignore[arg-type]
    assert found.source == "xnnpack-log"
    assert found.kernels == ()
    assert [operator.name for operator in found.operators] == ["Fully Connected (NC, PF32) GEMM"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.pte", r"SIGABRT.*FileDataLoader.*gone\.pte"),
        ("broken.pte", r"SIGABRT.*Loading of method forward failed"),
    ],
)
def test_a_missing_or_broken_model_is_one_clear_line(
    tmp_path: Path, pair: PairRunner, name: str, message: str
) -> None:
    (tmp_path / "broken.pte").write_bytes(b"not a program")
    with pytest.raises(RunError, match=message):
        provision.emulator().run(pair, request(Arm.OFF, model=tmp_path / name), tmp_path / "run")
    assert (tmp_path / "run" / "runner.log").read_text()


def test_the_commands_work_together(
    tmp_path: Path, binaries: dict[Arm, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    program = shutil.copy(provision.artifact("int8").pte, tmp_path / "a model.pte")
    words = ["--runner", f"{binaries[Arm.ON]},{binaries[Arm.OFF]}"]
    words += ["--out", str(tmp_path / "out")]
    for _ in ("run", "remembered"):
        assert cli.main(["run", "--kernels", str(program), *words]) == 0
        assert "_sme2_" in capsys.readouterr().out
