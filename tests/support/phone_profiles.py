"""Fake phones that answer as real ones: chips as they were published, and a maker that says no.

Each has its sources. Flags and the part of the first core are from a published /proc/cpuinfo; the
other parts follow from the published kinds of cores, and clocks are those that were announced or
that a benchmark saw. Ours are the order (the fastest last) and names of SoCs that nobody published.
A fake phone still computes on this machine: more cores than it has are listed, not usable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_sme2.fake_phone.lab import FakePhone

_V9 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm"
)
_SVE2 = "sb paca pacg dcpodp sve2 sveaes svepmull"
_C1 = (
    f"{_V9} ssbs {_SVE2} svebitperm svesha3 svesm4 flagm2 frint svei8mm svebf16 i8mm bf16 dgh bti "
    "ecv afp sme smei8i32 smef16f32 smeb16f32 smef32f32 wfxt rprfm sme2 smei16i32 smebi32i32 hbc "
    "lrcpc3"
)
_ORYON = (
    f"{_V9} ssbs {_SVE2} svesha3 svesm4 flagm2 frint svei8mm svebf16 i8mm bf16 rng bti ecv afp "
    "rpres sme smei8i32 smef16f32 smeb16f32 smef32f32 lrcpc3"
)
_V9_2 = (
    f"{_V9} {_SVE2} svebitperm svesha3 svesm4 flagm2 frint svei8mm svebf16 i8mm bf16 dgh bti ecv "
    "afp wfxt"
)
_PRO, _PREMIUM, _ULTRA = "0x41:0xd8b", "0x41:0xd90", "0x41:0xd8c"


def _chip(
    maker: str, model: str, flags: str, cores: tuple[tuple[int, str, int], ...]
) -> dict[str, Any]:
    """``cores``: how many, implementer and part, and clock in kHz; the slowest first."""
    return {
        "sme2": "sme2" in flags.split(),
        "flags": flags,
        "parts": tuple(part for count, part, _ in cores for _ in range(count)),
        "max_frequencies_khz": tuple(khz for count, _, khz in cores for _ in range(count)),
        "properties": {"ro.soc.manufacturer": maker, "ro.soc.model": model},
    }


PROFILES: Mapping[str, Mapping[str, Any]] = {
    # https://github.com/hrw/arm-socs-table/issues/153
    # https://gadgets.beebom.com/news/mediatek-dimensity-9500-announced
    "dimensity-9500": _chip(
        *("Mediatek", "MT6993", _C1),
        ((4, _PRO, 2_700_000), (3, _PREMIUM, 3_500_000), (1, _ULTRA, 4_210_000)),
    ),
    # https://github.com/hrw/arm-socs-table/issues/149, https://github.com/pytorch/cpuinfo/issues/356
    # https://cputronic.com/soc/qualcomm-snapdragon-8-elite-gen-5
    "snapdragon-8-elite-gen-5": _chip(
        "QTI", "SM8850", _ORYON, ((6, "0x51:0x002", 3_620_000), (2, "0x51:0x002", 4_600_000))
    ),
    # https://github.com/hrw/arm-socs-table/issues/159, https://kazam.mobi/?p=20233
    "exynos-2600": _chip(
        *("Samsung", "s5e9965", _C1),
        ((6, _PRO, 2_760_000), (3, _PRO, 3_260_000), (1, _ULTRA, 3_800_000)),
    ),
    # No /proc/cpuinfo of it was found: its flags are those of another chip with its smaller cores.
    # https://github.com/pytorch/cpuinfo/pull/382, https://github.com/hrw/arm-socs-table/issues/167
    # https://smarti.news/3889/google-unveils-tensor-g5-first-3nm-tsmc-chip-powering-the-pixel-10-lineup
    "tensor-g5": _chip(
        *("Google", "Tensor G5", _V9_2),
        ((2, "0x41:0xd80", 2_250_000), (5, "0x41:0xd87", 3_050_000), (1, "0x41:0xd82", 3_780_000)),
    ),
}
# A maker that refuses settings: https://github.com/Genymobile/scrcpy/issues/6147 and 4778. Ours are
# the thermal service that hangs, and the screen that is off: what may happen, all at once.
HOSTILE: Mapping[str, Any] = {
    **PROFILES["dimensity-9500"],
    "settings_refused": True,
    "thermal": "hangs",
    "asleep": True,
    "storage_bytes": 64 << 20,
}

# What stock phones do to themselves while something runs: what a file of the phone holds, run after
# run. The first value is the usual one. {core} is each core that a process may use.
CAP = "sys/devices/system/cpu/cpu{core}/cpufreq/scaling_max_freq"
CORE = "data/system/fake/core"
"""Where our runner says that it ran."""
MOVING: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    # OnePlus 13, cpufreq_bouncing, screen on; its limiter moves the cap by itself as well:
    # https://github.com/wyl2607/oneplus13-performance-investigation (DATA.md)
    "clamped": {CAP: (4_320_000, 2_438_400)},
    "limited": {CAP: (4_320_000, 3_280_000, 3_800_000)},
    # The module has a ladder of levels, down under load and up again:
    # https://github.com/mindinthedocs/marble-oss-kernel-inline (kernel/oplus_cpu/cpufreq_bouncing)
    "bouncing": {CAP: (4_320_000, 3_600_000, 2_900_000, 2_438_400, 2_900_000, 3_600_000)},
    # The same phone has other caps with its screen off.
    "screen": {
        CAP: (4_320_000, 2_649_600),
        "data/system/fake/wakefulness": ("Awake", "Asleep"),
    },
    # Core control takes a core away while a run goes on. One that is paused stays in all files:
    # what is kept on several cores goes to another of them, and what is kept on it alone stays.
    # https://github.com/oppo-source/android_kernel_oppo_sm8750 (kernel/sched/walt/walt_halt.c)
    "paused": {CORE: (1, 0)},
    # One that is switched off has no clock any more, and what was kept on it goes anywhere.
    # https://docs.kernel.org/core-api/cpu_hotplug.html (the offline case)
    "off": {CORE: (1, 0), CAP: (4_320_000, ""), "sys/devices/system/cpu/online": ("0-1", "0")},
    # ThermalManagerService.dump of AOSP: status 0 without sensors.
    "unready": {"data/system/fake/thermal": ("works", "unready")},
}


def move(phone: FakePhone, kind: str, cores: Iterable[int], number: int) -> None:
    """To what the phone is at the run of this number."""
    for place, values in MOVING[kind].items():
        for core in cores:
            phone.write(place.format(core=core), f"{values[number % len(values)]}\n")
