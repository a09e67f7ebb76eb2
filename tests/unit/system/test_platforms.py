from __future__ import annotations

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.system import platforms


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("linux", "aarch64", "linux-aarch64"),
        ("linux", "x86_64", "linux-x86_64"),
        ("linux", "AMD64", "linux-x86_64"),
        ("darwin", "arm64", "macos-arm64"),
    ],
)
def test_machines_have_names(monkeypatch, system, machine, name):
    monkeypatch.setattr(platforms.sys, "platform", system)
    monkeypatch.setattr(platforms.platform, "machine", lambda: machine)
    assert platforms.host_platform() == name
    assert name in platforms.PLATFORMS


def test_unknown_machine_lists_the_supported_ones(monkeypatch):
    monkeypatch.setattr(platforms.platform, "machine", lambda: "riscv64")
    with pytest.raises(TargetError, match=r"riscv64.*Use Linux on aarch64"):
        platforms.host_platform()


@pytest.mark.parametrize(
    ("kernel", "machine", "real"),
    [
        (b"x86_64\n", "aarch64", "x86_64"),
        (b"aarch64\n", "x86_64", "aarch64"),
        (b"aarch64\n", "aarch64", None),
        (b"\xff", "aarch64", None),
        (None, "aarch64", None),
    ],
)
def test_a_kernel_of_another_architecture_shows_an_emulator(
    monkeypatch, tmp_path, kernel, machine, real
):
    file = tmp_path / "arch"
    if kernel is not None:
        file.write_bytes(kernel)
    monkeypatch.setattr(platforms, "_KERNEL", file)
    monkeypatch.setattr(platforms.platform, "machine", lambda: machine)
    assert platforms.emulated_on() == real
