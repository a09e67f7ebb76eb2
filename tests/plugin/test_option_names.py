"""Options of others that have the names of ours: both work, and a line says which is which."""

import pytest

CONFTEST = """
    from pytest_sme2.plugin.options import read_settings

    def pytest_addoption(parser):
        parser.addoption("--device", default="none")

    def pytest_report_header(config):
        return f"theirs: {config.getoption('--device')}, ours: {read_settings(config).device}"
"""
CLASH = (
    "sme2: --device belongs to another plugin or to a conftest.py here. The option of "
    "pytest-sme2 is --sme2-device."
)


def test_a_conftest_keeps_its_option_and_ours_has_another_name(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    result = pytester.runpytest_inprocess("--device", "tablet", "--sme2-device=linux")
    result.stdout.fnmatch_lines([CLASH, "theirs: tablet, ours: linux"])
    result = pytester.runpytest_inprocess("--device=emulated")
    result.stdout.fnmatch_lines([CLASH, "theirs: emulated, ours: auto"])
    # Where nothing of ours is meant, nothing is said.
    result = pytester.runpytest_inprocess("--device=tablet")
    result.stdout.fnmatch_lines(["theirs: tablet, ours: auto"])
    result.stdout.no_fnmatch_line("*belongs to another*")


def test_another_plugin_keeps_its_option(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(other_plugin=CONFTEST)
    pytester.syspathinsert()
    result = pytester.runpytest_inprocess(
        "-p", "other_plugin", "--device=tablet", "--sme2-device=linux"
    )
    result.stdout.fnmatch_lines(["theirs: tablet, ours: linux"])


def test_an_ini_value_leaves_all_short_names_to_others(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nsme2_long_options = true\n")
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_inprocess("--threads=2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    pytester.runpytest_inprocess("--sme2-threads=2").assert_outcomes(passed=1)


def test_a_value_after_a_space_is_not_a_folder_of_tests(pytester: pytest.Pytester) -> None:
    """Else the conftest files of testpaths would not be read before the options."""
    pytester.makeini("[pytest]\ntestpaths = checks\n")
    folder = pytester.mkdir("checks")
    (folder / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--phase', default='one')\n"
    )
    (folder / "test_it.py").write_text(
        "def test_it(pytestconfig):\n    assert pytestconfig.getoption('--phase') == 'two'\n"
    )
    result = pytester.runpytest_inprocess("--device", "linux", "--phase=two")
    result.assert_outcomes(passed=1)
