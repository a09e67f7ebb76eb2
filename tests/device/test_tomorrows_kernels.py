"""Kernels whose names nobody knows, in a real emulator: what they execute tells what they are."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.cost import build_cost, executed_families
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.results.evidence import CountedInference, KernelFamily, Toolchain
from pytest_sme2.results.run import Arm
from pytest_sme2.system.elf import read_elf
from pytest_sme2.system.platforms import LINUX_AARCH64, host_platform
from pytest_sme2.targets.emulated import _counting
from pytest_sme2.trace.kernel_log import census_from_qemu_log, read_counts
from pytest_sme2.trace.library import read_package
from tests.device import provision
from tests.support.profiles import columns_of, run_of

START, STOP, ALL = "d503477f", "d503467f", "2518e3e0"  # smstart; smstop; ptrue p0.b
# By name: the words between, what family they are, and what of them multiplies.
KERNELS: dict[str, tuple[str, KernelFamily, tuple[str, ...]]] = {
    "alpha": ("80800000 c1201800", KernelFamily.SME2, ("fp32 outer product", "multiply-add")),
    "beta": ("80800000", KernelFamily.SME, ("fp32 outer product",)),
    "gamma_": ("81800000", KernelFamily.SME, ("bf16 outer product",)),
    "delta": ("a0800000", KernelFamily.SME, ("int8 outer product",)),
    "epsilon": ("c0cc0000", KernelFamily.SME2, ("look-up",)),
    "zeta": ("c1301400", KernelFamily.SME2, ("dot product",)),
    "eta": ("65a20020", KernelFamily.SME, ("multiply-add",)),
    "theta": ("c0820000", KernelFamily.SME, ()),
}
PLAIN = "iota"
# Nothing emulates these yet, so they are only looked at: products of quarter tiles.
QUARTER_TILES = ("80000000", "80008000")

PROGRAM = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static void mark(const char* name) { syscall(SYS_faccessat, -1, name, 0); }
int main(int count, char** words) {
  int file = open(words[1], O_RDONLY);
  char* code = mmap(0, 1 << 16, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
  mark("sme2:inference");
  mark("sme2:start");
  mark("sme2:resume");
  for (int i = 2; i < count; ++i) {
    for (int depth = 0; depth < 2; ++depth) { mark("sme2:start"); mark("sme2:resume"); }
    ((void (*)(void))(code + strtol(words[i], 0, 0)))();
    for (int depth = 0; depth < 2; ++depth) { mark("sme2:end"); mark("sme2:resume"); }
  }
  mark("sme2:end");
  mark("sme2:resume");
  mark("sme2:done");
  return 0;
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program, and a library of kernels."""
    compiler = shutil.which("aarch64-linux-gnu-gcc") or shutil.which("gcc")
    if compiler is None or (host_platform() != LINUX_AARCH64 and "aarch64" not in compiler):
        pytest.skip("no compiler for aarch64")
    folder = tmp_path_factory.mktemp("tomorrow")
    texts = {name: [START, ALL, *words.split(), STOP] for name, (words, _, _) in KERNELS.items()}
    texts[PLAIN] = ["d503201f"]
    texts["kappa"] = [START, *QUARTER_TILES, STOP]
    lines = [".text"]
    for name, words in texts.items():
        lines += [f".global {name}", f".type {name}, %function", f"{name}:"]
        lines += [*(f".inst 0x{word}" for word in words), "ret", f".size {name}, . - {name}"]
    (folder / "kernels.s").write_text("\n".join(lines) + "\n")
    (folder / "main.c").write_text(PROGRAM)
    library, program = folder / "libtomorrow.so", folder / "program"
    flags = ["-shared", "-nostdlib", "-Wl,-z,noseparate-code"]
    subprocess.run([compiler, *flags, folder / "kernels.s", "-o", library], check=True)
    subprocess.run([compiler, "-O1", "-static", folder / "main.c", "-o", program], check=True)
    return program, library


def counted(
    built: tuple[Path, Path], names: list[str], arm: Arm, folder: Path
) -> tuple[CountedInference, Path]:
    program, library = built
    places = {symbol.name: hex(symbol.address) for symbol in read_elf(library).symbols}
    counts, log = folder / f"counts_{arm}", folder / f"log_{arm}"
    target = _counting(provision.emulator(switch_cpu=False), counts, log, late=False)
    words = [*target.launcher(arm), str(program), str(library), *(places[name] for name in names)]
    subprocess.run(words, check=True, timeout=600)
    return read_counts(counts, log, [program, library], 512), log


def test_what_they_execute_is_what_is_said_of_them(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    names = [*KERNELS, PLAIN]
    found, log = counted(built, names, Arm.ON, tmp_path)
    assert not found.problem
    told = {name: (found.code[name].family, set(found.code[name].work)) for name in KERNELS}
    assert told == {name: (family, {*work}) for name, (_, family, work) in KERNELS.items()}
    assert PLAIN not in found.code
    census = census_from_qemu_log(log, built, Arm.ON)
    assert {each.name: each.family for each in census.kernels} == {
        name: family for name, (_, family, _) in KERNELS.items()
    }
    # As operators outside of the delegate, with names that no table has.
    columns = columns_of(run_of([(f"tomorrow::{name}.out", 5) for name in names]))
    executed = executed_families(found, columns)
    families = [family for _, family, _ in KERNELS.values()]
    assert executed == (*families, KernelFamily.OTHER)
    on = build_profiles(columns, executed=executed)[0]
    assert [entry.operator.sme2 for entry in on.operators] == [True] * len(KERNELS) + [False]
    cost = build_cost(found, columns, on, cpu="max", toolchain=Toolchain())
    assert [entry.family for entry in cost.operators] == [*families, KernelFamily.OTHER]
    assert cost.operators[2].product == "bf16 outer product"


def test_they_are_found_in_a_library_without_a_run(built: tuple[Path, Path]) -> None:
    (library,) = read_package(built[1]).libraries
    assert library.sme2
    assert not library.sme2_kernels
    found = library.instructions
    classes = Counter(each for _, _, work in KERNELS.values() for each in work)
    assert found.work == classes | {f"{kind} quarter-tile product": 1 for kind in ("fp32", "int8")}


def test_a_kernel_that_asks_no_switch_makes_the_off_arm_wrong(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    calls = [[("Convolution (NHWC, PF32) IGEMM #1", 5)]], [[("Convolution (NHWC, F32) IGEMM", 5)]]
    on, off = (build_profiles(columns_of(run_of(each)))[0] for each in calls)
    for names, valid in (([PLAIN], True), (["eta"], False)):
        _, log = counted(built, names, Arm.OFF, tmp_path)
        census = census_from_qemu_log(log, built, Arm.OFF)
        assert check_pair(on, off, census_off=census).valid is valid
