from __future__ import annotations

import re

import pytest

from pytest_sme2.profile.coverage import check_pair, named_by_chip
from pytest_sme2.results import Arm, Kernel, KernelCensus
from pytest_sme2.trace.kernel_log import family_of
from tests.support.profiles import COVERAGE, Call, profile_of, real

PACKED: Call = [("Convolution (NHWC, PF16) IGEMM #1", 5)]
PLAIN: Call = [("Convolution (NHWC, F16) IGEMM #1", 5)]
QP8: Call = [("Fully Connected (NC, QP8, F32, QC8W) GEMM #1", 5)]
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
        (PLAIN, PACKED, "most likely swapped"),
        (SOFTMAX, SOFTMAX, "no matrix operators"),
        (QP8, QP8, "The on run is unproven: 1 matrix operator.*kernel census"),
        (("mm.out", 5), ("mm.out", 5), "no SME2 kernel for any.*portable fallback"),
        (PER_TENSOR, PER_TENSOR, "no SME2 kernel for any.*quantize the weights per channel"),
        ([], PLAIN, "The on run hides"),
        (PACKED, [], "The off run hides"),
    ],
)
def test_the_message_says_which_side_is_wrong(on: Call, off: Call, message: str) -> None:
    evidence = check_pair(profile_of(on), profile_of(off))
    assert not evidence.valid
    assert re.search(message, evidence.message), evidence.message


def test_a_valid_pair_says_how_much_it_saw() -> None:
    evidence = check_pair(profile_of(PACKED, PLAIN), profile_of(PLAIN, PLAIN))
    assert evidence.valid
    assert evidence.message.startswith("1 of 2 matrix operators ran on SME2 kernels")
    assert (evidence.matrix_operators, evidence.sme2_on, evidence.sme2_off) == (2, 1, 0)


def _sme1_kernel(name: str) -> KernelCensus:
    kernels = (f"kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2b_2vlx2vl_{name}", "kai_run_pack_sme")
    return KernelCensus(Arm.SME1, "emulator", tuple(Kernel(k, family_of(k), 1) for k in kernels))


def test_the_third_arm_must_run_on_sme1_kernels() -> None:
    on, off = profile_of(PACKED), profile_of(PLAIN)
    sme1 = profile_of(PACKED, census=_sme1_kernel("sme_mopa"))
    found = check_pair(on, off, third=sme1)
    assert found.valid
    assert "1 on SME1 with SME2 hidden" in found.message
    wrong = check_pair(on, off, third=profile_of(PACKED, census=_sme1_kernel("sme2_mopa")))
    assert not wrong.valid
    assert wrong.message.startswith("The sme1 run is wrong: 1 operator ran on SME2 kernels")


def test_on_a_chip_without_sme2_on_is_sme1() -> None:
    on, off = profile_of(PACKED), profile_of(PLAIN)
    assert not check_pair(on, off, effective_on=False).valid
    found = check_pair(named_by_chip(on, None, True), off, effective_on=False, sme1=True)
    assert found.valid
    assert "ran on SME1 kernels with SME1 on (the chip has no SME2)" in found.message
    assert not check_pair(on, off, sme1=True).valid


@pytest.mark.parametrize(
    ("program", "valid", "words"),
    [
        ("mixed_fp32", True, "6 of 7"),
        ("mixed_fp16", True, "5 of 7"),
        ("int8_per_channel", True, "3 of 4"),
        ("int8_per_tensor", False, "The on run is wrong: none of its 4"),
        ("int8_dynamic", False, "unproven: 3 matrix operators"),
    ],
)
def test_real_pairs_of_other_operators(program: str, valid: bool, words: str) -> None:
    on, off = (real(f"{program}_{arm}", COVERAGE) for arm in ("on", "off"))
    evidence = check_pair(on, off)
    assert evidence.valid is valid
    assert words in evidence.message


def test_process_that_contradicts_its_arm_makes_the_pair_invalid() -> None:
    on, off = profile_of(PACKED, PLAIN), profile_of(PLAIN, PLAIN)
    assert check_pair(on, off, effective_on=True, effective_off=False).valid
    assert check_pair(on, off).valid
    wrong = check_pair(on, off, effective_on=False)
    assert not wrong.valid
    assert wrong.message.startswith("The on run is wrong: its process reports that SME2 is not")
    wrong = check_pair(on, off, effective_on=True, effective_off=True)
    assert not wrong.valid
    assert wrong.message.startswith("The off run is wrong: its process reports that SME2 is in")
