"""Green means that everything that was promised was compared: whole runs and their exit codes.

The device is a pretended one; everything above it is the product's own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.results import Arm
from pytest_sme2.verdict import judging
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


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test leaves its baselines for the others, which saves half of the time."""
    return tmp_path_factory.mktemp("shelf") / "baselines"


@pytest.fixture
def stored(run: Run, shelf: Path, pytester: pytest.Pytester) -> Path:
    """The baselines after an update of everything."""
    baselines = pytester.path / "baselines"
    if not shelf.exists():
        assert run("--update-baselines").ret == pytest.ExitCode.OK
        shutil.copytree(baselines, shelf)
        shutil.rmtree(pytester.path / "sme2-out")
    shutil.copytree(shelf, baselines, dirs_exist_ok=True)
    return baselines


def edit(baselines: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit each baseline as a person may."""
    for path in baselines.glob("*/*.json"):
        document = json.loads(path.read_text("utf-8"))
        change(document)
        path.write_text(json.dumps(document), "utf-8")


def texts(baselines: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in baselines.glob("*/*.json")}


def said(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


def fails(result: pytest.RunResult, words: str) -> None:
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert words in said(result)


def test_an_update_says_what_must_be_compared_and_a_second_one_changes_nothing(
    run: Run, stored: Path
) -> None:
    (path,) = stored.glob("*/toy-fp16.json")
    accepted = json.loads(path.read_text("utf-8"))["accepted"]
    assert accepted["figures"]["1"] == {
        **dict.fromkeys(("latency (off)", "latency (on)"), "test_latency"),
        **dict.fromkeys(("evidence", "operators (off)", "operators (on)"), "test_structure"),
    }
    assert accepted["limits"]["max_regression"] == 0.02
    before = texts(stored)
    assert run("--update-baselines=dry", "-k", "structure").ret == pytest.ExitCode.OK
    assert texts(stored) == before
    assert run("--update-baselines", "-k", "structure").ret == pytest.ExitCode.OK
    assert json.loads(path.read_text("utf-8"))["accepted"] == accepted


def test_all_of_it_compared_is_green(run: Run, stored: Path) -> None:
    result = run("--sme2-strict")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["compared: 10 of 10 stored figures"])


def remove_models(project: Path) -> None:
    (project / "models" / "toy" / "model.py").unlink()
    (project / "models" / "toy").rmdir()


MARKED = f"import pytest\npytestmark = pytest.mark.{{}}\n{SUITE}"


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        (MARKED.format("skip(reason='later')"), "nothing was compared"),
        ("", "no model is known to this run"),
        ("def test_it(sme2_gate): pass\n", "nothing was compared"),
        (MARKED.format("sme2(variants='int8')"), "asks for variants int8, which no model has"),
    ],
    ids=["skipped", "no model", "no check", "another variant"],
)
@pytest.mark.parametrize("baselines", [True, False])
def test_strict_is_never_green_and_empty(
    suite: str, words: str, baselines: bool, run: Run, request: Any
) -> None:
    path = request.getfixturevalue("pytester").path
    if baselines:
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


def drop_by_hook(project: Path) -> None:
    hook = """
        def pytest_collection_modifyitems(items):
            items[:] = [item for item in items if "latency" not in item.name]
    """
    (project / "conftest.py").write_text(textwrap.dedent(hook), "utf-8")


def drop_all_tests(project: Path) -> None:
    (project / "test_suite.py").write_text("def test_nothing(): pass\n", "utf-8")


def loosen(project: Path) -> None:
    (project / "models" / "toy" / "limits.toml").write_text("max_regression = '150%'\n", "utf-8")


def loosen_a_variant(project: Path) -> None:
    text = "[variant.fp16]\nmax_regression = '150%'\n"
    (project / "models" / "toy" / "limits.toml").write_text(text, "utf-8")


def ini(line: str) -> Callable[[Path], None]:
    def add(project: Path) -> None:
        with (project / "tox.ini").open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")

    return add


def other_machine(project: Path) -> None:
    (folder,) = (project / "baselines").glob("linux-*")
    folder.rename(folder.with_name("linux-of-another"))
    edit(project / "baselines", lambda found: found["fingerprint"]["facts"].update(cpu="other"))


def older(project: Path) -> None:
    def change(found: dict[str, Any]) -> None:
        found["schema"] = 2
        del found["accepted"]

    edit(project / "baselines", change)


def promise_nothing(project: Path) -> None:
    edit(project / "baselines", lambda found: found["accepted"].pop("figures"))


def no_limits(project: Path) -> None:
    edit(project / "baselines", lambda found: found["accepted"].pop("limits"))


def damage(project: Path) -> None:
    (path,) = (project / "baselines").glob("*/toy-fp32.json")
    path.write_text("{", "utf-8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename_model, "NOT_MEASURED: toy-fp16, toy-fp32 on linux-4ddc968212d1: evidence, latency"),
        (drop_variant, "no model of this run has this variant."),
        (drop_test, "latency (off), latency (on): no test compared it; test_latency did."),
        (drop_by_hook, "latency (off), latency (on): no test compared it; test_latency did."),
        (drop_all_tests, "no test compared it; test_latency did."),
        (ini("addopts = -k structure"), "no test compared it; test_latency did."),
        (ini("addopts = -m nothing"), "no test compared it"),
        (ini("addopts = --deselect test_suite.py::test_latency"), "no test compared it"),
        (ini("addopts = --sme2-models=toy --sme2-variants=fp32"), "no test compared it"),
        (ini("sme2_variants = fp32"), "toy-fp16 on linux-4ddc968212d1: latency (off), latency"),
        (ini("addopts = --sme2-limit=max_regression=150%"), "limit max_regression: 0.02 was acc"),
        (loosen, "limit max_regression: 0.02 was accepted, and it is 1.5."),
        (loosen_a_variant, "INVALID: toy-fp16 on linux-4ddc968212d1: limit max_regression: 0.02"),
        (other_machine, "holds no baseline for linux-4ddc968212d1. Make one"),
        (older, "2 baselines of an older version (toy-fp16, toy-fp32) cannot promise anything"),
        (promise_nothing, "2 baselines of an older version (toy-fp16, toy-fp32) cannot promise"),
        (no_limits, "limit max_regression: none was accepted, and it is 0.02."),
        (damage, "toy-fp32.json: the baseline cannot be read"),
    ],
)
def test_what_was_promised_and_not_compared_fails_in_ci(
    change: Callable[[Path], None], words: str, run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    change(pytester.path)
    fails(run(ci=True), words)


def test_without_ci_it_is_told(run: Run, stored: Path, pytester: pytest.Pytester) -> None:
    drop_test(pytester.path)
    told = run()
    assert told.ret == pytest.ExitCode.OK
    assert "no test compared it; test_latency did." in said(told)
    assert "stored figures" not in said(run("--co"))


def test_other_tests_of_the_project_are_not_held_to_it(
    run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    unit = pytester.mkdir("unit") / "test_unit.py"
    unit.write_text("def test_one(): pass\n", "utf-8")
    assert run("unit", ci=True).ret == pytest.ExitCode.OK
    fails(run("unit", "--device=linux", ci=True), "no test compared it")


@pytest.mark.parametrize("where", ["addopts", "environment"])
def test_only_the_command_line_asks_for_an_update_in_ci(
    where: str, run: Run, stored: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = texts(stored)
    if where == "addopts":
        ini("addopts = --update-baselines")(pytester.path)
    else:
        monkeypatch.setenv("PYTEST_ADDOPTS", "--update-baselines")
    for choice in ({"ci": True}, {}):
        result = run("--sme2-strict", slow=True, **choice)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*only the command line may ask for it*"])
    assert texts(stored) == before
    assert run("--update-baselines", ci=True).ret == pytest.ExitCode.OK


HIDING = {
    "an expected failure": (MARKED.format("xfail"), ""),
    "a patched function": (
        SUITE,
        """
        from pytest_sme2.verdict import judging
        judging.failing = lambda checks, strict: []
        """,
    ),
    "a hook that passes all": (
        SUITE,
        """
        import pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(item, call):
            report = yield
            report.outcome = "passed"
            return report

        @pytest.hookimpl(trylast=True)
        def pytest_sessionfinish(session):
            session.exitstatus = 0
        """,
    ),
    "a skip at the end": (
        "import pytest\n"
        + SUITE.replace(
            "    sme2_gate.check_latency()\n",
            "    try:\n        sme2_gate.check_latency()\n"
            "    finally:\n        pytest.skip('not today')\n",
        ),
        "",
    ),
}


@pytest.mark.parametrize("how", HIDING)
def test_no_trick_makes_a_failed_check_green(
    how: str,
    run: Run,
    stored: Path,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What a conftest.py patches here is put back.
    monkeypatch.setattr(judging, "failing", judging.failing)
    suite, conftest = HIDING[how]
    (pytester.path / "test_suite.py").write_text(suite, "utf-8")
    (pytester.path / "conftest.py").write_text(textwrap.dedent(conftest), "utf-8")
    assert run(ci=True).ret == pytest.ExitCode.OK
    result = run(ci=True, slow=True)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "REGRESSED" in said(result)
    merged = pytester.run("sme2", "merge", "sme2-out", "--out", "merged")
    assert merged.ret == 1
    assert "REGRESSED" in merged.stdout.str()


def test_a_second_try_does_not_forget_the_first(
    run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    """As plugins do that run a failed test again: the same item, with its last reports alone."""
    pytester.makeconftest(
        """
        import pytest
        from _pytest.runner import runtestprotocol

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(item, nextitem):
            runtestprotocol(item, nextitem=nextitem, log=False)
            from pytest_sme2.session.gate import Gate
            keep = Gate.check_latency
            Gate.check_latency = lambda gate: None
            for report in runtestprotocol(item, nextitem=nextitem, log=False):
                item.ihook.pytest_runtest_logreport(report=report)
            Gate.check_latency = keep
            return True
        """
    )
    result = run("--sme2-variants=fp32", "-k", "latency", ci=True, slow=True)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "REGRESSED, and no test failed: toy-fp32: latency (on)" in said(result)


def test_missing_baselines_are_one_sentence(run: Run) -> None:
    result = run("--sme2-strict")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = said(result)
    assert "NO_BASELINE: 2 cases (toy-fp32, toy-fp16). Store what is missing: pytest" in text
    assert text.count("Store what is missing") == 1


def test_a_change_of_what_is_measured_is_told(run: Run, stored: Path) -> None:
    fails(
        run("--sme2-strict", artifact={"weights": "other.pt"}),
        "INVALID: toy-fp16, toy-fp32 on linux-4ddc968212d1: weights: random (seed 0) was accepted, "
        "and it is other.pt.",
    )
    fails(run("--sme2-strict", "--threads=2", "-k", "structure"), "with another number of threads")


def test_a_contract_file_of_an_earlier_version_is_named(run: Run, stored: Path) -> None:
    (stored / "contract.txt").write_text("linux | toy | latency (on) | test_it\n", "utf-8")
    result = run("--sme2-strict")
    assert result.ret == pytest.ExitCode.OK
    assert "contract.txt says nothing any more" in said(result)
    assert (stored / "contract.txt").exists()


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
    fails(run("--sme2-strict", artifact=given(1e36)), "input 0 is not the accepted one")


@pytest.mark.parametrize(
    ("choice", "compared"),
    [
        (("-k", "latency"), 4),
        (("--sme2-variants=fp32",), 5),
        (("test_suite.py::test_latency",), 4),
        (("--deselect", "test_suite.py::test_structure"), 4),
        (("-m", "chosen", "--strict-markers"), 4),
    ],
)
def test_a_part_is_green_and_says_what_it_left(
    choice: tuple[str, ...], compared: int, run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    """A mark that a hook adds is one of the test, too."""
    pytester.makeconftest(
        """
        def pytest_configure(config):
            config.addinivalue_line("markers", "chosen: this")

        def pytest_collection_modifyitems(items):
            for item in items:
                if "latency" in item.name:
                    item.add_marker("chosen")
        """
    )
    result = run("--sme2-strict", *choice)
    assert result.ret == pytest.ExitCode.OK
    left = f"; the command line leaves {10 - compared} out"
    result.stdout.fnmatch_lines([f"compared: {compared} of 10 stored figures{left}"])


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
    less.stderr.fnmatch_lines(["sme2: NOT_MEASURED: toy-fp16, toy-fp32 on *: evidence, operators*"])
    nowhere = pytester.run("sme2", "merge", "latency", "--out", "no", "--baseline-dir", "nowhere")
    assert nowhere.ret == pytest.ExitCode.INTERRUPTED
    nowhere.stderr.fnmatch_lines(["*there is no folder 'nowhere'*"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda out: shutil.rmtree(out / "toy-fp16"), "1 case that it measured, and whose folder"),
        (lambda out: code(out, 1), "ended with exit code 1, and none of its tests and checks says"),
    ],
)
def test_a_run_that_its_records_do_not_explain_is_refused(
    change: Callable[[Path], None], words: str, run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    assert run("--sme2-strict").ret == pytest.ExitCode.OK
    assert pytester.run("sme2", "merge", "sme2-out", "--out", "whole").ret == 0
    change(pytester.path / "sme2-out")
    merged = pytester.run("sme2", "merge", "sme2-out", "--out", "merged")
    assert merged.ret == 1
    assert words in " ".join(merged.stderr.str().split())


def code(out: Path, exit_code: int) -> None:
    document = json.loads((out / "tests.json").read_text("utf-8"))
    (out / "tests.json").write_text(json.dumps({**document, "exit_code": exit_code}), "utf-8")


def test_commands_print_it(stored: Path, pytester: pytest.Pytester) -> None:
    result = pytester.run("sme2", "models", "--contract")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["DEVICE *", "linux-* toy-fp16 *latency (on) *test_latency"])


def test_a_figure_that_the_device_no_longer_measures_is_missed(run: Run, stored: Path) -> None:
    fails(run("--sme2-strict", sme2=False), "evidence: linux has no SME2")


def test_a_refused_update_is_not_green(run: Run, stored: Path) -> None:
    before = texts(stored)
    fails(run("--update-baselines", interference=0.3), "the machine was busy")
    result = run("--update-baselines=nothing", artifact={"weights": "other.pt"})
    fails(result, "toy-fp16: the baseline was not stored: a change matches no pattern")
    assert texts(stored) == before


def test_strict_names_a_broken_model(run: Run, stored: Path, pytester: pytest.Pytester) -> None:
    (pytester.path / "models" / "toy" / "model.py").write_text("import nothing_of_this_name\n")
    result = run("--sme2-strict")
    fails(result, "model.py registers no class")
    assert "INTERNALERROR" not in said(result)


@pytest.mark.parametrize("text", ["{ this is not JSON", '{"schema": 999}'])
def test_a_damaged_baseline_is_invalid_and_kept(run: Run, stored: Path, text: str) -> None:
    (path,) = stored.glob("*/toy-fp32.json")
    path.write_text(text, "utf-8")
    fails(run("-k", "structure"), "INVALID")
    fails(run("--update-baselines=all"), "toy-fp32: the baseline was not written: ")
    assert path.read_text("utf-8") == text


def test_a_baseline_edited_by_hand_is_invalid(run: Run, stored: Path) -> None:
    def change(document: dict[str, Any]) -> None:
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

    edit(stored, change)
    fails(run("-k", "latency"), "they say nothing (edited by hand?)")


CONFTEST = """
import builtins
from types import SimpleNamespace

from pytest_sme2.results import Arm
from pytest_sme2.verdict import judging
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
    fails(run("--sme2-strict", stop, slow=True), "NOT_MEASURED: toy-fp32 on")


def test_the_tests_that_failed_last_are_not_all(
    run: Run, stored: Path, pytester: pytest.Pytester
) -> None:
    again = ("-p", "cacheprovider", "--sme2-strict", "--lf")
    assert run(*again, slow=True).ret == pytest.ExitCode.TESTS_FAILED
    fails(run(*again), "no test compared it; test_structure did.")


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
    result.stdout.fnmatch_lines(["compared: 10 of 10 stored figures"])
