"""The end of a run as pytest shows it. What the tests found comes from stored dumps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sme2.results.case import Check
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.system.files import encode
from tests.support.records import toy_run

CONFTEST = """
import json
from pathlib import Path

import pytest

FOUND = json.loads(Path({path!r}).read_text())

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "teardown":
        report.sme2 = FOUND[int(item.name[-1])]
    return report
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Path:
    """Three tests, each of which measured one case."""
    root = pytester.path / "out"
    outcomes = (Outcome.REGRESSED, Outcome.PASS, Outcome.INCONCLUSIVE)
    found = [
        {
            "case": read_record(folder).id,
            "folder": str(folder),
            "checks": json.dumps(encode([Check("latency (on)", outcome, "Said.")])),
            "run": "this run",
        }
        for folder, outcome in zip(toy_run(root), outcomes, strict=True)
    ]
    path = pytester.path / "found.json"
    path.write_text(json.dumps(found))
    pytester.makeconftest(CONFTEST.format(path=str(path)))
    pytester.makepyfile("\n".join(f"def test_{number}(): pass" for number in range(3)))
    return root


def test_the_table_and_the_findings_are_shown(
    pytester: pytest.Pytester, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CI", "true")
    result = pytester.runpytest_inprocess("--sme2-out=out")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "*= sme2 =*",
            "case * on SME2 * verdict",
            "toy-fp32 * PASS",
            "toy-fp16 * REGRESSED",
            "toy-int8 * INCONCLUSIVE",
            "- toy: *",
            "report: *report.md",
        ]
    )
    assert (run / "report.md").is_file()
    assert "\x1b" not in result.stdout.str()


def test_verdicts_have_colours_on_a_terminal(pytester: pytest.Pytester, run: Path) -> None:
    text = pytester.runpytest_inprocess("--sme2-out=out", "--color=yes").stdout.str()
    assert "\x1b[31m\x1b[1mREGRESSED\x1b[0m" in text
    assert "\x1b[32mPASS\x1b[0m" in text
    assert "\x1b[33mINCONCLUSIVE\x1b[0m" in text


def test_quiet_shows_less_and_verbose_more(pytester: pytest.Pytester, run: Path) -> None:
    quiet = pytester.runpytest_inprocess("--sme2-out=out", "-q").stdout.str()
    assert "REGRESSED" in quiet
    assert "- toy:" not in quiet
    assert "report:" not in quiet
    silent = pytester.runpytest_inprocess("--sme2-out=out", "-qq").stdout.str()
    assert "REGRESSED" not in silent
    verbose = pytester.runpytest_inprocess("--sme2-out=out", "-v").stdout.str()
    usual = pytester.runpytest_inprocess("--sme2-out=out").stdout.str()
    assert verbose.count("- toy:") > usual.count("- toy:")
    for text in (quiet, verbose):
        lines = text[text.index("\ncase ") :].splitlines()
        assert max(len(line) for line in lines if not line.startswith(("report: ", "="))) <= 80


def test_the_short_summary_of_pytest_stays_whole(pytester: pytest.Pytester, run: Path) -> None:
    """With -rA pytest lists what passed; our table stands before that list and not within it."""
    lines = pytester.runpytest_inprocess("--sme2-out=out", "-rA").outlines
    table = next(number for number, line in enumerate(lines) if "= sme2 =" in line)
    summary = next(number for number, line in enumerate(lines) if "short test summary" in line)
    assert table < summary
    assert len([line for line in lines[summary:] if line.startswith("PASSED ")]) == 3
