from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.categories import classify, plain_name, ran_in
from pytest_sme2.profile.coverage import (
    Proof,
    check_pair,
    could_run_on_sme2,
    missed_reason,
    named_by_chip,
    settled,
)
from pytest_sme2.profile.known_names import table_of
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results.evidence import Kernel, KernelCensus, KernelFamily
from pytest_sme2.results.profile import Coverage
from pytest_sme2.results.run import Arm, MethodShapes, OperatorShapes
from tests.support.profiles import COVERAGE, Call, columns_of, profile_of, real, run_of

PF32 = ("Convolution (NHWC, PF32) IGEMM #1", 6_000)
QP8 = "Fully Connected (NC, QP8, F32, QC4W) GEMM #1"


def reasons(*calls: Call) -> list[str]:
    return [reason for _, reason in profile_of(*calls).coverage.missed]


def census(*kernels: tuple[str, KernelFamily]) -> KernelCensus:
    return KernelCensus(
        Arm.ON, "emulator", tuple(Kernel(name, family, 1) for name, family in kernels)
    )


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (("addmm.out", 5), "portable fallback"),
        ([("Fully Connected (NC, F16) GEMM #1", 5)], "weights of fp16 convolutions as fp32"),
        ([("Fully Connected (NC, QS8) GEMM #1", 5)], "quantize the weights per channel"),
        (
            [("Deconvolution (NHWC, F32) Subconv2D #1", 5)],
            "no SME2 kernel for Deconvolution in fp32",
        ),
        (
            [("Fully Connected (NC, QP8, F32, QB4W) GEMM #1", 5)],
            "4-bit weights have one scale per group",
        ),
        (
            [("Convolution (NHWC, QD8, F32, QC8W) IGEMM #1", 5)],
            "no SME2 kernel for Convolution in int8_dynamic",
        ),
        (
            [("Batch Matrix Multiply (NC, F32) GEMM #1", 5)],
            "kernel for Batch Matrix Multiply in fp32 but did not choose it",
        ),
        ([("Convolution (NHWC, F32) IGEMM #2", 5)], "one input channel"),
    ],
)
def test_the_likely_reason(call: Call, reason: str) -> None:
    (found,) = reasons([PF32], call)
    assert re.search(reason, found), found


def settled_by(*kernels: tuple[str, KernelFamily]) -> Coverage:
    return profile_of([(QP8, 5)], census=census(*kernels)).coverage


def test_a_census_settles_what_runs_under_one_name_on_both() -> None:
    names = table_of("").names
    known = names[plain_name(QP8)]
    sme2 = (known.sme2[-1], KernelFamily.SME2)
    neon = (known.other[-1], KernelFamily.NEON)
    others = (names["Fully Connected (NC, QP8, F32, QC8W) GEMM"].other[-1], KernelFamily.NEON)
    assert settled_by(sme2).sme2_operators == 1
    assert settled_by(sme2, others).sme2_operators == 1
    assert len(settled_by(neon).missed) == 1
    assert len(settled_by(sme2, neon).unproven) == 1
    assert len(settled_by().unproven) == 1
    assert settled_by(sme2).source == "operator names and kernel census"


# As later versions of ExecuTorch, XNNPACK, KleidiAI and YNNPACK have them.
@pytest.mark.parametrize(
    "name",
    [
        "Fully Connected (NC, PBF16) GEMM",
        "Fully Connected (NC, QD8, F32, QC2W) GEMM",
        "Convolution (NHWC, PF32) DWConv2D",
        "native_call_sdpa_with_kv_cache.out",
        "native_call_mm.out",
    ],
)
def test_a_name_that_never_ran_on_the_emulator_is_unknown(name: str) -> None:
    call = (name.removeprefix("native_call_"), 5) if name.startswith("native") else [(name, 5)]
    on = profile_of(PACKED, call)
    assert on.coverage.unknown == (name,)
    assert on.operators[1].operator.proof == "unproven"
    evidence = check_pair(on, profile_of(PLAIN))
    assert not evidence.valid
    assert f"on run is unknown: no run on the emulator told whether these run on SME2: {name}." in (
        evidence.message
    )
    assert "sme2 run MODEL --device emulated" in evidence.message
    # What was executed needs no name.
    told = [KernelFamily.SME2, KernelFamily.SME2]
    on = profile_of(PACKED, call, executed=told)
    assert check_pair(on, profile_of(PLAIN)).valid
    assert not on.coverage.unknown


def test_a_version_without_a_table_knows_no_name() -> None:
    on = build_profiles(columns_of(run_of([PACKED])), executorch="1.9.0")[0]
    assert on.coverage.unknown == ("Convolution (NHWC, PF16) IGEMM",)


@pytest.mark.parametrize(
    ("program", "missed", "evidence"),
    [
        ("mixed_fp32", {"Deconvolution": "no SME2 kernel"}, "6 of 7"),
        (
            "mixed_fp16",
            {"Deconvolution": "no SME2 kernel", "Fully Connected": "1x1 convolutions"},
            "5 of 7",
        ),
        ("one_channel_fp16", {"Convolution": "one input channel"}, "5 of 7"),
        ("int8_per_channel", {"Convolution": "one input channel"}, "3 of 4"),
        (
            "int8_per_tensor",
            {"Fully Connected": "per-tensor", "Convolution": "off, or not in the CPU"},
            "The on run is wrong: none of its 4",
        ),
        ("int8_dynamic", {"Convolution": "off, or not in the CPU"}, "unproven: 3 matrix operators"),
    ],
)
def test_what_reaches_sme2_in_real_programs(
    program: str, missed: dict[str, str], evidence: str
) -> None:
    # Of one_channel there is only the run with SME2.
    off = real(f"{program.replace('one_channel', 'mixed')}_off", COVERAGE)
    on = real(f"{program}_on", COVERAGE)
    pair = check_pair(on, off)
    assert evidence in pair.message
    assert pair.valid is (on.coverage.sme2_operators > 0)
    reasons = {member.operator.operation: reason for member, reason in on.coverage.missed}
    assert reasons.keys() == missed.keys()
    for operation, words in missed.items():
        assert words in reasons[operation]


@pytest.mark.parametrize(
    ("name", "family", "matrix", "proof"),
    [
        (PF32[0], KernelFamily.SME2, True, True),
        (PF32[0], KernelFamily.OTHER, True, False),
        (PF32[0], KernelFamily.SME, True, "sme1"),
        (QP8, KernelFamily.SME2, True, True),
        (QP8, KernelFamily.OTHER, True, False),
        ("Convolution (NHWC, F32) DWConv #1", KernelFamily.SME2, True, True),
        ("Convolution (NHWC, F32) DWConv #1", KernelFamily.OTHER, False, False),
        ("Matrix of tomorrow (NC, BF16)", KernelFamily.SME2, False, True),
    ],
)
def test_what_was_executed_speaks_before_names_and_kernels(
    name: str, family: KernelFamily, matrix: bool, proof: bool | str
) -> None:
    other = ("kai_run_matmul_clamp_f32_qai8dxp4x8_qsi4cxp4x8_16x4_neon_i8mm", KernelFamily.NEON)
    found = profile_of([(name, 5)], census=census(other), executed=[family])
    (operator,) = (entry.operator for entry in found.operators)
    assert (operator.matrix, operator.proof) == (matrix, proof)
    assert found.coverage.source == "executed instructions"


def test_a_linear_layer_is_not_taken_for_a_1x1_convolution_where_its_shapes_are_known() -> None:
    operator = classify("Fully Connected (NC, F16) GEMM")
    linear = OperatorShapes("linear", ((1, 64), (10, 64)), (1, 10))
    pointwise = OperatorShapes("convolution", ((1, 8, 8, 64), (10, 1, 1, 64)), (1, 8, 8, 10))
    assert missed_reason(operator, True).startswith("most likely 1x1 convolutions")
    assert missed_reason(operator, True, pointwise).startswith("1x1 convolutions")
    assert missed_reason(operator, True, linear).startswith("in the kernel matrix the same layer")


def test_the_kernel_matrix_speaks_before_what_is_known_of_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel that a new version adds, or one that it has only by name."""
    deconvolution = classify("Deconvolution (NHWC, F32) IGEMM")
    product = classify("Batch Matrix Multiply (NC, F32) GEMM")
    shapes = OperatorShapes("matrix product", ((4, 8, 64), (4, 64, 32)), (4, 8, 32))

    def matrix_says(family: str) -> None:
        monkeypatch.setattr("pytest_sme2.profile.coverage.known_family", lambda *_: family)

    matrix_says("sme2")
    assert "same layer runs on SME2" in missed_reason(deconvolution, True, shapes)
    assert "off, or not in the CPU" in missed_reason(deconvolution, False, shapes)
    assert could_run_on_sme2(deconvolution, shapes)
    matrix_says("neon")
    assert "no SME2 kernel for Deconvolution" in missed_reason(deconvolution, True, shapes)
    assert "has no SME2 kernel for such a layer" in missed_reason(product, True, shapes)
    assert "has no SME2 kernel for such a layer" in missed_reason(product, False, shapes)
    assert not could_run_on_sme2(product, shapes)
    matrix_says("")
    assert "did not choose it" in missed_reason(product, True, shapes)
    assert could_run_on_sme2(product, shapes)
    assert not could_run_on_sme2(deconvolution, shapes)


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("Convolution (NHWC, PQS8, QS8, QC8W) IGEMM", "int8"),
        ("Fully Connected (NC, QD8, F32, QC8W) GEMM", "int8_dynamic"),
        ("Fully Connected (NC, QP8, F32, QC4W) GEMM", "int4_channel"),
        # As XNNPACK's next version names 2-bit weights: no other's.
        ("Fully Connected (NC, QP8, F32, QC2W) GEMM", "int2_channel"),
        ("native_call_mm.out", "portable"),
    ],
)
def test_a_data_type_in_everyday_words(name: str, variant: str) -> None:
    assert ran_in(classify(name)) == variant


def test_a_depthwise_convolution_is_told_by_its_shapes() -> None:
    """XNNPACK runs a 7x7 one as IGEMM, and its name does not show what it is."""
    calls = [[("Convolution (NHWC, F32) IGEMM #1", 5), ("Convolution (NHWC, PF32) IGEMM #1", 5)]]
    image = (1, 8, 8, 96)
    shapes = MethodShapes(
        "forward",
        {
            0: (
                OperatorShapes("depthwise convolution", (image, (1, 7, 7, 96)), image),
                OperatorShapes("convolution", (image, (96, 3, 3, 96)), image),
            )
        },
    )
    found = build_profiles(columns_of(run_of(calls)), shapes=(shapes,))[0]
    assert (found.coverage.sme2_operators, found.coverage.matrix_operators) == (1, 1)
    assert found.coverage.depthwise_operators == 1
    assert [operator.kind for operator in structure_of(found).operators] == [
        "depthwise",
        "convolution",
    ]
    assert structure_of(found).operators[0].name == "Convolution (NHWC, F32) IGEMM, depthwise"


@pytest.mark.parametrize(
    ("image", "weights", "kind"),
    [(96, (96, 1, 3, 3), "depthwise"), (96, (96, 2, 3, 3), "convolution"),
     (1, (1, 1, 3, 3), "convolution")],
)  # fmt: skip
def test_so_is_one_that_is_outside_of_the_delegate(
    image: int, weights: tuple[int, ...], kind: str
) -> None:
    shapes = OperatorShapes("aten::convolution.out", ((1, image, 8, 8), weights), ())
    found = settled(classify("native_call_convolution.out"), shapes, Proof())
    assert (found.kind, found.matrix) == (kind, kind != "depthwise")


PACKED: Call = [("Convolution (NHWC, PF16) IGEMM #1", 5)]
PLAIN: Call = [("Convolution (NHWC, F16) IGEMM #1", 5)]
DYNAMIC: Call = [("Fully Connected (NC, QP8, F32, QC8W) GEMM #1", 5)]
PER_TENSOR: Call = [("Fully Connected (NC, QS8) GEMM #1", 5)]
SOFTMAX: Call = [("Softmax (NC, F16) #1", 5)]


@pytest.mark.parametrize("program", ["toy", "mobile"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_real_pairs_are_valid_one_way_round_only(program: str, precision: str) -> None:
    on, off = (real(f"cpp_{program}_{precision}_{arm}") for arm in ("on", "off"))
    evidence = check_pair(on, off)
    assert evidence.valid
    assert evidence.sme2_on > 0
    assert evidence.sme2_off == 0
    assert not check_pair(off, on).valid
    assert not check_pair(on, on).valid
    assert not check_pair(off, off).valid


@pytest.mark.parametrize(
    ("on", "off", "message"),
    [
        (PACKED, PACKED, "The off run is wrong: 1 of 1 matrix operator ran on SME2"),
        (PLAIN, PLAIN, "The on run is wrong: none of its 1 matrix operator"),
        (PLAIN, PACKED, "The off run is wrong: 1 of 1 matrix operator ran on SME2"),
        (SOFTMAX, SOFTMAX, "no matrix operators"),
        (DYNAMIC, DYNAMIC, "The on run is unproven: 1 matrix operator.*kernel census"),
        (("addmm.out", 5), ("addmm.out", 5), "no SME2 kernel for any.*portable fallback"),
        (PER_TENSOR, PER_TENSOR, "no SME2 kernel for any.*quantize the weights per channel"),
        ([], PLAIN, "The on run hides"),
        (PACKED, [], "The off run hides"),
    ],
)
def test_the_message_says_which_side_is_wrong(on: Call, off: Call, message: str) -> None:
    evidence = check_pair(profile_of(on), profile_of(off))
    assert not evidence.valid
    assert re.search(message, evidence.message), evidence.message


def test_no_streaming_instruction_may_run_in_the_off_arm() -> None:
    """Not even outside of all operators."""
    on, off = profile_of(PACKED), profile_of(PLAIN)
    seen = KernelCensus(Arm.OFF, "emulator", (), streaming=0)
    assert check_pair(on, off, census_off=seen).valid
    found = check_pair(on, off, census_off=replace(seen, streaming=3))
    assert not found.valid
    assert found.message.startswith("The off run is wrong: 3 blocks of its code entered streaming")


def _sme1_kernel() -> KernelCensus:
    name = "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa"
    return KernelCensus(Arm.SME1, "emulator", (Kernel(name, KernelFamily.SME, 1),))


def test_the_third_arm_must_run_on_sme1_kernels() -> None:
    on, off = profile_of(PACKED), profile_of(PLAIN)
    sme1 = profile_of(PACKED, census=_sme1_kernel())
    found = check_pair(on, off, third=sme1)
    assert found.valid
    assert "1 on SME1 with SME2 hidden" in found.message
    table = table_of("").names["Convolution (NHWC, PF16) IGEMM"]
    sme2 = KernelCensus(Arm.SME1, "emulator", (Kernel(table.sme2[-1], KernelFamily.SME2, 1),))
    wrong = check_pair(on, off, third=profile_of(PACKED, census=sme2))
    assert not wrong.valid
    assert wrong.message.startswith("The sme1 run is wrong: 1 operator ran on SME2 kernels")


def test_on_a_chip_without_sme2_on_is_sme1() -> None:
    on, off = profile_of(PACKED), profile_of(PLAIN)
    assert not check_pair(on, off, effective_on=False).valid
    found = check_pair(named_by_chip(on, None, True), off, effective_on=False, sme1=True)
    assert found.valid
    assert "ran on SME1 kernels with SME1 on (the chip has no SME2)" in found.message
    assert not check_pair(on, off, sme1=True).valid


def test_process_that_contradicts_its_arm_makes_the_pair_invalid() -> None:
    on, off = profile_of(PACKED, PLAIN), profile_of(PLAIN, PLAIN)
    assert check_pair(on, off, effective_on=True, effective_off=False).valid
    evidence = check_pair(on, off)
    assert evidence.valid
    assert evidence.message.startswith("1 of 2 matrix operators ran on SME2 kernels")
    assert (evidence.matrix_operators, evidence.sme2_on, evidence.sme2_off) == (2, 1, 0)
    wrong = check_pair(on, off, effective_on=False)
    assert not wrong.valid
    assert wrong.message.startswith("The on run is wrong: its process reports that SME2 is not")
    wrong = check_pair(on, off, effective_on=True, effective_off=True)
    assert not wrong.valid
    assert wrong.message.startswith("The off run is wrong: its process reports that SME2 is in")
