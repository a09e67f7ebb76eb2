"""What a phone and its adb server answer: parsers of all of it, its cores, and its SME2. Pure.

A parser returns a value, or raises one TargetError that says which command, what came and what to
do. What a phone may leave out is None or empty. A kernel that is built without SME hides it from
every program. So what is missing from ``/proc/cpuinfo`` may still be in the chip.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_sme2.errors import ConnectionLostError, TargetError, UsageError
from pytest_sme2.runners.base import read_ends
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


# android.os.Temperature: of what its temperatures are. Others are batteries, modems, percentages.
_CPU, _SKIN = "0", "3"
# The HAL's temperatures of this moment come after a title; those before it may be old.
_CURRENT = "Current temperatures from HAL:"


@dataclass(frozen=True)
class ShellResult:
    """The result of a command on the device."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode("utf-8", "replace").strip()

    @property
    def said(self) -> str:
        """Why it failed, if it says so."""
        return self.error_text or self.text.strip()


def odd(serial: str, command: str, said: str, wanted: str) -> TargetError:
    """The error for an answer that cannot be used."""
    return TargetError(
        f"{serial} answered {command!r} with {said[:100]!r}, which is not {wanted}. Try that "
        f"command there by hand (adb -s {serial} shell), and restart the phone."
    )


def parse_number(text: str) -> float | None:
    found = re.fullmatch(r"\s*(-?[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*", text)
    return float(found[1]) if found else None


def parse_lines(text: str, count: int) -> list[str]:
    """So many lines; those that did not come are empty."""
    return [*text.splitlines(), *[""] * count][:count]


def parse_parts(text: str, count: int) -> list[str]:
    """What is between the marks, in so many parts; those that did not come are empty."""
    return [*text.split("==\n", count - 1), *[""] * count][:count]


def parse_list(text: str, separator: str = ",") -> tuple[str, ...]:
    return tuple(filter(None, text.split(separator)))


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def parse_devices(text: str) -> dict[str, str]:
    """Serial to state."""
    lines = (line.split("\t") for line in text.splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}


def parse_silicon(text: str) -> Silicon:
    kernel, cpuinfo, config = parse_parts(text, 3)
    cores = [words.split() for words in re.findall(r"^Features\s*:(.*)$", cpuinfo, re.MULTILINE)]
    # Programs may run on any core, so only what all of them have counts.
    common = set(cores[0]).intersection(*cores) if cores else set()
    return Silicon(
        kernel=kernel.strip()[:200],
        features=tuple(name for name in cores[0] if name in common) if cores else (),
        parts=parse_core_parts(cpuinfo),
        config=config.strip()[:200],
    )


def parse_core_parts(text: str) -> tuple[str, ...]:
    """Implementer and part of each core in a ``/proc/cpuinfo``."""
    makers = re.findall(r"^CPU implementer\s*:\s*(0x[0-9a-f]+)", text, re.MULTILINE)
    parts = re.findall(r"^CPU part\s*:\s*(0x[0-9a-f]+)", text, re.MULTILINE)
    return tuple(f"{maker}:{part}" for maker, part in zip(makers, parts, strict=False))


def parse_cores(text: str) -> tuple[Core, ...]:
    """The cores that report their speed and that a shell may use, by number."""
    rows = r"/cpu([0-9]{1,4})/cpufreq/cpuinfo_max_freq:([0-9]{1,10})$"
    speeds = {int(number): int(speed) for number, speed in re.findall(rows, text, re.MULTILINE)}
    listed = re.search(r"^Cpus_allowed_list:\s*([0-9,-]{1,5000})$", text, re.MULTILINE)
    allowed = set(speeds) if listed is None else _numbers(listed[1])
    caps = parse_caps(text)
    return tuple(
        Core(number, speeds[number], min(caps.get(number, {0})))
        for number in sorted(allowed & set(speeds))
    )


def parse_caps(text: str) -> dict[int, set[int]]:
    """The highest clocks that each core was let have, in kHz."""
    seen: dict[int, set[int]] = {}
    rows = r"/cpu([0-9]{1,4})/cpufreq/scaling_max_freq:([0-9]{1,10})$"
    for number, khz in re.findall(rows, text, re.MULTILINE):
        seen.setdefault(int(number), set()).add(int(khz))
    return seen


def _numbers(text: str) -> set[int]:
    found: set[int] = set()
    for first, last in re.findall(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", text):
        found.update(range(int(first), int(last or first) + 1))
    return found


def parse_page_size(text: str) -> str:
    """From getconf in bytes, or from the kernel in kB."""
    found = re.search(r"(?<![0-9])([0-9]{1,8})( kB)?\s*$", text)
    return f"{int(found[1]) * (1024 if found[2] else 1)} bytes" if found else "unknown"


def parse_thermal_status(text: str) -> int | None:
    """The highest of one or several ``dumpsys thermalservice``; None where none is known."""
    found = re.findall(r"^Thermal Status: ([0-9]{1,3})", text, re.MULTILINE)
    status = max(map(int, found), default=None)
    # Without its sensors Android says 0 for ever.
    return status or (None if "\nHAL Ready: false" in f"\n{text}" else status)


def parse_temperature(text: str) -> float | None:
    """The hottest CPU or skin of one ``dumpsys thermalservice``."""
    _, title, after = text.partition(_CURRENT)
    # Without the thresholds that follow.
    current = re.split(r"^\S", after, maxsplit=1, flags=re.MULTILINE)[0] if title else text
    rows = r"Temperature\{mValue=(-?[0-9]{1,9}(?:\.[0-9]{1,9})?), mType=([0-9]{1,3}),"
    degrees = [float(value) for value, kind in re.findall(rows, current) if kind in (_CPU, _SKIN)]
    return max((value for value in degrees if 0 < value < 150), default=None)


def parse_screen(text: str) -> str:
    """``on``, ``off``, or ``unknown`` where Android does not say."""
    found = re.search(r"mWakefulness=(\w{1,40})", text)
    return "unknown" if found is None else "on" if found[1] == "Awake" else "off"


def parse_battery(text: str) -> dict[str, str]:
    """Its charge, where it is charged from, and its temperature if the phone reports it."""
    fields = dict(re.findall(r"^\s*([\w ]{1,80}): (\S{1,80})\s*$", text, re.MULTILINE))
    plugs = [name for name in ("AC", "USB", "Wireless") if fields.get(f"{name} powered") == "true"]
    facts = {"battery_percent": fields.get("level", ""), "charging": ", ".join(plugs) or "no"}
    tenths = parse_number(fields.get("temperature", ""))
    return facts if tenths is None else {**facts, "battery_celsius": f"{tenths / 10:.1f}"}


def parse_governors(text: str) -> str:
    return ", ".join(dict.fromkeys(text.split()))


def parse_free_bytes(serial: str, command: str, text: str) -> int:
    """The number of free blocks, and the size of one."""
    found = re.fullmatch(r"\s*([0-9]{1,18})\s+([0-9]{1,18})\s*", text)
    if found is None:
        raise odd(serial, command, text, "a number of blocks and their size")
    return int(found[1]) * int(found[2])


def parse_names(serial: str, text: str) -> list[str]:
    """The names of files in one folder."""
    names = text.splitlines()
    if any(name in ("", ".", "..") or "/" in name or "\0" in name for name in names):
        raise odd(serial, "ls -1", text, "a list of file names")
    return names


@dataclass(frozen=True)
class Answer:
    """What one process of a runner left."""

    code: int
    """Its exit code, as Python has it."""
    status: int
    """The highest thermal status before, during and after the run; 0 where none was told."""
    document: bytes
    """The runner's result; empty if it wrote none."""
    log: bytes
    caps: Mapping[int, Collection[int]]
    """The highest clocks that each core was let have before, during and after the run."""
    screen: str = "unknown"
    """After the run."""


def parse_answers(serial: str, done: ShellResult, *, mark: str, count: int) -> list[Answer | None]:
    """What each of ``count`` processes left that took turns; None: it was stopped with another.

    Without a ``count``, it is one process that was started alone.
    """
    line = f"{mark}\n".encode()
    said, *logs = done.stderr.split(line)
    told, *documents = done.stdout.split(line)
    code = re.search(rb"^code ([0-9]{1,3})$", told, re.MULTILINE)
    if code is None:
        problem = done.error_text[-300:]
        if not problem:
            raise ConnectionLostError(f"{serial} ended the shell of a run: it may be restarting.")
        raise TargetError(
            f"{serial} could not start the run: {problem}. Is its storage full? "
            f"Try: sme2 clean --device android --serial {serial}"
        )
    ends, shared = read_ends(said)
    if not count:
        # A shell reports a signal by adding 128, Python by a negative number.
        ends = {0: int(code[1]) if int(code[1]) <= 128 else 128 - int(code[1])}
    if not ends or not len(logs) == len(documents) == (count or 1):
        problem = last_line(said.decode(errors="replace"))
        raise TargetError(
            f"{serial} could not run its processes: what was started ended with exit code "
            f"{int(code[1])} ({problem})."
        )
    text = told.decode("utf-8", "replace")
    status, caps, screen = parse_thermal_status(text) or 0, parse_caps(text), parse_screen(text)
    return [
        Answer(ends[index], status, document, log + shared, caps, screen) if index in ends else None
        for index, (document, log) in enumerate(zip(documents, logs, strict=True))
    ]
