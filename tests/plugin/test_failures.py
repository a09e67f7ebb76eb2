"""What is missing or cannot be made is told once, not by every test that needs it."""

import json
import sys

import pytest

from tests.support.needs import needs_export
from tests.support.toy_project import add_model, at_home

MODEL = """
from pathlib import Path

from pytest_sme2 import register_model


@register_model("hopeless", variants=("fp32",))
class Hopeless:
    def get_eager_model(self):
        with open({journal!r}, "a") as file:
            file.write("tried\\n")
        raise ValueError("there are no weights for this")

    def get_example_inputs(self):
        return ()
"""


@needs_export
def test_a_model_that_cannot_be_exported_is_exported_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(pytester.path / "cache"))
    journal = pytester.path / "journal"
    folder = pytester.mkdir("models") / "hopeless"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL.format(journal=str(journal)), "utf-8")
    pytester.makeini("[pytest]\nsme2_models = models\nsme2_device = linux\n")
    asked = {"one": "artifact", "two": "artifact", "three": "profile"}
    tests = (f"def test_{name}(sme2_{value}): pass" for name, value in asked.items())
    pytester.makepyfile("\n".join(tests))
    reports = ("--sme2-report=report.html", "--sme2-report=comment.json", "--junitxml=junit.xml")
    with at_home():
        result = pytester.runpytest_inprocess("--device=linux", *reports, "--sme2-history=history")
    result.assert_outcomes(errors=1, skipped=2)
    result.stdout.fnmatch_lines(["*there are no weights for this*"])
    assert journal.read_text() == "tried\n"

    result.stdout.fnmatch_lines(
        ["case *verdict", "*fp32*FAILED", "*- hopeless-fp32: Model 'hopeless'*"]
    )
    assert "no weights for this" in result.stdout.str().partition("= sme2 =")[2]
    for report in ("report.html", "junit.xml", "comment.json", "sme2-out/report.md"):
        text = (pytester.path / report).read_text("utf-8")
        assert "there are no weights for this" in text, report
    page = (pytester.path / "report.html").read_text("utf-8")
    document = json.loads(page.partition('application/json">')[2].partition("</script>")[0])
    assert not (pytester.path / "history").exists(), "it has no figures"
    assert [case["id"] for case in document["cases"]] == ["hopeless-fp32"]


TESTS = """
def test_coverage(sme2_gate):
    sme2_gate.check_coverage()

def test_evidence(sme2_gate):
    sme2_gate.check_evidence()

def test_something_else():
    pass
"""
# The one that this machine is not.
OTHER = "linux" if sys.platform == "darwin" else "mac"


def test_the_first_test_fails_and_the_others_are_skipped(pytester: pytest.Pytester) -> None:
    add_model(pytester.path)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess(f"--device={OTHER}", "-rs", "--no-header")
    result.assert_outcomes(failed=1, skipped=3, passed=1)
    text = result.stdout.str()
    assert text.count(f"--device={OTHER} runs on this machine, but this machine runs") <= 2
    result.stdout.fnmatch_lines(["SKIPPED*there is no device: *test_coverage*toy-fp32* says why"])
    assert result.ret == 125
