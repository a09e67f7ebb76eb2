"""Every way of dealing out tests to workers: a case is made by one process.

The stages of a case are replaced by one that takes its time over two files; torch is not needed.
"""

from pathlib import Path

import pytest

from tests.support.toy_project import add_model

# What would go wrong: a worker writes the files of a case while another one reads or writes them.
CONFTEST = """
import os
import time
from pathlib import Path

from pytest_sme2.plugin import progress
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.session import Session

progress.EVERY_SECONDS = 0.0


class Target:
    name = "linux"
    platform = "linux-x86_64"


HeldDevice.target = property(lambda self: Target())


def traced(self, case, arm):
    def make():
        self.say(f"{case.id}: exporting")
        folder = self.folder(case)
        folder.mkdir(parents=True, exist_ok=True)
        busy = os.open(folder / "busy", os.O_CREAT | os.O_EXCL)
        dump, shapes = folder / "run.etdump", folder / "run.shapes.json"
        for path in (dump, shapes):
            path.unlink(missing_ok=True)
        time.sleep(0.02)
        text = str(os.getpid())
        dump.write_text(text)
        time.sleep(0.02)
        shapes.write_text(text)
        os.close(busy)
        (folder / "busy").unlink()
        with (Path(__file__).parent / "made").open("a") as log:
            log.write(f"{case.id}\\n")
        return folder

    return self._once(make, "traced", case, arm)


Session.traced = traced
"""

SUITE = """
import os
import time

import pytest


@pytest.fixture
def files(sme2_session, sme2_model):
    return sme2_session.traced(sme2_model, "on")


def check(files):
    for _ in range(3):
        assert (files / "run.etdump").read_text() == str(os.getpid())
        assert (files / "run.shapes.json").read_text() == str(os.getpid())
        time.sleep(0.01)


class TestOne:
    def test_a(self, files):
        check(files)

    @pytest.mark.xdist_group("g")
    def test_b(self, files):
        check(files)


def test_c(files):
    check(files)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SME2_CACHE_DIR", str(pytester.path / "cache"))
    # Other plugins take seconds to load, three times for each mode.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("one", "two", "three"):
        add_model(pytester.path, name, "fp32")
    pytester.makeini("[pytest]\nsme2_models = models\nsme2_device = linux\n")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_one=SUITE, test_two=SUITE)
    return pytester.path


@pytest.mark.parametrize(
    "mode",
    [
        *("load", "loadfile", "foreign"),
        *(pytest.param(mode, marks=pytest.mark.nightly) for mode in ("loadscope", "loadgroup")),
        pytest.param("worksteal", marks=pytest.mark.nightly),
    ],
)
def test_every_way_of_dealing_out_tests(pytester: pytest.Pytester, suite: Path, mode: str) -> None:
    words = ["-n2", f"--dist={mode}"]
    if mode == "foreign":
        # A scheduler that knows nothing of cases: the next test goes to whoever is free.
        (suite / "foreign.py").write_text(
            "import pytest\nfrom xdist.scheduler import LoadScheduling\n\n"
            "@pytest.hookimpl(tryfirst=True)\ndef pytest_xdist_make_scheduler(config, log):\n"
            "    return LoadScheduling(config, log)\n",
            encoding="utf-8",
        )
        words = ["-n2", "-p", "foreign"]
        pytester.syspathinsert(suite)
    result = pytester.runpytest_subprocess("-pxdist.plugin", "-ppytest_sme2.plugin.hooks", *words)
    result.assert_outcomes(passed=18)
    for case in ("one-fp32", "two-fp32", "three-fp32"):
        result.stderr.re_match_lines([rf"sme2: gw[01]: {case}: exporting"])
    made = (suite / "made").read_text().split()
    assert sorted(made) == ["one-fp32", "three-fp32", "two-fp32"]


def test_a_way_that_would_measure_a_case_twice_is_refused(
    pytester: pytest.Pytester, suite: Path
) -> None:
    words = ("-pxdist.plugin", "-ppytest_sme2.plugin.hooks", "-n2", "--dist=each")
    result = pytester.runpytest_subprocess(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--dist=each would measure a case in two workers at once.*"])
