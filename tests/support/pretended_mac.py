"""Makes Python believe that it is on a Mac: its programs are shell scripts with known answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_sme2.system import platforms
from pytest_sme2.system.platforms import MACOS_ARM64
from pytest_sme2.targets import local

M4 = {
    "hw.model": "Mac16,10",
    "hw.optional.arm.FEAT_SME2": "1",
    "hw.optional.arm.sme_max_svl_b": "64",
    "kern.hv_vmm_present": "0",
    "kern.osproductversion": "26.1",
    "machdep.cpu.brand_string": "Apple M4",
}


class PretendedMac:
    """Answers of sysctl, pmset and notifyutil, as they are printed on a Mac."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.sysctl(M4)
        self.power()
        self.pressure(0)
        self.script("caffeinate", 'echo "$@" >> "$(dirname "$0")/awake"; exec sleep 60')
        for name in ("sysctl", "pmset", "notifyutil", "caffeinate"):
            monkeypatch.setattr(platforms, name.upper(), str(folder / name))
        monkeypatch.setattr(local, "host_platform", lambda: MACOS_ARM64)
        for name in ("sched_getaffinity", "sched_setaffinity"):
            monkeypatch.delattr(f"os.{name}", raising=False)

    def script(self, name: str, body: str) -> None:
        program = self.folder / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)

    def sysctl(self, answers: Mapping[str, str]) -> None:
        cases = "".join(f"{name}) echo '{value}';;\n" for name, value in answers.items())
        self.script("sysctl", f'case "$2" in\n{cases}*) exit 1;;\nesac')

    def power(self, source: str = "AC Power", low: int = 0) -> None:
        self.script(
            "pmset",
            f'case "$2" in\nbatt) echo "Now drawing from \'{source}\'";;\n'
            f"*) printf 'Currently in use:\\n standby 1\\n lowpowermode         {low}\\n';;\nesac",
        )

    def pressure(self, *levels: int) -> None:
        """One level after the other; the last one stays."""
        (self.folder / "levels").write_text("".join(f"{level}\n" for level in levels))
        self.script(
            "notifyutil",
            'cd "$(dirname "$0")"; echo "$2 $(head -n 1 levels)"\n'
            '[ "$(wc -l < levels)" -gt 1 ] && tail -n +2 levels > rest && mv rest levels; exit 0',
        )
