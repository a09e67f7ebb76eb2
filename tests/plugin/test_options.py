"""The plugin's face: help, usage errors, and staying out of the way."""

from pathlib import Path

import pytest


def test_help_groups_the_options_under_one_heading(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--help")
    text = result.stdout.str()
    heading = text.index("performance of ExecuTorch models on Arm with SME2:")
    for flag in ("--device", "--update-baselines", "--sme2-models", "--threads", "--sme2-strict"):
        assert text.index(f"  {flag}", heading) > heading
    assert "sme2_device (string):" in text
    assert "sme2_models (linelist):" in text


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--device=phone", "*--device: 'phone' is not a device. Choose one of: auto, *"),
        ("--threads=none", "*--threads: 'none' is not a thread count.*as in 1,2,4*"),
        ("--sme2-variants=fp17", "*--sme2-variants: 'fp17' is not a variant. Choose one of: *"),
    ],
)
def test_bad_values_are_usage_errors(
    pytester: pytest.Pytester, argument: str, message: str
) -> None:
    result = pytester.runpytest_subprocess(argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_a_bad_ini_value_names_the_ini_value(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nsme2_device = phone\n")
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*ini value sme2_device: 'phone' is not a device.*"])


def test_the_command_line_wins_over_ini(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nsme2_device = phone\nsme2_threads = 2\n")
    pytester.makeconftest(
        """
        from pytest_sme2.plugin.options import read_settings

        def pytest_report_header(config):
            chosen = read_settings(config)
            return f"chosen: {chosen.device} {chosen.threads}"
        """
    )
    result = pytester.runpytest_subprocess("--device=linux")
    result.stdout.fnmatch_lines(["chosen: linux (2,)"])


def test_serials_may_be_given_one_by_one_or_in_a_list(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nsme2_serials = from-ini\n")
    pytester.makeconftest(
        """
        from pytest_sme2.plugin.options import read_settings

        def pytest_report_header(config):
            return f"serials: {read_settings(config).serials}"
        """
    )
    result = pytester.runpytest_subprocess("--serial=a", "--serial", "b,c", "--serial=x y;$(z)")
    result.stdout.fnmatch_lines(["serials: ('a', 'b', 'c', 'x y;$(z)')"])
    result = pytester.runpytest_subprocess("--device=android")
    result.stdout.fnmatch_lines(["serials: ('from-ini',)"])


HEAVY = ("torch", "executorch", "pandas", "numpy", "scipy", "adbutils")


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


def test_unused_it_says_nothing_in_the_header(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess()
    result.stdout.no_fnmatch_line("sme2:*")


def test_a_folder_that_pytest_took_for_tests_is_named(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    """A quirk of pytest's: what follows an option it does not know yet may move its root folder."""
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    pytester.makeini("[pytest]\nsme2_models = models\n")
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess("--sme2-out", str(elsewhere))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*Write --sme2-out={elsewhere}"])
    for words in ([f"--sme2-out={elsewhere}"], ["--sme2-out", str(elsewhere), "."]):
        assert pytester.runpytest_subprocess(*words).ret == pytest.ExitCode.OK
    inside = pytester.mkdir("out")
    assert pytester.runpytest_subprocess("--sme2-out", str(inside)).ret == pytest.ExitCode.OK
