"""Which tests are run for which models."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from pytest_sme2.errors import install
from tests.support.toy_project import add_model

PROGRAMS = Path(__file__).parents[1] / "data" / "programs"

ASKS_FOR_A_MODEL = """
    def test_it(sme2_model):
        assert sme2_model.model and sme2_model.variant
"""
MARKED = "import pytest\n\n@pytest.mark.sme2({})\ndef test_it(sme2_model): ...\n"


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    """The ids of the tests."""
    lines = pytester.runpytest_inprocess("--collect-only", "-q", *arguments).outlines
    return [line.partition("[")[2].rstrip("]") for line in lines if "::test_it[" in line]


def test_models_are_found_where_the_ini_file_says(pytester: pytest.Pytester) -> None:
    add_model(pytester.path, "one")
    (pytester.path / "models").rename(pytester.path / "nets")
    pytester.makeini("[pytest]\nsme2_models = nets\n")
    pytester.makepyfile(ASKS_FOR_A_MODEL)
    assert collected(pytester) == ["one-fp32", "one-fp16"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["one-fp32", "one-fp16", "two-fp32", "two-fp16"]),
        (["--sme2-models=two"], ["two-fp32", "two-fp16"]),
        (["--sme2-variants=fp16"], ["one-fp16", "two-fp16"]),
        (["--sme2-models=one", "--sme2-variants=fp32"], ["one-fp32"]),
        (["--threads=1,2", "--sme2-models=one", "--sme2-variants=fp32"],
         ["one-fp32", "one-fp32-t2"]),
        (["-k", "two-fp32"], ["two-fp32"]),
    ],
)  # fmt: skip
def test_selection(pytester: pytest.Pytester, arguments: list[str], expected: list[str]) -> None:
    add_model(pytester.path, "one")
    add_model(pytester.path, "two")
    pytester.makepyfile(ASKS_FOR_A_MODEL)
    assert collected(pytester, *arguments) == expected


def test_a_marker_narrows_the_selection(pytester: pytest.Pytester) -> None:
    add_model(pytester.path, "one")
    add_model(pytester.path, "two")
    pytester.makepyfile(MARKED.format("models=['two'], variants='fp16'"))
    assert collected(pytester) == ["two-fp16"]


@pytest.mark.parametrize("marker", ["models='three'", "variants=['fp17']", "models=7"])
def test_a_wrong_marker_is_a_plain_collection_error(pytester: pytest.Pytester, marker: str) -> None:
    add_model(pytester.path, "one")
    pytester.makepyfile(MARKED.format(marker))
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*.py::test_it: * is *"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert "plugin.py" not in result.stdout.str()


def test_an_unknown_model_lists_the_known_ones(pytester: pytest.Pytester) -> None:
    add_model(pytester.path, "one")
    pytester.makepyfile(ASKS_FOR_A_MODEL)
    result = pytester.runpytest_inprocess("--sme2-models=tow")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'tow' is not a model. Choose one of: one.*"])


def test_methods_of_a_program_are_cases_and_can_be_chosen(pytester: pytest.Pytester) -> None:
    add_model(pytester.path, "one", "fp32")
    shutil.copy(PROGRAMS / "methods.pte", pytester.path / "net.pte")
    pytester.makeini("[pytest]\nsme2_models =\n    models\n    *.pte\n")
    pytester.makepyfile(ASKS_FOR_A_MODEL)
    both = ["net-as exported", "net:scale-as exported"]
    assert collected(pytester) == ["one-fp32", *both]
    assert collected(pytester, "--sme2-models=net:scale") == both[1:]
    assert collected(pytester, "--sme2-models=net") == both


def test_a_broken_folder_fails_by_name_and_hides_nothing(pytester: pytest.Pytester) -> None:
    add_model(pytester.path, "good", "fp32")
    add_model(pytester.path, "bad").write_text("def broken(:\n")
    pytester.makepyfile(ASKS_FOR_A_MODEL)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*bad-broken*", "*def broken(:*", "*SyntaxError*"])


def test_no_model_at_all_is_a_skip_that_says_what_to_do(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ASKS_FOR_A_MODEL)
    result = pytester.runpytest_inprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no model is known*sme2_models*"])


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None,
    reason="torch is installed here; the environment `lowest` runs this without it",
)
def test_a_missing_extra_names_the_command_that_brings_it(pytester: pytest.Pytester) -> None:
    add_model(pytester.path, "one", "fp32")
    pytester.makepyfile("def test_it(sme2_artifact): ...")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    assert install("export") in result.stdout.str()


def test_the_emulator_gets_its_own_variants(pytester: pytest.Pytester) -> None:
    path = add_model(pytester.path, "one")
    text = path.read_text("utf-8").replace("'fp16')", "'fp16'), emulated=('fp32@8',)")
    path.write_text(text, encoding="utf-8")
    pytester.makepyfile(ASKS_FOR_A_MODEL)
    assert collected(pytester, "--device=emulated") == ["one-fp32@8"]
    assert collected(pytester, "--device=linux") == ["one-fp32", "one-fp16"]
    assert collected(pytester, "--device=emulated", "--sme2-variants=fp16") == ["one-fp16@8"]
