"""The programs of a fake phone: where they are looked for, and what is said when not found."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone import lab


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(TargetError, match=r"A fake phone needs Linux.*Use a real phone"):
        lab.find_parts()


def test_unpacked_parts_are_found(tmp_path: Path) -> None:
    tools = tmp_path / "usr/lib/android-sdk/platform-tools"
    libraries = tmp_path / "usr/lib/riscv64-linux-gnu"
    programs = (tools / "adb", tools / "adbd", tmp_path / "usr/bin/patchelf")
    shells = (tmp_path / "bin/mksh", tmp_path / "bin/toybox")
    for path in (*programs, *shells, libraries / "android/l", tmp_path / "lib/x-linux-gnu/l"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = lab.unpacked_parts(tmp_path)
    assert (found.adb, found.mksh, found.toybox) == (programs[0], *shells)
    folders = f"{libraries}/android:{libraries}:{tmp_path}/lib/x-linux-gnu"
    assert found.environment == {"LD_LIBRARY_PATH": folders}
    programs[1].unlink()
    with pytest.raises(TargetError, match=r"adbd is missing in .*\. Delete that folder and try"):
        lab.unpacked_parts(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="this machine's programs are not ELF files")
def test_a_programs_loader_and_libraries() -> None:
    loader, libraries = lab.shared_libraries(Path("/bin/sh").resolve(), {})
    assert loader.name.startswith("ld-linux")
    assert "libc.so.6" in {path.name for path in libraries}
