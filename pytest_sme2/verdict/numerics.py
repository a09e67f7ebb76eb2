"""Compares raw output files, and says whether the answers are right: on against off, and against
the eager model.

A tensor in few numbers, and whether another one is the same: what a baseline keeps of outputs.

Each number is a sum over the whole tensor with random signs. Whatever differs, and wherever it
stands, moves such sums by about the size of the difference; 32 of them tell that size to an eighth.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import EvidenceError
from pytest_sme2.export.variant import precision_of
from pytest_sme2.export.weights import lifeless
from pytest_sme2.results.case import Agreement, CaseResult, Check, Limits, Sample, Tolerance
from pytest_sme2.results.run import AS_EXPORTED, Arm, Artifact, Output
from pytest_sme2.results.timing import Outcome
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.wording import count

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


# As the exporter, the runner and NumPy name them; bfloat16, which it does not know, is read apart.
_DTYPES = (
    "float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64", "bool",
)  # fmt: skip


def read_values(path: Path | None, dtype: str, shape: Sequence[int]) -> NDArray[np.float64]:
    """The values of a raw little-endian file, widened."""
    if path is None:
        raise EvidenceError("An output was not kept, so it cannot be compared.")
    return widened(raw_values(path, dtype, shape), dtype)


def raw_values(path: Path, dtype: str, shape: Sequence[int]) -> NDArray[np.generic]:
    """The values of a raw little-endian file as they are; bf16 as its bits."""
    import numpy as np

    brain = dtype == "bfloat16"
    if not brain and dtype not in _DTYPES:
        raise EvidenceError(
            f"{path}: outputs of type {dtype!r} cannot be compared. "
            f"Known types: bfloat16, {', '.join(_DTYPES)}."
        )
    kind = np.dtype("uint16" if brain else dtype).newbyteorder("<")
    raw, expected = np.fromfile(path, np.uint8), math.prod(shape) * kind.itemsize
    if raw.size != expected:
        raise EvidenceError(
            f"{path}: holds {raw.size} bytes where {dtype} of shape {tuple(shape)} takes "
            f"{expected}. The file is not this output, or was cut short: run again."
        )
    return raw.view(kind)


def widened(raw: NDArray[np.generic], dtype: str) -> NDArray[np.float64]:
    import numpy as np

    if dtype == "bfloat16":
        raw = (raw.astype("<u4") << 16).view("<f4")
    return raw.astype(np.float64)


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
    found = Agreement(against, arm, index, dtype, False, math.inf, math.inf, None, has_nan, *scale)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if bool(same.all()):
        return replace(found, identical=True, max_abs=0.0, max_rel=0.0)
    if not (np.isfinite(actual[~same]).all() and np.isfinite(expected[~same]).all()):
        return found
    finite = np.isfinite(expected)
    actual, expected = actual[finite], expected[finite]
    # One scale for both sides, so that squares of large or tiny values do not over- or underflow;
    # a power of two, so that scaling is exact.
    largest = float(max(np.abs(expected).max(), np.abs(actual).max()))
    peak = math.ldexp(1.0, math.frexp(largest)[1] - 1)
    scaled, wanted = actual / peak, expected / peak
    error = scaled - wanted
    worst, reach = float(np.abs(error).max()), float(np.abs(wanted).max())
    signal, noise = float(np.dot(wanted, wanted)), float(np.dot(error, error))
    return replace(
        found,
        max_abs=worst * peak,
        max_rel=worst / reach if reach else math.inf,
        # Not of the quotient, which may underflow.
        sqnr_db=10 * (math.log10(signal) - math.log10(noise)) if signal and noise else None,
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
    """Every kept output of the on run, or another arm's, against the same one of the off run."""
    _same_count(len(on), len(off), "with SME2 on", "with SME2 off")
    return _compared(on, [(each.file, each.dtype, each.shape) for each in off], "off", arm)


def compare_reference(
    artifact: Artifact, outputs: Sequence[Output], arm: Arm
) -> tuple[Agreement, ...]:
    """Every kept output of a run against what the eager model answered; empty without reference."""
    files = artifact.reference_files
    if not files:
        return ()
    _same_count(len(outputs), len(files), "from the run", "from eager")
    specs = zip(files, artifact.outputs, strict=False)
    expected = [(file, spec.dtype, spec.shape) for file, spec in specs]
    return _compared(outputs, expected, "reference", arm)


def _compared(
    outputs: Sequence[Output],
    expected: Sequence[tuple[Path | None, str, Sequence[int]]],
    against: str,
    arm: Arm,
) -> tuple[Agreement, ...]:
    found = []
    for index, (ours, theirs) in enumerate(zip(outputs, expected, strict=True)):
        values = read_values(ours.file, ours.dtype, ours.shape), read_values(*theirs)
        found.append(agreement(*values, against=against, arm=arm, index=index, dtype=ours.dtype))
    return tuple(found)


def _same_count(ours: int, theirs: int, our_name: str, their_name: str) -> None:
    if ours != theirs:
        raise EvidenceError(
            f"{count(ours, 'output')} {our_name} but {theirs} {their_name}: not the same program."
        )


# ExecuTorch 1.5 loads half values as floats from this width on.
_WRONG_LAYER_NORM = 256


def check_outputs(measured: CaseResult, limits: Limits, against: str) -> Check:
    """Whether the outputs are right: SME2 on against ``off``, or against the eager ``reference``.

    A NaN fails whatever the tolerance: it is the one wrong answer that no precision explains. An
    expected output that says nothing, since it is zero or constant, neither fails nor passes. It is
    never a regression: the tolerance does not come from a baseline.
    """
    told = partial(Check, f"outputs against {against}")
    if measured.nan_arms:
        arms = " and ".join(str(arm) for arm in measured.nan_arms)
        text = f"The output holds NaN (SME2 {arms}).{known_cause(measured)}"
        return told(Outcome.FAILED, text)
    found = [entry for entry in measured.agreements if entry.against == against]
    if not found and against == "reference" and measured.variant == AS_EXPORTED:
        return told(
            Outcome.NOT_MEASURED,
            "The right outputs of this program are unknown. Put its inputs and what is expected "
            "beside it, as in NAME.input_0.bin and NAME.reference_0.bin.",
        )
    if not found:
        text = f"No output was compared with the {against}, so nothing is known about it."
        return told(Outcome.INVALID, text)
    if any(entry.has_nan for entry in found):
        return told(Outcome.FAILED, f"The output holds NaN.{known_cause(measured)}")
    precision = precision_of(measured.variant) or measured.variant
    tolerance = tolerance_of(measured.variant, limits, against)
    if tolerance is None:
        text = f"No tolerance is known for {precision}. Give one in limits.toml."
        return told(Outcome.INVALID, text)
    alive = [entry for entry in found if not entry.dead]
    outside = [entry for entry in alive if not within(entry, tolerance)]
    details = tuple(agreement_line(entry, tolerance) for entry in outside or found)
    if not alive:
        return told(
            Outcome.NOT_MEASURED,
            f"Comparing says nothing: what is expected is {found[0].dead}. Give trained weights "
            "(--sme2-weights), or other example inputs.",
            details=details,
        )
    judged = count(len(alive), "output")
    message = f"{len(alive)} of {judged} within the tolerance for {precision}."
    if outside:
        message = f"{len(outside)} of {judged} outside the tolerance for {precision}."
        message += known_cause(measured)
    dead = len(found) - len(alive)
    if dead:
        message += f" {count(dead, 'output')} not judged: what is expected is zero or constant."
    return told(
        Outcome.FAILED if outside else Outcome.PASS,
        message,
        new=max(entry.max_rel for entry in alive),
        unit="share",
        limit=tolerance.max_rel,
        details=details,
    )


def tolerance_of(variant: str, limits: Limits, against: str) -> Tolerance | None:
    table = limits.on_off_tolerances if against == "off" else limits.tolerances
    # The precision of an exported program is not known: what holds for the least exact one does.
    return table.get("int8" if variant == AS_EXPORTED else precision_of(variant))


def known_cause(measured: CaseResult) -> str:
    """A sentence, with a space before it, where the cause of wrong outputs is known."""
    profile = measured.profiles.get(measured.arm)
    if profile is None or precision_of(measured.variant) != "fp16":
        return ""
    norms = [
        member.shapes.inputs[0][-1:]
        for member in profile.operators
        if member.operator.operation == "native_layer_norm"
        and member.shapes is not None
        and member.shapes.inputs
    ]
    wide = sum(width >= (_WRONG_LAYER_NORM,) for width in norms)
    return (
        f" A known cause: {count(wide, 'LayerNorm')} of {_WRONG_LAYER_NORM} values or more, "
        "which ExecuTorch 1.5 computes wrongly in fp16. `sme2 advise` names them and the way out."
    ) * bool(wide)


def agreement_line(entry: Agreement, tolerance: Tolerance) -> str:
    """One output in words: the error, its scale, and what is allowed."""
    return f"output {entry.index} ({entry.dtype}, {entry.arm}): {agreement_text(entry, tolerance)}"


def agreement_text(entry: Agreement, tolerance: Tolerance | None) -> str:
    if entry.dead:
        return f"not judged: what is expected is {entry.dead}"
    if entry.identical:
        return "identical"
    peak = "" if entry.peak is None else f", {entry.peak:.3g}"
    parts = [f"largest error {entry.max_abs:.3g} ({entry.max_rel:.2%} of the largest value{peak})"]
    if entry.sqnr_db is not None:
        least = None if tolerance is None else tolerance.min_sqnr_db
        asked = "" if least is None else f", at least {least:g}"
        parts.append(f"signal over noise {entry.sqnr_db:.1f} dB{asked}")
    return "; ".join(parts)


# How far a tensor may lie from the accepted one, as a share of its root mean square. Another host
# draws other last digits and adds in another order. What is quantized rounds the other way then,
# and passes that on: half of the share of int8 was seen. So each model is also held to what its
# eager form answers, in floats, where such a difference stays small.
_SAME_INPUT = 1e-4
_SAME_OUTPUT = {
    "fp32": 1e-4,
    "fp16": 1e-2,
    "bf16": 0.1,
    "int8": 0.1,
    "int8_dynamic": 0.1,
    "int4": 0.1,
    "int4_channel": 0.1,
}
_SAME_PROGRAM = 1e-4
"""Of a program that was given as it is, so that it has the same bytes everywhere."""


def tolerance_of_sample(name: str, variant: str) -> float:
    kind, precision = name.split()[0], precision_of(variant)
    if kind == "output":
        return _SAME_OUTPUT.get(precision, _SAME_PROGRAM)
    # The eager form is in float32, but for these two.
    halved = kind == "reference" and precision in ("fp16", "bf16")
    return _SAME_OUTPUT[precision] if halved else _SAME_INPUT


def same_sample(name: str, old: Sample, new: Sample, variant: str) -> bool:
    """Whether two tensors are the same one."""
    return not changed(old, new, tolerance_of_sample(name, variant))
