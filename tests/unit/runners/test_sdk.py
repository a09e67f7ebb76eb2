from __future__ import annotations

import importlib.util
import re
import stat
import sys
import zipfile
from pathlib import Path

import pytest

from pytest_sme2.errors import BuildError
from pytest_sme2.runners import sdk, sme2
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.system.processes import Finished
from pytest_sme2.system.provision import Compiler


def wheel(path: Path, names: list[str], link: str | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, f"content of {name}")
        if link:
            info = zipfile.ZipInfo(link)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "/etc/passwd")
    return path


GOOD = [
    "executorch/include/executorch/runtime.h",
    *(f"executorch/lib/lib{name}.{end}" for name in sdk.LIBRARIES for end in ("so", "dylib")),
    "executorch/lib/cmake/executorch/executorch-config.cmake",
    "executorch/share/cmake/executorch-config.cmake",
    "executorch/exir/__init__.py",
    "executorch-1.5.1.dist-info/METADATA",
]


def test_only_the_sdk_is_unpacked(tmp_path):
    found = sdk.unpack_sdk(wheel(tmp_path / "a.whl", GOOD), tmp_path / "sdk", LINUX_AARCH64)
    files = {str(path.relative_to(found)) for path in found.rglob("*.*")}
    assert {"lib/libexecutorch.so", "include/executorch/runtime.h"} < files
    assert {path.name for path in found.iterdir()} == {*sdk.SDK_FOLDERS}
    assert (found / "lib/libexecutorch.so").read_text().startswith("content of")


@pytest.mark.parametrize(
    "name",
    ["lib/../../../escaped", "../escaped", "lib/..\\escaped", "/../escaped", "lib//escaped"],
)
def test_nothing_leaves_the_folder(tmp_path, name):
    names = [*GOOD, f"executorch/{name}", str(tmp_path / "escaped")]
    path = wheel(tmp_path / "a.whl", names, link="executorch/lib/link.so")
    found = sdk.unpack_sdk(path, tmp_path / "in" / "sdk", LINUX_AARCH64)
    assert {path.name for path in tmp_path.iterdir()} == {"a.whl", "in"}
    assert all(path.is_relative_to(found) for path in tmp_path.rglob("*escaped"))
    assert not (found / "lib/link.so").is_symlink()


@pytest.mark.parametrize(
    ("gone", "missing"),
    [
        ("lib/cmake/", r"no lib/cmake/executorch\."),
        ("lib/libexecutorch_etdump.so", r"no lib/libexecutorch_etdump\.so\."),
        ("", r"no include/executorch, lib/cmake/executorch, lib/libexecutorch\.so,"),
    ],
)
def test_one_error_says_that_the_wheel_is_laid_out_in_another_way(tmp_path, gone, missing):
    names = [name for name in GOOD if not name.startswith(f"executorch/{gone}")]
    with pytest.raises(BuildError, match=f"not laid out as in .* It has {missing}"):
        sdk.unpack_sdk(wheel(tmp_path / "a.whl", names), tmp_path / "sdk", LINUX_AARCH64)


def test_versions(monkeypatch):
    assert sdk.sdk_version("1.5.1+cpu") == "1.5.1"
    with pytest.raises(BuildError, match=r"1\.4\.1 has no C\+\+ SDK.*Use 1\.5 or newer"):
        sdk.sdk_version("1.4.1")
    with pytest.raises(BuildError, match="'newest' is not a version"):
        sdk.sdk_version("newest")
    # Without an installed one the known version is used.
    monkeypatch.setattr(sdk, "installed_version", lambda: None)
    assert sdk.sdk_version() == sdk.DEFAULT_VERSION


@pytest.fixture
def pip(monkeypatch):
    """What pip is called with, and what it answers."""

    class Pip:
        returncode, stderr, timed_out, names = 0, "", False, GOOD

        def __init__(self):
            self.calls, self.environment = [], {}

        def __call__(self, arguments, *, timeout_seconds, environment):
            self.calls.append(list(arguments))
            self.environment = dict(environment)
            folder = Path(arguments[arguments.index("--dest") + 1])
            file = folder / "executorch-1.5.1-cp311-none-any.whl"
            if self.names is None:
                file.write_bytes(b"not a zip")
            elif self.returncode == 0:
                wheel(file, self.names)
            return Finished(self.returncode, "", self.stderr, self.timed_out)

    fake = Pip()
    monkeypatch.setattr(sdk, "run_process", fake)
    return fake


def test_a_download_happens_once(pip, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "file:///somewhere")
    told: list[str] = []
    first = sdk.executorch_sdk("macos-arm64", "1.5.2", cache=tmp_path, progress=told.append)
    again = sdk.executorch_sdk("macos-arm64", "1.5.2", cache=tmp_path, progress=told.append)
    assert first == again
    assert (first / "lib/libexecutorch.so").is_file()
    assert len(pip.calls) == 1
    assert told[0] == "downloading ExecuTorch 1.5.2 for macos-arm64"
    assert re.fullmatch(r"for it. Its SHA-256: [0-9a-f]{64}", told[-1])
    assert pip.calls[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in pip.calls[0]
    assert "macosx_14_0_arm64" in pip.calls[0]
    assert pip.environment["PIP_INDEX_URL"] == "file:///somewhere"


def test_a_wheel_of_the_known_version_has_a_hash_of_the_lock(pip, tmp_path):
    with pytest.raises(BuildError, match="is none of the wheels of ExecuTorch"):
        sdk.executorch_sdk("macos-arm64", sdk.DEFAULT_VERSION, cache=tmp_path)
    assert not [path for path in (tmp_path / "sdk").iterdir() if path.is_dir()]
    lock = (Path(__file__).parents[3] / ".ci" / "requirements.txt").read_text()
    _, _, after = lock.partition(f"executorch=={sdk.DEFAULT_VERSION} ")
    of_it = re.match(r"\\\n(    --hash=sha256:[0-9a-f]{64}[ \\]*\n)+", after)
    assert re.findall("[0-9a-f]{64}", of_it[0]) == sdk.KNOWN_WHEELS.read_text().split()


def test_no_pip_is_told_before_a_runner_is_made(pip, tmp_path, monkeypatch):
    """By the check that a run makes before its first export."""
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pip" else known(name)
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sme2, "find_compiler", lambda platform: Compiler("c++", "1", cross=True))
    # This machine has no wheel of its own either.
    monkeypatch.setattr(sdk, "host_platform", lambda: "linux-x86_64")
    with pytest.raises(BuildError, match=r"for linux-aarch64 must be downloaded.*ensurepip"):
        sme2.check_wheel_runner("linux-aarch64", executorch="1.5.1", cache=tmp_path)
    assert not pip.calls


RETRIED = "WARNING: Retrying\nERROR: No matching distribution found for executorch==1.5.1\n"
FULL = "ERROR: Exception:\nTraceback (most recent call last):\nOSError: No space left on device\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"returncode": 1, "stderr": RETRIED}, r"No matching distribution.*Check the network"),
        (
            {"returncode": 2, "stderr": FULL},
            "downloaded to .*, by way of .*: OSError: No space left on device. Make room there",
        ),
        ({"returncode": -9, "timed_out": True}, "did not finish within 900 s"),
        ({"names": None}, "is damaged"),
    ],
)
def test_a_download_that_fails_leaves_nothing_behind(pip, tmp_path, answer, message):
    vars(pip).update(answer)
    with pytest.raises(BuildError, match=message):
        sdk.executorch_sdk("macos-arm64", "1.5.2", cache=tmp_path)
    assert [path.name for path in (tmp_path / "sdk").iterdir() if path.is_dir()] == []
