"""The cores of a phone: which there are, and which a process is kept on. Pure.

Phones have two or three kinds of cores. A process that moves between them has times of all kinds,
so by default it stays on the fastest kind. If that has too few cores for its threads, it gets as
many as it has threads, the fastest first: one thread more never means a slower core for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.system.wording import count, several

READ_CORES = (
    "grep -Hs . /sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq; "
    "grep -s Cpus_allowed_list /proc/self/status; true"
)


@dataclass(frozen=True)
class Core:
    """One core that a process may run on."""

    number: int
    max_khz: int


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


def check_choice(choice: str | Sequence[int], cores: Sequence[Core]) -> None:
    """Refuse cores that the phone does not have, or a kind of core that it does not tell."""
    if isinstance(choice, str):
        if not cores:
            raise TargetError(
                "The phone does not report the speed of its cores, so big and little are unknown. "
                "Name cores, as in --sme2-phone cpus=4-7."
            )
        return
    known = [core.number for core in cores]
    absent = sorted(set(choice) - set(known)) if known else []
    if absent:
        raise UsageError(
            f"The phone has no core {', '.join(map(str, absent))} that a process may use. "
            f"It has {', '.join(map(str, known))}."
        )


def pick_cores(
    choice: str | Sequence[int], cores: Sequence[Core], threads: int = 1
) -> tuple[int, ...]:
    """The cores for a process with so many threads; none means that it may run anywhere."""
    if not choice:
        return _fastest(kinds(cores), threads)
    check_choice(choice, cores)
    if isinstance(choice, str):
        picked = kinds(cores)[0 if choice == "big" else -1]
    else:
        picked = tuple(choice)
    if len(picked) < threads:
        named = f"cpus={choice}" if isinstance(choice, str) else "cpus"
        raise UsageError(
            f"{named} means {_cores(picked)} of this phone, which is too few for {threads} "
            f"threads. Use --threads {len(picked)}, name {threads} cores, or leave cpus out."
        )
    return picked


def _fastest(by_kind: Sequence[tuple[int, ...]], threads: int) -> tuple[int, ...]:
    """All of the first kind if they are enough; none where the phone has fewer than threads."""
    if by_kind and len(by_kind[0]) >= threads:
        return by_kind[0]
    every = [core for kind in by_kind for core in kind]
    return tuple(every[:threads]) if len(every) >= threads else ()


def _cores(numbers: Sequence[int]) -> str:
    return f"{several(len(numbers), 'core')} {', '.join(map(str, numbers))}"
