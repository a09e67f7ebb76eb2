"""Makes the root folder of a fake phone. Runs inside the sandbox, with the standard library only.

The root has a static busybox and replacements for Android's own programs, which keep their state in
files. It has nothing of this machine's programs: no C library, no loader.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STATE = "data/system/fake"
_PROGRAMS = Path(__file__).parent / "programs"

# The default properties of a phone.
_PROPERTIES = {
    "ro.product.model": "Fake Phone",
    "ro.product.manufacturer": "pytest-sme2",
    "ro.product.device": "fake",
    "ro.product.name": "fake",
    "ro.product.cpu.abi": "arm64-v8a",
    "ro.product.cpu.abilist": "arm64-v8a",
    "ro.build.version.release": "16",
    "ro.build.version.sdk": "36",
    "ro.build.fingerprint": "pytest-sme2/fake/fake:16/FAKE/1:user/test-keys",
    "ro.soc.manufacturer": "Fake",
    "ro.soc.model": "FakeSoC",
    "sys.boot_completed": "1",
}
_SETTINGS = {
    "low_power": "1",
    "stay_on_while_plugged_in": "0",
    "window_animation_scale": "1.0",
    "transition_animation_scale": "1.0",
    "animator_duration_scale": "1.0",
}
# A zone named soc is the battery's state of charge on many phones, in percent.
_CHARGE = 62
_FEATURES = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca "
    "pacg dcpodp sve2 i8mm bf16"
)


@dataclass(frozen=True)
class Phone:
    """The properties of one fake phone."""

    name: str
    port: int
    sme2: bool = True
    properties: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """Override the defaults; None removes a setting, so that it reads as ``null``."""
    storage_bytes: int | None = None
    """The size of ``/data/local/tmp``; None means as much as memory allows."""
    fixed_performance: bool = True
    max_frequencies_khz: Sequence[int] = ()
    """One per core; empty means that all are of one kind."""
    temperature_millidegrees: int = 30_000

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Phone:
        return cls(**value)


def build_root(root: Path, phone: Phone, tools: Mapping[str, str]) -> None:
    """Make the root; ``tools`` maps a path in it to a program of this machine."""
    for folder in ("system/bin", "vendor/bin", "data/local", STATE, "proc", "dev", "sys", "adbd"):
        (root / folder).mkdir(parents=True)
    (root / "bin").symlink_to("system/bin")
    for place, tool in tools.items():
        shutil.copy2(tool, root / place)
        (root / place).chmod(0o755)
    _install_busybox(root / "system/bin")
    for program in _PROGRAMS.iterdir():
        target = root / "system/bin" / program.name
        target.unlink(missing_ok=True)
        shutil.copyfile(program, target)
        target.chmod(0o755)
    _write_state(root, phone)
    _write_sysfs(root, phone)
    _mount(root, phone)


def _install_busybox(folder: Path) -> None:
    listed = subprocess.run(
        [str(folder / "busybox"), "--list"], capture_output=True, text=True, timeout=60, check=True
    )
    for name in listed.stdout.split():
        if name != "busybox":
            (folder / name).symlink_to("busybox")


def _write_state(root: Path, phone: Phone) -> None:
    state = root / STATE
    properties = {**_PROPERTIES, "ro.serialno": phone.name, **phone.properties}
    lines = "".join(f"{name}={value}\n" for name, value in sorted(properties.items()))
    (state / "properties").write_text(lines, encoding="utf-8")
    (state / "settings/global").mkdir(parents=True)
    for name, value in {**_SETTINGS, **phone.settings}.items():
        if value is not None:
            (state / "settings/global" / name).write_text(f"{value}\n", encoding="utf-8")
    (state / "thermal_status").write_text("0\n", encoding="utf-8")
    (state / "wakefulness").write_text("Awake\n", encoding="utf-8")
    (state / "journal").write_text("", encoding="utf-8")
    (state / "logcat").write_text("", encoding="utf-8")
    (state / "battery").write_text(
        "AC powered: false\nUSB powered: true\nWireless powered: false\nstatus: 2\n"
        "level: 85\nscale: 100\ntemperature: 271\n",
        encoding="utf-8",
    )
    if phone.fixed_performance:
        (state / "fixed_performance").write_text("false\n", encoding="utf-8")
    features = _FEATURES + (
        " sme smei16i64 smef64f64 smei8i32 smef16f32 smeb16f32 smef32f32 smefa64 sme2"
        if phone.sme2
        else ""
    )
    cores = os.cpu_count() or 1
    (state / "cpuinfo").write_text(
        "".join(
            f"processor\t: {core}\nBogoMIPS\t: 38.40\nFeatures\t: {features}\n"
            "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n"
            "CPU part\t: 0xd8e\nCPU revision\t: 0\n\n"
            for core in range(cores)
        ),
        encoding="utf-8",
    )


def _write_sysfs(root: Path, phone: Phone) -> None:
    cores = os.cpu_count() or 1
    frequencies = list(phone.max_frequencies_khz) or [3_600_000] * cores
    cpus = root / "sys/devices/system/cpu"
    for core, frequency in enumerate(frequencies):
        folder = cpus / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        values = {
            "cpuinfo_max_freq": frequency,
            "cpuinfo_min_freq": 300_000,
            "scaling_max_freq": frequency,
            "scaling_cur_freq": frequency,
            "scaling_governor": "schedutil",
        }
        for name, value in values.items():
            (folder / name).write_text(f"{value}\n", encoding="utf-8")
    for name in ("online", "present", "possible"):
        (cpus / name).write_text(f"0-{len(frequencies) - 1}\n", encoding="utf-8")
    warm = phone.temperature_millidegrees
    zones = {"cpu-0-0": warm, "cpu-1-0": warm, "battery": warm, "skin": warm, "soc": _CHARGE}
    for index, (kind, value) in enumerate(zones.items()):
        zone = root / f"sys/class/thermal/thermal_zone{index}"
        zone.mkdir(parents=True)
        (zone / "type").write_text(f"{kind}\n", encoding="utf-8")
        (zone / "temp").write_text(f"{value}\n", encoding="utf-8")


def _mount(root: Path, phone: Phone) -> None:
    """Mount what the phone needs; mounts are private to the sandbox and end with it.

    /proc shows the processes of the mounting process, so this runs in the phone's process tree.
    """
    mount("-t", "proc", "proc", root / "proc")
    mount("--bind", root / STATE / "cpuinfo", root / "proc/cpuinfo")
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", root / "dev")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        (root / "dev" / name).touch()
        mount("--bind", Path("/dev") / name, root / "dev" / name)
    (root / "dev/pts").mkdir()
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666", "devpts", root / "dev/pts")
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    storage = root / "data/local/tmp"
    storage.mkdir()
    size = f"mode=0771,size={phone.storage_bytes}" if phone.storage_bytes else "mode=0771"
    mount("-t", "tmpfs", "-o", size, "tmpfs", storage)
    mount("--bind", root.parent / "adbd", root / "adbd")


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], timeout=60, check=True)
