from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.results.run import Arm
from pytest_sme2.system.qemu import Qemu, check_qemu, find_qemu, parse_cpu


def qemu(path: Path, version: str, name: str = "qemu-aarch64") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{name} version {version} (Debian 1:{version}+ds-1)'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.mark.parametrize("version", ["10.1.0", "10.1.0-rc2", "11.10"])
def test_new_enough(tmp_path, version):
    path = qemu(tmp_path / "qemu", version)
    assert check_qemu(path) == Qemu(path, version.partition("-")[0])


@pytest.mark.parametrize("version", ["7.2.13", "10.0.3", "9.99.0"])
def test_too_old_is_refused_with_its_version_and_a_remedy(tmp_path, version):
    path = qemu(tmp_path / "qemu", version)
    with pytest.raises(TargetError, match=rf"QEMU {version}, which is too old.*install QEMU 10\.1"):
        check_qemu(path)


def test_something_else_is_refused(tmp_path):
    with pytest.raises(TargetError, match="is not QEMU"):
        check_qemu(qemu(tmp_path / "qemu", "11.0.0", name="qemu-x86_64"))
    with pytest.raises(TargetError, match=r"cannot be started: No such file.*on PATH"):
        check_qemu(tmp_path / "nowhere")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(TargetError, match="cannot be started: Permission denied"):
        check_qemu(tmp_path / "text")


def test_path_then_cache(bin_folder, tmp_path):
    kept = qemu(tmp_path / "tools/qemu/usr/bin/qemu-aarch64", "11.1.2")
    if not any(Path(folder, "qemu-aarch64").exists() for folder in ("/usr/bin", "/bin")):
        assert find_qemu(cache=tmp_path).path == kept
    found = qemu(bin_folder / "qemu-aarch64", "11.0.0")
    assert find_qemu(cache=tmp_path).path == found
    qemu(found, "7.2.0")
    assert find_qemu(cache=tmp_path).path == kept


def test_none_at_all_or_only_an_old_one(bin_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(bin_folder))
    with pytest.raises(TargetError, match=r"No emulator was found.*install QEMU"):
        find_qemu(cache=tmp_path)
    qemu(bin_folder / "qemu-aarch64-static", "7.2.0")
    with pytest.raises(TargetError, match=r"QEMU 7\.2\.0, which is too old"):
        find_qemu(cache=tmp_path)


@pytest.mark.parametrize(
    ("value", "on", "off"),
    [
        ("strict", "max,sme512=on,sme_fa64=off", "max,sme=off"),
        ("strict:128", "max,sme128=on,sme_fa64=off", "max,sme=off"),
        ("apple-m4", "max,sme512=on,sme_fa64=off,sve=off", "max,sme=off,sve=off"),
        ("sme1", "max,sme512=on,sme_fa64=off", "max,sme=off"),
        ("arm-c1:256", "max,sme256=on,sme_fa64=off,sve128=on", "max,sme=off,sve128=on"),
    ],
)
def test_the_emulated_cpus(value, on, off):
    cpu = parse_cpu(value)
    assert (cpu.model(Arm.ON), cpu.model(Arm.OFF), str(cpu)) == (on, off, value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("m4", r"'m4' is not an emulated CPU\. Choose one of: strict, apple-m4, arm-c1, sme1;"),
        ("strict:64", r"'64' is not a vector length\. Choose one of: 128, 256, 512\."),
        ("strict:", r"'' is not a vector length"),
    ],
)
def test_other_cpus_are_refused_with_the_choices(value, message):
    with pytest.raises(UsageError, match=message):
        parse_cpu(value)
