from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.errors import BuildError, RunError
from pytest_sme2.results.run import PAIR, Arm, Artifact, Run, RunRequest
from pytest_sme2.runners.base import LOADER, LeftFiles, ProcessFiles
from pytest_sme2.runners.stock import PairRunner, binary_platform, pair_runner, single_runner
from pytest_sme2.system.platforms import ANDROID_ARM64, LINUX_AARCH64, LINUX_X86_64, MACOS_ARM64
from tests.support.etdump_builder import Block, Profiling, build_etdump

ARTIFACT = Artifact("toy", "fp32", Path("/a"), Path("/a/toy.pte"), "0" * 64, (), ())


def elf(machine: int = 183, *, loader: bytes = b"", tail: bytes = b"") -> bytes:
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, machine)
    return head.ljust(64, b"\0") + loader + b"\0" + tail


def pair_in(folder: Path) -> PairRunner:
    on, off = (folder / str(arm) / "executor_runner" for arm in PAIR)
    return pair_runner(on, off, cache=folder / "cache")


@pytest.fixture
def pair(tmp_path: Path) -> PairRunner:
    for arm in PAIR:
        (tmp_path / str(arm)).mkdir()
        (tmp_path / str(arm) / "executor_runner").write_bytes(elf(tail=str(arm).encode()))
    return pair_in(tmp_path)


def request(arm: Arm = Arm.ON, warmup: int = 2, runs: int = 3) -> RunRequest:
    return RunRequest(ARTIFACT, arm, threads=4, warmup=warmup, runs=runs)


@pytest.mark.parametrize(
    ("content", "platform"),
    [
        (elf(), LINUX_AARCH64),
        (elf(62), LINUX_X86_64),
        (elf(loader=b"/system/bin/linker64"), ANDROID_ARM64),
        (elf(loader=b"/lib/ld-linux-aarch64.so.1"), LINUX_AARCH64),
        (struct.pack("<II", 0xFEEDFACF, 0x0100000C) + bytes(24), MACOS_ARM64),
    ],
)
def test_platform_is_read_from_the_binary(tmp_path: Path, content: bytes, platform: str) -> None:
    (tmp_path / "runner").write_bytes(content)
    assert binary_platform(tmp_path / "runner") == platform


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", elf(40), b"\x7fELF\x02\x01"])
def test_file_that_is_not_a_runner_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runner").write_bytes(content)
    with pytest.raises(BuildError, match="is not a program for"):
        binary_platform(tmp_path / "runner")
    with pytest.raises(BuildError, match="No such file"):
        binary_platform(tmp_path / "gone")


@pytest.mark.parametrize(
    ("off", "message"),
    [
        (elf(62), r"not a pair: .* is for linux-aarch64, .* linux-x86_64"),
        (elf(), "are the same program"),
    ],
)
def test_two_platforms_or_one_program_are_not_a_pair(
    tmp_path: Path, off: bytes, message: str
) -> None:
    (tmp_path / "on").write_bytes(elf())
    (tmp_path / "off").write_bytes(off)
    with pytest.raises(BuildError, match=message):
        pair_runner(tmp_path / "on", tmp_path / "off", cache=tmp_path)


@pytest.mark.usefixtures("pair")
def test_libraries_beside_the_binaries_are_copied(tmp_path: Path) -> None:
    for arm in PAIR:
        (tmp_path / str(arm) / "libxnn.so.1").write_text("the same")
        (tmp_path / str(arm) / "CMakeCache.txt").write_text("not needed")
    pair = pair_in(tmp_path)
    names = [path.name for path in pair.files(Arm.ON)]
    assert names == ["executor_runner-on", "libxnn.so.1"]
    assert [path.name for path in pair.files(Arm.OFF)] == ["executor_runner-off", "libxnn.so.1"]
    assert pair_in(tmp_path) == pair
    (tmp_path / "off/libxnn.so.1").write_text("another")
    with pytest.raises(BuildError, match="different libraries with the same name"):
        pair_in(tmp_path)


def files(inputs: tuple[str, ...] = ()) -> ProcessFiles:
    return ProcessFiles("/m/my model.pte", inputs, "/r/result.json", "/r/run.etdump", None)


def test_the_command_speaks_the_stock_flags(pair: PairRunner) -> None:
    assert pair.traces(request())
    assert pair.command(request(), files(("/i/0.bin", "/i/1.bin"))) == (
        "./executor_runner-on",
        "--model_path=/m/my model.pte",
        "--num_executions=5",
        "--cpu_threads=4",
        "--etdump_path=/r/run.etdump",
        "--inputs=/i/0.bin,/i/1.bin",
    )
    assert pair.command(request(Arm.OFF), files())[0] == "./executor_runner-off"
    (pair.folder / LOADER).touch()
    loaded = (f"./{LOADER}", "--library-path", ".", "./executor_runner-on")
    assert pair.command(request(), files())[:4] == loaded


def test_the_method_is_named_where_there_are_several(pair: PairRunner) -> None:
    asked = request()
    # It would run the first one, whatever its name is.
    named = replace(asked, artifact=replace(asked.artifact, method="forward"))
    assert pair.command(named, files())[-1] == "--method_name=forward"
    assert not any("method" in word for word in pair.command(asked, files()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (files(("/a,b/0.bin",)), "separates its inputs by commas"),
    ],
)
def test_what_it_cannot_be_given_is_refused(
    pair: PairRunner, given: ProcessFiles, message: str
) -> None:
    with pytest.raises(RunError, match=message):
        pair.command(request(), given)


@pytest.mark.parametrize(
    ("code", "stderr", "expected"),
    [
        (1, "ERROR: unknown command line flag 'cpu_threads'", "does not know the flag --cpu_thre"),
        (134, "I x\nF 00 executorch:m.cpp:1] assert failed: no\n", "(SIGABRT): F 00 executorch"),
        (-6, "F 00 executorch:m.cpp:1] no\nqemu: uncaught target signal 6\n", "m.cpp:1] no"),
        (134, "", "it aborted"),
        (1, "something else", "None"),
        (139, "", "None"),
    ],
)
def test_failures_are_explained(pair: PairRunner, code: int, stderr: str, expected: str) -> None:
    assert expected in str(pair.explain(code, stderr))


MILLISECOND = 1_000_000
LOG = """\
$ './executor_runner-on'
I 00:00:00.000655 executorch:executor_runner.cpp:301] Model loaded in 66.6 ms.
"""


def dump(*milliseconds: float) -> bytes:
    load = Block([Profiling("Program::load_method", 0, 100, chain=-1)], name="Default")
    inner = Profiling(None, 1, 2, chain=0, instruction=0, delegate_name="Method::execute")
    executions = [
        Block([inner, Profiling("Method::execute", 0, round(value * MILLISECOND), chain=-1)])
        for value in milliseconds
    ]
    return build_etdump([load, *executions])


def result(pair: PairRunner, folder: Path, etdump: bytes | None, log: str = LOG) -> Run:
    (folder / "runner.log").write_text(log)
    if etdump is not None:
        (folder / "run.etdump").write_bytes(etdump)
    files = {"result": "runner.json", "log": "runner.log", "etdump": "run.etdump"}
    there = {name: folder / file for name, file in files.items()}
    left = LeftFiles("linux", emulated=False, outputs=None, **there)
    return pair.read_result(request(), left)


def test_latency_is_method_execute_without_the_warm_up(tmp_path: Path, pair: PairRunner) -> None:
    run = result(pair, tmp_path, dump(9, 5, 4, 4.2, 4.1))
    assert run.warmup_wall_ns == (9 * MILLISECOND, 5 * MILLISECOND)
    assert run.wall_ns == (4 * MILLISECOND, 4_200_000, 4_100_000)
    assert run.load_ns == 66_600_000
    assert run.runner == "pair"
    assert run.sme2_effective is None
    assert run.etdump == tmp_path / "run.etdump"
    # A build without logging has no load time.
    run = result(pair, tmp_path, dump(9, 5, 4, 4.2, 4.1), log="")
    assert run.load_ns is None
    assert len(run.wall_ns) == 3


@pytest.mark.parametrize(
    ("etdump", "message"),
    [
        (None, "wrote no ETDump: it was built without the event tracer"),
        (dump(9, 5, 4, 4.2), "has 4 executions, not 5"),
        (dump(), "has 0 executions, not 5"),
        (b"not an ETDump", "ETDump cannot be used"),
        (dump(9, 5, 4, 4.2, 4.1)[:-40], "ETDump cannot be used"),
    ],
)
def test_a_result_that_cannot_be_trusted_is_refused(
    tmp_path: Path, pair: PairRunner, etdump: bytes | None, message: str
) -> None:
    with pytest.raises(RunError, match=message):
        result(pair, tmp_path, etdump)


def test_one_binary_does_for_an_experiment(tmp_path: Path) -> None:
    binary = tmp_path / "build" / "executor_runner"
    binary.parent.mkdir()
    binary.write_bytes(elf())
    runner = single_runner(binary, cache=tmp_path / "cache")
    assert runner.platform == binary_platform(binary)
    for arm in PAIR:
        assert (runner.folder / runner.program(arm)).read_bytes() == binary.read_bytes()
    assert single_runner(binary, cache=tmp_path / "cache").folder == runner.folder
    asked = replace(request(), extra_arguments=("--method_name=forward",))
    assert runner.command(asked, files())[-1] == "--method_name=forward"
