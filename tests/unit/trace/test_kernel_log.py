from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sme2.results.evidence import Kernel, KernelFamily
from pytest_sme2.results.run import Arm
from pytest_sme2.trace.kernel_log import (
    census_from_qemu_log,
    census_from_xnnpack_log,
    family_of,
    is_microkernel,
    plain_symbol,
)
from tests.support.elf_writer import write_elf

SME2 = "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"
SME2_BODY = SME2.replace("kai_run", "kai_kernel")
SME = "kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme"
NEON = "xnn_f16_gemm_minmax_ukernel_6x8__neonfp16arith_ld64"
BASE = 0x7F0000000000
WORDS = {
    "nop": "d503201f", "smstart": "d503477f", "fmopa": "80812000", "fmop4a": "80000000",
    "ld1w": "a040c000", "fmla": "4f821020", "fmax": "4e21f400", "movi": "6f00e400",
    "mov": "4ea01c01",
}  # fmt: skip
# Only the first is SME2's alone.
RUNS_ON_SME2, RUNS_ON_SME = ("ld1w     {z0.s-z3.s}", "smstart  ", "fmopa    za0.s"), ("smstart  ",)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        (SME2, KernelFamily.SME2),
        (SME, KernelFamily.SME),
        (NEON, KernelFamily.NEON),
        ("xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2", KernelFamily.SME2),
        ("xnn_pf32_gemm_minmax_ukernel_32x32__neonsme", KernelFamily.SME),
        ("xnn_f32_gemm_minmax_ukernel_4x8__asm_aarch64_neonfma_ld128", KernelFamily.NEON),
        ("kai_run_matmul_clamp_f32_qai8dxp4x8_qsi4c32p4x8_16x4x32_neon_i8mm", KernelFamily.NEON),
        ("kai_run_lhs_quant_pack_qai8dxp_f32", KernelFamily.OTHER),
        ("xnn_f32_spmm_minmax_ukernel_8x1__scalar", KernelFamily.OTHER),
        ("kai_run_matmul_clamp_f32_f32p_f32p_2vlx2vl_sme2p1_mop4", KernelFamily.SME2),
        ("kai_matmul_pack_rows_x32p2vlx1_x32_sme", KernelFamily.SME),
        ("kai_run_imatmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa", KernelFamily.SME),
        ("kai_run_imatmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme1_mopa", KernelFamily.SME),
        ("xnn_f32_dwconv_minmax_ukernel_3x3__neonsme2", KernelFamily.SME2),
        ("ynn::dot_fp32_16x16x1_sme2", KernelFamily.SME2),
        (plain_symbol("_ZN3ynn17dot_fp32_f16_sme2EmmPKvS1_Pv"), KernelFamily.SME2),
    ],
)
def test_family_is_in_the_name(name: str, family: KernelFamily) -> None:
    assert is_microkernel(name)
    assert family_of(name) is family


@pytest.mark.parametrize(
    "name",
    [
        "xnn_create_convolution2d_nhwc_pf16",
        "kai_get_m_step_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa",
        "xnn_pf32_gemm_minmax_ukernel_1x32__neonsme2_get_mr",
        "kai_commit_za",
        "main",
        "",
        "kai_run_x\nkai_run_y",
    ],
)
def test_other_functions_are_not_kernels(name: str) -> None:
    assert not is_microkernel(name)


def opened(name: str, descriptor: int = 4) -> str:
    return f'81 openat(AT_FDCWD,"{name}",O_RDONLY|O_CLOEXEC) = {descriptor}\n'


def mapped(offset: int = 0x1000, base: int = BASE, size: int = 0x9000, descriptor: int = 4) -> str:
    place = base + offset
    return (
        f"81 mmap(NULL,{size},PROT_READ,MAP_PRIVATE,{descriptor},0) = 0x{base:016x}\n"
        f"81 mmap(0x{place:016x},{size},PROT_EXEC|PROT_READ,MAP_PRIVATE|MAP_DENYWRITE|MAP_FIXED,"
        f"{descriptor},{offset:#x}) = 0x{place:016x}\n"
    )


def block(address: int, *instructions: str, symbol: str = "", base: int = BASE) -> str:
    lines = "".join(
        f"0x{base + address + 4 * index:012x}:  {WORDS[each.split()[0]]}  {each}\n"
        for index, each in enumerate(instructions or ("nop      ",))
    )
    return f"----------------\nIN: {symbol}\n{lines}\n"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_elf(
        tmp_path / "libkernels.so",
        [
            (0x1100, 0x40, SME2),
            (0x1140, 0x40, SME2_BODY),
            (0x1200, 0x40, SME),
            (0x1300, 0x40, NEON),
            (0x1400, 0x40, "xnn_create_something"),
        ],
        unwind=[(0x1800, 0x100), (0x1900, 0x100)],
    )


def census(folder: Path, text: str, *libraries: Path) -> dict[str, Kernel]:
    log = folder / "qemu.log"
    log.write_text(text, errors="surrogateescape")
    found = census_from_qemu_log(log, libraries, Arm.ON)
    assert found.arm is Arm.ON
    assert found.source == "emulator"
    return {kernel.name: kernel for kernel in found.kernels}


def test_blocks_become_kernels(tmp_path: Path, library: Path) -> None:
    text = opened(f"/somewhere/{library.name}") + mapped()
    text += block(0x1304, "fmla     v0.4s, v1.4s, v2.s[0]") + block(0x1200, *RUNS_ON_SME)
    text += block(0x1100) + block(0x1110) + block(0x1150, *RUNS_ON_SME2)
    text += block(0x1400) + block(0x1FFC)
    assert list(census(tmp_path, text, library).values()) == [
        Kernel(SME2, KernelFamily.SME2, 3),
        Kernel(SME, KernelFamily.SME, 1),
        Kernel(NEON, KernelFamily.NEON, 1),
    ]


def test_the_instructions_tell_what_a_kernel_is_and_not_its_name(tmp_path: Path) -> None:
    names = ("tomorrow", "_ZN3ynn8dot_fp32EPKf", "helper", "xnn_create_something")
    places = [(0x1100 + 0x100 * place, 0x40, name) for place, name in enumerate(names)]
    library = write_elf(tmp_path / "libnew.so", places)
    fmla = "fmla     v0.4s, v1.4s, v2.s[0]"
    text = opened(library.name) + mapped()
    text += block(0x1100, *RUNS_ON_SME2) + block(0x1200, *[fmla] * 4)
    text += block(0x1300, "smstart  ", "fmop4a   za0.s") + block(0x1400, *[fmla] * 3)
    assert census(tmp_path, text, library) == {
        "tomorrow": Kernel("tomorrow", KernelFamily.SME2, 1),
        "ynn::dot_fp32": Kernel("ynn::dot_fp32", KernelFamily.NEON, 1),
        "helper": Kernel("helper", KernelFamily.SME2, 1),
    }


def test_streaming_mode_is_seen_wherever_it_is_entered(tmp_path: Path) -> None:
    """Also where nothing is known of the code, as in a program that makes its own."""
    log = tmp_path / "log"
    raw = f"----------------\nIN: \n0x{BASE:012x}:  \nOBJD-T: 1f2003d57f4703d5\n\n"
    log.write_text(block(0x10) + block(0x20, "smstart  ") + block(0x30, "ld1w     {z0}") + raw)
    assert census_from_qemu_log(log, [], Arm.OFF).streaming == 2


def test_segments_that_are_shifted_resolve(tmp_path: Path) -> None:
    library = write_elf(tmp_path / "libshifted.so", [(0x11100, 0x40, SME2)], shift=0x10000)
    text = opened(library.name) + mapped() + block(0x1100)
    assert set(census(tmp_path, text, library)) == {SME2}


def test_what_is_not_mapped_now_does_not_resolve(tmp_path: Path, library: Path) -> None:
    before = block(0x1100) + opened(library.name) + mapped()
    # A descriptor that was used again is another file.
    reused = opened(library.name) + opened("/lib/libc.so.6") + mapped() + block(0x1100)
    assert census(tmp_path, before, library) == census(tmp_path, reused, library) == {}


def test_the_program_itself_is_known_by_the_emulators_symbols(tmp_path: Path) -> None:
    text = block(0x10, symbol="main", base=0x400000) + block(0x90, symbol=NEON, base=0x400000)
    assert set(census(tmp_path, text)) == {NEON}


def test_hidden_kernels_are_found_by_instructions(tmp_path: Path, library: Path) -> None:
    fmla = "fmla     v0.4s, v1.4s, v2.s[0]"
    text = opened(library.name) + mapped()
    text += block(0x1800, fmla, fmla) + block(0x1880, fmla, "fmax     v0.4s, v0.4s, v1.4s")
    text += block(0x1900, "movi     v0.2d, #0000000000000000", *["mov      v1.16b, v0.16b"] * 9)
    # No bounds at all, as hidden assembly has none: near blocks are one kernel.
    text += block(0x3000, fmla, fmla) + block(0x3100, fmla, fmla) + block(0x6000, "smstart  ")
    assert census(tmp_path, text, library) == {
        f"{library.name}+0x1800": Kernel(f"{library.name}+0x1800", KernelFamily.NEON, 2, False),
        f"{library.name}+0x3000": Kernel(f"{library.name}+0x3000", KernelFamily.NEON, 2, False),
        f"{library.name}+0x6000": Kernel(f"{library.name}+0x6000", KernelFamily.SME, 1, False),
    }


def test_an_emulator_without_disassembler_still_names_kernels(
    tmp_path: Path, library: Path
) -> None:
    text = opened(library.name) + mapped()
    text += f"----------------\nIN: \n0x{BASE + 0x1100:012x}:  \nOBJD-T: 1f2003d5\n\n"
    assert set(census(tmp_path, text, library)) == {SME2}


@given(cut=st.integers(0, 900), noise=st.binary(max_size=60), at=st.integers(0, 900))
def test_a_broken_log_never_breaks_the_census(
    tmp_path_factory: pytest.TempPathFactory, cut: int, noise: bytes, at: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    library = write_elf(folder / "libkernels.so", [(0x1100, 0x40, SME2)])
    whole = (opened(library.name) + mapped() + block(0x1100) + block(0x1800)).encode()
    log = folder / "log"
    log.write_bytes((whole[:at] + noise + whole[at:])[:cut])
    found = census_from_qemu_log(log, [library], Arm.ON)
    assert {kernel.name for kernel in found.kernels} <= {SME2}


XNNPACK_LOG = """\
I 00:00:00.000123 executorch:executor_runner.cpp:301] Model file a.pte is loaded.
Note (XNNPACK): Using gemm microkernel 'xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2'. (gemm.c)
Note (XNNPACK): Using gemm microkernel 'xnn_pf16_gemm_minmax_ukernel_32x32c2__neonsme'. (gemm.c)
Note (XNNPACK): Using gemm microkernel 'xnn_f32_gemm_minmax_ukernel_4x8__neonfma'. (gemm-config.c)
Note (XNNPACK): Using transpose microkernel 'xnn_x32_transposec_ukernel__4x4_neon'. (t.c)
Debug (XNNPACK): running operator 8:0 (Fully Connected (NC, PF32) GEMM)
Debug (XNNPACK): running operator 8:0 (Fully Connected (NC, PF32) GEMM)
Debug (XNNPACK): running operator 9:0 (Convolution (NHWC, PF16) IGEMM)
Debug (XNNPACK): running operator 10:0 (Transpose (ND, X32) Transpose)
"""


def test_only_kernels_that_ran_are_listed() -> None:
    found = census_from_xnnpack_log(io.StringIO(XNNPACK_LOG), Arm.ON)
    assert found.source == "xnnpack-log"
    assert found.kernels == ()
    assert found.operators == (
        Kernel("Fully Connected (NC, PF32) GEMM", KernelFamily.SME2, 2),
        Kernel("Convolution (NHWC, PF16) IGEMM", KernelFamily.SME, 1),
        Kernel("Transpose (ND, X32) Transpose", KernelFamily.OTHER, 1),
    )
    assert [(kernel.name, kernel.family) for kernel in found.candidates] == [
        ("xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2", KernelFamily.SME2),
        ("xnn_pf16_gemm_minmax_ukernel_32x32c2__neonsme", KernelFamily.SME),
        ("xnn_f32_gemm_minmax_ukernel_4x8__neonfma", KernelFamily.NEON),
        ("xnn_x32_transposec_ukernel__4x4_neon", KernelFamily.NEON),
    ]
