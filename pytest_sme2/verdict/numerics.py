"""Compares raw output files: how far apart they lie. Whether that is too far is decided in
``outputs.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import EvidenceError
from pytest_sme2.export.random_weights import lifeless
from pytest_sme2.results import Agreement, Arm, Artifact, Output, Sample, Tolerance
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.wording import count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SAMPLED = 5
# As the exporter and the runner name them; bfloat16, which NumPy does not know, is read apart.
_DTYPES = {
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "int8": "i1",
    "uint8": "u1",
    "int16": "<i2",
    "uint16": "<u2",
    "int32": "<i4",
    "uint32": "<u4",
    "int64": "<i8",
    "uint64": "<u8",
    "bool": "?",
}


def read_values(path: Path, dtype: str, shape: Sequence[int]) -> NDArray[np.float64]:
    """The values of a raw little-endian file, widened; bf16 is read by its bits."""
    import numpy as np

    brain = dtype == "bfloat16"
    if not brain and dtype not in _DTYPES:
        raise EvidenceError(
            f"{path}: outputs of type {dtype!r} cannot be compared. "
            f"Known types: bfloat16, {', '.join(_DTYPES)}."
        )
    kind = np.dtype("<u2" if brain else _DTYPES[dtype])
    data = path.read_bytes()
    expected = math.prod(shape) * kind.itemsize
    if len(data) != expected:
        raise EvidenceError(
            f"{path}: holds {len(data)} bytes where {dtype} of shape {tuple(shape)} takes "
            f"{expected}. The file is not this output, or was cut short: run again."
        )
    raw = np.frombuffer(data, dtype=kind)
    if brain:
        raw = (raw.astype("<u4") << 16).view("<f4")
    return raw.astype(np.float64)


def sample(path: Path, dtype: str, shape: Sequence[int]) -> Sample:
    """The file in few numbers."""
    import numpy as np

    values = read_values(path, dtype, shape)
    if not values.size:
        return Sample(file_sha256(path), (), 0.0)
    places = np.linspace(0, values.size - 1, min(_SAMPLED, values.size)).round().astype(int)
    numbers = (float(np.sqrt(np.mean(values**2))), *map(float, values[places]))
    return Sample(file_sha256(path), numbers, float(np.abs(values).max()))


def agreement(
    actual: NDArray[np.float64],
    expected: NDArray[np.float64],
    *,
    against: str,
    arm: Arm = Arm.ON,
    index: int = 0,
    dtype: str = "float32",
) -> Agreement:
    """How far ``actual`` lies from ``expected``.

    A NaN or an infinity that only one side has makes the error infinite: it must never be averaged
    away. Infinities at the same places are equal.
    """
    import numpy as np

    if actual.size != expected.size:
        raise EvidenceError(
            f"Output {index} has {count(actual.size, 'value')} on one side and {expected.size} on "
            "the other: the two are not the same program."
        )
    has_nan = bool(np.isnan(actual).any())
    scale = _scale(expected, dtype)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if bool(same.all()):
        cosine = None if has_nan or not actual.any() else 1.0
        return Agreement(against, arm, index, dtype, True, 0.0, 0.0, None, cosine, has_nan, *scale)
    if not (np.isfinite(actual[~same]).all() and np.isfinite(expected[~same]).all()):
        return Agreement(
            against, arm, index, dtype, False, math.inf, math.inf, None, None, has_nan, *scale
        )
    finite = np.isfinite(expected)
    actual, expected = actual[finite], expected[finite]
    # One scale for both sides, so that squares of large or tiny values do not over- or underflow;
    # a power of two, so that scaling is exact.
    largest = float(max(np.abs(expected).max(), np.abs(actual).max()))
    peak = math.ldexp(1.0, math.frexp(largest)[1] - 1)
    scaled, wanted = actual / peak, expected / peak
    error = scaled - wanted
    reach = float(np.abs(wanted).max())
    signal, noise = float(np.dot(wanted, wanted)), float(np.dot(error, error))
    length = math.sqrt(signal) * float(np.linalg.norm(scaled))
    return Agreement(
        against=against,
        arm=arm,
        index=index,
        dtype=dtype,
        identical=False,
        max_abs=float(np.abs(error).max()) * peak,
        max_rel=float(np.abs(error).max()) / reach if reach else math.inf,
        sqnr_db=10 * math.log10(signal / noise) if signal and noise else None,
        cosine=float(np.dot(scaled, wanted)) / length if length else None,
        has_nan=has_nan,
        peak=scale[0],
        dead=scale[1],
    )


def _scale(expected: NDArray[np.float64], dtype: str) -> tuple[float | None, str]:
    """The largest magnitude, and whether such an output says anything.

    Whole numbers count or name things: a constant is as good an answer as any.
    """
    import numpy as np

    finite = expected[np.isfinite(expected)]
    if not finite.size:
        return None, ""
    least, greatest = float(finite.min()), float(finite.max())
    dead = lifeless(least, greatest, finite.size) if "float" in dtype else ""
    return max(abs(least), abs(greatest)), dead


def within(found: Agreement, tolerance: Tolerance) -> bool:
    """Whether two outputs are as close as asked. A NaN is never close to anything."""
    if found.has_nan:
        return False
    if found.identical:
        return True
    if tolerance.max_abs is not None and found.max_abs > tolerance.max_abs:
        return False
    if tolerance.max_rel is not None and found.max_rel > tolerance.max_rel:
        return False
    if tolerance.min_sqnr_db is None:
        return math.isfinite(found.max_abs)
    return found.sqnr_db is not None and found.sqnr_db >= tolerance.min_sqnr_db


def compare_arms(
    on: Sequence[Output], off: Sequence[Output], arm: Arm = Arm.ON
) -> tuple[Agreement, ...]:
    """Every kept output of the on run, or another arm's, against the same one of the off run.

    Where no file was kept, equal hashes still prove that two outputs are identical.
    """
    _same_count(len(on), len(off), "with SME2 on", "with SME2 off")
    found = []
    for index, (ours, theirs) in enumerate(zip(on, off, strict=True)):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            raise EvidenceError(
                f"Output {index} is {ours.dtype}{list(ours.shape)} with SME2 on and "
                f"{theirs.dtype}{list(theirs.shape)} with SME2 off: not the same program."
            )
        if ours.sha256 == theirs.sha256 and (ours.file is None or theirs.file is None):
            found.append(
                Agreement("off", arm, index, ours.dtype, True, 0.0, 0.0, None, None, ours.has_nan)
            )
            continue
        values = [_kept(output, index) for output in (ours, theirs)]
        found.append(agreement(*values, against="off", arm=arm, index=index, dtype=ours.dtype))
    return tuple(found)


def compare_reference(
    artifact: Artifact, outputs: Sequence[Output], arm: Arm
) -> tuple[Agreement, ...]:
    """Every kept output of a run against what the eager model answered; empty without reference."""
    if not artifact.reference_files:
        return ()
    _same_count(len(outputs), len(artifact.reference_files), "from the run", "from eager")
    found = []
    for index, (output, file) in enumerate(zip(outputs, artifact.reference_files, strict=True)):
        spec = artifact.outputs[index]
        found.append(
            agreement(
                _kept(output, index),
                read_values(file, spec.dtype, spec.shape),
                against="reference",
                arm=arm,
                index=index,
                dtype=output.dtype,
            )
        )
    return tuple(found)


def _kept(output: Output, index: int) -> NDArray[np.float64]:
    if output.file is None:
        raise EvidenceError(
            f"Output {index} was not kept, so it cannot be compared. Ask the run to keep outputs."
        )
    return read_values(output.file, output.dtype, output.shape)


def _same_count(ours: int, theirs: int, our_name: str, their_name: str) -> None:
    if ours != theirs:
        raise EvidenceError(
            f"{count(ours, 'output')} {our_name} but {theirs} {their_name}: not the same program."
        )
