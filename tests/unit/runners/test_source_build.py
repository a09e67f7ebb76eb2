from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.errors import BuildError
from pytest_sme2.results.evidence import KernelFamily
from pytest_sme2.runners import stock
from pytest_sme2.runners.stock import SourceBuild
from tests.support import Command
from tests.support.elf_writer import write_elf

ANDROID_DRY_RUN = """\
# android, xnnlog, SME2 off: /out/android-xnnlog-sme2-off/executor_runner
/tools/cmake -S '/src/with space/executorch' -B /out/android-xnnlog-sme2-off -G Ninja \\
    -DCMAKE_BUILD_TYPE=Release \\
    -DPYTHON_EXECUTABLE=/venv/bin/python \\
    -DEXECUTORCH_BUILD_EXECUTOR_RUNNER=ON \\
    -DEXECUTORCH_BUILD_EXTENSION_EVALUE_UTIL=ON \\
    -DEXECUTORCH_BUILD_EXTENSION_RUNNER_UTIL=ON \\
    -DEXECUTORCH_BUILD_XNNPACK=ON \\
    -DEXECUTORCH_XNNPACK_ENABLE_KLEIDI=ON \\
    -DEXECUTORCH_BUILD_DEVTOOLS=ON \\
    -DEXECUTORCH_ENABLE_EVENT_TRACER=ON \\
    -DEXECUTORCH_BUILD_KERNELS_OPTIMIZED=ON \\
    -DEXECUTORCH_BUILD_KERNELS_QUANTIZED=ON \\
    -DEXECUTORCH_ENABLE_LOGGING=ON \\
    -DXNNPACK_ENABLE_ARM_SME=OFF \\
    -DXNNPACK_ENABLE_ARM_SME2=OFF \\
    -DCMAKE_MAKE_PROGRAM=/tools/ninja \\
    -DEXECUTORCH_XNNPACK_LOG_LEVEL=5 \\
    -DCMAKE_TOOLCHAIN_FILE=/ndk/build/cmake/android.toolchain.cmake \\
    -DANDROID_ABI=arm64-v8a \\
    -DANDROID_PLATFORM=android-28 \\
    -DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON
/tools/cmake --build /out/android-xnnlog-sme2-off --target executor_runner

# then: pytest --device=android --sme2-runner /out/android-xnnlog-sme2-on/executor_runner,\
/out/android-xnnlog-sme2-off/executor_runner
"""


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "find_cmake", lambda: "/tools/cmake")
    monkeypatch.setattr(stock, "find_ninja", lambda: "/tools/ninja")
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")


@pytest.mark.usefixtures("tools")
def test_the_dry_run_is_the_same_everywhere() -> None:
    request = SourceBuild(
        tree=Path("/src/with space/executorch"),
        platform="android",
        variant="xnnlog",
        ndk=Path("/ndk"),
        out=Path("/out"),
    )
    text = stock.dry_run(request)
    assert text[text.index("# android, xnnlog, SME2 off") :] == ANDROID_DRY_RUN


def variables(step: stock.BuildStep) -> dict[str, str]:
    set_words = (word[2:].partition("=") for word in step.configure if word.startswith("-D"))
    return {name: value for name, _, value in set_words}


@pytest.mark.usefixtures("tools")
def test_off_switches_both_extensions_off_and_a_users_option_wins() -> None:
    options = {"CMAKE_BUILD_TYPE": "Debug"}
    request = SourceBuild(Path("/executorch"), "linux", out=Path("/out"), options=options)
    on, off = stock.plan(request)
    for step, switch in ((on, "ON"), (off, "OFF")):
        assert variables(step)["XNNPACK_ENABLE_ARM_SME"] == switch
        assert variables(step)["XNNPACK_ENABLE_ARM_SME2"] == switch
        assert variables(step)["CMAKE_BUILD_TYPE"] == "Debug"
    assert on.folder != off.folder
    assert "EXECUTORCH_XNNPACK_LOG_LEVEL" not in variables(on)


def test_builds_stay_out_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path))
    first = SourceBuild(tree=Path("/a/executorch"), platform="linux")
    second = SourceBuild(tree=Path("/b/executorch"), platform="linux")
    assert tmp_path in first.folder.parents
    assert first.folder != second.folder


def make_tree(folder: Path, name: str = "executorch") -> Path:
    tree = folder / name
    (tree / "backends/xnnpack").mkdir(parents=True)
    (tree / "CMakeLists.txt").touch()
    (tree / "backends/xnnpack/CMakeLists.txt").touch()
    return tree


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceBuild:
    """On a machine on which nothing is missing."""
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    return SourceBuild(make_tree(tmp_path), "linux", out=tmp_path / "out")


def expect(problem: str, request: SourceBuild) -> None:
    """This one alone, or none."""
    found = stock.check(request)
    assert len(found) == bool(problem), found
    assert problem in "".join(found)


def test_everything_missing_is_one_list(tmp_path: Path, fit: SourceBuild) -> None:
    tree = make_tree(tmp_path, "executorch-main")
    (tree / ".gitmodules").write_text(
        '[submodule "x"]\n\tpath = backends/xnnpack/third-party/XNNPACK\n'
        "\tpath = third-party/flatcc\n\tpath = backends/vulkan/third-party/volk\n"
    )
    (tree / "third-party/flatcc").mkdir(parents=True)
    found = stock.check(replace(fit, tree=tree, platform="android", ndk=tmp_path))
    text = "\n".join(found)
    assert len(found) == 3
    for expected in (
        "is named 'executorch-main'",
        "2 of ExecuTorch's submodules are not checked out "
        "(backends/xnnpack/third-party/XNNPACK, third-party/flatcc)",
        "needs the NDK",
    ):
        assert expected in text
    assert "volk" not in text


def test_folder_that_is_not_a_checkout_is_refused(tmp_path: Path, fit: SourceBuild) -> None:
    (tmp_path / "bin").mkdir()
    expect("is not an ExecuTorch checkout", replace(fit, tree=tmp_path / "bin"))
    expect("is not a folder", replace(fit, tree=tmp_path / "gone"))


@pytest.mark.parametrize(
    ("platform", "host", "expected"),
    [
        ("mac", "Linux aarch64", "built on an Apple Silicon Mac"),
        ("mac", "Darwin x86_64", "built on an Apple Silicon Mac"),
        ("mac", "Darwin arm64", ""),
        ("linux", "Darwin arm64", "must be built on Linux"),
        ("linux", "Linux x86_64", "this machine is x86_64, but only Arm has SME2"),
    ],
)
def test_hosts(
    fit: SourceBuild, monkeypatch: pytest.MonkeyPatch, platform: str, host: str, expected: str
) -> None:
    system, machine = host.split()
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    expect(expected, replace(fit, platform=platform))


def test_kernels_of_a_binary_are_found_by_symbols(tmp_path: Path) -> None:
    symbols = [
        (0x1100, 16, "xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2"),
        (0x1200, 16, "xnn_f32_gemm_minmax_ukernel_6x8__neonfma"),
        (0x1300, 16, "main"),
    ]
    binary = write_elf(tmp_path / "executor_runner", symbols)
    assert stock.families_in(binary) == {KernelFamily.SME2, KernelFamily.NEON}
    assert stock.families_in(write_elf(tmp_path / "stripped", [])) is None
    (tmp_path / "macho").write_bytes(b"\xcf\xfa\xed\xfe")
    assert stock.families_in(tmp_path / "macho") is None


native = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="needs a native g++"
)

MINIATURE = """\
cmake_minimum_required(VERSION 3.26)
project(miniature LANGUAGES C)
option(XNNPACK_ENABLE_ARM_SME2 "" ON)
option(XNNPACK_ENABLE_ARM_SME "" ON)
file(WRITE ${CMAKE_BINARY_DIR}/main.c "
  void xnn_f32_gemm_minmax_ukernel_6x8__neonfma(void) {}
  int main(void) { return 0; }
")
if(XNNPACK_ENABLE_ARM_SME2)
  file(APPEND ${CMAKE_BINARY_DIR}/main.c "void kai_run_x_sme2_mopa(void) {}")
endif()
if(XNNPACK_ENABLE_ARM_SME)
  file(APPEND ${CMAKE_BINARY_DIR}/main.c "void kai_run_x_sme_mopa(void) {}")
endif()
%s
add_executable(executor_runner ${CMAKE_BINARY_DIR}/main.c)
"""


@pytest.fixture
def miniature(fit: SourceBuild) -> SourceBuild:
    """The fit machine's tree with something to build."""
    (fit.tree / "CMakeLists.txt").write_text(MINIATURE % "")
    return replace(fit, options={"CMAKE_C_COMPILER": shutil.which("gcc") or ""})


@native
@pytest.mark.parametrize(
    ("text", "message"),
    [
        # A switch without effect.
        (MINIATURE % 'file(APPEND ${CMAKE_BINARY_DIR}/main.c "void kai_run_y_sme(void) {}")',
         "built with SME2 off but has SME kernels"),
        ((MINIATURE % "").replace("if(XNNPACK_ENABLE_ARM_SME2)", "if(OFF)"),
         "has no SME2 kernel: the compiler or XNNPACK is too old"),
        (MINIATURE % 'message(FATAL_ERROR "no flatcc here")',
         f"(?s)could not be configured.*no flatcc here.*{stock.LOG}"),
        (MINIATURE % 'file(APPEND ${CMAKE_BINARY_DIR}/main.c "int x = y;")',
         f"(?s)could not be compiled.*error.*{stock.LOG}"),
    ],
    ids=["SME2 is never off", "SME2 is never on", "cannot be configured", "cannot be compiled"],
)  # fmt: skip
def test_a_failed_build_shows_its_reason(miniature: SourceBuild, text: str, message: str) -> None:
    (miniature.tree / "CMakeLists.txt").write_text(text)
    with pytest.raises(BuildError, match=message):
        stock.build(miniature)


def test_the_command_lists_everything_and_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    monkeypatch.delenv("ANDROID_NDK", raising=False)
    out = tmp_path / "out"
    words = ("build", "--executorch", tmp_path, "--platform", "android", "--out", out)
    told = sme2(*words, code=3).err
    assert "is not an ExecuTorch checkout" in told
    assert "needs the NDK" in told
    assert "stand in the way of this build" in told
    assert not out.exists()
    assert "-DXNNPACK_ENABLE_ARM_SME2=OFF" in sme2(*words, "--dry-run", code=3).out
    assert not out.exists()


@pytest.mark.slow
@native
def test_the_command_prints_how_to_use_what_it_built(miniature: SourceBuild, sme2: Command) -> None:
    request = miniature
    before = sorted((path, path.stat().st_mtime_ns) for path in request.tree.rglob("*"))
    words = ["build", "--platform", "linux"]
    words += ["--executorch", str(request.tree), "--out", str(request.out)]
    words += ["--cmake-option", f"CMAKE_C_COMPILER={shutil.which('gcc')}"]
    printed, progress = sme2(*words)
    on, off, use = printed.splitlines()
    assert "kernels: neon, sme, sme2" in on
    assert "kernels: neon)" in off
    assert re.fullmatch(r"pytest --device=linux --sme2-runner /\S+-on/\S+,/\S+-off/\S+", use)
    assert [progress.count(word) for word in ("being configured", "being compiled")] == [2, 2]
    binary = request.folder / "linux-timing-sme2-off" / stock.RUNNER
    assert os.access(binary, os.X_OK)
    assert sorted((path, path.stat().st_mtime_ns) for path in request.tree.rglob("*")) == before
