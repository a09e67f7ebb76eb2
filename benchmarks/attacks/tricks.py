"""What makes a failed check look passed, and what merges runs that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.attacks.choices import CI, MARKED, SLOWER, hook
from benchmarks.attacks.stage import (
    Attack,
    Change,
    Project,
    add,
    equal,
    nothing,
    of,
    remove,
    write,
)
from benchmarks.trials import Ending
from tests.support.toy_project import GATE_SUITE as SUITE


def hidden(what: str, change: Change, **given: object) -> Attack:
    """The program is slower, and something hides that its check failed."""
    chosen = {"words": "", "variables": CI, "device": SLOWER, **given}
    return Attack(what, "REGRESSED", change, **chosen)  # type: ignore[arg-type]


PASSES = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.outcome = "passed"
    return report

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    session.exitstatus = 0
"""
TWICE = """
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
CAUGHT = """
def test_latency(sme2_gate):
    try:
        sme2_gate.check_latency()
    except BaseException:
        pass

def test_structure(sme2_gate):
    sme2_gate.check_operators()
    sme2_gate.check_evidence()
"""
DIES = """
import os

import pytest

@pytest.mark.parametrize("way", "abc")
def test_dies(sme2_gate, way):
    os._exit(3)
"""
HIDDEN = of(
    "a failed check that is hidden",
    hidden("nothing hides it", nothing),
    hidden("only the arm without SME2 is slower", nothing, device={"off": 2.0}),
    hidden("an expected failure", write("test_suite.py", MARKED.format("xfail"))),
    hidden("... that never runs", write("test_suite.py", MARKED.format("xfail(run=True)"))),
    hidden("a function that judges is replaced", hook(
        "from pytest_sme2.verdict import judging\n"
        "judging.failing = lambda checks, strict: []\n")),
    hidden("a hook passes every test and every run", hook(PASSES)),
    hidden("a skip after the check", write("test_suite.py", "import pytest\n" + SUITE.replace(
        "    sme2_gate.check_latency()\n",
        "    try:\n        sme2_gate.check_latency()\n    finally:\n        pytest.skip('x')\n"))),
    hidden("the test catches everything", write("test_suite.py", CAUGHT)),
    hidden("a second try that checks nothing", hook(TWICE)),
    hidden("the checks are taken away", write("test_suite.py", SUITE.replace(
        "    sme2_gate.check_latency()\n",
        "    try:\n        sme2_gate.check_latency()\n    except BaseException:\n"
        "        sme2_gate.take_checks()\n"))),
    hidden("a busy neighbour", nothing, device={**SLOWER, "machine": {"interference": 0.3}}),
    Attack("tests end their workers", "INVALID", add("test_suite.py", DIES),
           words="-n 2 --sme2-strict"),
    equal("two workers", words="-n 2 --sme2-strict"),
    equal("other bytes, as fast", device={"other": True}),
    equal("as fast beside a busy neighbour",
          device={"other": True, "machine": {"interference": 0.3}}),
)  # fmt: skip


def merged(words: str, *changes: Change) -> Callable[[Project], Ending]:
    """Change something in the run directory, then merge."""

    def then(project: Project) -> Ending:
        for change in changes:
            change(project)
        return project.sme2(f"merge {words} --out merged")

    return then


def shard(change: Callable[[dict[str, object]], object]) -> Change:
    def edited(project: Project) -> None:
        path = project.path / "sme2-out" / "tests.json"
        document = json.loads(path.read_text("utf-8"))
        change(document)
        path.write_text(json.dumps(document), "utf-8")

    return edited


def _checks_pass(project: Project) -> None:
    """Every recorded verdict of a red run is made a green one, in its records alone."""
    for path in Path(project.path, "sme2-out").rglob("metrics.json"):
        path.write_text(path.read_text("utf-8").replace("REGRESSED", "PASS"), "utf-8")


MERGED = of(
    "runs that are merged",
    Attack("half of the tests", "NOT_MEASURED: toy-fp16, toy-fp32 on",
           words="--sme2-strict -k latency", then=merged("sme2-out")),
    Attack("a case's folder is gone", "1 case that it measured, and whose folder is gone",
           then=merged("sme2-out", remove("sme2-out/toy-fp16"))),
    Attack("an exit code that nothing explains", "ended with exit code 1, and none of its tests",
           then=merged("sme2-out", shard(lambda found: found.update(exit_code=1)))),
    Attack("a run that was interrupted", "before all its tests had run",
           then=merged("sme2-out", shard(lambda found: found.update(exit_code=2)))),
    Attack("a red run", "REGRESSED", device=SLOWER, then=merged("sme2-out")),
    Attack("a red run that calls itself green", "REGRESSED", device=SLOWER,
           then=merged("sme2-out", shard(lambda found: found.update(exit_code=0, tests={})))),
    Attack("a red run whose records call it green", "failed", device=SLOWER,
           then=merged("sme2-out", _checks_pass)),
    Attack("a run in two shards, and one of them", "Shards that are missing, of 2: 2.",
           then=merged("sme2-out", shard(lambda found: found.update(number=1, of=2)))),
    Attack("the same run twice", "is named twice", then=merged("sme2-out sme2-out"), code=2),
    Attack("baselines that are nowhere", "there is no folder 'nowhere'", code=2,
           then=merged("sme2-out --baseline-dir nowhere")),
    Attack("baselines that are gone", "holds no baseline",
           then=merged("sme2-out", remove("baselines"))),
    Attack("a run directory of nothing", "", then=merged("empty", write("empty/x", "")), code=2),
    Attack("a run that stored baselines", "nothing was compared: it is a run that stored",
           words="--update-baselines", then=merged("sme2-out")),
    Attack("a whole run", "2 cases, 4 tests: 4 passed", code=0, then=merged("sme2-out")),
)  # fmt: skip

ATTACKS = (*HIDDEN, *MERGED)
