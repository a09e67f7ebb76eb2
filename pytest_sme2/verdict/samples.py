"""A tensor in few numbers, and whether another one is the same: what a baseline keeps of outputs.

Each number is a sum over the whole tensor with random signs. Whatever differs, and wherever it
stands, moves such sums by about the size of the difference; 32 of them tell that size to an eighth.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.results import Sample
from pytest_sme2.system.files import file_sha256
from pytest_sme2.verdict.numerics import raw_values, widened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SUMS = 32
_DIGITS = 6
_DIGEST = 12
# Longer tensors are folded to this width first, each value with a sign of its own. It is prime, so
# that no plane or row of a tensor lies exactly on the next.
_WIDTH = 65521
_ROWS = 16
_LARGEST = 1e140
"""Its square is still a float; what is larger counts as infinite."""
_NAMES = ("bool", "int32", "uint32", "int64", "uint64")
"""These name or count things: the next number is as wrong as any other."""


def sample(path: Path, dtype: str, shape: Sequence[int], seed: str) -> Sample:
    """The file in few numbers; ``seed`` says which tensor it is, so that each has its own signs."""
    import numpy as np

    raw = raw_values(path, dtype, shape)
    folded, squares, odd = np.zeros(min(raw.size, _WIDTH)), 0.0, hashlib.sha256()
    is_odd = False
    for values, signs in _rows(raw, dtype, seed):
        usable = np.abs(values) < _LARGEST
        if not usable.all():
            is_odd = True
            odd.update(np.where(usable, 0, np.where(values > 0, 1, 2 + np.isnan(values))).tobytes())
            values = np.where(usable, values, 0.0)
        squares += float(np.square(values).sum())
        folded[: values.size] += values * signs
    length = math.sqrt(max(raw.size, 1))
    return Sample(
        kind=f"{dtype}{list(shape)}",
        sha256=file_sha256(path)[:_DIGEST],
        scale=_rounded(math.sqrt(squares) / length),
        numbers=tuple(_rounded(number / length) for number in _sums(folded, seed)),
        odd=odd.hexdigest()[:_DIGEST] if is_odd else "",
    )


def changed(stored: Sample, new: Sample, tolerance: float) -> str:
    """What differs, in words; empty where the two are the same.

    ``tolerance`` is a share of the stored root mean square. Of names it is the share that may be
    others: where values are off by so much, so many fall to the other side of a tie.
    """
    if stored.kind != new.kind:
        return f"it was {stored.kind}, and is {new.kind}"
    if stored.sha256 == new.sha256:
        return ""
    if stored.odd != new.odd:
        return "NaN or infinity stands where it did not, or no longer where it did"
    tolerance = math.sqrt(2 * tolerance) if _is_name(stored.kind) else tolerance
    distance = math.dist(stored.numbers, new.numbers) / math.sqrt(_SUMS)
    if distance <= tolerance * stored.scale:
        return ""
    if not stored.scale:
        return "it was zero, and is not"
    return (
        f"it differs by {distance / stored.scale:.2g} of its root mean square, "
        f"and {tolerance:.3g} is allowed"
    )


def _is_name(kind: str) -> bool:
    return kind.partition("[")[0] in _NAMES


def _rows(
    raw: NDArray[np.generic], dtype: str, seed: str
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Row after row of the tensor and of its signs; few at a time are in memory."""
    for start in range(0, raw.size, _WIDTH * _ROWS):
        part = raw[start : start + _WIDTH * _ROWS]
        values = _numbers_of_names(part) if dtype in _NAMES else widened(part, dtype)
        signs = _signs(f"{seed}, values from {start}", part.size)
        for row in range(0, part.size, _WIDTH):
            yield values[row : row + _WIDTH], signs[row : row + _WIDTH]


def _numbers_of_names(part: NDArray[np.generic]) -> NDArray[np.float64]:
    """A random number between -1 and 1 for each name, the same on every machine (SplitMix64)."""
    import numpy as np

    mixed = part.astype(np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    numbers: NDArray[np.float64] = (mixed >> np.uint64(12)).astype(np.float64) / 2.0**51 - 1.0
    return numbers


def _sums(folded: NDArray[np.float64], seed: str) -> list[float]:
    return [
        float((folded * _signs(f"{seed}, sum {number}", folded.size)).sum())
        for number in range(_SUMS if folded.size else 0)
    ]


def _signs(seed: str, count: int) -> NDArray[np.float64]:
    """Plus and minus one, from a hash: the same with every version of every library."""
    import numpy as np

    bits = hashlib.shake_128(seed.encode()).digest((count + 7) // 8)
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=count).astype(np.float64) * 2.0 - 1.0


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
