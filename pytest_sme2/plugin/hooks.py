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
from pytest_sme2.plugin import fixtures, options, watch
from pytest_sme2.plugin.watch import (
    CHECKS,
    GATE,
    GREEN,
    PROBLEMS,
    SESSION,
    UNJUDGED,
    WIDTH,
    RunWatch,
    case_of,
    is_red,
    session_of,
)

if TYPE_CHECKING:
    from pytest_sme2.session.session import Session

NOT_RESTORED = "sme2_not_restored"
"""Where a worker names a device that it could not put back."""

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
    config.pluginmanager.register(RunWatch(config), "sme2-watch")


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
        cases = session_of(metafunc.config).cases(wanted["models"], wanted["variants"])
    except UsageError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    parameters = [pytest.param(case, id=case.id) for case in cases]
    if not cases:
        reason = _why_no_case(session_of(metafunc.config), wanted)
        parameters = [pytest.param(None, id="no-model", marks=pytest.mark.skip(reason=reason))]
    metafunc.parametrize("sme2_model", parameters, indirect=True, scope="session")


def _why_no_case(session: Session, wanted: Mapping[str, tuple[str, ...] | None]) -> str:
    everything = session.cases(everything=True)
    if not everything:
        return NO_MODEL
    if session.cases(wanted["models"], wanted["variants"], everything=True):
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
            watch.skip_without_device(item)
        return (yield)
    except Sme2Error as error:
        if isinstance(error, NotMeasurableError):
            raise pytest.skip.Exception(str(error)) from None
        watch.skip_same(item, error)
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
    if call.when == "setup" and watch.parameters(item).get("sme2_model", item) is None:
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
