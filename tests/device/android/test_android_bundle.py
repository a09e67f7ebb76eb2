"""The self-contained bundle: made, moved, and run in a root that has no C library."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import BuildError
from pytest_sme2.fake_phone.lab import FakeLab
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session.bundle import check_self_contained, open_bundle, phone_runner, write_bundle
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


def test_a_runner_that_is_incomplete_or_that_phones_refuse_makes_no_bundle(
    bundle: Sme2Runner, tmp_path: Path
) -> None:
    for path in bundle.files(Arm.ON):
        (tmp_path / path.name).symlink_to(path)
    runner = Sme2Runner("wheel", bundle.platform, bundle.executorch, tmp_path)
    missing = (tmp_path / "libgcc_s.so.1").rename(tmp_path / "elsewhere")
    with pytest.raises(BuildError, match=r"needs libgcc_s.so.1, which is not in"):
        check_self_contained(runner)
    missing.rename(tmp_path / "libgcc_s.so.1")
    library = tmp_path / "libm.so.6"
    data = bytearray(library.read_bytes())
    library.unlink()
    start, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for place in range(start, start + size * count, size):
        if struct.unpack_from("<I", data, place) == (0x6474E551,):
            struct.pack_into("<I", data, place + 4, 7)
    library.write_bytes(data)
    with pytest.raises(BuildError, match=r"Phones refuse libm.so.6 .*an executable stack"):
        check_self_contained(runner)


def test_a_package_serves_a_machine_without_a_compiler(
    sme2_lab: FakeLab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bundle", "--phone", "--wheel", str(tmp_path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    phone = sme2_lab.add()
    where = ["--phone", f"adb-server={sme2_lab.address}", "--serial", phone.serial]
    doctor = ["doctor", "--device", "android", *where, "--out", str(tmp_path / "phone.json")]
    # Where nothing can be built, the error names the package.
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CXX", raising=False)
    assert main(doctor) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"pip install pytest-sme2-phone=={made['executorch']}" in said
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    installed = tmp_path / "installed"
    subprocess.run([*pip, "--target", installed, made["path"]], check=True, timeout=600)
    monkeypatch.syspath_prepend(installed)
    assert main(doctor) == 0, capsys.readouterr().out
    found = json.loads((tmp_path / "phone.json").read_text("utf-8"))["machine"]
    assert found["proven"] is True
    # One for another ExecuTorch is not used.
    with pytest.raises(BuildError, match=r"pip install pytest-sme2-phone==1\.99 \(.* is installed"):
        phone_runner("linux-aarch64", executorch="1.99")
