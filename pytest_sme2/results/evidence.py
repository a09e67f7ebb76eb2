"""Which kernels ran, and whether a pair of runs shows what it claims to show."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_sme2.results.artifact import Arm, Artifact
from pytest_sme2.results.run import Run


class KernelFamily(str, enum.Enum):
    """What instructions a kernel is made of."""

    SME2 = "sme2"
    SME = "sme"
    NEON = "neon"
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Kernel:
    """One kernel or operator, and how often it was seen."""

    name: str
    """The kernel's symbol; ``library.so+0x1234`` where the library hides it."""
    family: KernelFamily
    count: int
    """Translated blocks, runs or log lines, as the census's source has them."""
    named: bool = True
    """False where the name is only a place, and the family was read off the instructions."""


@dataclass(frozen=True)
class KernelCensus:
    """The kernels of one arm, and how we know of them."""

    arm: Arm
    source: str
    """``emulator`` (translated blocks of the running process) or ``xnnpack-log``."""
    kernels: tuple[Kernel, ...]
    """What ran. Empty for ``xnnpack-log``: it names the operators that ran, not their kernels."""
    operators: tuple[Kernel, ...] = ()
    """The operators that ran, from XNNPACK's log."""
    candidates: tuple[Kernel, ...] = ()
    """The kernels XNNPACK made ready, from its log: they may have run, or not."""
    blocks: int = 0
    """All blocks the emulator translated, kernels or not; 0 means that nothing was observed."""

    def of(self, family: KernelFamily) -> tuple[Kernel, ...]:
        return tuple(kernel for kernel in self.kernels if kernel.family is family)


@dataclass(frozen=True)
class Evidence:
    """Whether a pair shows what it claims to show."""

    valid: bool
    message: str
    """One sentence: what was seen, or which side is wrong."""
    matrix_operators: int
    sme2_on: int
    """Matrix operators of the on run that ran on SME2 kernels."""
    sme2_off: int
    """The same of the off run; anything but 0 is wrong."""


@dataclass(frozen=True)
class Pair:
    """SME2 on against off on one target: untraced runs for time, traced ones for structure."""

    artifact: Artifact
    target: str
    on: tuple[Run, ...]
    off: tuple[Run, ...]
    traced: Mapping[Arm, Run]
    """Of each arm that was traced; a third arm is traced alone."""
    evidence: Evidence | None
    """None where the target has no SME2 and only the off arm ran."""
    censuses: Mapping[Arm, KernelCensus | None] = field(default_factory=dict)
