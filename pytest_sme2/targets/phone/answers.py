"""Parses every answer of a phone and of its adb server. Pure. Nothing else here does.

A parser returns a value, or raises one TargetError that says which command, what came and what to
do. What a phone may leave out is None or empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_sme2.errors import ConnectionLostError, TargetError
from pytest_sme2.runners.base import read_ends
from pytest_sme2.targets.phone.silicon import Core, Silicon

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


def parse_settings(text: str, names: Sequence[str]) -> dict[str, str | None] | None:
    """None where the phone does not tell them, one a line."""
    values = text.splitlines()
    if len(values) != len(names):
        return None
    known = (None if value == "null" else value for value in values)
    return dict(zip(names, known, strict=True))


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
