"""The self-contained bundle: made, moved, and run in a root that has no C library."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import BuildError, UsageError
from pytest_sme2.fake_phone.lab import FakeLab
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session.device_bundle import read_bundle, write_bundle
from tests.support.phones import MakeTarget


@pytest.mark.parametrize("name", ["folder", "bundle.tar", "bundle.tar.gz", "bundle.tgz"])
def test_a_bundle_is_the_same_runner(bundle: Sme2Runner, tmp_path: Path, name: str) -> None:
    out = write_bundle(bundle, tmp_path / name)
    again = read_bundle(out, cache=tmp_path / "cache")
    assert again.platform == bundle.platform
    assert again.executorch == bundle.executorch
    theirs = {path.name: path.read_bytes() for path in again.files(Arm.ON)}
    assert theirs == {path.name: path.read_bytes() for path in bundle.files(Arm.ON)}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_it_runs_on_a_phone_that_has_no_c_library(
    sme2_lab: FakeLab, make_target: MakeTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    out = write_bundle(bundle, tmp_path / "sme2 bundle.tar.gz")
    runner = read_bundle(out, cache=tmp_path / "cache")
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
    out = tmp_path / "b"
    assert main(["device-bundle", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["path"] == str(out)
    assert facts["unpacked_bytes"] > 1 << 20
    assert main(["device-bundle", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["device-bundle", str(tmp_path / "c.tgz")]) == 0
    assert "--device-bundle" in capsys.readouterr().out


def test_a_damaged_bundle_is_named(bundle: Sme2Runner, tmp_path: Path) -> None:
    out = write_bundle(bundle, tmp_path / "b")
    (out / "libc.so.6").write_bytes(b"")
    with pytest.raises(BuildError, match=r"'libc.so.6' of the device bundle .* is damaged"):
        read_bundle(out)
    (out / "libc.so.6").unlink()
    with pytest.raises(BuildError, match=r"'libc.so.6' of the device bundle .* is missing"):
        read_bundle(out)


def test_a_truncated_file_is_named(bundle: Sme2Runner, tmp_path: Path) -> None:
    out = write_bundle(bundle, tmp_path / "b.tar.gz")
    out.write_bytes(out.read_bytes()[:100_000])
    with pytest.raises(BuildError, match="cannot be read as a device bundle"):
        read_bundle(out, cache=tmp_path / "cache")
    assert list((tmp_path / "cache" / "device-bundles").glob("[!.]*[!k]")) == []


@pytest.mark.parametrize("name", ["../escaped", "/absolute", "sub/folder", ".."])
def test_no_file_lands_outside(tmp_path: Path, name: str) -> None:
    out = tmp_path / "evil.tar"
    with tarfile.open(out, "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(BuildError, match="which no device bundle does"):
        read_bundle(out, cache=tmp_path / "cache")


def test_links_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "evil.tar"
    entry = tarfile.TarInfo("sme2_runner")
    entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(out, "w") as archive:
        archive.addfile(entry)
    with pytest.raises(BuildError, match="which no device bundle does"):
        read_bundle(out, cache=tmp_path / "cache")


def test_things_that_are_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no device bundle"):
        read_bundle(tmp_path / "nowhere")
    (tmp_path / "text").write_text("hello", encoding="utf-8")
    with pytest.raises(BuildError, match="cannot be read"):
        read_bundle(tmp_path / "text", cache=tmp_path / "cache")
    with pytest.raises(BuildError, match="is not a device bundle"):
        read_bundle(tmp_path)


def test_an_incomplete_runner_makes_no_bundle(bundle: Sme2Runner, tmp_path: Path) -> None:
    folder = tmp_path / "runner"
    folder.mkdir()
    for path in bundle.files(Arm.ON):
        if path.name != "libgcc_s.so.1":
            (folder / path.name).symlink_to(path)
    runner = Sme2Runner("wheel", bundle.platform, bundle.executorch, folder)
    with pytest.raises(BuildError, match=r"needs libgcc_s.so.1, which is not in"):
        write_bundle(runner, tmp_path / "out")
    assert not (tmp_path / "out").exists()
