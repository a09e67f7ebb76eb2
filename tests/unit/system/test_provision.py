"""What is found, fetched from where, said about it, and left alone; what a runner is built with."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import BuildError, TargetError
from pytest_sme2.runners import sme2
from pytest_sme2.system import platforms, provision
from pytest_sme2.system.qemu import Qemu
from tests.support.apt_archive import archive, member

QEMU = (member("./", tarfile.DIRTYPE), member("./usr/bin/qemu-aarch64", mode=0o755))


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Debian without an emulator, with an empty cache, and with archives of the test's own."""
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "debian"})
    monkeypatch.setattr(platform, "system", lambda: "Linux")

    def find() -> Qemu:
        path = tmp_path / "cache/pytest-sme2/tools/qemu/usr/bin/qemu-aarch64"
        if not path.exists():
            raise TargetError("No emulator was found.")
        return Qemu(path, "11.1.2")

    monkeypatch.setattr(provision, "find_qemu", find)
    return tmp_path


def archives(monkeypatch: pytest.MonkeyPatch, found: dict[str, str]) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("no apt here")
    monkeypatch.setattr(provision, "system_sources", lambda: found)


def test_the_emulator_of_a_newer_suite_is_fetched(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debian = archive(bare / "debian", "sid", [("qemu-user", "11.1.2", QEMU)])
    archives(monkeypatch, archive(bare / "chrome", "stable", [("chrome", "1", QEMU)]) | debian)
    said: list[str] = []
    part = provision.qemu(said.append, False)
    assert part.action == "installed"
    assert said[-1] == "fetching QEMU from this machine's archives: sid"


def test_an_old_emulator_is_not_kept_where_a_newer_one_can_be_had(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, seen = vars(provision)["find_qemu"], list[Qemu]()

    def refuse_first() -> Qemu:
        seen.append(find())
        if len(seen) == 1:
            raise TargetError("It is QEMU 7.2, which is too old for SME2.")
        return seen[-1]

    monkeypatch.setattr(provision, "find_qemu", refuse_first)
    # The suite of this machine is asked last.
    archives(monkeypatch, archive(bare / "old", "sid", [("qemu-user", "7.2+dfsg", QEMU)]))
    said: list[str] = []
    assert provision.qemu(said.append, False).action == "installed"
    assert "too old for SME2" in "\n".join(said)


def test_a_failure_is_an_exit_code_and_a_reason(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archives(monkeypatch, archive(bare / "a", "sid", [("qemu-user", "11.1", QEMU)], trusted=False))
    for part in ("build_tools", "compiler", "cross_compiler"):
        monkeypatch.setattr(provision, part, lambda say, check: provision.Provided("x", "/x"))
    assert main(["provision"]) == 1
    # Where a line ends depends on how long the paths in it are.
    printed = " ".join(capsys.readouterr().out.split())
    assert "is not signed" in printed
    assert main(["provision", "--check"]) == 1


@pytest.mark.parametrize(
    ("release", "tool", "hint"),
    [
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, provision.COMPILER, "sudo apt-get install g++"),
        ({"ID": "fedora"}, provision.QEMU, "Install the QEMU with this system's package manager"),
        ({}, provision.CROSS, "Install the Arm C++ compiler with this system's package manager"),
        (None, provision.COMPILER, "xcode-select --install"),
        (None, provision.QEMU, "does not exist on macOS"),
    ],
)
def test_hints_for_other_systems(
    monkeypatch: pytest.MonkeyPatch, release: dict[str, str] | None, tool: str, hint: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin" if release is None else "Linux")
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    assert hint in provision.install_hint(tool)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_tool_that_is_missing_or_old_is_named_with_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(provision, "_from_package", lambda *names: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"none was found.*pip install 'pytest-sme2.build"):
        provision.find_cmake()
    with pytest.raises(BuildError, match=r"Ninja.*pip install 'pytest-sme2.build"):
        provision.find_ninja()
    cmake = program(tmp_path / "cmake", "echo 'cmake version 3.25.1'")
    with pytest.raises(BuildError, match=r"3\.28 or newer; .*cmake is 3\.25\.1.*pip install"):
        provision.find_cmake()
    cmake.write_text("#!/bin/sh\necho 'cmake version 3.28.0'\n")
    assert provision.find_cmake() == str(cmake)


@pytest.mark.parametrize(
    ("host", "wanted", "remedy"),
    [
        ("linux-x86_64", "linux-aarch64", r"apt-get install g\+\+-aarch64-linux-gnu"),
        ("linux-aarch64", "linux-aarch64", r"apt-get install g\+\+$"),
        ("macos-arm64", "macos-arm64", "xcode-select --install"),
        ("linux-x86_64", "macos-arm64", "macos-arm64 cannot be built from a wheel"),
    ],
)
def test_a_missing_compiler_says_what_to_install(monkeypatch, tmp_path, host, wanted, remedy):
    monkeypatch.setattr(provision, "host_platform", lambda: host)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match=remedy):
        provision.find_compiler(wanted)


NO_TOOLS = "xcode-select: note: No developer tools were found, requesting install."
LICENCE = (
    "You have not agreed to the Xcode license agreements. Please run 'sudo xcodebuild -license' "
    "from within a Terminal window to review and agree to the Xcode and Apple SDKs license."
)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (NO_TOOLS, "Run: xcode-select --install"),
        (LICENCE, "Run: sudo xcodebuild -license accept"),
        ("cannot find cc1plus", "Reinstall it, or name another with CXX"),
    ],
)
def test_a_compiler_that_only_complains_is_quoted(monkeypatch, tmp_path, said, remedy):
    """On a Mac /usr/bin/c++ is there before anything is installed."""
    monkeypatch.setattr(provision, "host_platform", lambda: "macos-arm64")
    stub = program(tmp_path / "c++", f'echo "{said}" >&2; exit 69')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError) as caught:
        provision.find_compiler("macos-arm64")
    assert str(caught.value).endswith(remedy)
    assert f"{stub} is there but does not work. It says: {said.rstrip('.')}" in str(caught.value)
    part = provision.compiler(lambda _: None, check=True)
    assert (part.found, part.action) == (None, "missing")
    assert part.remedy.endswith(remedy)


def test_a_failed_build_shows_the_last_lines_and_the_log(monkeypatch, tmp_path):
    script = 'case "$1" in --build) seq 1 40; echo "main.cpp:1: error: no" >&2; exit 1;; esac'
    fake = program(tmp_path / "cmake", script)
    monkeypatch.setattr(sme2, "find_cmake", lambda: str(fake))
    log = tmp_path / "logs" / "build.log"
    with pytest.raises(BuildError) as caught:
        sme2.build_runner(tmp_path, tmp_path / "build", log=log)
    message = str(caught.value)
    for words in ("could not be compiled", "main.cpp:1: error: no", "\n  40\n", str(log)):
        assert words in message
    assert "\n  20\n" not in message
    assert "\n20\n" in log.read_text()


def test_missing_library_says_what_to_install(tmp_path):
    silent = program(tmp_path / "c++", 'echo "${1#-print-file-name=}"')
    compiler = provision.Compiler(str(silent), "silent", cross=True)
    with pytest.raises(BuildError, match=r"did not find .*libc\.so\.6.*g\+\+-aarch64-linux-gnu"):
        sme2.library_file(compiler, "libc.so.6")


DRIVER = r"""
#include <cstdio>
#include <string>
#include "failure.h"
#include "json.h"
#include "sha256.h"
int main() {
  std::string text;
  for (int size = 0; size < 200; ++size) {
    std::puts(sme2::sha256(text.data(), text.size()).c_str());
    text += static_cast<char>(size * 7);
  }
  sme2::Json json;
  json.open_object().key("a\"b\\\n").text("\x01\xff<script>").key("list").numbers({1, -2});
  json.key("empty").open_list().close_list().key("none").null().key("yes").boolean(true);
  json.key("inner").open_object().close_object().close_object();
  std::puts(json.document().c_str());
  std::puts(sme2::quoted("new\nline\x7f").c_str());
}
"""


@pytest.mark.slow
def test_hashes_and_json(tmp_path):
    source = tmp_path / "driver.cpp"
    source.write_text(DRIVER)
    sources = [sme2.RUNNER_SOURCES / f"{name}.cpp" for name in ("failure", "json", "sha256")]
    compiler = provision.find_compiler(platforms.host_platform())
    driver = tmp_path / "driver"
    words = [compiler.cxx, "-std=c++17", f"-I{sme2.RUNNER_SOURCES}", "-o", driver, source, *sources]
    subprocess.run(words, check=True, timeout=600)
    done = subprocess.run([driver], check=True, capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    text = b""
    for size in range(200):
        assert lines[size] == hashlib.sha256(text).hexdigest(), size
        text += bytes([size * 7 % 256])
    assert json.loads(lines[200]) == {
        'a"b\\\n': "\x01\xff<script>",
        "list": [1, -2],
        "empty": [],
        "none": None,
        "yes": True,
        "inner": {},
    }
    assert lines[201] == r"'new\x0aline\x7f'"
