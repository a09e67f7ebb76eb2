from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_sme2.errors import EvidenceError
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.results.case import Agreement, Check, Limits, Sample, Tolerance
from pytest_sme2.results.run import (
    AS_EXPORTED,
    Arm,
    Artifact,
    MethodShapes,
    OperatorShapes,
    TensorSpec,
)
from pytest_sme2.results.timing import Outcome
from pytest_sme2.verdict import numerics
from pytest_sme2.verdict.numerics import changed, same_sample, sample
from tests.support.artifacts import make_output
from tests.support.gate_examples import LIMITS, TIGHT, agreement, emulated, measured
from tests.support.golden import check_whole_checks
from tests.support.profiles import columns_of, run_of


def compare(actual: list[float], expected: list[float]) -> Agreement:
    return numerics.agreement(
        np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64), against="off"
    )


def test_identical_outputs() -> None:
    found = compare([0.0, -1.0], [-0.0, -1.0])
    assert found.identical
    assert (found.max_abs, found.max_rel, found.sqnr_db) == (0, 0, None)
    assert compare([], []).identical


@pytest.mark.parametrize(
    ("actual", "expected", "has_nan"),
    [
        ([math.nan, 1.0], [1.0, 1.0], True),
        ([1.0, 1.0], [math.nan, 1.0], False),
        ([math.inf, 1.0], [1.0, 1.0], False),
        ([math.inf, 1.0], [-math.inf, 1.0], False),
    ],
)
def test_what_is_not_finite_on_one_side_is_infinitely_wrong(
    actual: list[float], expected: list[float], has_nan: bool
) -> None:
    found = compare(actual, expected)
    assert found.has_nan is has_nan
    assert found.max_abs == found.max_rel == math.inf
    assert not numerics.within(found, Tolerance())


def test_zeros_where_something_was_expected_and_the_reverse() -> None:
    gone = compare([0.0, 0.0], [1.0, 2.0])
    assert (gone.max_rel, gone.sqnr_db) == (1.0, 0.0)
    sprung_up = compare([1e-9], [0.0])
    assert (sprung_up.max_rel, sprung_up.sqnr_db) == (math.inf, None)
    assert not numerics.within(sprung_up, Tolerance(min_sqnr_db=10))
    assert numerics.within(sprung_up, Tolerance(max_abs=1e-6))


@given(st.lists(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 2), min_size=1))
@example([(1.2711610061536464e308, 1.412742124216136e146)])
def test_any_finite_values_give_an_answer(pairs: list[tuple[float, float]]) -> None:
    found = compare([a for a, _ in pairs], [b for _, b in pairs])
    assert found.identical == all(a == b for a, b in pairs)
    assert found.max_abs >= 0
    assert not math.isnan(found.max_rel)
    assert found.sqnr_db is None or not math.isnan(found.sqnr_db)


@pytest.mark.parametrize(
    ("tolerance", "fine"),
    [
        (Tolerance(), True),
        (Tolerance(max_abs=0.5), True),
        (Tolerance(max_abs=0.49), False),
        (Tolerance(max_rel=0.125), True),
        (Tolerance(max_rel=0.12), False),
        (Tolerance(min_sqnr_db=19.2), True),
        (Tolerance(min_sqnr_db=19.3), False),
        (Tolerance(max_abs=1, max_rel=1, min_sqnr_db=100), False),
        (Tolerance(max_abs=0.1, max_rel=1, min_sqnr_db=1), False),
    ],
)
def test_every_bound_that_is_given_counts(tolerance: Tolerance, fine: bool) -> None:
    assert numerics.within(compare([1.0, 2.0, 4.5], [1.0, 2.0, 4.0]), tolerance) is fine


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"]
)
def test_raw_values_of_every_type(tmp_path: Path, dtype: str) -> None:
    values = np.asarray([0, 1, 1, 0, 1, 0]).astype(dtype)
    path = tmp_path / "output"
    path.write_bytes(values.tobytes())
    assert numerics.read_values(path, dtype, (2, 3)).tolist() == [0, 1, 1, 0, 1, 0]
    # A scalar has no shape.
    path.write_bytes(values[1:2].tobytes())
    assert numerics.read_values(path, dtype, ()).tolist() == [1]


def test_brain_floats_are_the_upper_half_of_a_float(tmp_path: Path) -> None:
    values = np.asarray([1.0, -2.5, 3.140625, np.inf], dtype="<f4")
    path = tmp_path / "output"
    path.write_bytes((values.view("<u4") >> 16).astype("<u2").tobytes())
    assert numerics.read_values(path, "bfloat16", (4,)).tolist() == values.tolist()


def test_a_file_of_the_wrong_size_or_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_bytes(b"123")
    with pytest.raises(EvidenceError, match=r"holds 3 bytes where float32 of shape \(1,\) takes 4"):
        numerics.read_values(path, "float32", (1,))
    with pytest.raises(EvidenceError, match="'complex64' cannot be compared"):
        numerics.read_values(path, "complex64", (1,))


def artifact(folder: Path, *references: Path) -> Artifact:
    specs = tuple(TensorSpec("float32", (2,)) for _ in references)
    return Artifact(
        "toy", "fp32", folder, folder / "toy.pte", "", (), specs, reference_files=references
    )


def test_arms_are_compared_output_by_output(tmp_path: Path) -> None:
    on = [make_output(tmp_path / "a", [1, 2]), make_output(tmp_path / "b", [3, 4])]
    off = [make_output(tmp_path / "c", [1, 2]), make_output(tmp_path / "d", [3, 5])]
    first, second = numerics.compare_arms(on, off)
    assert (first.identical, first.index, first.against) == (True, 0, "off")
    assert (second.max_abs, second.index) == (1.0, 1)


def test_an_output_that_was_not_kept_cannot_be_compared(tmp_path: Path) -> None:
    kept = make_output(tmp_path / "a", [1, 2])
    bare = make_output(tmp_path / "b", [1, 2], file=None)
    with pytest.raises(EvidenceError, match="An output was not kept"):
        numerics.compare_arms([kept], [bare])


def test_another_program_is_refused(tmp_path: Path) -> None:
    one, two = make_output(tmp_path / "a", [1]), make_output(tmp_path / "b", [1, 2])
    with pytest.raises(EvidenceError, match="1 value on one side and 2 on the other"):
        numerics.compare_arms([one], [two])
    with pytest.raises(EvidenceError, match="2 outputs with SME2 on but 1 with SME2 off"):
        numerics.compare_arms([one, two], [one])


def test_reference(tmp_path: Path) -> None:
    program = artifact(tmp_path, make_output(tmp_path / "reference_0.bin", [1, 2]).file)
    ours = make_output(tmp_path / "a", [1, 2.5])
    (found,) = numerics.compare_reference(program, [ours], Arm.OFF)
    assert (found.against, found.arm, found.max_rel) == ("reference", Arm.OFF, 0.25)
    assert numerics.compare_reference(artifact(tmp_path), [ours], Arm.ON) == ()
    with pytest.raises(EvidenceError, match="2 outputs from the run but 1 from eager"):
        numerics.compare_reference(program, [ours, ours], Arm.ON)
    with pytest.raises(EvidenceError, match="3 values on one side and 2 on the other"):
        numerics.compare_reference(program, [make_output(tmp_path / "b", [1, 2, 3])], Arm.ON)


@pytest.mark.parametrize(("dtype", "dead"), [("float16", True), ("int64", False)])
def test_a_dead_output_is_marked_unless_it_counts_something(dtype: str, dead: bool) -> None:
    zeros = np.zeros(8)
    for actual in (zeros, zeros + 1e-14):
        found = numerics.agreement(actual, zeros, against="reference", dtype=dtype)
        assert bool(found.dead) is dead


@pytest.mark.parametrize("against", ["off", "reference"])
@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.PASS),
        ({"identical": True, "sqnr_db": None, "max_rel": 0.0}, Outcome.PASS),
        ({"max_rel": 0.2}, Outcome.FAILED),
        ({"sqnr_db": 20.0}, Outcome.FAILED),
        ({"has_nan": True}, Outcome.FAILED),
        ({"identical": True, "has_nan": True}, Outcome.FAILED),
    ],
)
def test_output_verdicts(against: str, changes: dict[str, object], outcome: Outcome) -> None:
    now = emulated(agreements=(agreement(against=against, **changes),))
    found = numerics.check_outputs(now, LIMITS, against)
    assert (found.metric, found.verdict) == (f"outputs against {against}", outcome)


def test_tolerance_is_that_of_the_precision() -> None:
    close = agreement(max_rel=1e-3, sqnr_db=60.0)
    for variant, outcome in (("fp16@256", Outcome.PASS), ("fp32", Outcome.FAILED)):
        now = measured(variant=variant, agreements=(close,))
        assert numerics.check_outputs(now, LIMITS, "off").verdict is outcome


def test_a_program_without_expected_outputs_is_not_judged_by_them() -> None:
    alone = measured(variant=AS_EXPORTED, agreements=(agreement(max_rel=1e-3, sqnr_db=60.0),))
    found = numerics.check_outputs(alone, LIMITS, "reference")
    assert found.verdict is Outcome.NOT_MEASURED
    assert "NAME.reference_0.bin" in found.message
    # Its precision is not known, so it is not held to the strictest one.
    assert numerics.check_outputs(alone, LIMITS, "off").verdict is Outcome.PASS


def outputs(*agreements: Agreement, limits: Limits = LIMITS, **changes: Any) -> Check:
    return numerics.check_outputs(measured(agreements=agreements, **changes), limits, "off")


def test_whole_checks() -> None:
    same = {"identical": True, "max_abs": 0.0, "max_rel": 0.0, "sqnr_db": None}
    check_whole_checks(
        "numerics",
        {
            "outputs that agree, and the worst of them": outputs(
                agreement(),
                agreement(index=1, arm=Arm.OFF, **same),
                agreement(against="reference", max_rel=0.5),
            ),
            "outputs that do not agree": outputs(
                agreement(),
                agreement(index=1, max_abs=0.25, max_rel=0.5, sqnr_db=6.0),
                agreement(index=2, max_rel=0.3, max_abs=0.1, sqnr_db=None),
            ),
            "a tolerance without a ratio": outputs(agreement(), limits=TIGHT),
            "NaN in both arms": outputs(nan_arms=(Arm.ON, Arm.OFF)),
            "NaN in one output of two": outputs(agreement(), agreement(index=1, has_nan=True)),
            "no tolerance": outputs(agreement(), limits=Limits()),
            "no output": outputs(),
        },
    )


ZERO = "nearly zero (its largest value is 0)"


def test_a_dead_output_neither_fails_nor_passes() -> None:
    for changes in ({"identical": True}, {"max_rel": 1.0, "sqnr_db": 0.0}):
        dead = agreement(dead=ZERO, **changes)
        found = outputs(dead)
        assert found.verdict is Outcome.NOT_MEASURED
        assert ZERO in found.message
        assert found.details == (f"output 0 (float32, on): not judged: what is expected is {ZERO}",)


def test_a_dead_output_does_not_hide_the_others() -> None:
    dead = agreement(index=1, dead=ZERO, identical=True)
    for other, outcome in ((agreement(), Outcome.PASS), (agreement(max_rel=0.9), Outcome.FAILED)):
        found = outputs(other, dead)
        assert found.verdict is outcome
        assert found.message.endswith("1 output not judged: what is expected is zero or constant.")


@pytest.mark.parametrize(("width", "known"), [(255, False), (256, True)])
def test_a_wrong_layer_norm_is_named_as_the_cause(width: int, known: bool) -> None:
    rows = (1, 4, width)
    shapes = MethodShapes(
        "forward", {0: (OperatorShapes("aten::native_layer_norm.out", (rows,), rows),)}
    )
    columns = columns_of(run_of([("native_layer_norm.out", 5)]))
    (profile,) = build_profiles(columns, shapes=(shapes,))
    found = outputs(agreement(max_rel=0.9), profiles={Arm.ON: profile})
    assert ("1 LayerNorm of 256 values or more" in found.message) is known


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


@pytest.mark.parametrize("empty", [[], [[], []]])
def test_a_tensor_without_values_has_a_kind(empty: list[object], sampled: Sampled) -> None:
    stored = sampled(empty)
    assert (stored.scale, stored.numbers) == (0, ())
    assert not changed(stored, sampled(empty), 0)
    assert changed(stored, sampled([0.0]), 0) == f"it was {stored.kind}, and is float32[1]"


def test_zero_is_only_zero(sampled: Sampled) -> None:
    stored = sampled([0.0, 0.0])
    assert changed(stored, sampled([0.0, 1e-9]), 0.1) == "it was zero, and is not"
    assert not changed(stored, sampled([0.0, -0.0]), 0.1)


def test_other_types_and_shapes_are_other_outputs(sampled: Sampled) -> None:
    stored = sampled([1.0, 2.0])
    assert changed(stored, sampled([[1.0, 2.0]]), 1) == "it was float32[2], and is float32[1, 2]"
    assert "float16[2]" in changed(stored, sampled([1.0, 2.0], "float16"), 1)


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
