"""Measures commits of a repository until the one is found that made a case worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_sme2.bisect.commits import Commit, WorkTree
from pytest_sme2.bisect.figures import Figure, missing_figures, worse_figure
from pytest_sme2.bisect.search import Border, find_border
from pytest_sme2.errors import RunError, Sme2Error, UsageError
from pytest_sme2.export.store import package_versions
from pytest_sme2.results import CaseResult
from pytest_sme2.session.run_directory import find_records, read_record
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.wording import count


@dataclass(frozen=True)
class Probe:
    """One commit that was looked at."""

    commit: Commit
    measured: CaseResult | None
    problem: str = ""
    """Why it could not be measured."""


@dataclass(frozen=True)
class Culprit:
    """The first bad commit, and the last good one before it."""

    figure: Figure
    border: Border
    before: CaseResult
    now: CaseResult


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    commits: Sequence[Commit]
    probes: dict[int, Probe]
    culprit: Culprit | None
    """None where nothing is worse."""


@dataclass
class Bisecting:
    """One search; what it measured is kept in the run directory, one folder per commit."""

    tree: WorkTree
    commits: Sequence[Commit]
    settings: Settings
    """Of one model and one variant; their folders of models are relative to the repository."""
    out: Path
    say: Say
    probes: dict[int, Probe] = field(default_factory=dict)

    def run(self, asked: str | None) -> Outcome:
        good, bad = (self._sure(number) for number in (0, len(self.commits) - 1))
        figure = worse_figure(good, bad, asked)
        if figure is None:
            if missing := missing_figures(good, bad, asked):
                raise RunError(
                    f"Nothing that could be compared is worse, but {', '.join(missing)} could not: "
                    f"{good.uncounted or bad.uncounted or 'an end of the search does not have it'}."
                )
            return Outcome(self.commits, self.probes, None)

        def is_bad(number: int) -> bool | None:
            measured = self.probe(number).measured
            return None if measured is None else figure.is_bad(good, bad, measured)

        border = find_border(len(self.commits), is_bad)
        sides = (self._sure(number) for number in (border.last_good, border.first_bad))
        return Outcome(self.commits, self.probes, Culprit(figure, border, *sides))

    def _sure(self, number: int) -> CaseResult:
        """One that has to be measured: an end, or one that has been."""
        probe = self.probe(number)
        if probe.measured is None:
            name = "--bad" if number else "--good"
            raise UsageError(
                f"{probe.commit.short}, which {name} names, cannot be measured: {probe.problem} "
                "Name a commit that can."
            )
        return probe.measured

    def probe(self, number: int) -> Probe:
        if number not in self.probes:
            commit = self.commits[number]
            self.say(f"{commit.short} {commit.subject}")
            try:
                made = Probe(commit, self._measured(commit))
            except Sme2Error as error:
                made = Probe(commit, None, str(error))
            self.probes[number] = made
        return self.probes[number]

    def _measured(self, commit: Commit) -> CaseResult:
        out = self.out / commit.digest
        kept = self._kept(out)
        if kept is not None:
            return kept
        tree = self.tree.show(commit)
        folders = tuple(tree / folder for folder in self.settings.model_folders)
        session = Session(replace(self.settings, model_folders=folders, out=out), self.say)
        try:
            cases = session.cases()
            if len(cases) != 1:
                raise UsageError(f"it has {count(len(cases), 'case')} of that name.")
            (case,) = cases
            measured = session.measured(case, timed=False)
            session.keep(case, measured, ())
            return measured
        finally:
            session.close()

    def _kept(self, out: Path) -> CaseResult | None:
        """What an earlier search that was broken off has measured of this commit."""
        wanted = (self.settings.models[0], str(self.settings.variants[0]))
        for folder in find_records(out) if out.is_dir() else ():
            try:
                found = read_record(folder).measured
            except Sme2Error:
                continue  # broken off while it was written: measured again
            same = found.versions.items() >= package_versions().items()
            if (found.model, found.variant) == wanted and same:
                return found
        return None
