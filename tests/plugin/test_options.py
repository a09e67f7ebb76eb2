"""The plugin's face: help, usage errors, and staying out of the way."""

import sys
from pathlib import Path

import pytest

from pytest_sme2.session.options import FIRST, OPTIONS


def test_help_begins_with_what_people_need(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--help")
    text = result.stdout.str()
    heading = text.index("performance of ExecuTorch models on Arm with SME2:")
    more = text.index("more about SME2:", heading)
    for option in OPTIONS:
        place = text.index(f"  {option.flag}", heading)
        assert (place < more) == (option.name in FIRST), option.flag
    assert "sme2_device (string):" in text
    assert "sme2_models (linelist):" in text


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--sme2-runner=/bin/true", "*--sme2-runner: '/bin/true' are not two runners.*ON,OFF*"),
        ("--sme2-limit=max_regression=3", "*--sme2-limit: max_regression: '3' is not a fraction*"),
        ("--sme2-budget=,soon", "*--sme2-budget: 'soon' is not a time limit.*"),
        (
            "--sme2-report=report.pdf",
            "*--sme2-report: 'report.pdf' is not a report. Give FILE.html*",
        ),
        ("--sme2-lab=lab", "*--sme2-lab hands out phones. Give --device=android, too.*"),
        ("--sme2-lab=a lab", "*--sme2-lab: 'a lab' is not a coordinator. Give HOST or HOST:PORT.*"),
        ("--sme2-lab=lab,soc", "*--sme2-lab: 'soc' is not a tag of a place.*NAME=VALUE*"),
        ("--device=phone", "*--device: 'phone' is not a device. Choose one of: auto, *"),
        ("--threads=none", "*--threads: 'none' is not a thread count.*as in 1,2,4*"),
        ("--sme2-variants=fp17", "*--sme2-variants: 'fp17' is not a variant. Choose one of: *"),
    ],
)
def test_bad_values_are_usage_errors(
    pytester: pytest.Pytester, argument: str, message: str
) -> None:
    result = pytester.runpytest_inprocess(argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_a_bad_ini_value_names_the_ini_value(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nsme2_device = phone\n")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*ini value sme2_device: 'phone' is not a device.*"])


# The header then has a line for each setting.
CHOSEN = """
from pytest_sme2.plugin.options import read_settings

def pytest_report_header(config):
    return [f"{name}={value!r}" for name, value in vars(read_settings(config)).items()]
"""


def test_the_command_line_wins_over_ini(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nsme2_device = phone\nsme2_threads = 2\n")
    pytester.makeconftest(CHOSEN)
    result = pytester.runpytest_inprocess("--device=linux")
    result.stdout.fnmatch_lines(["device='linux'", "threads=(2,)"])


@pytest.mark.parametrize("flag", ["--update-baselines", "--sme2-update-baselines"])
def test_a_bare_option_takes_nothing_from_the_word_after_it(
    pytester: pytest.Pytester, flag: str
) -> None:
    pytester.makeconftest(CHOSEN)
    (pytester.mkdir("checks") / "test_it.py").write_text("def test_it(): pass")
    result = pytester.runpytest_inprocess(flag, "checks", f"{flag}=dry")
    result.stdout.fnmatch_lines(["dry_run=True", "force_update=False"])
    result.assert_outcomes(passed=1)


HEAVY = ("torch", "executorch", "pandas", "numpy", "scipy", "adbutils", "pytest_sme2.results")


def test_installed_but_unused_it_imports_nothing_heavy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest(
        f"""
        import sys

        def pytest_terminal_summary(terminalreporter):
            loaded = [name for name in {HEAVY} if name in sys.modules]
            terminalreporter.line(f"heavy: {{loaded}}")
            terminalreporter.line(f"plugin: {{'pytest_sme2.plugin.hooks' in sys.modules}}")
            terminalreporter.line(f"session: {{'pytest_sme2.session.session' in sys.modules}}")
        """
    )
    # Other installed plugins may load what they like: only ours is under test here.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_subprocess("--collect-only", "-p", "pytest_sme2.plugin.hooks")
    result.stdout.fnmatch_lines(["heavy: []", "plugin: True", "session: False"])
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_folder_that_pytest_took_for_tests_is_named(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    """A quirk of pytest's: what follows an option it does not know yet may move its root folder."""
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    pytester.makeini("[pytest]\nsme2_models = models\n")
    pytester.mkdir("models")
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_inprocess("--sme2-out", str(elsewhere))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*Write --sme2-out={elsewhere}"])
    for words in ([f"--sme2-out={elsewhere}"], ["--sme2-out", str(elsewhere), "."]):
        assert pytester.runpytest_inprocess(*words).ret == pytest.ExitCode.OK
    inside = pytester.mkdir("out")
    assert pytester.runpytest_inprocess("--sme2-out", str(inside)).ret == pytest.ExitCode.OK


# Options of others that have the names of ours: both work, and a line says which is which.
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
    # Where nothing of ours is meant, nothing is said.
    result = pytester.runpytest_inprocess("--device=tablet")
    result.stdout.fnmatch_lines(["theirs: tablet, ours: auto"])
    result.stdout.no_fnmatch_line("*belongs to another*")


def test_a_conftest_that_ends_the_run_is_an_error_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest("import sys; sys.exit()")
    run = [sys.executable, "-m", "pytest"]
    monkeypatch.setenv("CI", "true")
    assert pytester.run(*run).ret == pytest.ExitCode.OK
    pytester.makeini("[pytest]\nsme2_models = models\n")
    result = pytester.run(*run)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*a conftest.py ended this run with exit code 0*"])


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
