"""What a baseline keeps of a tensor, and which changes of it are told."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.errors import EvidenceError
from pytest_sme2.results import AS_EXPORTED, Sample
from pytest_sme2.verdict.numerics import changed, same_sample, sample

Sampled = Callable[..., Sample]
LONG = 3 * 65521 + 17


@pytest.fixture
def sampled(tmp_path: Path) -> Sampled:
    def sampled(
        values: object, dtype: str = "float32", *, seed: str = "toy-fp32/output 0"
    ) -> Sample:
        array = np.asarray(values, dtype="<u2" if dtype == "bfloat16" else dtype)
        path = tmp_path / "output.bin"
        path.write_bytes(array.tobytes())
        return sample(path, dtype, array.shape, seed)

    return sampled


def drawn(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype("<f4")


def test_the_numbers_are_sums_with_signs_from_a_hash(sampled: Sampled) -> None:
    """Computed again from the definition, bit by bit."""

    def signs(seed: str) -> list[int]:
        byte = hashlib.shake_128(seed.encode()).digest(1)[0]
        return [1 if byte & (128 >> place) else -1 for place in range(5)]

    values = [1.0, -2.0, 4.0, 0.5, 8.0]
    own = signs("a case/output 0, values from 0")
    sums = [
        sum(value * sign * other for value, sign, other in zip(values, own, each, strict=True))
        for each in (signs(f"a case/output 0, sum {number}") for number in range(32))
    ]
    found = sampled(values, seed="a case/output 0")
    assert found.numbers == pytest.approx([each / math.sqrt(5) for each in sums], rel=1e-5)
    assert found.scale == pytest.approx(math.sqrt((1 + 4 + 16 + 0.25 + 64) / 5), rel=1e-5)
    assert (found.kind, found.odd) == ("float32[5]", "")


@pytest.mark.parametrize("count", [10, 1000, LONG, 20 * 65521])
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x * np.float32(1.001),
        lambda x: x + np.float32(0.001),
        lambda x: x[::-1],
        lambda x: np.where(np.arange(x.size) == x.size // 3, 0, x),
        lambda x: np.concatenate([x[:1], x[3:4], x[2:3], x[1:2], x[4:]]),
        lambda x: np.concatenate([x[x.size // 2 :], x[: x.size // 2]]),
        lambda x: x * 0,
    ],
    ids=["gain", "bias", "turned", "one is zero", "1 and 3 swapped", "halves swapped", "zero"],
)
def test_a_change_anywhere_is_told(
    change: Callable[[np.ndarray], np.ndarray], count: int, sampled: Sampled
) -> None:
    values = drawn(count)
    assert "of its root mean square, and 0.0001 is allowed" in changed(
        sampled(values), sampled(change(values)), 1e-4
    )


@pytest.mark.parametrize("count", [1, 10, LONG])
def test_last_digits_may_differ(count: int, sampled: Sampled) -> None:
    values = drawn(count)
    assert not changed(sampled(values), sampled(np.nextafter(values, np.float32(9))), 1e-6)


def test_the_size_of_a_difference_is_known_to_a_half(sampled: Sampled) -> None:
    values, shares = drawn(500), []
    stored = sampled(values)
    for seed in range(1, 200):
        new = sampled(values + np.float32(0.1) * drawn(500, seed))
        shares.append(math.dist(stored.numbers, new.numbers) / math.sqrt(32) / 0.1)
    assert 0.95 < np.mean(shares) < 1.05
    assert 0.5 < min(shares) < max(shares) < 1.5


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_and_infinity_stay_where_they_are(dtype: str, sampled: Sampled) -> None:
    stored = sampled([1, math.nan, math.inf, -math.inf, 2], dtype)
    assert stored.scale == 1
    assert not changed(stored, sampled([1, math.nan, math.inf, -math.inf, 2.0], dtype), 0)
    for other in ([1, 1, math.inf, -math.inf, 2], [1, math.nan, -math.inf, math.inf, 2]):
        assert "NaN or infinity" in changed(stored, sampled(other, dtype), 0.1)
    told = changed(stored, sampled([-2, math.nan, math.inf, -math.inf, 2], dtype), 0.1)
    assert "root mean square" in told


def test_values_whose_squares_overflow_count_as_infinite(sampled: Sampled) -> None:
    stored = sampled([1e300, 1], "float64")
    assert stored.scale < 1
    assert "infinity" in changed(stored, sampled([-1e300, 1], "float64"), 0.1)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32", "bool"])
def test_one_name_of_many_is_told(dtype: str, sampled: Sampled) -> None:
    values = np.arange(500) % (2 if dtype == "bool" else 70)
    stored, other = sampled(values, dtype), values.copy()
    other[17] = not other[17] if dtype == "bool" else other[17] + 1
    told = changed(stored, sampled(other, dtype), 1e-4)
    assert told.endswith("of its root mean square, and 0.0141 is allowed")
    assert not changed(stored, sampled(other, dtype), 0.1)


def test_large_names_are_not_rounded(sampled: Sampled) -> None:
    stored = sampled([2**60, 2**60 + 1], "int64")
    assert changed(stored, sampled([2**60 + 1, 2**60], "int64"), 1e-4)


def test_small_whole_numbers_are_amounts(sampled: Sampled) -> None:
    stored = sampled([100, 50, 7], "uint8")
    assert not changed(stored, sampled([100, 51, 7], "uint8"), 0.05)
    assert changed(stored, sampled([100, 61, 7], "uint8"), 0.05)


def test_bfloat16_is_read_by_its_bits(sampled: Sampled) -> None:
    assert sampled([0x3F80, 0xC040], "bfloat16").scale == pytest.approx(math.sqrt(5), rel=1e-5)


@pytest.mark.parametrize("empty", [[], [[], []]])
def test_a_tensor_without_values_has_a_kind(empty: list[object], sampled: Sampled) -> None:
    stored = sampled(empty)
    assert (stored.scale, stored.numbers) == (0, ())
    assert not changed(stored, sampled(empty), 0)
    assert changed(stored, sampled([0.0]), 0) == f"it was {stored.kind}, and is float32[1]"


def test_a_scalar_is_a_tensor(sampled: Sampled) -> None:
    stored = sampled(3.0)
    assert (stored.kind, stored.scale) == ("float32[]", 3)
    assert changed(stored, sampled(-3.0), 0.1)
    assert not changed(stored, sampled(3.0001), 0.1)


def test_zero_is_only_zero(sampled: Sampled) -> None:
    stored = sampled([0.0, 0.0])
    assert changed(stored, sampled([0.0, 1e-9]), 0.1) == "it was zero, and is not"
    assert not changed(stored, sampled([0.0, -0.0]), 0.1)


def test_other_types_and_shapes_are_other_outputs(sampled: Sampled) -> None:
    stored = sampled([1.0, 2.0])
    assert changed(stored, sampled([[1.0, 2.0]]), 1) == "it was float32[2], and is float32[1, 2]"
    assert "float16[2]" in changed(stored, sampled([1.0, 2.0], "float16"), 1)


def test_each_tensor_has_its_own_signs(sampled: Sampled) -> None:
    values = drawn(100)
    assert sampled(values, seed="a").numbers != sampled(values, seed="b").numbers


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "output.bin"
    path.write_bytes(bytes(7))
    with pytest.raises(EvidenceError, match="holds 7 bytes where float32"):
        sample(path, "float32", [2], "any")


@pytest.mark.parametrize(
    ("name", "variant", "still_the_same", "another"),
    [
        ("input 0", "int8", 1e-6, 1e-2),
        ("reference 0", "int8", 1e-5, 0.01),
        ("reference 0", "fp16@64", 2e-3, 0.05),
        ("output 0", "fp32", 1e-5, 1e-3),
        ("output 1", "fp16", 2e-3, 0.05),
        ("output 0", "int8@128", 0.05, 0.3),
        ("output 0", AS_EXPORTED, 1e-5, 1e-3),
    ],
)
def test_the_tolerance_is_that_of_the_tensor(
    name: str, variant: str, still_the_same: float, another: float, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    values, noise = generator.standard_normal((2, 1000))

    def sampled(share: float) -> Sample:
        path = tmp_path / "tensor.bin"
        path.write_bytes((values + share * noise).astype("<f4").tobytes())
        return sample(path, "float32", [1000], name)

    assert same_sample(name, sampled(0), sampled(still_the_same), variant)
    assert not same_sample(name, sampled(0), sampled(another), variant)
