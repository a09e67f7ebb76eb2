"""Holds a run to the contract beside the baselines, and adds to it what an update accepted.

It also keeps what became of every test, and which tests were left to other machines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sme2.errors import Sme2Error, plain
from pytest_sme2.plugin.state import case_of, parameters, session_of
from pytest_sme2.system.wording import count

if TYPE_CHECKING:
    from pytest_sme2.results import Check
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.run_directory import CaseRecord
    from pytest_sme2.session.session import Session
    from pytest_sme2.session.settings import Settings
    from pytest_sme2.verdict.contract import Contract, Gap, Part

SEEN_KEY = "sme2_seen"
"""Where a worker tells the controller which tests it found and left out."""
_NO_CONTRACT = (
    "--sme2-strict: {} has no contract.txt, which says what must be compared. --update-baselines "
    "writes it."
)
# With one of these, pytest does not even look at all tests.
_NARROWING = ("lf", "last_failed", "stepwise")
# With one of these, tests are missing because the user asked for that.
_CHOOSING = ("keyword", "markexpr", "deselect", *_NARROWING)
# Of pytest-split and of pytest-shard: which shard this is, how many there are, and the first one.
_SHARDED = (("group", "splits", 1), ("shard_id", "num_shards", 0))
_MOST_GAPS = 2
"""That are told one by one, of those with one reason."""


def test_of(nodeid: str) -> str:
    """The name of a test without its file and its parameters."""
    return nodeid.rpartition("::")[2].partition("[")[0]


def every_case(session: Session, **wanted: tuple[str, ...] | None) -> list[Case]:
    """The cases that a run has where it chooses no models or variants."""
    from pytest_sme2.session.cases import chosen_programs, select_cases

    settings = replace(session.settings, models=(), variants=())
    programs = chosen_programs(settings)
    return select_cases(session.registry, programs, settings, emulated=session.emulated, **wanted)


class RunWatch:
    """Follows one run; ``Collector`` asks it at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.nodeids: list[str] = []
        """All tests that were found; empty where the user chose some of them."""
        self.ran: dict[str, dict[str, Any]] = {}
        """By node id: the fields of a ``RanTest``."""
        self.found: set[tuple[str, str]] = set()
        self.left: set[tuple[str, str]] = set()
        self.tests: dict[tuple[str, str], str] = {}
        """By folder and figure: the test that compared it."""
        self.empty: dict[str, str] = {}
        """By test: why it has no case."""
        self.asked = False
        """Whether there is any test about a model."""
        self.part: Part | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before all other plugins, which may deselect tests."""
        # A test of custom checks is none where no conftest.py adds any.
        if not self.config.hook.pytest_sme2_checks.get_hookimpls():
            items[:] = [item for item in items if not marked(item, "custom")]
        if not self._any_option(_CHOOSING):
            self.nodeids = [item.nodeid for item in items]
        self.found = set(_about_cases(items))
        self.asked = any("sme2_model" in parameters(item) for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.left = self.found - set(_about_cases(session.items))
        worker = getattr(self.config, "workeroutput", None)
        if worker is not None:
            worker[SEEN_KEY] = [self.nodeids, self.asked, sorted(self.left)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        nodeids, asked, left = getattr(node, "workeroutput", {}).get(SEEN_KEY, ([], False, ()))
        self.nodeids = self.nodeids or nodeids
        self.asked |= asked
        self.left |= {(test, case) for test, case in left}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        empty = getattr(report, "sme2_empty", None)
        if empty is not None:
            self.empty[test_of(report.nodeid)] = empty
        kept = self.ran.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        kept["seconds"] += report.duration
        if report.failed:
            kept["outcome"] = "failed" if report.when == "call" else "error"
        elif report.skipped and kept["outcome"] == "passed":
            kept["outcome"] = "skipped"
        else:
            return
        kept["message"] = plain(report.longreprtext or str(report.longrepr))

    def made(self, nodeid: str, folder: str, checks: Sequence[Mapping[str, Any]]) -> None:
        """Remember which test made which check."""
        for check in checks:
            self.tests[(folder, check["metric"])] = test_of(nodeid)

    def conclude(
        self, settings: Settings, made: Mapping[Path, CaseRecord], stored: Mapping[Path, CaseRecord]
    ) -> tuple[list[str], list[str]]:
        """What to say, and what is wrong."""
        from pytest_sme2.verdict import contract

        root = settings.baseline_folder
        strict = settings.strict and (self.asked or bool(self.config.getoption("sme2_strict")))
        try:
            if settings.update_baselines:
                self._store(stored, root)
                return [], []
            promised = contract.load(root)
            if not strict and (promised is None or not self.asked):
                return [], []
            records = list(made.values())
            part = self.part = self._part(records, settings, promised)
            problems = self._empty(records) if strict else []
            if promised is None:
                return [], [*problems, _NO_CONTRACT.format(root)]
            told, wrong = _judged(promised, part)
            if strict or os.environ.get("CI"):
                return told, [*problems, *wrong]
            return [*told, *wrong], problems
        except (Sme2Error, OSError) as error:
            return [], [f"the contract: {error}"]

    def _empty(self, records: Sequence[CaseRecord]) -> list[str]:
        """With ``--sme2-strict`` a run that compared nothing is not green."""
        from pytest_sme2.verdict.judging import UNCHECKED

        problems = [f"--sme2-strict: {test}: {reason}" for test, reason in self.empty.items()]
        checks: list[Check] = [check for record in records for check in record.checks]
        if all(check.verdict in UNCHECKED for check in checks):
            problems.append(
                "--sme2-strict: nothing was compared: no check of sme2_gate found anything to "
                "compare. Look at the skipped tests (-rs), and at `sme2 models`."
            )
        return problems

    def _part(
        self, records: Sequence[CaseRecord], settings: Settings, promised: Contract | None
    ) -> Part:
        from pytest_sme2.verdict.contract import Part, case_part

        session = session_of(self.config)
        against = None if settings.against is None else settings.against.name
        cases = tuple(case_part(record.measured, record.checks, against) for record in records)
        devices = dict.fromkeys(case.device for case in cases)
        if not devices and promised is not None:
            devices = dict.fromkeys(
                device for device, _ in promised.checks if _may_be(device, settings.device)
            )
        known, chosen = (
            [_key(case) for case in cases] for cases in (every_case(session), session.cases())
        )
        narrowed = self._any_option(_NARROWING)
        return Part(
            tuple(devices),
            cases,
            tuple(known),
            tuple(sorted(self.left)),
            tuple(case for case in known if case not in chosen),
            narrowed or any("::" in argument for argument in self.config.args),
            settings.arms,
        )

    def write_shard(self, out: Path, exit_code: int) -> None:
        """For ``sme2 merge``: also of a shard for which no test was left."""
        from pytest_sme2.session.shard import SCHEMA, RanTest, Shard, write_shard

        tests = {name: RanTest(**facts) for name, facts in sorted(self.ran.items())}
        found = tuple(sorted(self.nodeids))
        write_shard(out, Shard(SCHEMA, exit_code, tests, found, *self._place(), self.part))

    def _place(self) -> tuple[int | None, int | None]:
        """Which shard this is, and of how many."""
        for name, total, first in _SHARDED:
            number, of = (getattr(self.config.option, option, None) for option in (name, total))
            if isinstance(number, int) and isinstance(of, int) and of > 1:
                return number - first + 1, of
        return None, None

    def _any_option(self, names: Sequence[str]) -> bool:
        return any(getattr(self.config.option, name, None) for name in names)

    def _store(self, records: Mapping[Path, CaseRecord], root: Path) -> None:
        """Add what an update has stored: the cases that every run has, and what was compared."""
        from pytest_sme2.verdict.contract import Contract, case_part, promised, store

        known = {_key(case) for case in every_case(session_of(self.config))}
        checks, facts = {}, {}
        for folder, record in records.items():
            part = case_part(record.measured, record.checks, None)
            if part.case not in known:
                continue
            figures = promised(record.checks)
            key = part.device, part.case
            checks[key] = {name: self.tests.get((str(folder), name), "") for name in figures}
            facts[key] = part.facts
        if checks:
            store(root, Contract(checks, facts))


def _judged(promised: Contract, part: Part) -> tuple[list[str], list[str]]:
    """What was compared or left to other runs, and what is missing."""
    from pytest_sme2.verdict import contract

    found = contract.gaps(promised, part)
    asked = contract.rows(contract.lines_for(promised, part))
    lines = sum(row[0] in part.devices for row in asked)
    opened = sum(len(gap.figures) for gap in found)
    told = [f"contract: {lines - opened} of {lines} lines compared"] if lines else []
    left = [gap for gap in found if gap.reason == contract.DESELECTED]
    if left:
        told += ["left to other runs (sme2 merge judges them together):", *_in_few_lines(left)]
    return told, [str(gap) for gap in found if gap.reason != contract.DESELECTED]


def _in_few_lines(left: Sequence[Gap]) -> Iterator[str]:
    """Many cases that were left out for one reason are one line."""
    alike: dict[tuple[str, str], list[Gap]] = {}
    for gap in left:
        alike.setdefault((gap.device, gap.message), []).append(gap)
    for (device, message), gaps in alike.items():
        if len(gaps) <= _MOST_GAPS:
            yield from (f"  {gap}" for gap in gaps)
        else:
            names = ", ".join(gap.case for gap in gaps[:_MOST_GAPS])
            more = count(len(gaps) - _MOST_GAPS, "more case")
            yield f"  {gaps[0].reason}: {names} and {more} on {device}: {message}"


def marked(item: pytest.Item, word: str) -> object:
    """What the nearest marker ``sme2`` that has this word says of it."""
    found = (marker.kwargs.get(word) for marker in item.iter_markers("sme2"))
    return next((value for value in found if value is not None), None)


def _about_cases(items: Sequence[pytest.Item]) -> list[tuple[str, str]]:
    cases = ((item, case_of(item)) for item in items)
    return [(test_of(item.nodeid), _key(case)) for item, case in cases if case is not None]


def _key(case: Case) -> str:
    from pytest_sme2.verdict import contract

    return contract.case_of(case.model, case.variant_name, case.threads)


def _may_be(device: str, chosen: str) -> bool:
    return chosen == "auto" or device == chosen or device.startswith(f"{chosen}-")
