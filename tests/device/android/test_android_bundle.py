"""The self-contained bundle: made, moved, and run in a root that has no C library."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.fake_phone.lab import FakeLab
from pytest_sme2.results.run import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session.bundle import open_bundle, write_bundle
from pytest_sme2.system.elf import PHONE_PAGE_BYTES, read_binary
from tests.support.phones import MakeTarget


def test_it_runs_on_a_phone_that_has_no_c_library(
    sme2_lab: FakeLab, make_target: MakeTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    out = write_bundle(tmp_path / "sme2 bundle.tar.gz", bundle, ())
    runner = open_bundle(out, cache=tmp_path / "cache").runner
    target = make_target(sme2_lab.add())
    run = target.run(runner, RunRequest(toy, Arm.OFF, warmup=0, runs=1), tmp_path / "out")
    assert run.sme2_effective is False
    # The same content under another roof is not pushed again.
    pushed = target.storage.pushed_bytes
    target.run(bundle, RunRequest(toy, Arm.OFF, warmup=0, runs=1), tmp_path / "out")
    assert target.storage.pushed_bytes == pushed


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bundle: Sme2Runner
) -> None:
    out = tmp_path / "b.tar.gz"
    assert main(["bundle", "--phone", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["path"], facts["programs"]) == (str(out), [])
    assert out.stat().st_size > 1 << 20


def test_all_of_it_is_for_pages_of_16_kilobytes(bundle: Sme2Runner) -> None:
    for path in bundle.files(Arm.ON):
        found = read_binary(path.read_bytes(), path.name, re.compile(b"()"))
        assert found.alignment is not None
        assert found.alignment >= PHONE_PAGE_BYTES, path.name
