"""The stock pair on a phone: two builds, each pushed for its own arm, times from the ETDump."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError
from pytest_sme2.fake_phone.lab import FakeLab
from pytest_sme2.results import PAIR, Arm, Artifact, RunRequest
from pytest_sme2.runners.stock import PairRunner, pair_runner
from pytest_sme2.trace.etdump import read_etdump
from tests.device import provision
from tests.support.phones import MakeTarget, leftovers, make_artifact


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairRunner:
    provision.runner()
    folder = tmp_path_factory.mktemp("stock")
    binaries = provision.build_stock_pair(provision.stock_request(folder))
    cache = tmp_path_factory.mktemp("cache")
    made = pair_runner(binaries[Arm.ON], binaries[Arm.OFF], cache=cache)
    # A phone has no glibc: the pair brings its loader, as the bundle does.
    shutil.copy2(provision.runner().folder / "ld-linux-aarch64.so.1", made.folder)
    return made


def test_a_stock_pair_shows_sme2_on_and_off(
    sme2_lab: FakeLab, make_target: MakeTarget, pair: PairRunner, toy: Artifact, tmp_path: Path
) -> None:
    phone = sme2_lab.add()
    target = make_target(phone)
    names = {}
    for arm in PAIR:
        run = target.run(pair, RunRequest(toy, arm, warmup=1, runs=2), tmp_path / str(arm))
        assert run.runner == "pair"
        assert len(run.wall_ns) == 2
        assert len(run.warmup_wall_ns) == 1
        assert run.etdump is not None
        names[arm] = set(read_etdump(run.etdump).names)
    assert any("PF32" in name for name in names[Arm.ON])
    assert not any("PF32" in name for name in names[Arm.OFF])
    assert leftovers(phone, prepared=True) == []


def test_broken_program_is_an_error_of_the_stock_runner(
    sme2_lab: FakeLab, make_target: MakeTarget, pair: PairRunner, tmp_path: Path
) -> None:
    path = tmp_path / "broken.pte"
    path.write_bytes(b"not a program")
    phone = sme2_lab.add()
    target = make_target(phone)
    with pytest.raises(RunError, match="SIGABRT"):
        target.run(pair, RunRequest(make_artifact(path), Arm.OFF), tmp_path / "out")
    assert leftovers(phone, prepared=True) == []
