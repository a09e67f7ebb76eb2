"""Green means that everything that was promised was compared: whole runs and their exit codes.

The device is a pretended one; everything above it is the product's own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.results import Arm
from tests.support.pretended_device import PretendedDevice, pretend, program
from tests.support.toy_project import add_model

SUITE = """
def test_latency(sme2_gate):
    sme2_gate.check_latency()

def test_structure(sme2_gate):
    sme2_gate.check_operators()
    sme2_gate.check_evidence()
"""
PROGRAM, SLOW = program("toy"), program("slow")

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest in a project with the model ``toy`` in two variants."""
    add_model(pytester.path)
    pytester.makeini("[pytest]\nsme2_models = models\nsme2_device = linux\n")
    pytester.makepyfile(test_suite=SUITE)

    def run(
        *arguments: str, ci: bool = False, slow: bool = False, **device: Any
    ) -> pytest.RunResult:
        current = replace(SLOW if slow else PROGRAM, **device.pop("artifact", {}))
        times: dict[str, Mapping[Arm, float]] = {PROGRAM.sha256: {Arm.ON: 30e6, Arm.OFF: 90e6}}
        times[SLOW.sha256] = {Arm.ON: 60e6, Arm.OFF: 120e6}
        with monkeypatch.context() as patch:
            if ci:
                patch.setenv("CI", "true")
            pretend(patch, PretendedDevice(times, **{"seed": 2, **device}), current, PROGRAM)
            return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run


@pytest.fixture
def stored(run: Run, pytester: pytest.Pytester) -> Path:
    """The contract after an update of everything."""
    assert run("--update-baselines").ret == pytest.ExitCode.OK
    return pytester.path / "baselines" / "contract.txt"


def said(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


def fails(result: pytest.RunResult, words: str) -> None:
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert words in said(result)


def test_an_update_writes_a_line_per_figure_and_a_second_one_changes_nothing(
    run: Run, stored: Path
) -> None:
    text = stored.read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == sorted(lines)
    (device,) = {line.split(" | ")[0] for line in lines}
    for line in (
        f"{device} | toy-fp16 | latency (on) | test_latency",
        f"{device} | toy-fp32 | evidence | test_structure",
        f"{device} | toy-fp32 | settings = threads 1, runner wheel",
        f"{device} | toy-fp32 | weights = random (seed 0)",
    ):
        assert line in lines
    assert run("--update-baselines").ret == pytest.ExitCode.OK
    assert stored.read_text("utf-8") == text
    assert run("--update-baselines=dry", "-k", "structure").ret == pytest.ExitCode.OK
    assert stored.read_text("utf-8") == text


def test_all_of_it_compared_is_green(run: Run, stored: Path) -> None:
    result = run("--sme2-strict")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["contract: 10 of 10 lines compared"])


def remove_models(project: Path) -> None:
    (project / "models" / "toy" / "model.py").unlink()
    (project / "models" / "toy").rmdir()


MARKED = f"import pytest\npytestmark = pytest.mark.{{}}\n{SUITE}"


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        (MARKED.format("skip(reason='later')"), "nothing was compared"),
        ("", "no model is known to this run"),
        ("def test_it(sme2_gate): pass\n", "calls none of its checks"),
        (MARKED.format("sme2(variants='int8')"), "asks for variants int8, which no model has"),
    ],
    ids=["skipped", "no model", "no check", "another variant"],
)
@pytest.mark.parametrize("contract", [True, False])
def test_strict_is_never_green_and_empty(
    suite: str, words: str, contract: bool, run: Run, request: Any
) -> None:
    path = request.getfixturevalue("pytester").path
    if contract:
        request.getfixturevalue("stored")
    if suite:
        (path / "test_suite.py").write_text(suite, "utf-8")
    else:
        remove_models(path)
    assert run().ret == pytest.ExitCode.OK
    fails(run("--sme2-strict"), words)


def rename_model(project: Path) -> None:
    remove_models(project)
    add_model(project, "other")


def drop_variant(project: Path) -> None:
    path = project / "models" / "toy" / "model.py"
    path.write_text(path.read_text("utf-8").replace("'fp16'", ""), "utf-8")


def drop_test(project: Path) -> None:
    (project / "test_suite.py").write_text(SUITE.replace("test_latency", "other"), "utf-8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename_model, "MODEL_GONE: toy-fp16 on linux-"),
        (drop_variant, "MODEL_GONE: toy-fp16 on linux-"),
        (drop_test, "latency (off), latency (on): no test compared it; test_latency did."),
    ],
)
def test_what_was_promised_and_not_compared_fails_in_ci(
    change: Callable[[Path], None], words: str, run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    change(pytester.path)
    told = run()
    assert told.ret == pytest.ExitCode.OK
    assert words in said(told)
    for result in (run(ci=True), run("--sme2-strict")):
        fails(result, words)


def test_a_change_of_what_is_measured_is_a_verdict_of_its_own(
    run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    fails(run("--sme2-strict", artifact={"weights": "other.pt"}), "WEIGHTS_CHANGED: toy-fp16")
    fails(run("--sme2-strict", "--threads=2", "-k", "structure"), "SETTINGS_CHANGED: toy-fp16")


def test_changed_inputs_are_told_also_where_nothing_is_slower(
    run: Run, pytester: pytest.Pytester
) -> None:
    import numpy as np

    def given(factor: float) -> dict[str, Any]:
        path = pytester.path / f"input-{factor}.bin"
        spec = PROGRAM.inputs[0]
        generator = np.random.default_rng(1)
        path.write_bytes((generator.normal(size=spec.shape) * factor).astype("<f4").tobytes())
        return {"input_files": (path,)}

    assert run("--update-baselines", artifact=given(1.0)).ret == pytest.ExitCode.OK
    # Another host may draw other last digits.
    close = run("--sme2-strict", "-k", "structure", artifact=given(1.0000001))
    assert close.ret == pytest.ExitCode.OK
    fails(run("--sme2-strict", artifact=given(1e36)), "INPUT_CHANGED: toy-fp16 on linux-")


@pytest.mark.parametrize(
    ("choice", "compared"),
    [(("-k", "latency"), 4), (("--sme2-variants=fp32",), 5), (("test_suite.py::test_latency",), 4)],
)
def test_a_part_is_green_and_says_what_it_left(
    choice: tuple[str, ...], compared: int, run: Run, stored: Path
) -> None:
    result = run("--sme2-strict", *choice)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [f"contract: {compared} of 10 lines compared", "*DESELECTED: toy-fp16 on *"]
    )


def test_many_cases_that_are_left_for_one_reason_are_one_line(
    run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    add_model(pytester.path, "other")
    assert run("--update-baselines").ret == pytest.ExitCode.OK
    result = run("--sme2-models=other", "--sme2-variants=fp32")
    result.stdout.fnmatch_lines(
        ["  DESELECTED: other-fp16, toy-fp16 and 1 more case on *: left out by the choice of *"]
    )
    result.stdout.no_fnmatch_line("*toy-fp32*")


def test_a_test_that_is_gone_is_missed_also_by_a_part(
    run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    drop_test(pytester.path)
    fails(run("--sme2-strict", "-k", "structure"), "no test compared it; test_latency did")


def test_parts_are_judged_together(run: Run, stored: Path, pytester: pytest.Pytester) -> None:
    for name in ("latency", "structure"):
        assert run("--sme2-strict", "-k", name, f"--sme2-out={name}").ret == pytest.ExitCode.OK
    whole = pytester.run("sme2", "merge", "latency", "structure", "--out", "whole")
    assert whole.ret == 0, whole.stderr.str()
    less = pytester.run("sme2", "merge", "latency", "--out", "less")
    assert less.ret == 1
    less.stderr.fnmatch_lines(["sme2: NOT_MEASURED: toy-fp16 on *: evidence, operators (off)*"])


def test_a_contract_that_cannot_be_read_is_named(run: Run, stored: Path) -> None:
    stored.write_text("linux | toy\n", "utf-8")
    fails(run("--sme2-strict"), "contract.txt: line 1 cannot be read")


def test_commands_print_it(stored: Path, pytester: pytest.Pytester) -> None:
    result = pytester.run("sme2", "models", "--contract")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["DEVICE *", "linux-* toy-fp16 *latency (on) *test_latency"])


def test_a_figure_that_the_device_no_longer_measures_is_missed(run: Run, stored: Path) -> None:
    result = run("--sme2-strict", sme2=False)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "NOT_MEASURED: toy-fp32 on linux-4ddc968212d1: evidence: linux has no SME2" in said(
        result
    )


def test_a_refused_update_is_not_green(run: Run, stored: Path) -> None:
    text = stored.read_text("utf-8")
    fails(run("--update-baselines", interference=0.3), "the machine was busy")
    result = run("--update-baselines=nothing", artifact={"weights": "other.pt"})
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert stored.read_text("utf-8") == text


def test_strict_names_a_broken_model(run: Run, stored: Path, pytester: pytest.Pytester) -> None:
    (pytester.path / "models" / "toy" / "model.py").write_text("import nothing_of_this_name\n")
    result = run("--sme2-strict")
    fails(result, "model.py registers no class")
    assert "INTERNALERROR" not in said(result)


@pytest.mark.parametrize("text", ["{ this is not JSON", '{"schema": 999}'])
def test_a_damaged_baseline_is_invalid_and_kept(run: Run, stored: Path, text: str) -> None:
    (path,) = stored.parent.glob("*/toy-fp32.json")
    path.write_text(text, "utf-8")
    fails(run("-k", "structure"), "INVALID")
    fails(run("--update-baselines=all"), "toy-fp32: the baseline was not written: ")
    assert path.read_text("utf-8") == text


def test_a_baseline_edited_by_hand_is_invalid(
    run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    for path in stored.parent.glob("*/toy-*.json"):
        document = json.loads(path.read_text("utf-8"))
        (session,) = document["sessions"]
        document["sessions"] = [
            {
                **session,
                "session": f"s{factor}",
                "medians_ns": {
                    arm: [value * factor for value in values]
                    for arm, values in session["medians_ns"].items()
                },
            }
            for factor in (1, 10, 100)
        ]
        path.write_text(json.dumps(document), "utf-8")
    fails(run("-k", "latency"), "they say nothing (edited by hand?)")


CONFTEST = """
import builtins
from types import SimpleNamespace

from pytest_sme2.results import Arm
from tests.support.pretended_device import PretendedDevice, pretend, program

toy = program("toy")
device = PretendedDevice({toy.sha256: {Arm.ON: 30e6, Arm.OFF: 90e6}}, seed=2)
pretend(SimpleNamespace(setattr=builtins.setattr), device, toy)
"""
DIES = """
import os

import pytest

@pytest.mark.parametrize("way", "abc")
def test_dies(sme2_gate, way):
    with open("ran.txt", "a") as file:
        file.write(way)
    os._exit(3)
"""


def test_tests_that_end_their_workers_run_once_and_their_case_does_not_pass(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_suite=SUITE + DIES)
    result = pytester.runpytest_subprocess("-n", "2", "--sme2-variants=fp32")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert sorted((pytester.path / "ran.txt").read_text()) == ["a", "b", "c"]
    result.stdout.fnmatch_lines(["toy-fp32*INVALID*", "toy-fp32 *worker *"])


@pytest.mark.parametrize("stop", ["-x", "--maxfail=1"])
def test_a_run_that_stops_early_names_what_it_left(stop: str, run: Run, stored: Path) -> None:
    fails(run("--sme2-strict", stop, slow=True), "NOT_MEASURED: toy-fp32")


def test_the_tests_that_failed_last_are_a_part(
    run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    again = ("-p", "cacheprovider", "--sme2-strict", "--lf")
    assert run(*again, slow=True).ret == pytest.ExitCode.TESTS_FAILED
    result = run(*again)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["contract: 4 of 10 lines compared", "*DESELECTED: toy-fp16 on *"])


def test_two_updates_at_once_lose_nothing(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeconftest(CONFTEST)
    updates = [
        pytester.popen(
            [sys.executable, "-m", "pytest", "--update-baselines", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for options in (
            (f"--sme2-variants={variant}", f"--sme2-out={variant}") for variant in ("fp32", "fp16")
        )
    ]
    assert [update.wait() for update in updates] == [0, 0]
    result = run("--sme2-strict")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["contract: 10 of 10 lines compared"])
