from __future__ import annotations

from pathlib import Path

from pytest_sme2.cli.running import kernel_lines
from pytest_sme2.results.evidence import Kernel, KernelCensus, KernelFamily
from pytest_sme2.results.run import Arm, Artifact

ARTIFACT = Artifact("toy", "fp16", Path("/a"), Path("/a/toy.pte"), "0" * 64, (), ())

EMULATED = """\
toy (fp16) on emulated: kernels that ran, counted in blocks of code that the emulator translated

kernel             family  on  off
kai_run_sme2_mopa  sme2    17  -
xnn_ukernel__neon  neon    -   9
lib.so+0x10        neon    8   8

SME2 on: 1 sme2, 1 neon
SME2 off: 2 neon

A name such as library.so+0x1234 is a place: the library hides that kernel's name,
and its family was read off its instructions.
"""

LOGGED = """\
toy (fp16) on android: operators that ran, counted in lines of XNNPACK's log

operator                         family      on     off
Fully Connected (NC, PF16) GEMM  sme2         3       -
Fully Connected (NC, F16) GEMM   other        -       3

Kernels that XNNPACK made ready; they may have run, or not:

candidate                       family      on     off
xnn_pf16_gemm_ukernel__neonsme2  sme2         1       -
"""


def test_both_arms_stand_side_by_side() -> None:
    hidden = Kernel("lib.so+0x10", KernelFamily.NEON, 8, named=False)
    mopa = Kernel("kai_run_sme2_mopa", KernelFamily.SME2, 17)
    on = KernelCensus(Arm.ON, "emulator", (mopa, hidden), blocks=99)
    neon = Kernel("xnn_ukernel__neon", KernelFamily.NEON, 9)
    off = KernelCensus(Arm.OFF, "emulator", (neon, hidden), blocks=99)
    printed = "\n".join(kernel_lines(ARTIFACT, "emulated", on, off))
    assert printed.splitlines() == EMULATED.splitlines()


def test_candidates_are_not_said_to_have_run() -> None:
    candidate = Kernel("xnn_pf16_gemm_ukernel__neonsme2", KernelFamily.SME2, 1)
    packed = Kernel("Fully Connected (NC, PF16) GEMM", KernelFamily.SME2, 3)
    plain = Kernel("Fully Connected (NC, F16) GEMM", KernelFamily.OTHER, 3)
    on = KernelCensus(Arm.ON, "xnnpack-log", (), operators=(packed,), candidates=(candidate,))
    off = KernelCensus(Arm.OFF, "xnnpack-log", (), operators=(plain,))
    printed = "\n".join(kernel_lines(ARTIFACT, "android", on, off))
    assert printed.split() == LOGGED.split()
    assert printed.index("may have run, or not") < printed.index(candidate.name)
