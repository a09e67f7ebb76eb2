"""The pytest plugin: registration, header, parametrization, outcomes. The work is done elsewhere.

Registration loads nothing but the standard library: the session, and with it everything that
costs time, is made when the first test asks for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sme2.errors import (
    EvidenceError,
    ExportError,
    ModelError,
    NotMeasurableError,
    Sme2Error,
    UsageError,
    plain,
)
from pytest_sme2.plugin import fixtures, options, state
from pytest_sme2.plugin.state import (
    CHECKS,
    GATE,
    JUDGED,
    PROBLEMS,
    SESSION,
    UNJUDGED,
    WIDTH,
    case_of,
    session_of,
)
from pytest_sme2.plugin.watch import RunWatch, every_case, is_red

if TYPE_CHECKING:
    from pytest_sme2.session.session import Session
    from pytest_sme2.session.settings import Settings
    from pytest_sme2.verdict.contract import Asked

NOT_RESTORED = "sme2_not_restored"
"""Where a worker names a device that it could not put back."""
CANNOT_TELL = 125
"""The exit code where nobody can tell of what failed: `git bisect run` passes over it."""
GREEN = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Of a run that left something open, neither stays."""

NO_MODEL = (
    "no model is known to this run: name a folder of models in the ini value sme2_models, or put "
    "one in models/ (see `sme2 models`)"
)
LEFT_OUT = "the options of this run leave out the models and variants of its marker"


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    try:
        return (yield from options.add_short_names(early_config, parser, args))
    except SystemExit as ended:
        if ended.code or not (options.in_ci() and options.anything_chosen(early_config)):
            raise
        raise pytest.UsageError(
            "a conftest.py ended this run with exit code 0 before any test. In CI nothing may: "
            "end it with another code, or let the tests fail."
        ) from None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "sme2(models=None, variants=None): run a test that asks for a model only for these models "
        "and variants (a name or a list of names each).",
    )
    for name, text in (
        ("structure", "about what a program is made of: exact, on any device."),
        ("timing", "about time or memory: skipped if the device cannot measure it."),
        ("numerics", "about the outputs."),
    ):
        config.addinivalue_line("markers", f"{name}: {text}")
    columns = shutil.get_terminal_size().columns
    # Longer lines are hard to read, and a terminal of no width is none.
    config.stash[WIDTH] = min(max(columns, 60), 120)
    options.refuse_misread_folder(config)
    if options.anything_chosen(config):
        # Bad values are refused before anything is collected.
        options.read_settings(config)
        options.refuse_silent_update(config)
    config.pluginmanager.register(fixtures, "sme2-fixtures")
    if config.pluginmanager.hasplugin("benchmark"):
        from pytest_sme2.plugin import benchmarking

        config.pluginmanager.register(benchmarking, "sme2-benchmarking")
    watch = RunWatch(config)
    config.pluginmanager.register(watch, "sme2-watch")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Collector(config, watch), "sme2-collector")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Around all that may take the place of a run: nothing but the command line may do that."""
    code = yield
    return pytest.ExitCode.TESTS_FAILED if code in GREEN and is_red(config) else code


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave the device as it was found; Ctrl-C comes through here, too."""
    config = session.config
    if SESSION not in config.stash:
        return
    try:
        config.stash[SESSION].bench.close()
    except Sme2Error as error:
        if hasattr(config, "workeroutput"):
            config.workeroutput[NOT_RESTORED] = str(error)
        else:
            config.stash[PROBLEMS] = [str(error)]


def pytest_unconfigure(config: pytest.Config) -> None:
    """The same for a run that ended before its first test; and the run directory is free again."""
    if SESSION in config.stash:
        with contextlib.suppress(Sme2Error):
            config.stash[SESSION].close()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """What a worker could not put back is reported by the controller."""
    problem = getattr(node, "workeroutput", {}).get(NOT_RESTORED)
    if problem is not None:
        node.config.stash.setdefault(PROBLEMS, []).append(problem)


def pytest_report_header(config: pytest.Config) -> list[str]:
    if not options.anything_chosen(config):
        return []
    from pytest_sme2.session.device import header_lines

    lines = (*options.name_lines(config), *header_lines(session_of(config).bench))
    return [plain(line) for line in lines]


def pytest_sessionstart(session: pytest.Session) -> None:
    """A name that no model has is refused before anything."""
    config = session.config
    if not config.getoption("sme2_models") or hasattr(config, "workerinput"):
        return
    from pytest_sme2.session.cases import check_names

    run = session_of(config)
    try:
        check_names(run.registry, run.programs, run.settings)
    except Sme2Error as error:
        raise pytest.UsageError(f"--sme2-models: {error}") from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sme2_model" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("sme2")
    given = marker.kwargs if marker else {}
    try:
        wanted = {name: _names(given.get(name)) for name in ("models", "variants")}
        cases = session_of(metafunc.config).cases(**wanted)
    except UsageError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    parameters = [pytest.param(case, id=case.id) for case in cases]
    if not cases:
        reason = _why_no_case(session_of(metafunc.config), wanted)
        parameters = [pytest.param(None, id="no-model", marks=pytest.mark.skip(reason=reason))]
    metafunc.parametrize("sme2_model", parameters, indirect=True, scope="session")


def _why_no_case(session: Session, wanted: Mapping[str, tuple[str, ...] | None]) -> str:
    everything = every_case(session)
    if not everything:
        return NO_MODEL
    if every_case(session, **wanted):
        return LEFT_OUT
    asked = ", ".join(f"{name} {', '.join(words)}" for name, words in wanted.items() if words)
    known = ", ".join(case.id for case in everything)
    return f"its marker asks for {asked}, which no model has. There are: {known}"


def _names(value: object) -> tuple[str, ...] | None:
    """A marker's argument: one name or several."""
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise UsageError(f"{value!r} in @pytest.mark.sme2 is neither a name nor a list of names.")


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Generator[None, object, object]:
    """One case stays on one worker, whoever else would deal out the tests."""
    other = yield
    if not options.anything_chosen(config):
        return other
    from pytest_sme2.plugin.progress import CaseScheduling

    if config.getvalue("dist") == "each":
        raise pytest.UsageError(
            "--dist=each would measure a case in two workers at once. Use --dist=loadgroup."
        )
    try:
        session_of(config).take_folder()
    except Sme2Error as error:
        raise pytest.UsageError(str(error)) from None
    return CaseScheduling(config, log, [case.id for case in session_of(config).cases()], other)


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """What ``-n auto`` means here: one worker per phone, and none beside a measurement.

    On a machine that is measured itself, exports of another worker would disturb the timing.
    """
    automatic = yield
    if not options.anything_chosen(config) or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return automatic
    settings = options.read_settings(config)
    try:
        if settings.device != "android":
            from pytest_sme2.session.session import Session

            # Not the run's own: pytest has no terminal yet.
            run = Session(settings)
            measured = run.bench.chosen.capabilities().timing
            return 0 if measured else min(automatic, len(run.cases()))
        if settings.fake_phone:
            return automatic
        if settings.lab is not None:
            from pytest_sme2.targets.labgrid import Lab

            return Lab(settings.lab, settings.lab_filter, print).size()
        from pytest_sme2.targets.phone.adb import choose_serials, open_server

        return len(choose_serials(open_server(settings.adb_server), settings.serials))
    except Sme2Error as error:
        raise pytest.UsageError(str(error)) from None


def _translate_errors(item: pytest.Item, *, setup: bool = False) -> Generator[None, object, object]:
    """Our errors say all there is to say: a skip with its reason, or a plain failure."""
    try:
        if setup:
            state.skip_without_device(item)
        return (yield)
    except Sme2Error as error:
        if isinstance(error, NotMeasurableError):
            raise pytest.skip.Exception(str(error)) from None
        state.skip_same(item, error)
        if isinstance(error, (ModelError, ExportError)):
            _keep_failed(item, error)
        item.stash[UNJUDGED] = not isinstance(error, EvidenceError)
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def _keep_failed(item: pytest.Item, error: Sme2Error) -> None:
    """A model that cannot be exported stands in the table and in the reports, too."""
    case = case_of(item)
    if case is None:
        return
    # Without a device there is no table either: the tests say so.
    with contextlib.suppress(Sme2Error):
        folder, check = session_of(item.config).keep_failed(case, error)
        item.stash[CHECKS] = (case.id, str(folder), [check])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _translate_errors(item, setup=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    try:
        result = yield from _translate_errors(item)
    except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
        fixtures.end_test(item, error)
        raise
    fixtures.end_test(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _translate_errors(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.__dict__["sme2_unjudged"] = item.stash.get(UNJUDGED, False)
    if call.when == "setup" and state.parameters(item).get("sme2_model", item) is None:
        reason = plain(str(call.excinfo and call.excinfo.value))
        report.__dict__["sme2_empty"] = None if reason == LEFT_OUT else reason
    if call.when == "teardown" and GATE in item.stash:
        report.__dict__["sme2_used_reference"] = item.stash[GATE].used_reference
    if call.when == "teardown" and CHECKS in item.stash:
        from pytest_sme2.system.files import encode

        case, folder, checks = item.stash[CHECKS]
        # As text, so that a worker's report can carry it to the controller.
        report.__dict__["sme2"] = {
            "case": case,
            "folder": folder,
            "checks": json.dumps(encode(checks)),
        }
    return report


class Collector:
    """Gathers what the tests report, in the one process that writes baselines and reports."""

    def __init__(self, config: pytest.Config, watch: RunWatch) -> None:
        self.config = config
        self.watch = watch
        self.folders: dict[str, str] = {}
        self.checks: dict[str, list[Any]] = {}
        self.used_reference = False
        self.failures: set[bool] = set()
        """Whether they are of what could not be judged."""
        self.lines: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """A case whose test ended its worker has not passed, whatever its other tests found."""
        from pytest_sme2.plugin.progress import case_in
        from pytest_sme2.results import Check, Outcome
        from pytest_sme2.system.files import encode

        cases = [case.id for case in session_of(self.config).cases()]
        case = case_in(crashitem, cases) or crashitem
        died = Check("worker", Outcome.INVALID, f"The worker died in {crashitem}.")
        self.checks.setdefault(case, []).append(encode(died))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.add(getattr(report, "sme2_unjudged", False))
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
            self.watch.made(report.nodeid, folder, checks)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        ran = not session.config.option.collectonly and options.anything_chosen(self.config)
        if not ran and not self.folders:
            return
        settings = options.read_settings(self.config)
        said = self.config.stash.setdefault(PROBLEMS, [])
        said += self._unmet_requests(session, settings)
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
                self.watch.write_shard(out, code, asked, [*self.folders.values()], said)
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
            promised=self.watch.figures,
        )
        said += problems
        if settings.update_baselines:
            return None
        asked = self.watch.asked_for(settings)
        told, red = self.watch.judge(settings, asked, records)
        self.lines += [line for text in told for line in hanging(text, self.config.stash[WIDTH])]
        open_ += red
        return asked

    def _unmet_requests(self, session: pytest.Session, settings: Settings) -> list[str]:
        """What was asked for and not done, although every test may have passed."""
        if settings.against is None or not session.testscollected or self.used_reference:
            return []
        return [
            f"--against {settings.against.name} was not used: no test that ran calls "
            "sme2_gate.check_against(). Call it in a test, or leave --against out."
        ]

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
