"""What a run leaves out without being asked to by its command line, and what changes its limits."""

from __future__ import annotations

from benchmarks.attacks.stage import (
    Attack,
    Change,
    Project,
    add,
    both,
    equal,
    move,
    of,
    remove,
    swap,
    write,
)
from tests.support.toy_project import GATE_SUITE as SUITE

CI = {"CI": "true"}
NOT_COMPARED = "no test compared it"
NOT_JUDGED = "nothing was judged: an ini file, a plugin or a conftest.py took the place"
NOTHING = "nothing was compared"
NO_LATENCY = "latency (off), latency (on): no test compared it; test_latency did."
UNKNOWN = "no model of this run has this variant."
LOOSER = "limit max_regression: 2 % was accepted, and it is 150 %."
SLOWER = {"on": 1.2, "off": 1.2}
MARKED = f"import pytest\npytestmark = pytest.mark.{{}}\n{SUITE}"


def ini(line: str) -> Change:
    return add("tox.ini", line)


def hook(text: str) -> Change:
    return write("conftest.py", text)


def in_ci(what: str, change: Change, said: str, **given: object) -> Attack:
    """Without --sme2-strict: that CI is set, and that baselines exist, has to be enough."""
    return Attack(what, said, change, words="", variables=CI, **given)  # type: ignore[arg-type]


DROPS = """
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if "latency" not in item.name]
"""
BACKWARDS = """
def pytest_collection_modifyitems(items):
    items.reverse()
"""
ADDS_MARK = """
def pytest_configure(config):
    config.addinivalue_line("markers", "chosen: this")

def pytest_collection_modifyitems(items):
    for item in items:
        if "latency" in item.name:
            item.add_marker("chosen")
"""


def _below(project: Project) -> None:
    write("below/README", "")(project)
    project.path /= "below"


GONE = of(
    "what is gone",
    in_ci("a model gets another name", both(
        move("models/toy", "models/other"), swap("models/other/model.py", "'toy'", "'other'")),
        "NOT_MEASURED: toy-fp16, toy-fp32 on linux-4ddc968212d1: evidence, latency"),
    in_ci("a variant is gone", swap("models/toy/model.py", ", 'fp16'", ","), UNKNOWN),
    in_ci("a test gets a name that is no test", swap("test_suite.py", "test_latency", "latency"),
          NO_LATENCY),
    Attack("... and only the other test is run", NO_LATENCY,
           swap("test_suite.py", "test_latency", "latency"), words="--sme2-strict -k structure"),
    in_ci("the last test about a model is gone", write("test_suite.py", "def test_x(): pass\n"),
          NOT_COMPARED),
    in_ci("all tests are gone", remove("test_suite.py"), NOT_COMPARED),
    Attack("the folder of models is empty", "no model is known to this run", remove("models/toy")),
    Attack("a model's module cannot be imported", "model.py registers no class",
           write("models/toy/model.py", "import nothing_of_this_name\n")),
    Attack("all tests are skipped", "nothing was compared",
           write("test_suite.py", MARKED.format("skip(reason='later')"))),
    Attack("tests are for a variant that no model has", "asks for variants int8",
           write("test_suite.py", MARKED.format("sme2(variants='int8')"))),
    Attack("a test asks for the gate and checks nothing", "nothing was compared",
           write("test_suite.py", "def test_it(sme2_gate): pass\n")),
    Attack("there is no baseline", "holds no baseline for linux-4ddc968212d1", stored=False),
    Attack("the folder of baselines was emptied", "holds no baseline", remove("baselines")),
    in_ci("every stored file is gone", remove("baselines/linux-4ddc968212d1"), "holds no baseline"),
    in_ci("a conftest.py ends the run", hook("import sys; sys.exit()"), "ended this run", code=4),
    in_ci("the ini names another folder of baselines, which is empty",
          both(write("other/README", ""), ini("sme2_baseline_dir = other")), "no baseline"),
    Attack("the device no longer measures a figure", "evidence: linux has no SME2",
           device={"machine": {"sme2": False}}),
    in_ci("another machine's baselines", lambda project: _of_another(project),
          "holds no baseline for linux-4ddc968212d1. Make one"),
    equal("nothing is changed"),
    equal("the run begins in another folder", _below, words="--sme2-strict .."),
    equal("tests come in another order", hook(BACKWARDS)),
    equal("a test file gets another name", move("test_suite.py", "test_other.py")),
    equal("another test compares the same", swap("test_suite.py", "test_latency", "test_time")),
    equal("a mark that a hook adds chooses what it marks", hook(ADDS_MARK),
          words="--sme2-strict -m chosen --strict-markers",
          said="compared: 4 of 10 stored figures; the command line leaves 6 out"),
    equal("the command line chooses a variant", words="--sme2-strict --sme2-variants=fp32",
          said="compared: 5 of 10 stored figures; the command line leaves 5 out"),
    equal("the command line names a test", words="--sme2-strict test_suite.py::test_latency",
          said="compared: 4 of 10 stored figures; the command line leaves 6 out"),
    equal("the command line deselects a test", said="leaves 6 out",
          words="--sme2-strict --deselect test_suite.py::test_structure"),
)  # fmt: skip


def _of_another(project: Project) -> None:
    from benchmarks.attacks.stage import edit

    edit(lambda found: found["fingerprint"].update(facts=[["cpu", "other"]]))(project)
    (folder,) = (project.path / "baselines").glob("linux-*")
    folder.rename(folder.with_name("linux-of-another"))


NARROWED = of(
    "what narrows a run",
    in_ci("a hook drops tests", hook(DROPS), NO_LATENCY),
    *(
        in_ci(f"the ini has {line}", ini(line), said)
        for line, said in (
            ("addopts = -k structure", NO_LATENCY),
            ("addopts = -m nothing", NOT_COMPARED),
            ("addopts = --deselect test_suite.py::test_latency", NOT_COMPARED),
            ("addopts = --sme2-models=toy --sme2-variants=fp32", NOT_COMPARED),
            ("sme2_variants = fp32", "toy-fp16 on linux-4ddc968212d1: "),
            ("addopts = --ignore=test_suite.py", NOT_COMPARED),
            ("addopts = --collect-only", NOT_JUDGED),
            ("addopts = --setup-plan", NOTHING),
            ("addopts = --setup-only", NOTHING),
            ("addopts = --fixtures", NOTHING),
            ("addopts = --markers", NOT_JUDGED),
            ("addopts = --help", NOT_JUDGED),
            ("addopts = -p no:sme2-watch -k structure", NOT_JUDGED),
            ("python_files = check_*.py", NOT_COMPARED),
            ("python_functions = test_structure", NO_LATENCY),
            ("sme2_threads = 2", "with another number of threads"),
        )
    ),
    in_ci("PYTEST_ADDOPTS has -k", lambda project: project.variables.update(
        PYTEST_ADDOPTS="-k structure"), NO_LATENCY),
    in_ci("a conftest.py ignores the file", hook("collect_ignore = ['test_suite.py']\n"),
          NOT_COMPARED),
    in_ci("a hook runs no test", hook(
        "def pytest_runtest_protocol(item, nextitem):\n    return True\n"), NOT_COMPARED),
    in_ci("a hook replaces the loop of tests", hook(
        "def pytest_runtestloop(session):\n    return True\n"), NOT_COMPARED),
    in_ci("a hook replaces the whole run", hook(
        "def pytest_cmdline_main(config):\n    return 0\n"), "nothing"),
    in_ci("a hook says --collect-only", hook(
        "def pytest_configure(config):\n    config.option.collectonly = True\n"), "nothing"),
    in_ci("a hook chooses a variant", hook(
        "def pytest_configure(config):\n    config.option.sme2_variants = 'fp32'\n"),
        "toy-fp16 on linux-4ddc968212d1: "),
    in_ci("the ini names a folder of other tests", both(
        write("elsewhere/test_one.py", "def test_one(): pass\n"), ini("testpaths = elsewhere")),
        NOT_COMPARED),
    in_ci("a test ends the run with exit code 0", write("test_a.py", (
        "import pytest\ndef test_it():\n    pytest.exit('done', returncode=0)\n")), NOT_COMPARED),
    in_ci("a fixture of every test skips it", hook(
        "import pytest\n@pytest.fixture(autouse=True)\ndef later():\n    pytest.skip('later')\n"),
        NOT_COMPARED),
    Attack("-x leaves the rest of the tests", "NOT_MEASURED: toy-fp32 on", device=SLOWER,
           words="--sme2-strict -x"),
    Attack("--lf: only what failed before", "no test compared it; test_structure did.",
           lambda project: project.pytest("-p cacheprovider --sme2-strict", on=1.2),
           words="-p cacheprovider --sme2-strict --lf"),
    Attack("other tests of the project are not held to it", "1 passed", code=0,
           change=write("unit/test_unit.py", "def test_one(): pass\n"), words="unit",
           variables=CI),
    Attack("... but where its command line speaks of a device", NOT_COMPARED,
           write("unit/test_unit.py", "def test_one(): pass\n"), words="unit --device=linux",
           variables=CI),
)  # fmt: skip

LIMITS = of(
    "limits and updates that nobody accepted",
    *(
        in_ci(what, change, LOOSER, device=SLOWER)
        for what, change in (
            ("limits.toml of the model", write("models/toy/limits.toml",
                                               "max_regression = '150%'\n")),
            ("a table for one variant", write("models/toy/limits.toml",
             "[variant.fp16]\nmax_regression = '150%'\n[variant.fp32]\nmax_regression = '150%'\n")),
            ("limits.toml of the baselines", write("baselines/limits.toml",
                                                   "max_regression = '150%'\n")),
            ("--sme2-limit in the ini", ini("addopts = --sme2-limit=max_regression=150%")),
        )
    ),
    Attack("a looser limit of the command line", LOOSER, device=SLOWER,
           words="--sme2-strict --sme2-limit=max_regression=150%"),
    in_ci("a budget in which nothing is certain", ini("sme2_budget = 1s,2s"), "REGRESSED",
          device={"on": 1.05}),
    Attack("the ini asks for an update", "only the command line may ask for it",
           ini("addopts = --update-baselines"), device=SLOWER, code=4),
    in_ci("... in CI", ini("addopts = --update-baselines"), "only the command line may ask for it",
          device=SLOWER, code=4),
    Attack("PYTEST_ADDOPTS asks for an update", "only the command line may ask for it",
           device=SLOWER, code=4, variables={"PYTEST_ADDOPTS": "--update-baselines"}),
    Attack("an update on a busy machine", "the machine was busy", words="--update-baselines",
           device={"machine": {"interference": 0.3}, "on": 1.5}),
    Attack("an update of a kind that there is not", "'nothing' is not a way to update", code=4,
           words="--update-baselines=nothing", device={"artifact": {"weights": "other.pt"}}),
)  # fmt: skip

ATTACKS = (*GONE, *NARROWED, *LIMITS)
