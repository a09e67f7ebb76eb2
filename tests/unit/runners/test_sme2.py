from __future__ import annotations

import functools
import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import BuildError, RunError, StorageError
from pytest_sme2.results.run import Arm, Artifact, GenerationPlan, RunRequest
from pytest_sme2.runners import sme2 as runners
from pytest_sme2.runners.base import LeftFiles, ProcessFiles
from pytest_sme2.runners.sdk import LIBRARIES
from pytest_sme2.runners.sme2 import RUNNER_SOURCES, Sme2Runner, wheel_runner
from pytest_sme2.system import cache as cache_module
from pytest_sme2.system.cache import mark_cache
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.provision import Compiler

FILES = ProcessFiles("/m o.pte", ("/a,b", "/c"), "/r.json", None, None)


def request(**options) -> RunRequest:
    artifact = Artifact("toy", "fp16", Path("/a"), Path("/a/toy.pte"), "", (), ())
    return RunRequest(artifact, **{"arm": Arm.ON, "warmup": 1, "runs": 2, **options})


@pytest.fixture
def runner(tmp_path) -> Sme2Runner:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "sme2_runner").touch()
    return Sme2Runner("wheel", "linux-aarch64", "1.5.1", tmp_path / "folder")


def test_the_command_of_an_untraced_run(runner):
    assert runner.command(request(threads=4, seed=9), FILES) == (
        *("./sme2_runner", "--model", "/m o.pte", "--sme2", "on", "--threads", "4"),
        *("--warmup", "1", "--runs", "2", "--seed", "9", "--json", "/r.json"),
        *("--input", "/a,b", "--input", "/c"),
    )


def test_a_method_is_named_unless_it_is_the_usual_one(runner):
    for method, words in ((None, ()), ("forward", ()), ("decode", ("--method", "decode"))):
        asked = request()
        asked = replace(asked, artifact=replace(asked.artifact, method=method))
        assert runner.command(asked, FILES)[-4 - len(words) : -4] == (words or ())


def test_the_command_of_a_traced_run_after_others(runner):
    files = replace(FILES, etdump="/d.etdump", outputs="/out")
    (runner.folder / "ld-linux-aarch64.so.1").touch()
    command = runner.command(request(arm=Arm.OFF), files)
    loader = ("./ld-linux-aarch64.so.1", "--library-path", ".", "./sme2_runner", "--model")
    assert command[:5] == loader
    assert command[6:8] == ("--sme2", "off")
    assert command[-4:] == ("--etdump", "/d.etdump", "--outputs", "/out")
    plan = GenerationPlan(prompt_tokens=2, new_tokens=3, prompt=(), fed_back=(), prefill="forward")
    asked = request()
    asked = replace(asked, artifact=replace(asked.artifact, generation=plan), generate=True)
    command = runner.command(asked, files)
    assert "--generate" in command
    assert runner.traces(request(traced=True))
    assert not runner.traces(request(traced=False))


@pytest.mark.parametrize(
    ("code", "stderr", "told"),
    [
        (11, "noise\nsme2_runner: 'x' is empty, not a program\n", "'x' is empty, not a program"),
        (13, "", "out of memory"),
        (1, "sme2_runner: whatever", None),
        (127, "not found", None),
    ],
)
def test_exit_codes_are_explained_with_the_runners_message(runner, code, stderr, told):
    assert runner.explain(code, stderr) == told


def test_the_exit_codes_are_those_of_the_sources():
    header = (RUNNER_SOURCES / "failure.h").read_text()
    codes = {int(code) for code in re.findall(r"k\w+ = (\d+),", header)}
    assert codes == {0, *runners.EXIT_MEANINGS}


RESULT: dict[str, Any] = {
    "schema": 1,
    "sme2": {"requested": "on", "effective": True, "source": "getauxval"},
    "cpu_features": ["sme2"],
    "load_ns": 5,
    "warmup_wall_ns": [9],
    "wall_ns": [1, 2],
    "cpu_ns": [3, 4],
    "peak_rss_load_bytes": None,
    "peak_rss_bytes": 7,
    "outputs": [
        {
            "dtype": "float16",
            "shape": [1, 2],
            "sha256": "ab",
            "has_nan": False,
            "file": "../../output_0.bin",
        }
    ],
}


def read(runner, tmp_path, document, **options):
    result = tmp_path / "result.json"
    result.write_text(document if isinstance(document, str) else json.dumps(document))
    left = LeftFiles("emulated", True, result, tmp_path / "log", None, tmp_path / "outputs")
    return runner.read_result(request(**options), left)


def test_a_result_is_read(runner, tmp_path):
    run = read(runner, tmp_path, RESULT)
    assert run.sme2_effective is True
    assert run.vector_bits is None
    assert (run.wall_ns, run.cpu_ns, run.warmup_wall_ns) == ((1, 2), (3, 4), (9,))
    assert (run.load_ns, run.peak_rss_load_bytes, run.peak_rss_bytes) == (5, None, 7)
    assert run.cpu_features == ("sme2",)
    assert run.emulated
    assert run.runner == "wheel"
    # A name out of a result never leads out of the folder.
    assert run.outputs[0].file == tmp_path / "outputs" / "output_0.bin"
    long = {**RESULT, "sme2": {**RESULT["sme2"], "vector_bits": 512}}
    assert read(runner, tmp_path, long).vector_bits == 512
    unknown = {**RESULT, "sme2": {**RESULT["sme2"], "effective": None}}
    assert read(runner, tmp_path, unknown).sme2_effective is None


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        {},
        {**RESULT, "schema": 2},
        {**RESULT, "wall_ns": [1]},
        {**RESULT, "cpu_ns": [1]},
        {**RESULT, "wall_ns": ["x", "y"]},
        {**RESULT, "sme2": {"requested": "off", "effective": False}},
        {**RESULT, "outputs": [1]},
        "[" * 100_000,
        {**RESULT, "wall_ns": [0, 1]},
        {**RESULT, "wall_ns": [True, 1]},
        {**RESULT, "cpu_ns": [2**63, 1]},
        {**RESULT, "peak_rss_bytes": float("nan")},
    ],
)
def test_a_broken_result_is_an_error_that_names_the_log(runner, tmp_path, document):
    with pytest.raises(RunError, match=r"cannot be (used|read): .*log is"):
        read(runner, tmp_path, document)


@pytest.fixture
def build(monkeypatch, tmp_path):
    """A build that takes no time; what would be built, and how often."""

    class Build:
        calls = 0
        fails = False
        compiler = Compiler("/usr/bin/c++", "c++ 1.0", cross=False)

        def __call__(self, prefix, build, *, log, compiler):
            self.calls += 1
            if self.fails:
                raise BuildError("The runner could not be compiled")
            build.mkdir()
            (build / "sme2_runner").write_text("binary")
            return build

    fake = Build()
    sdk = tmp_path / "sdk"
    for folder in ("include/executorch", "lib/cmake/executorch"):
        (sdk / folder).mkdir(parents=True)
    for library in (*LIBRARIES, "executorch_backend_openvino"):
        (sdk / "lib" / f"lib{library}.so").touch()
    monkeypatch.setattr(runners, "build_runner", fake)
    monkeypatch.setattr(runners, "find_compiler", lambda platform: fake.compiler)
    monkeypatch.setattr(runners, "executorch_sdk", lambda *args, **options: sdk)
    monkeypatch.setattr(
        runners, "library_file", lambda compiler, name: sdk / "lib" / "libexecutorch.so"
    )
    return fake


def test_a_runner_is_built_once(build, tmp_path):
    told: list[str] = []
    cache = tmp_path / "a cache; with 'odd' name"
    first = wheel_runner("linux-x86_64", executorch="1.5.1", cache=cache, progress=told.append)
    again = wheel_runner("linux-x86_64", executorch="1.5.1", cache=cache, progress=told.append)
    assert first == again
    assert build.calls == 1
    assert told == ["building the runner for linux-x86_64 with ExecuTorch 1.5.1"]
    assert (first.kind, first.platform, first.executorch) == ("wheel", "linux-x86_64", "1.5.1")
    names = {path.name for path in first.files(Arm.ON)}
    assert names == {"sme2_runner", *(f"lib{name}.so" for name in LIBRARIES)}


def test_the_bundle_for_linux_on_arm_brings_its_c_library(build, tmp_path):
    runner = wheel_runner("linux-aarch64", executorch="1.5.1", cache=tmp_path)
    names = {path.name for path in runner.files(Arm.ON)}
    assert {"ld-linux-aarch64.so.1", "libc.so.6", "libstdc++.so.6"} <= names


def test_another_compiler_version_or_source_is_another_runner(build, tmp_path, monkeypatch):
    def folder(version: str = "1.5.1", platform: str = "linux-x86_64") -> Path:
        return wheel_runner(platform, executorch=version, cache=tmp_path).folder

    folders = {folder(), folder("1.5.2"), folder(platform="linux-aarch64")}
    build.compiler = Compiler("/usr/bin/c++", "c++ 2.0", cross=False)
    folders.add(folder())
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "main.cpp").write_text("int main() {}")
    monkeypatch.setattr(runners, "RUNNER_SOURCES", sources)
    folders.add(folder())
    (sources / "main.cpp").write_text("int main() { return 0; }")
    folders.add(folder())
    # ExecuTorch was built again, with the same version.
    (tmp_path / "sdk" / "lib" / "libexecutorch_backend_xnnpack.so").write_text("rebuilt")
    folders.add(folder())
    (tmp_path / "sdk" / "include" / "executorch" / "runtime.h").touch()
    folders.add(folder())
    assert len(folders) == build.calls == 8


def test_a_fresh_runner_is_built_once_by_each_process(build, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    mark_cache(cache)
    make = functools.partial(wheel_runner, "linux-x86_64", executorch="1.5.1", cache=cache)
    made = make()
    monkeypatch.setattr(cache_module, "_made", set())
    (made.folder / "sme2_runner").write_text("planted")
    record = json.loads((made.folder / "runner.json").read_text())
    record["files"]["sme2_runner"] = file_sha256(made.folder / "sme2_runner")
    (made.folder / "runner.json").write_text(json.dumps(record))
    assert (make(fresh=True), make(fresh=True)) == (made, made)
    assert build.calls == 2
    assert (made.folder / "sme2_runner").read_text() == "binary"


def test_a_cache_that_cannot_be_written_and_android_which_has_no_wheel(build, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot be locked: .*SME2_CACHE_DIR"):
        wheel_runner("linux-x86_64", executorch="1.5.1", cache=tmp_path / "file")
    with pytest.raises(BuildError, match="No runner for android-arm64 can be built from a wheel"):
        wheel_runner("android-arm64", cache=tmp_path)


def test_workers_at_the_same_time_build_once(build, tmp_path):
    make = functools.partial(wheel_runner, executorch="1.5.1", cache=tmp_path)
    with ThreadPoolExecutor(8) as workers:
        found = set(workers.map(make, ["linux-x86_64"] * 8))
    assert len(found) == build.calls == 1


def test_changed_runner_is_built_again(tmp_path: Path) -> None:
    folder = tmp_path / "runners" / "x"
    folder.mkdir(parents=True)
    (folder / "sme2_runner").write_bytes(b"program")
    digest = hashlib.sha256(b"program").hexdigest()
    record = folder / "runner.json"
    assert not runners._is_whole(folder)
    record.write_text(json.dumps({"files": {"sme2_runner": digest}}))
    assert runners._is_whole(folder)
    (folder / "libplanted.so").touch()
    assert not runners._is_whole(folder)
    (folder / "libplanted.so").unlink()
    (folder / "sme2_runner").write_bytes(b"another")
    assert not runners._is_whole(folder)
    for text in ("", "[", "[]", '{"files": 3}', '{"executorch": "1"}'):
        record.write_text(text)
        assert not runners._is_whole(folder)


def with_files(folder: Path, files: dict[str, str], compiler: str = "g++ 12") -> Sme2Runner:
    folder.mkdir()
    for name, text in {**files, "runner.json": json.dumps({"compiler": compiler})}.items():
        (folder / name).write_text(text)
    return Sme2Runner("wheel", "linux-aarch64", "1.5.1", folder)


@pytest.mark.parametrize("inside", [False, True])
def test_what_came_with_the_compiler_is_its_toolchain(tmp_path: Path, inside: bool) -> None:
    executorch = {} if inside else {"libexecutorch.so": "E"}
    made = with_files(tmp_path / "a", {"sme2_runner": "P", "libc.so.6": "C", **executorch})
    assert made.toolchain.files == {"libc.so.6"} | ({"sme2_runner"} if not inside else set())


def test_other_libraries_or_another_compiler_are_another_toolchain(tmp_path: Path) -> None:
    identities = []
    for place, (compiler, library, program) in enumerate(
        [
            ("g++ 12", "C", "P"),
            # The program holds the path of the folder it was built in.
            ("g++ 12", "C", "P elsewhere"),
            ("g++ 12", "newer C", "P"),
            ("g++ 13", "C", "P"),
        ]
    ):
        files = {"libexecutorch.so": "E", "sme2_runner": program, "libc.so.6": library}
        identities.append(with_files(tmp_path / str(place), files, compiler).toolchain.identity)
    assert identities[0] == identities[1]
    assert len(set(identities)) == 3
