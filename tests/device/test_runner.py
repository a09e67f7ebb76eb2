"""The real runner, natively and emulated: what it measures, how it switches, how it fails."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.errors import RunError, StorageError, TargetError
from pytest_sme2.results.run import PAIR, Arm, RunRequest
from pytest_sme2.runners.base import LOADER, ProcessFiles, Runner
from pytest_sme2.runners.sme2 import EXIT_MEANINGS, wheel_runner
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.local import LocalTarget
from tests.support.gone import wait_until_gone

SME2_NAME = re.compile(rb"\((?:NHWC|NC), (?:PF32|PF16|PQS8)")
MATRIX_NAME = re.compile(rb"(?:Convolution|Fully Connected) \([^)]*\) I?GEMM")


def names(etdump: Path) -> list[bytes]:
    return MATRIX_NAME.findall(etdump.read_bytes())


@pytest.fixture
def toy(programs, make_artifact):
    return make_artifact(programs["toy_fp32"])


@pytest.fixture
def run_off(place, tmp_path):
    """A process without SME2, on this machine and emulated; its files go to ``run``."""
    target, runner = place
    return lambda artifact, **options: target.run(
        runner, RunRequest(artifact, Arm.OFF, **options), tmp_path / "run"
    )


@pytest.fixture
def run_here(local_runner, tmp_path):
    """The same on this machine alone."""
    return lambda artifact, **options: LocalTarget().run(
        local_runner, RunRequest(artifact, Arm.OFF, **options), tmp_path / "run"
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_core_is_known_of_each_run_and_of_several_threads_for_how_long_they_had_none(
    run_off, toy, tmp_path, threads
):
    run = run_off(toy, runs=3, threads=threads)
    known = 3 if sys.platform == "linux" else 0
    assert (len(run.ran_on), len(run.waited_ns)) == (known, known if threads > 1 else 0)
    assert json.loads((tmp_path / "run" / "runner.json").read_text())["threads"] == threads


def test_run_reports_its_measurements(place, run_off, toy):
    run = run_off(toy, warmup=2, runs=3, keep_outputs=True)
    assert run.target == place[0].name
    assert run.emulated is (run.target == "emulated")
    assert run.sme2_effective is False
    assert len(run.wall_ns) == len(run.cpu_ns) == 3
    assert len(run.warmup_wall_ns) == 2
    assert all(value > 0 for value in (*run.wall_ns, *run.cpu_ns, *run.warmup_wall_ns))
    # One thread: CPU time and wall time are of one order, or one of the clocks is wrong.
    assert sum(run.cpu_ns) < 3 * sum(run.wall_ns)
    assert run.load_ns > 0
    assert 1_000_000 < run.peak_rss_load_bytes <= run.peak_rss_bytes < 1_000_000_000
    assert run.cpu_features
    assert run.etdump is None
    assert [output.shape for output in run.outputs] == [(1, 10), (1, 8, 12, 12)]
    for output in run.outputs:
        assert output.dtype == "float32"
        assert output.has_nan is False
        assert hashlib.sha256(output.file.read_bytes()).hexdigest() == output.sha256
    log = run.log.read_text()
    assert "--sme2" in log
    assert log.rstrip().endswith("[exit 0]")


def test_a_large_parent_does_not_show_in_the_peak_memory(run_here, toy):
    ballast = np.ones(300_000_000 // 8)
    run = run_here(toy)
    assert ballast.nbytes == 300_000_000
    assert run.peak_rss_bytes < 200_000_000


def test_inputs_come_from_files_and_outputs_are_exact(run_off, programs, make_artifact, tmp_path):
    values = {
        "index": np.arange(64, dtype=np.int64) * -(2**40),
        "small": np.arange(-32, 32, dtype=np.int8),
        "flag": (np.arange(64) % 3 == 0),
        "real": np.linspace(-1e300, 1e300, 64),
    }
    files = []
    for name, value in values.items():
        files.append(tmp_path / f"{name}.bin")
        files[-1].write_bytes(value.tobytes())
    run = run_off(make_artifact(programs["kinds"], tuple(files)), keep_outputs=True)
    assert [output.dtype for output in run.outputs] == ["int64", "int8", "bool", "float64"]
    for output, value in zip(run.outputs, values.values(), strict=True):
        assert output.file.read_bytes() == value.tobytes()


def test_files_are_row_major_whatever_order_memory_has(run_here, programs, make_artifact, tmp_path):
    image = np.arange(60, dtype=np.float32).reshape(1, 3, 4, 5)
    file = tmp_path / "image.bin"
    file.write_bytes(image.tobytes())
    run = run_here(make_artifact(programs["channels_last"], (file,)), keep_outputs=True)
    assert run.outputs[0].shape == (1, 3, 4, 5)
    assert run.outputs[0].file.read_bytes() == (2 * image).tobytes()


def test_a_nan_is_seen(run_off, programs, make_artifact, tmp_path):
    image = np.zeros((1, 3, 12, 12), np.float32)
    image[0, 0, 0, 0] = np.nan
    file = tmp_path / "image.bin"
    file.write_bytes(image.tobytes())
    run = run_off(make_artifact(programs["toy_fp32"], (file,)))
    assert [output.has_nan for output in run.outputs] == [True, True]


def test_random_inputs_follow_the_seed_and_the_type(run_here, programs, make_artifact):
    def outputs(seed: int) -> list[np.ndarray]:
        run = run_here(make_artifact(programs["kinds"]), keep_outputs=True, seed=seed)
        return [np.frombuffer(o.file.read_bytes(), o.dtype) for o in run.outputs]

    first, again, other = outputs(1), outputs(1), outputs(2)
    for a, b, c in zip(first, again, other, strict=True):
        assert (a == b).all()
        assert (a != c).any()
        assert len(set(a.tolist())) > 1
    index, small, flag, real = first
    assert index.min() >= 0
    assert index.max() <= 7
    assert small.min() < -50
    assert small.max() > 50
    assert set(flag.tolist()) == {False, True}
    assert real.min() < -0.5
    assert real.max() > 0.5
    assert np.abs(real).max() <= 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot pin")
def test_a_run_can_be_pinned(run_off, toy):
    assert run_off(toy, cpus=(max(os.sched_getaffinity(0)),)).wall_ns
    with pytest.raises(TargetError, match=r"may not use core 4711"):
        run_off(toy, cpus=(4711,))


@pytest.mark.parametrize("name", ["--sme2", "with space, quote'\"; new\nline <script>$(id)é"])
def test_hostile_names_stay_names(place, programs, make_artifact, tmp_path, name):
    target, runner = place
    folder = tmp_path / name
    folder.mkdir()
    pte = folder / f"{name}.pte"
    pte.write_bytes(programs["toy_fp32"].read_bytes())
    image = folder / f"{name},.bin"
    image.write_bytes(bytes(4 * 3 * 12 * 12))
    request = RunRequest(
        make_artifact(pte, (image,)), Arm.OFF, warmup=0, runs=1, traced=True, keep_outputs=True
    )
    run = target.run(runner, request, folder / "run")
    assert names(run.etdump)
    assert len(run.outputs[0].file.read_bytes()) == 40


@pytest.mark.parametrize("model", ["toy_fp32", "toy_fp16"])
def test_the_trace_shows_which_kernels_ran(
    qemu, emulated_runner, programs, make_artifact, tmp_path, model
):
    target = EmulatedTarget(qemu)
    runs = {}
    for arm in PAIR:
        request = RunRequest(
            make_artifact(programs[model]), arm, warmup=2, runs=2, traced=True, keep_outputs=True
        )
        runs[arm] = target.run(emulated_runner, request, tmp_path / str(arm))
    on, off = runs[Arm.ON], runs[Arm.OFF]
    assert on.sme2_effective is True
    assert off.sme2_effective is False
    assert SME2_NAME.search(on.etdump.read_bytes())
    assert not SME2_NAME.search(off.etdump.read_bytes())
    # Two matrix operators in each of two timed runs: the warm-up left no trace.
    assert len(names(on.etdump)) == len(names(off.etdump)) == 4
    assert on.etdump.read_bytes().count(b"Method::execute") == 2
    assert b"Program::load_method" in on.etdump.read_bytes()
    for left, right in zip(on.outputs, off.outputs, strict=True):
        np.testing.assert_allclose(
            np.frombuffer(left.file.read_bytes(), left.dtype).astype(float),
            np.frombuffer(right.file.read_bytes(), right.dtype).astype(float),
            atol=1e-2 if model == "toy_fp16" else 1e-5,
        )


def test_the_effective_state_is_the_cpus_not_the_flags(qemu, emulated_runner, toy, tmp_path):
    result = tmp_path / "runner.json"
    command = bare_command(emulated_runner, RunRequest(toy, Arm.ON), result)
    launched = [*EmulatedTarget(qemu).launcher(Arm.OFF), *command]
    folder = emulated_runner.folder
    subprocess.run(launched, cwd=folder, check=True, timeout=60, stdout=subprocess.DEVNULL)
    told = json.loads(result.read_text())["sme2"]
    assert told == {
        "requested": "on",
        "effective": False,
        "source": "getauxval",
        "vector_bits": None,
    }


def bare_command(runner: Runner, request: RunRequest, result: Path) -> tuple[str, ...]:
    model = str(request.artifact.pte)
    return runner.command(request, ProcessFiles(model, (), str(result), None, None))


def test_a_machine_without_sme2_refuses_the_on_arm(local_runner, toy, tmp_path):
    target, request = LocalTarget(), RunRequest(toy, Arm.ON)
    if target.capabilities().sme2:
        assert target.run(local_runner, request, tmp_path).sme2_effective is True
    else:
        with pytest.raises(TargetError, match="has no SME2"):
            target.run(local_runner, request, tmp_path)


def test_a_cache_of_any_name_serves(toy, tmp_path):
    told: list[str] = []
    cache = tmp_path / "a 'cache' of $HOME"
    runner = wheel_runner(LocalTarget().platform, cache=cache, progress=told.append)
    assert told[-1].startswith("building the runner")
    run = LocalTarget().run(runner, RunRequest(toy, Arm.OFF), tmp_path / "run")
    assert len(run.wall_ns) == 10
    left = {path.name for path in (cache / "runners").iterdir()}
    assert left == {runner.folder.name, f"{runner.folder.name}.lock", "logs"}


def test_the_bundle_needs_nothing_of_the_system(emulated_runner):
    present = {path.name for path in emulated_runner.files(Arm.ON)}
    assert {LOADER, "libc.so.6", "libexecutorch_backend_xnnpack.so", "sme2_runner"} <= present
    assert not any("openvino" in name or "qnn" in name for name in present)


def broken_program(kind: str, folder: Path, good: bytes) -> Path:
    path = folder / f"{kind}.pte"
    contents = {
        "text": b"This is not the file you are looking for.\n" * 10,
        "magic": good[:4] + b"XX99" + good[8:],
        "empty": b"",
        "short": good[:6],
        "header": good[:40],
        "truncated": good[: len(good) // 2],
        "last-byte": good[:-1],
        "zeros": good[:48] + bytes(len(good) - 48),
    }
    if kind == "directory":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(contents[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "no such file: "),
        ("directory", "is a directory, not a program"),
        ("text", "is not an ExecuTorch program"),
        ("magic", "is not an ExecuTorch program"),
        ("empty", "is empty, not a program"),
        ("short", "is not an ExecuTorch program"),
        ("header", "is cut off: 40 of at least"),
        ("truncated", "is cut off: "),
        ("last-byte", "is cut off: "),
        ("zeros", "is not a valid program"),
    ],
)
def test_file_that_is_not_a_program(run_off, programs, make_artifact, tmp_path, kind, message):
    path = broken_program(kind, tmp_path, programs["toy_fp32"].read_bytes())
    with pytest.raises(RunError) as caught:
        run_off(make_artifact(path))
    assert message in str(caught.value)
    assert kind in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "run" / "runner.log") in str(caught.value)
    assert exit_code(tmp_path / "run") == (10 if kind == "missing" else 11)


@pytest.mark.parametrize(
    ("known", "unknown", "message"),
    [
        (b"aten::mean", b"aten::name", "an operator is not in this runner"),
        (b"XnnpackBackend", b"UnheardBackend", "UnheardBackend"),
    ],
)
def test_missing_operator_or_backend_is_named(
    run_off, programs, make_artifact, tmp_path, known, unknown, message
):
    path = tmp_path / "unknown.pte"
    path.write_bytes(programs["toy_fp32"].read_bytes().replace(known, unknown))
    with pytest.raises(RunError, match=message) as caught:
        run_off(make_artifact(path))
    assert unknown.decode() in str(caught.value)
    assert exit_code(tmp_path / "run") == 12


def test_a_program_that_wants_too_much_memory(run_off, programs, make_artifact, tmp_path):
    good = bytearray(programs["kinds"].read_bytes())
    # The sizes of the planned buffers: two 64-bit numbers, of which the first is always 0.
    (place_of_sizes,) = [
        match.start() + 12
        for match in re.finditer(rb"\x02\0\0\0\0{8}(?=[\0-\xff]{2}\0{6})(?!\0{8})", bytes(good))
    ]
    good[place_of_sizes : place_of_sizes + 8] = (1 << 46).to_bytes(8, "little")
    path = tmp_path / "huge.pte"
    path.write_bytes(good)
    with pytest.raises(RunError, match="out of memory"):
        run_off(make_artifact(path))
    assert exit_code(tmp_path / "run") == 13


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_out_of_memory_is_reported(local_runner, programs, make_artifact, tmp_path):
    import resource

    request = RunRequest(make_artifact(programs["large"]), Arm.OFF, warmup=0, runs=1)
    result = tmp_path / "runner.json"
    codes = set()
    # Where exactly it runs out depends on the machine; it must never crash, and must tell.
    for mebibytes in range(24, 96, 6):
        finished = subprocess.run(
            bare_command(local_runner, request, result),
            cwd=local_runner.folder,
            capture_output=True,
            text=True,
            timeout=60,
            preexec_fn=functools.partial(
                resource.setrlimit, resource.RLIMIT_AS, (mebibytes << 20,) * 2
            ),
        )
        codes.add(finished.returncode)
        if finished.returncode == 13:
            assert "out of memory" in finished.stderr
    # 127: the libraries themselves did not fit.
    assert 13 in codes
    assert codes <= {0, 13, 127}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((1727,), "input 0 is float32[1x3x12x12], 1728 bytes, but .* has 1727"),
        ((1729,), "input 0 is float32[1x3x12x12], 1728 bytes, but .* has more"),
        ((0,), "has 0"),
        ((1728, 1728), "the program takes 1 inputs, but 2 were given"),
    ],
)
def test_inputs_of_the_wrong_size(run_off, programs, make_artifact, tmp_path, sizes, message):
    files = []
    for number, size in enumerate(sizes):
        files.append(tmp_path / f"input{number}.bin")
        files[-1].write_bytes(bytes(size))
    with pytest.raises(RunError, match=message.replace("[", r"\[").replace("]", r"\]")):
        run_off(make_artifact(programs["toy_fp32"], tuple(files)))
    assert exit_code(tmp_path / "run") == 14


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "--model is missing"),
        (["--model"], 2, "no value follows '--model'"),
        (["--model", "a", "--model", "b"], 2, "--model was given twice"),
        (["--sme2", "maybe"], 2, "--sme2 takes on, off or sme1, not 'maybe'"),
        (["--runs", "0"], 2, "--runs takes a whole number from 1 to 1000000, not '0'"),
        (["--threads", "-1"], 2, "--threads takes a whole number"),
        (["--warmup", "1e3"], 2, "--warmup takes a whole number"),
        (["--seed", "99999999999999999999"], 2, "--seed takes a whole number"),
        (["--frobnicate", "1"], 2, "unknown option '--frobnicate'"),
        (["--turn", "2"], 2, "--turn and --turn-descriptor go together"),
        (["--turn", "2", "--turn-descriptor", "1"], 2, "--turn-descriptor takes a whole number"),
        (
            ["--turn", "2", "--turn-descriptor", "3", "--etdump", "x"],
            2,
            "--turn does not go with --etdump",
        ),
        (["--method", "backward"], 17, "has no method 'backward'; it has: forward"),
        (["--json", "/dev/full"], 16, "cannot write '/dev/full': No space left on device"),
        (["--etdump", "/dev/full"], 16, "cannot write '/dev/full': No space left on device"),
        (["--etdump", "/nowhere/x"], 16, "cannot write '/nowhere/x': No such file"),
        (["--outputs", "/nowhere/x"], 16, "cannot make the folder '/nowhere/x'"),
    ],
)
def test_usage_and_writing(local_runner, programs, tmp_path, arguments, code, message):
    if "/dev/full" in arguments and not Path("/dev/full").exists():
        pytest.skip("this system has no disk that is always full")
    given = dict.fromkeys(arguments[::2])
    usual = {
        "--model": str(programs["toy_fp32"]),
        "--sme2": "off",
        "--json": str(tmp_path / "runner.json"),
    }
    if "missing" not in message:
        arguments = [
            *(word for name, value in usual.items() if name not in given for word in (name, value)),
            *arguments,
        ]
    command, folder = ["./sme2_runner", *arguments], local_runner.folder
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert finished.returncode == code
    assert code in EXIT_MEANINGS
    assert finished.stderr.startswith("sme2_runner: ")
    assert finished.stderr.count("\n") == 1
    assert message in finished.stderr


def exit_code(folder: Path) -> int:
    match = re.search(r"\[exit (-?\d+)\]\n$", (folder / "runner.log").read_text())
    assert match
    return int(match[1])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("segv", "crashed on an invalid memory access (SIGSEGV)"),
        ("abort", "aborted (SIGABRT)"),
        ("kill", "was killed (SIGKILL), probably because memory ran out"),
        ("exit99", "exit code 99; its last message: something unheard of"),
        ("empty", "runner.json cannot be read: it is not valid JSON"),
        ("half", "runner.json cannot be read: it is not valid JSON"),
    ],
)
def test_a_runner_that_fails(place, stand_in, make_artifact, tmp_path, fault, message):
    target, _ = place
    runner = stand_in(target.platform)
    request = RunRequest(make_artifact(tmp_path / f"{fault}.pte"), Arm.OFF)
    with pytest.raises(RunError) as caught:
        target.run(runner, request, tmp_path / "run")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "a line on stdout" in (tmp_path / "run" / "runner.log").read_text()


def test_a_runner_that_hangs_is_ended_with_its_children(place, stand_in, make_artifact, tmp_path):
    target, _ = place
    runner = stand_in(target.platform)
    request = RunRequest(make_artifact(tmp_path / "hang.pte"), Arm.OFF, timeout_seconds=1.0)
    start = time.monotonic()
    with pytest.raises(RunError, match=r"did not finish within 1 s"):
        target.run(runner, request, tmp_path / "run")
    assert time.monotonic() - start < 300
    child = int((tmp_path / "run" / "runner.json.child").read_text())
    wait_until_gone(child)
    assert (tmp_path / "run" / "runner.log").read_text().endswith("[time limit]\n")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the process through /proc")
def test_the_real_runner_killed_from_outside(run_off, toy, tmp_path):
    killer = threading.Thread(target=kill_the_user_of, args=(str(tmp_path),))
    killer.start()
    with pytest.raises(RunError, match=r"was killed \(SIGKILL\), probably because memory ran out"):
        run_off(toy, warmup=1_000_000, runs=1_000_000)
    killer.join()
    assert not (tmp_path / "run" / "runner.json").exists()


def kill_the_user_of(path: str) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.startswith(path.encode()) for word in arguments):
                time.sleep(0.2)
                os.kill(int(folder.name), signal.SIGKILL)
                return
        time.sleep(0.02)


def test_old_result_is_not_taken_for_a_new_one(run_here, stand_in, toy, make_artifact, tmp_path):
    assert run_here(toy, traced=True).etdump.exists()
    target = LocalTarget()
    silent = RunRequest(make_artifact(tmp_path / "silent.pte"), Arm.OFF, traced=True)
    with pytest.raises(RunError, match=r"runner\.json cannot be read: No such file"):
        target.run(stand_in(target.platform), silent, tmp_path / "run")
    assert not (tmp_path / "run" / "run.etdump").exists()


def test_a_runner_that_cannot_be_started(place, toy, tmp_path):
    target, runner = place
    empty = replace(runner, folder=tmp_path / "nothing here")
    (tmp_path / "nothing here").mkdir()
    with pytest.raises(RunError, match="sme2_runner"):
        target.run(empty, RunRequest(toy, Arm.OFF), tmp_path / "run")


def test_a_run_folder_that_cannot_be_made(run_here, toy, tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(StorageError, match=r"run: cannot be written"):
        run_here(toy)


def test_the_runner_of_another_platform_is_refused(place, stand_in, make_artifact, tmp_path):
    target, runner = place
    other = replace(runner, platform="android-arm64")
    with pytest.raises(TargetError, match="is for android-arm64"):
        target.run(other, RunRequest(make_artifact(tmp_path / "x.pte"), Arm.OFF), tmp_path)
