import pytest


@pytest.mark.parametrize("flag", ["--runner-on", "--runner-off"])
def test_a_pair_of_runners_needs_both(pytester: pytest.Pytester, flag: str) -> None:
    result = pytester.runpytest_subprocess(f"{flag}=/bin/true")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*Give both --runner-on and --runner-off*"])
