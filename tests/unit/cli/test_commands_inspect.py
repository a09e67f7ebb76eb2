from __future__ import annotations

import importlib.util
import json
import platform
from pathlib import Path

import pytest

from tests.support import Command
from tests.support.library_writer import (
    APPLE_QUESTION,
    ASKING,
    KERNEL,
    SME2_KERNEL,
    SME_KERNEL,
    elf,
    macho,
)

ANDROID = b"\x01\0\0\0Android\0"


@pytest.fixture
def document(sme2: Command) -> Command:
    return lambda path, code=0: json.loads(
        sme2("inspect", path, "--json", "--require-sme2", code=code).out
    )


def folder_of(folder: Path, **files: bytes) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def test_the_check_may_be_in_another_library(tmp_path: Path, document: Command) -> None:
    kernels = macho(SME2_KERNEL, [KERNEL, "xnn_initialize"], ["cpuinfo_isa"])
    folder_of(tmp_path, xnnpack=kernels)
    assert document(tmp_path)["groups"][0]["check"] == "elsewhere"
    folder_of(tmp_path, cpuinfo=macho(names=["cpuinfo_isa"]))
    assert document(tmp_path, 1)["groups"][0]["check"] == "nowhere"
    folder_of(tmp_path, cpuinfo=macho(names=["cpuinfo_isa"], text=APPLE_QUESTION))
    assert document(tmp_path)["groups"][0]["check"] == "here"


def test_sme2_of_others_is_not_that_of_xnnpack(tmp_path: Path, document: Command) -> None:
    other = elf(tmp_path, (*SME2_KERNEL, *ASKING), text=b"getauxval\0")
    folder_of(tmp_path, other=other)
    assert document(tmp_path)["sme2"] is True
    folder_of(tmp_path, xnnpack=elf(tmp_path, SME_KERNEL, ["xnn_initialize"]))
    (group,) = document(tmp_path, 1)["groups"]
    assert (group["sme2"], group["check"]) == (False, "nowhere")


def test_the_text_says_what_was_found(tmp_path: Path, sme2: Command) -> None:
    names = [KERNEL, *(f"kai_run_{letter}_sme" for letter in "abcdefghi")]
    path = tmp_path / "lib\x1bexecutorch.so"
    path.write_bytes(elf(tmp_path, (*SME2_KERNEL, *ASKING), names, ANDROID + b"getauxval\0"))
    assert sme2("inspect", path).out.splitlines()[1:] == [
        "",
        "arm64 Android: SME2 kernels, and the code that asks the system for SME2",
        "  XNNPACK not found, KleidiAI found, cpuinfo not found",
        "  lib\\u001bexecutorch.so",
        "    asks the system for SME2",
        "    1 SME2 kernel by name:",
        f"      {KERNEL}",
        "    9 SME kernels by name:",
        *(f"      kai_run_{letter}_sme" for letter in "abcdefgh"),
        "      and 1 more",
        "    instructions: 1 SMSTART, 2 fp32 outer product, 1 int8 outer product, 1 look-up, "
        "1 multiply-add; 2 are SME2's alone",
        "  aligned for pages of 16 KB: not all",
        "      not lib\\u001bexecutorch.so",
    ]


def test_the_installed_executorch(document: Command) -> None:
    spec = importlib.util.find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("ExecuTorch is not installed")
    arm64 = platform.machine() in ("aarch64", "arm64")
    library_folder = Path(next(iter(spec.submodule_search_locations)), "lib")
    found = document(library_folder, 0 if arm64 else 1)
    (group,) = found["groups"]
    assert group["architecture"] == ("arm64" if arm64 else "x86_64")
    assert (group["xnnpack"], group["cpuinfo"]) == (True, True)
    assert (group["kleidiai"], group["sme2"], group["check"] == "here") == (arm64, arm64, arm64)
