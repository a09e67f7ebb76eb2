"""The result of an export: one program and everything that was written beside it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

AS_EXPORTED = "as exported"
"""The variant of a program of which only the file is known."""
FORWARD = "forward"
"""The method that a program has where nobody named one."""


class Arm(str, enum.Enum):
    """What of SME a process sees.

    A chip that has SME and no SME2 has no third arm: there ``on`` is SME1, and reports say so.
    """

    ON = "on"
    OFF = "off"
    """Neither SME nor SME2."""
    SME1 = "sme1"
    """SME, with SME2 hidden: as on a chip that has no SME2."""

    def __str__(self) -> str:
        return self.value


PAIR = (Arm.ON, Arm.OFF)
"""The two arms that every case has, where the device can switch."""
SHOWN = (Arm.OFF, Arm.SME1, Arm.ON)
"""All arms in the order in which reports show them."""


@dataclass(frozen=True)
class TensorSpec:
    """What a program takes or gives at one position."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Artifact:
    """One exported program and everything that was written beside it."""

    model: str
    variant: str
    folder: Path
    pte: Path
    sha256: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_files: tuple[Path, ...] = ()
    """The example inputs as raw little-endian values, one file per input."""
    reference_files: tuple[Path, ...] = ()
    """What the eager model answered to those inputs, one raw file per output."""
    etrecord: Path | None = None
    weights: str = "random"
    """Where the weights came from: ``random (seed 0)`` or the file's name and hash."""
    versions: Mapping[str, str] = field(default_factory=dict)
    method: str | None = None
    """Which of several methods is run; None where ``forward`` is the only one."""
    earlier_files: tuple[Path, ...] = ()
    """What inferences before the measured one take: one raw file per input, with the values of all
    of them in order. They fill the state of the program, such as a key/value cache."""
    tokens: int | None = None
    """How many tokens the measured inference takes; None where the model does not say."""
