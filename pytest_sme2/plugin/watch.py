"""Follows one run: what it keeps in pytest's stashes, which tests were found, what became of them,
and what the command line left out.

At the end, in the one process that writes, it holds the run to the contract of the baselines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sme2.errors import LASTING, Sme2Error, plain
from pytest_sme2.plugin.options import anything_chosen, asks_to_show, in_ci, read_settings, typed

if TYPE_CHECKING:
    from pytest_sme2.results.case import Check
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.gate import Gate
    from pytest_sme2.session.run_directory import CaseRecord
    from pytest_sme2.session.session import Session
    from pytest_sme2.session.settings import Settings
    from pytest_sme2.verdict.contract import Asked, Judgement

SESSION: pytest.StashKey[Session] = pytest.StashKey()
CHECKS: pytest.StashKey[tuple[str, str, list[Check]]] = pytest.StashKey()
"""Of an item: the case's id, its folder in the run directory, and the checks that were made."""
GATE: pytest.StashKey[Gate] = pytest.StashKey()
"""Of an item: its gate, if it asked for one."""
JUDGED: pytest.StashKey[bool] = pytest.StashKey()
"""Of the run, once it is held to its baselines: whether it is red."""
PROBLEMS: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the run: devices that could not be put back."""
FIRST: pytest.StashKey[dict[tuple[str | None, str], str]] = pytest.StashKey()
"""By the case, or the chip that was asked for, and what was wrong: the test that failed with it."""
UNJUDGED: pytest.StashKey[bool] = pytest.StashKey()
"""Of an item: whether it failed since nobody can tell if its case is good, not as it is bad."""
WIDTH: pytest.StashKey[int] = pytest.StashKey()
"""Of the run: how wide the terminal is. Unknown while a test runs: its output is captured."""

CANNOT_TELL = 125
"""The exit code where nobody can tell of what failed: `git bisect run` passes over it."""
GREEN = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Of a run that left something open, neither stays."""
SEEN_KEY = "sme2_seen"
"""Where a worker tells the controller which tests it found and left out."""
TYPED_KEY = "sme2_typed"
"""Where a worker finds how the command line of the controller chooses tests."""
# With one of these, tests are missing because the user asked for that.
_CHOOSING = ("keyword", "markexpr", "deselect", "lf", "last_failed", "stepwise")
# Of pytest-split and of pytest-shard: which shard this is, how many there are, and the first one.
_SHARDED = (("group", "splits", 1), ("shard_id", "num_shards", 0))


def parameters(item: pytest.Item) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return found


def case_of(item: pytest.Item) -> Case | None:
    """What the test is run for; None if that is not a model."""
    case: Case | None = parameters(item).get("sme2_model")
    return case


def session_of(config: pytest.Config) -> Session:
    """The run's session, made when it is first asked for."""
    if SESSION not in config.stash:
        from pytest_sme2.plugin.progress import progress_of
        from pytest_sme2.session.session import Session

        worker: dict[str, Any] = getattr(config, "workerinput", {})
        settings = read_settings(config)
        say = progress_of(config)
        run = worker.get("testrunuid")
        config.stash[SESSION] = Session(settings, say=say, identity=run, worker=bool(worker))
    return config.stash[SESSION]


# --- what fails for many tests alike is one failure: of the first, and the others are skipped -----

_NO_DEVICE = "there is no device:"
_NO_FOLDER = "there is no run directory:"


def skip_without_device(item: pytest.Item) -> None:
    """Skip a test that would only say the same again, perhaps after another long wait."""
    session = item.config.stash.get(SESSION, None)
    names = getattr(item, "fixturenames", ())
    if session is None or not any(name.startswith("sme2_") for name in names):
        return
    first = item.config.stash.get(FIRST, {}).get(("", _NO_DEVICE))
    _skip(item, first, _NO_DEVICE)


def skip_same(item: pytest.Item, error: Sme2Error) -> None:
    """Skip a test that would only repeat what another one says, and else remember it.

    That is a missing device or run directory, and what cannot be exported, built or run of a case.
    """
    session, case = item.config.stash.get(SESSION, None), case_of(item)
    if session is not None and session.bench.missing is error:
        key, why = ("", _NO_DEVICE), _NO_DEVICE
    elif session is not None and session.refused is error:
        key, why = ("", _NO_FOLDER), _NO_FOLDER
    elif case is not None and isinstance(error, LASTING):
        # Another run of the same has another log.
        key, why = (case.id, str(error).partition(" Its log is ")[0]), "it does not run:"
    else:
        return
    _skip(item, item.config.stash.setdefault(FIRST, {}).setdefault(key, item.nodeid), why)


def _skip(item: pytest.Item, first: str | None, why: str) -> None:
    # The first one itself may be run again, and must not become a skipped test.
    if first is not None and first != item.nodeid:
        raise pytest.skip.Exception(f"{why} {first} says why")


# --- what was found, what ran, and what is red ----------------------------------------------------


def test_of(nodeid: str) -> str:
    """The name of a test without its file and its parameters."""
    return nodeid.rpartition("::")[2].partition("[")[0]


def choice_of(config: pytest.Config) -> dict[str, Any]:
    """How the command line chooses tests."""
    words = typed(config)
    return {
        "keyword": words.keyword or "",
        "markexpr": words.markexpr or "",
        "deselect": words.deselect or [],
        "sharded": _place(words) != (None, None),
    }


class _StandIn(SimpleNamespace):
    """A configuration with other words: whatever else a version of pytest asks for is its own."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def binds(config: pytest.Config, settings: Settings, *, asked: bool) -> bool:
    """Whether a run is red unless it compared everything. ``asked``: it has tests about a model.

    A run of other tests of the project is not, where its command line says nothing of ours.
    """
    words = vars(typed(config))
    named = any(value is not None for name, value in words.items() if name.startswith("sme2_"))
    if not (asked or named or not words["file_or_dir"]):
        return False
    folder = settings.baseline_folder
    # The first update left a file to be ignored: what it stored may be gone.
    stored = any(next(folder.glob(name), None) for name in ("*/*.json", ".gitignore"))
    return settings.strict or (in_ci() and (stored or settings.baseline_dir is not None))


def is_red(config: pytest.Config) -> bool:
    """Whether a run must not end green, although nothing in it failed: it was judged so, or never
    judged, as something else than the command line took its place.
    """
    if hasattr(config, "workerinput") or asks_to_show(config):
        return False
    if JUDGED in config.stash:
        return config.stash[JUDGED]
    red = anything_chosen(config) and binds(config, read_settings(config), asked=False)
    if red:
        sys.stderr.write(
            "sme2: nothing was judged: an ini file, a plugin or a conftest.py took the place of "
            "this run. In CI and with --sme2-strict only the command line may do that.\n"
        )
    return red


class RunWatch:
    """Follows one run; the process to which its workers report judges it at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.worker = getattr(config, "workerinput", None)
        self.nodeids: list[str] = []
        """All tests that were found; empty where the user chose some of them."""
        self.ran: dict[str, str] = {}
        """By node id: how the test ended."""
        self.found: list[pytest.Item] = []
        self.left: set[tuple[str, str]] = set()
        """Test and case: what the command line left out, and nobody else."""
        self.tests: dict[tuple[str, str], str] = {}
        """By folder and figure: the test that compared it."""
        self.empty: dict[str, str] = {}
        """By test: why it has no case."""
        self.asked = False
        """Whether there is any test about a model."""
        self.folders: dict[str, str] = {}
        self.checks: dict[str, list[Any]] = {}
        self.used_reference = False
        self.failures: set[bool] = set()
        """Whether they are of what could not be judged."""
        self.lines: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before all other plugins, which may deselect tests."""
        if not any(getattr(self.config.option, name, None) for name in _CHOOSING):
            self.nodeids = [item.nodeid for item in items]
        self.found = list(items)
        self.asked = any("sme2_model" in parameters(item) for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.asked:
            choice = choice_of(self.config) if self.worker is None else self.worker[TYPED_KEY]
            kept = session.items if choice["sharded"] else self._chosen(choice)
            self.left = set(_about_cases(self.found)) - set(_about_cases(kept))
        if self.worker is not None:
            seen = [self.nodeids, self.asked, sorted(self.left)]
            self.config.__dict__["workeroutput"][SEEN_KEY] = seen

    def _chosen(self, choice: Mapping[str, Any]) -> list[pytest.Item]:
        """What pytest itself keeps of all tests for the words of the command line.

        At the end of the collection, as other plugins may have added marks.
        """
        items = list(self.found)
        stand_in = _StandIn(
            own=self.config,
            option=argparse.Namespace(**{**vars(self.config.option), **choice}),
            hook=SimpleNamespace(pytest_deselected=lambda items: None),
            getoption=choice.get,
        )
        for name in ("mark", "main"):
            plugin: Any = self.config.pluginmanager.get_plugin(name)
            plugin.pytest_collection_modifyitems(items=items, config=stand_in)
        return items

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[TYPED_KEY] = choice_of(self.config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        nodeids, asked, left = getattr(node, "workeroutput", {}).get(SEEN_KEY, ([], False, ()))
        self.nodeids = self.nodeids or nodeids
        self.asked |= asked
        self.left |= {(test, case) for test, case in left}

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """A case whose test ended its worker has not passed, whatever its other tests found."""
        from pytest_sme2.plugin.progress import case_in
        from pytest_sme2.results.case import Check
        from pytest_sme2.results.timing import Outcome
        from pytest_sme2.system.files import encode

        cases = [case.id for case in session_of(self.config).cases()]
        case = case_in(crashitem, cases) or crashitem
        died = Check("worker", Outcome.INVALID, f"The worker died in {crashitem}.")
        self.checks.setdefault(case, []).append(encode(died))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        empty = getattr(report, "sme2_empty", None)
        if empty is not None:
            self.empty[test_of(report.nodeid)] = empty
        ended = self.ran.setdefault(report.nodeid, "passed")
        if report.failed:
            self.ran[report.nodeid] = "failed" if report.when == "call" else "error"
            self.failures.add(getattr(report, "sme2_unjudged", False))
        elif report.skipped and ended == "passed":
            self.ran[report.nodeid] = "skipped"
        self.used_reference |= getattr(report, "sme2_used_reference", False)
        found = getattr(report, "sme2", None)
        if found is not None:
            case, folder = found["case"], found["folder"]
            # Tests may have asked for different devices: each has its own folder.
            if self.folders.get(case, folder) != folder:
                case = f"{case} on {Path(folder).name}"
            self.folders[case] = folder
            checks = json.loads(found["checks"])
            self.checks.setdefault(case, []).extend(checks)
            for check in checks:
                self.tests[(folder, check["metric"])] = test_of(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        ran = not session.config.option.collectonly and anything_chosen(self.config)
        if self.worker is not None or not (ran or self.folders):
            return
        settings = read_settings(self.config)
        said = self.config.stash.setdefault(PROBLEMS, [])
        if settings.against is not None and session.testscollected and not self.used_reference:
            said.append(
                f"--against {settings.against.name} was not used: no test that ran calls "
                "sme2_gate.check_against(). Call it in a test, or leave --against out."
            )
        open_: list[str] = []
        asked: Asked | None = None
        try:
            asked = self._conclude(settings, said, open_)
        except (Sme2Error, OSError) as error:
            said.append(str(error))
        red = self.config.stash[JUDGED] = bool(said or open_)
        if red and session.exitstatus in GREEN:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.failures == {True} and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if red else CANNOT_TELL
        if ran:
            out = settings.run_directory
            try:
                code = int(session.exitstatus)
                self._write_shard(out, code, asked, said)
            except (Sme2Error, OSError) as error:
                said.append(f"{out} cannot be merged with others: {error}")
        said += open_

    def _conclude(self, settings: Settings, said: list[str], open_: list[str]) -> Asked | None:
        """Write what the run leaves behind, and judge it; what it was asked for."""
        from pytest_sme2.plugin.conclusion import conclude_run
        from pytest_sme2.report.text import hanging

        if self.folders:
            session_of(self.config).take_folder()
        self.lines, records, problems = conclude_run(
            self.folders,
            self.checks,
            settings,
            verbosity=self.config.get_verbosity(),
            width=self.config.stash[WIDTH],
            command=("pytest", *map(str, self.config.invocation_params.args)),
            promised=self._figures,
        )
        said += problems
        if settings.update_baselines:
            return None
        asked = self._asked_for(settings)
        told, red = self._judge(settings, asked, records)
        self.lines += [line for text in told for line in hanging(text, self.config.stash[WIDTH])]
        open_ += red
        return asked

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_sme2.report.text import hanging

        for problem in self.config.stash.get(PROBLEMS, []):
            for line in hanging(f"sme2: {problem}", self.config.stash[WIDTH]):
                terminalreporter.write_line(line, red=True)
        if self.lines:
            terminalreporter.section("sme2")
            from pytest_sme2.report.terminal import split_verdict
            from pytest_sme2.verdict.judging import FAILING, PASSING

            for line in self.lines:
                head, verdict = split_verdict(line)
                terminalreporter.write(plain(head))
                if verdict is not None:
                    bad = verdict in FAILING
                    colour = "red" if bad else "green" if verdict in PASSING else "yellow"
                    terminalreporter.write(str(verdict), **{colour: True, "bold": bad})
                terminalreporter.line("")

    def _figures(self, folder: Path, record: CaseRecord) -> dict[str, str]:
        """What an update promises: nothing of a case that only a choice of models has."""
        from pytest_sme2.verdict.contract import promised

        if record.id not in {case.id for case in session_of(self.config).cases(everything=True)}:
            return {}
        names = promised(record.checks)
        return {name: self.tests.get((str(folder), name), "") for name in names}

    def _asked_for(self, settings: Settings) -> Asked:
        from pytest_sme2.verdict.contract import Asked

        session, words = session_of(self.config), typed(self.config)
        known = [case.id for case in session.cases(everything=True)]
        chosen = words.sme2_models or words.sme2_variants
        wanted = [case.id for case in session.cases()] if chosen else known
        return Asked(
            settings.device,
            settings.strict,
            tuple(dict.fromkeys(known)),
            tuple(sorted(self.left)),
            tuple(case for case in known if case not in wanted),
            any("::" in word or word.endswith(".py") for word in words.file_or_dir or ()),
            settings.arms,
            None if settings.against is None else settings.against.name,
        )

    def _judge(
        self, settings: Settings, asked: Asked, records: Sequence[CaseRecord]
    ) -> tuple[list[str], list[str]]:
        """What to say, and what is red."""
        from pytest_sme2.verdict import contract

        root = settings.baseline_folder
        found: Judgement = contract.judge(root, records, asked)
        said = [str(found)] if found.stored else []
        if not binds(self.config, settings, asked=self.asked):
            return [*said, *(found.open if self.asked else ())], []
        none = [f"{test}: {reason}" for test, reason in self.empty.items()]
        told = bool({"failed", "error"} & {*self.ran.values()})
        # A shard may have got no test at all.
        empty = found.empty if records or _place(self.config.option)[1] is None else ()
        return said, [*none, *(() if told else found.failed), *found.open, *empty]

    def _write_shard(
        self, out: Path, exit_code: int, asked: Asked | None, said: Sequence[str]
    ) -> None:
        """For ``sme2 merge``: also of a shard for which no test was left."""
        from pytest_sme2.session.run_directory import SHARD_SCHEMA, Shard, write_shard

        tests = dict(sorted(self.ran.items()))
        cases = tuple(sorted(os.path.relpath(folder, out) for folder in self.folders.values()))
        found, place = tuple(sorted(self.nodeids)), _place(self.config.option)
        write_shard(
            out, Shard(SHARD_SCHEMA, exit_code, tests, found, *place, asked, cases, tuple(said))
        )


def _place(options: object) -> tuple[int | None, int | None]:
    """Which shard this is, and of how many."""
    for name, total, first in _SHARDED:
        number, of = (getattr(options, option, None) for option in (name, total))
        if isinstance(number, int) and isinstance(of, int) and of > 1:
            return number - first + 1, of
    return None, None


def _about_cases(items: Sequence[pytest.Item]) -> list[tuple[str, str]]:
    cases = ((item, case_of(item)) for item in items)
    return [(test_of(item.nodeid), case.id) for item, case in cases if case is not None]
