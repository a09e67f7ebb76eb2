"""What is fetched from where, what is said about it, and what is left alone."""

from __future__ import annotations

import platform
import shutil
import tarfile
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import TargetError
from pytest_sme2.system import provision
from pytest_sme2.system.debian_packages import Archive
from pytest_sme2.system.qemu import Qemu
from tests.support.apt_archive import archive, member

QEMU = (member("./", tarfile.DIRTYPE), member("./usr/bin/qemu-aarch64", mode=0o755))


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Debian without an emulator, with an empty cache, and with archives of the test's own."""
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "debian"})
    monkeypatch.setattr(platform, "system", lambda: "Linux")

    def find() -> Qemu:
        path = tmp_path / "cache/pytest-sme2/tools/qemu/usr/bin/qemu-aarch64"
        if not path.exists():
            raise TargetError("No emulator was found.")
        return Qemu(path, "11.1.2")

    monkeypatch.setattr(provision, "find_qemu", find)
    return tmp_path


def archives(monkeypatch: pytest.MonkeyPatch, *found: Archive) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("no apt here")
    monkeypatch.setattr(provision, "system_archives", lambda: found)


def test_the_emulator_of_a_newer_suite_is_fetched(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debian = archive(bare / "debian", "sid", [("qemu-user", "11.1.2", QEMU)])
    archives(monkeypatch, archive(bare / "chrome", "stable", [("chrome", "1", QEMU)]), debian)
    said: list[str] = []
    part = provision.qemu(said.append, False)
    assert (part.action, part.warning) == ("installed", "")
    size = (bare / "debian/qemu-user_11.1.2_all.deb").stat().st_size
    announced = f"fetching QEMU 11.1.2 into the cache ({size / 1e6:.1f} MB to download)"
    assert said[-2:] == ["asking this machine's archives for sid", announced]


def test_suite_of_this_machine_is_asked_last(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archives(monkeypatch, archive(bare / "kali", "rolling", [("qemu-user", "11.1.2", QEMU)]))
    assert provision.qemu(lambda line: None, False).action == "installed"


def test_an_old_emulator_is_not_fetched(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archives(monkeypatch, archive(bare / "old", "stable", [("qemu-user", "7.2+dfsg", QEMU)]))
    part = provision.qemu(lambda line: None, False)
    assert part.found is None
    assert "offer qemu-user_7.2+dfsg_all.deb, which is too old for SME2" in part.remedy


def test_a_failure_is_an_exit_code_and_a_reason(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archives(monkeypatch, archive(bare / "a", "sid", [("qemu-user", "11.1", QEMU)], trusted=False))
    for part in ("build_tools", "compiler", "cross_compiler"):
        monkeypatch.setattr(provision, part, lambda say, check: provision.Provided("x", "/x"))
    monkeypatch.delenv("CI", raising=False)
    assert main(["provision"]) == 1
    # Where a line ends depends on how long the paths in it are.
    printed = " ".join(capsys.readouterr().out.split())
    assert "a signature is missing or cannot be checked" in printed
    assert main(["provision", "--check"]) == 0
    assert main(["provision", "--check", "--require"]) == 1


def test_looking_creates_nothing(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "system_archives", lambda: (Archive("x:", ("s",), ("main",)),))
    provision.provision(lambda line: None, check=True, purpose="tests")
    assert list(bare.iterdir()) == []


@pytest.mark.parametrize(
    ("release", "tool", "hint"),
    [
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, provision.COMPILER, "sudo apt-get install g++"),
        ({"ID": "fedora"}, provision.QEMU, "sudo dnf install qemu-user"),
        ({"ID": "fedora"}, provision.CROSS, "no C library"),
        ({"ID": "rocky", "ID_LIKE": "rhel fedora"}, provision.COMPILER, "dnf install gcc-c++"),
        ({"ID": "arch"}, provision.CROSS, "sudo pacman -S aarch64-linux-gnu-gcc"),
        ({}, provision.BROWSER, "Install the browser with this system's package manager"),
    ],
)
def test_hints_for_other_systems(
    monkeypatch: pytest.MonkeyPatch, release: dict[str, str], tool: str, hint: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    assert hint in provision.install_hint(tool)


def test_hints_for_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert "xcode-select --install" in provision.install_hint(provision.COMPILER)
    assert "does not exist on macOS" in provision.install_hint(provision.QEMU)


@pytest.mark.parametrize(
    ("version", "tested"), [("11.1", True), ("11.1.2", True), ("11.10", False), ("10.2.0", False)]
)
def test_untested_versions_of_the_emulator_are_named(version: str, tested: bool) -> None:
    assert (Qemu(Path("/q"), version).warning == "") == tested
