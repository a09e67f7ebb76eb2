"""A phone's cores, and what its CPU and kernel show of SME2.

A kernel that is built without SME hides it from every program. So what is missing from
``/proc/cpuinfo`` may still be in the chip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.system.wording import count, several

SAME_CAP = 0.05
"""Caps that differ by less are one."""
_CLOCKS = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq"
READ_CAPS = f"grep -Hs . {_CLOCKS}/scaling_max_freq"
READ_CORES = (
    f"grep -Hs . {_CLOCKS}/cpuinfo_max_freq; {READ_CAPS}; "
    "grep -s Cpus_allowed_list /proc/self/status; true"
)


def read_cores_under_load(seconds: float) -> str:
    """The command that reads the cores while one thread has been busy for so long: stock phones
    lower a cap within a second of load, at any temperature, and that is how they will measure.
    """
    return (
        "(while kill -0 $$ 2>/dev/null; do :; done) & load=$!; "
        f"sleep {seconds:g}; {READ_CORES}; kill $load"
    )


@dataclass(frozen=True)
class Core:
    """One core that a process may run on."""

    number: int
    max_khz: int
    cap_khz: int = 0
    """The highest clock that the system lets it have at the start; 0 where it does not tell."""


def caps_text(cores: Sequence[Core]) -> str:
    """The caps of all cores, by kind of core; empty where the system tells none."""
    capped = [Core(core.number, core.cap_khz) for core in cores if core.cap_khz]
    return cores_text(capped, [core.number for core in capped])


def below_highest(cores: Sequence[Core]) -> dict[str, str]:
    """The fact for a fingerprint: a core with a cap below its highest clock is another core."""
    lowered = any(0 < core.cap_khz < (1 - SAME_CAP) * core.max_khz for core in cores)
    return {"clock_caps": caps_text(cores)} if lowered else {}


def clock_change(
    cores: Sequence[Core], seen: Mapping[int, Collection[int]], used: Sequence[int] = ()
) -> str:
    """How the caps of the used cores (none: of all) differed from the start; empty if they did not.

    Governors move a clock all the time. A cap moves when something slows the device down; phones
    also move it by little, which no measurement shows.
    """
    for core in cores:
        other = [khz for khz in seen.get(core.number, ()) if not _same_class(khz, core.cap_khz)]
        if other and core.cap_khz and (not used or core.number in used):
            return (
                f"the highest clock of core {core.number} was {other[0] / 1e6:.2f} GHz, and "
                f"{core.cap_khz / 1e6:.2f} GHz at the start"
            )
    return ""


def _same_class(khz: int, other: int) -> bool:
    return abs(khz - other) <= SAME_CAP * max(khz, other)


def kinds(cores: Sequence[Core]) -> list[tuple[int, ...]]:
    """The cores by kind, the fastest first."""
    speeds = sorted({core.max_khz for core in cores}, reverse=True)
    return [tuple(core.number for core in cores if core.max_khz == speed) for speed in speeds]


def cores_text(cores: Sequence[Core], numbers: Sequence[int]) -> str:
    """``7 at 3.00 GHz, 4-6 at 2.60 GHz``: those of these numbers, the fastest kind first."""
    clocks = {core.number: core.max_khz for core in cores}
    parts = []
    for kind in kinds([core for core in cores if core.number in numbers]):
        several_in_row = len(kind) > 1 and kind[-1] - kind[0] == len(kind) - 1
        text = f"{kind[0]}-{kind[-1]}" if several_in_row else ",".join(map(str, kind))
        clock = clocks[kind[0]]
        parts.append(f"{text} at {clock / 1e6:.2f} GHz" if clock else text)
    return ", ".join(parts)


def check_threads(threads: int, cores: Sequence[Core]) -> None:
    """Refuse more threads than the device has cores, where it tells them."""
    if cores and threads > len(cores):
        raise UsageError(
            f"--threads {threads}: the device has {count(len(cores), 'core')} that a process may "
            f"use. Give at most {len(cores)}."
        )


def pick_cores(
    choice: str | Sequence[int], cores: Sequence[Core], threads: int = 1, *, mixed: bool = True
) -> tuple[int, ...]:
    """The cores for a process with so many threads; none means that it may run anywhere.

    Of one kind where they are enough. Unless kinds may be ``mixed`` or cores are named, they must
    be: threads wait for the slowest core, and nobody who asks for several means the slowest kind.
    Refuses cores that the phone does not have, and a kind of core that it does not tell.
    """
    by_kind = kinds(cores)
    if not choice:
        every = [core for kind in by_kind for core in kind]
        alike = mixed or len(by_kind) < 2
        quick = by_kind[:1] if alike else by_kind if threads == 1 else by_kind[:-1]
        for kind in quick:
            if len(kind) >= threads:
                return kind
        if not alike:
            raise UsageError(
                f"--threads {threads}: the device has {cores_text(cores, every)}. Threads wait for "
                "the slowest core, so kinds are mixed only where you name them: --sme2-phone "
                f"cpus={','.join(map(str, sorted(every[:threads])))}. Or use --threads "
                f"{max(map(len, quick))}."
            )
        return tuple(every[:threads]) if len(every) >= threads else ()
    if not isinstance(choice, str):
        absent = ", ".join(str(core) for core in sorted({*choice} - {c.number for c in cores}))
        if cores and absent:
            known = ", ".join(str(core.number) for core in cores)
            raise UsageError(
                f"The phone has no core {absent} that a process may use. It has {known}."
            )
        picked = tuple(choice)
    elif by_kind:
        picked = by_kind[0 if choice == "big" else -1]
    else:
        raise TargetError(
            "The phone does not report the speed of its cores, so big and little are unknown. "
            "Name cores, as in --sme2-phone cpus=4-7."
        )
    if len(picked) < threads:
        named = f"cpus={choice}" if isinstance(choice, str) else "cpus"
        means = f"{several(len(picked), 'core')} {', '.join(map(str, picked))}"
        raise UsageError(
            f"{named} means {means} of this phone, which is too few for {threads} "
            f"threads. Use --threads {len(picked)}, name {threads} cores, or leave cpus out."
        )
    return picked


# One command; the parts are split at the marks. Some phones do not let a shell read the config.
READ_SILICON = (
    "uname -r; echo ==; cat /proc/cpuinfo; echo ==; "
    "zcat /proc/config.gz 2>/dev/null | grep -m1 -w CONFIG_ARM64_SME"
)
# Cores that have SME2, by implementer and part (Linux: arch/arm64/include/asm/cputype.h).
_SME2_CORES = {
    "0x41:0xd8a": "C1-Nano",
    "0x41:0xd8b": "C1-Pro",
    "0x41:0xd8c": "C1-Ultra",
    "0x41:0xd90": "C1-Premium",
}
_NEWER = "Ask for a newer system."
# What chips have, by what they call themselves (ro.soc.model); docs/phones.md has the sources.
CHIPS = {
    "MT6993": "sme2", "S5E9965": "sme2",
    "SM8850": "sme",
    "SM8750": "", "Tensor G5": "", "MT6991": "", "S5E9955": "",
}  # fmt: skip


@dataclass(frozen=True)
class Silicon:
    """What was read."""

    kernel: str = ""
    features: tuple[str, ...] = ()
    """What every core has."""
    parts: tuple[str, ...] = ()
    """Implementer and part of each core, such as ``0x41:0xd8c``."""
    config: str = ""
    """The kernel's line about SME; empty if it cannot be read."""

    @property
    def sme2(self) -> bool:
        return "sme2" in self.features

    @property
    def sme(self) -> bool:
        return "sme" in self.features

    @property
    def hidden(self) -> bool:
        """Whether the kernel is known to hide SME."""
        return not self.sme and self.config.startswith("# CONFIG_ARM64_SME ")

    def cores(self) -> str:
        """The cores in words."""
        counts = Counter(_SME2_CORES.get(part, part) for part in self.parts)
        return ", ".join(f"{count}x {name}" for name, count in counts.items()) or "unknown"

    def missing_sme2(self, soc: str) -> str:
        """Why there is no SME2, with what somebody needs to know to find out more."""
        seen = f"Kernel {self.kernel or 'unknown'}; cores {self.cores()}; " + (
            f"flags {' '.join(self.features)}" if self.features else "no flags"
        )
        able = sorted({_SME2_CORES[part] for part in self.parts if part in _SME2_CORES})
        known = next((has for chip, has in CHIPS.items() if chip.lower() in soc.lower()), None)
        if self.sme:
            return f"its SoC ({soc}) has SME, but not SME2. {seen}."
        if self.hidden:
            return (
                f"its kernel hides SME: it is built without CONFIG_ARM64_SME. Whether its SoC "
                f"({soc}) has SME2 cannot be seen. {seen}."
            )
        if able:
            return (
                f"its SoC ({soc}) has cores with SME2 ({', '.join(able)}), but its kernel does not "
                f"show SME2. {_NEWER} {seen}."
            )
        if known == "sme2":
            return f"its SoC ({soc}) has SME2, but its kernel does not show it. {_NEWER} {seen}."
        if known is not None:
            return f"its SoC ({soc}) has no SME2, with any system. {seen}."
        return f"its kernel shows no SME2 on its SoC ({soc}). {seen}."
