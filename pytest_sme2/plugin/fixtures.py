"""The fixtures: each stage as a value a test can ask for.

A test that asks for any of them but ``sme2_target`` and ``sme2_runner`` is run for each selected
model and variant.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_sme2.errors import ModelError, Sme2Warning, plain
from pytest_sme2.plugin.options import TAKEN, long_name
from pytest_sme2.plugin.watch import CHECKS, GATE, UNJUDGED, WIDTH, session_of
from pytest_sme2.session.options import OPTIONS

if TYPE_CHECKING:
    from pytest_sme2.results.case import Check
    from pytest_sme2.results.evidence import Pair
    from pytest_sme2.results.profile import Profile
    from pytest_sme2.results.run import Artifact
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.gate import Gate
    from pytest_sme2.session.session import Session
    from pytest_sme2.targets.base import Target

# What only says where results go, or that they are accepted.
_OUTPUTS = ("device", "out", "report", "update-baselines")
_PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def sme2_session(request: pytest.FixtureRequest) -> Session:
    """The run's session: every stage for every case."""
    return session_of(request.config)


@pytest.fixture(scope="session")
def sme2_model(request: pytest.FixtureRequest) -> Case:
    """The model and variant a test is run for: ``.model``, ``.variant``, ``.threads``."""
    case: Case = request.param
    if case.problem is not None:
        raise ModelError(case.problem)
    return case


@pytest.fixture
def sme2_target(sme2_session: Session) -> Target:
    """The device: ``.name``, ``.capabilities()``, ``.fingerprint()``, ``.run(…)``.

    A test's own: of several phones, the next test may be given another.
    """
    return sme2_session.bench.target


@pytest.fixture
def sme2_artifact(sme2_session: Session, sme2_model: Case) -> Artifact:
    """The exported program: ``.pte``, ``.inputs``, ``.sha256`` …"""
    return sme2_session.artifact(sme2_model)


@pytest.fixture
def sme2_pair(sme2_session: Session, sme2_model: Case) -> Pair:
    """One on/off pair: a traced and an untraced process of each arm, and the evidence."""
    return sme2_session.pair(sme2_model)


@pytest.fixture
def sme2_profile(sme2_session: Session, sme2_model: Case) -> Profile:
    """Where the time goes, with SME2 on (off, where the device has no SME2)."""
    # What cannot be exported is not worth a runner, which the arms need.
    sme2_session.artifact(sme2_model)
    return sme2_session.profile(sme2_model, sme2_session.bench.arms[0])


@pytest.fixture
def sme2_gate(
    request: pytest.FixtureRequest, sme2_session: Session, sme2_model: Case
) -> Iterator[Gate]:
    """The checks: ``sme2_gate.check_latency()``, ``.check_coverage()`` …; see the docs."""
    from pytest_sme2.results.timing import INTERRUPTED
    from pytest_sme2.session.gate import Gate
    from pytest_sme2.verdict.judging import failing

    gate: Gate = Gate(sme2_session, sme2_model, lambda checks: _warn(gate, checks))
    request.node.stash[GATE] = gate
    yield gate
    # A case of which nothing could be measured has nothing to keep.
    if gate.measured_anything:
        *_, earlier = request.node.stash.get(CHECKS, ("", "", []))
        # A test that is run again is not rid of what it found before.
        checks = [*failing(earlier, strict=True), *gate.checks]
        folder = sme2_session.keep_measured(sme2_model)
        request.node.stash[CHECKS] = (sme2_model.id, str(folder), checks)
        load = gate.measured.sustained
        if load is not None and load.ended == INTERRUPTED:
            request.session.shouldstop = "Ctrl-C ended a sustained load"


@pytest.fixture
def sme2_benchmark() -> None:
    """Device timings for pytest-benchmark; nothing where that plugin is switched off."""


def end_test(item: pytest.Item, error: BaseException | None = None) -> None:
    """Fail a test whose checks failed, and skip one of which no check compared anything.

    A test that ended with an ``error`` tells both; one that skips itself hides no failed check.
    """
    gate = item.stash.get(GATE, None)
    if gate is None:
        return
    text, judged = _failure(item, gate)
    expected = isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception))
    if text and (error is None or expected):
        item.stash[UNJUDGED] = not judged
        raise pytest.fail.Exception(text, pytrace=False) from None
    if text:
        item.add_report_section("call", "sme2 checks", text)
    reason = gate.unchecked
    # A test may look at what was measured by itself.
    if error is None and gate.checks and not gate.session.settings.update_baselines and reason:
        raise pytest.skip.Exception(reason)


def _failure(item: pytest.Item, gate: Gate) -> tuple[str, bool]:
    """What the failed checks say together, in a message that is enough to start fixing; and
    whether one of them is sure, and not just open.
    """
    from pytest_sme2.report.versus_baseline import failure_text
    from pytest_sme2.verdict.judging import failing, is_sure

    checks = gate.take_checks()
    bad = failing(checks, strict=_strict(gate))
    if not bad:
        return "", True
    text = failure_text(
        gate.measured,
        checks,
        arguments=[*_arguments(item, gate.session.bench.target.name)],
        growth=gate.growth if any(check.unit == "ns" for check in bad) else None,
        shown=tuple({check.verdict for check in bad}),
        width=item.config.stash[WIDTH],
        whole=item.config.get_verbosity() > 0,
    )
    return plain(text), any(map(is_sure, bad))


def _arguments(item: pytest.Item, device: str) -> Iterator[str]:
    """Those of the pytest that runs one test again, from the folder where it was started."""
    config = item.config
    taken = config.stash.get(TAKEN, ())
    ini_file = config.getoption("inifilename")
    if ini_file:
        yield f"--config-file={ini_file}"
    for text in config.getoption("override_ini") or ():
        yield f"--override-ini={text}"
    yield f"{'--sme2-device' if '--device' in taken else '--device'}={device}"
    # Our options as they were typed; those of the ini file are there again without a word.
    for option in OPTIONS:
        value = config.getoption(option.destination)
        if value is None or option.name in _OUTPUTS:
            continue
        name = long_name(option.flag) if option.flag in taken else option.flag
        for each in value if isinstance(value, list) else [value]:
            yield name if each is True else f"{name}={each}"
    inner = item.nodeid.partition("::")[2]
    path = item.path.resolve()
    if path.is_relative_to(_PACKAGE):
        # The suite that is installed with the package: its files are nowhere near the user's.
        module = ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts)
        yield from ("--pyargs", f"{module}::{inner}")
    else:
        yield f"{os.path.relpath(path, config.invocation_params.dir)}::{inner}"


def _strict(gate: Gate) -> bool:
    settings = gate.session.settings
    return settings.strict and not settings.update_baselines


def _warn(gate: Gate, checks: Sequence[Check]) -> None:
    from pytest_sme2.verdict.judging import WARNING

    for check in () if _strict(gate) else checks:
        if check.verdict in WARNING:
            text = f"{gate.case.id}: {check.metric}: {check.verdict}: {check.message}"
            warnings.warn(Sme2Warning(plain(text)), stacklevel=4)
