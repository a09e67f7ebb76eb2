"""Searching by latency: what is asked of the pairs, and what is made of their answers."""

from __future__ import annotations

import importlib.metadata
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.bisect import bisecting
from pytest_sme2.bisect import row as rows
from pytest_sme2.bisect.bisecting import FIGURES, Bisecting, halfway, is_slower, worse_figure
from pytest_sme2.bisect.row import Border, ReleaseRow, RowEntry, commits_between, parse_release
from pytest_sme2.cli.commands.bisect import document, lines
from pytest_sme2.errors import ModelError, RunError, TargetError, UsageError
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import Arm, CaseResult, Check, Limits, Outcome, Structure
from pytest_sme2.session.reference import OpenReference, Reference
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.pip import Pin
from pytest_sme2.verdict.judging import metric_against
from tests.support import gate_examples
from tests.support.git import git

SURE = 0.02
"""How well the played pairs know a ratio."""


@dataclass
class PlayedRow:
    """Versions of a package; how slow each is, or what goes wrong with it."""

    ratios: Sequence[float | Exception | Outcome]
    noun = "version"
    backwards: bool = False
    asked: list[tuple[int, float]] = field(default_factory=list)

    @property
    def changes(self) -> list[RowEntry]:
        return [RowEntry(f"2.{number}", f"torch==2.{number}") for number in range(len(self.ratios))]

    def commands(self, border: Border, run: str) -> list[str]:
        return [f"See it run: {run}"]


@dataclass
class PlayedChange:
    row: PlayedRow
    number: int

    @property
    def identity(self) -> tuple[str, ...]:
        return (str(self.row.ratios[self.number]),)

    def measured(self) -> CaseResult:
        ratio = self.row.ratios[self.number]
        if isinstance(ratio, Exception):
            raise ratio
        return replace(gate_examples.emulated(), pte_sha256=str(ratio))

    def good_side(self, name: str) -> tuple[OpenReference, Limits]:
        return OpenReference(Reference("change", name), None), Limits()

    def compared(
        self, good: OpenReference, limits: Limits, family: int
    ) -> tuple[CaseResult, Check]:
        measured, ratio = self.measured(), self.row.ratios[self.number]
        threshold = limits.max_regression
        self.row.asked.append((self.number, threshold))
        metric = metric_against("latency", good.reference.name)
        if isinstance(ratio, Outcome):
            return measured, Check(metric, ratio, "Too noisy.", old=1e6, new=1e6)
        assert isinstance(ratio, float)
        verdict = Outcome.REGRESSED if ratio - SURE > 1 + threshold else Outcome.PASS
        interval = (ratio - SURE, ratio + SURE)
        return measured, Check(metric, verdict, "", old=1e6, new=ratio * 1e6, interval=interval)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Any:
    @contextmanager
    def show_change(row: PlayedRow, number: int, out: Path, say: Any) -> Iterator[PlayedChange]:
        yield PlayedChange(row, number)

    monkeypatch.setattr(bisecting, "show_change", show_change)

    def run(*ratios: float | Exception | Outcome) -> tuple[Border | None, Bisecting]:
        found = Bisecting(PlayedRow(ratios), Path("unused"), lambda line: None)  # type: ignore[arg-type]
        return found.by_latency(), found

    return run


def test_a_step_is_found_and_a_small_one_before_it_is_not_taken_for_it(search: Any) -> None:
    border, found = search(1.0, 1.01, 1.05, 1.05, 1.5, 1.51)
    assert border == Border(3, 4, "latency")
    # The bad end by what is tolerated; the others by half of what it is sure to have.
    assert found.row.asked[0] == (5, Limits().max_regression)
    assert all(threshold == pytest.approx(0.245) for _, threshold in found.row.asked[1:])


def test_what_runs_the_same_program_is_not_measured_again(search: Any) -> None:
    border, found = search(*[1.0] * 40, *[2.0] * 24)
    assert border == Border(39, 40, "latency")
    assert [number for number, _ in found.row.asked] == [63]
    printed = "\n".join(lines(found, border, "m-fp32", "latency", "sme2 run m"))
    assert printed.startswith("torch==2.40 made m-fp32 worse: latency with SME2 on 1.000 ms -> 2.")
    assert "(+98.0 % to +102.0 %, against torch==2.0)" in printed
    assert "torch==2.39" in printed
    assert "the same" in printed
    assert printed.endswith("See it run: sme2 run m")
    found.row.backwards = True
    first, *_ = lines(found, border, "m-fp32", "latency", "sme2 run m")
    assert first.startswith("m-fp32 is worse up to torch==2.40, and fine from torch==2.39 on: ")


@pytest.mark.parametrize("unsure", [Outcome.INCONCLUSIVE, Outcome.SUSPECTED, Outcome.INVALID])
def test_pairs_that_cannot_tell_leave_a_change_open(search: Any, unsure: Outcome) -> None:
    border, found = search(1.0, 1.001, unsure, ModelError("it\nfails"), 1.5)
    assert (border, border.doubtful) == (Border(1, 4, "latency"), 2)
    printed = "\n".join(lines(found, border, "m-fp32", "latency", "sme2 run m"))
    assert "2 versions between could not be judged" in printed
    assert "cannot tell: Too noisy." in printed
    assert "cannot be measured: it" in printed
    figures = [probe["figures"].get("latency") for probe in document(found, border)["probes"]]  # type: ignore[attr-defined]
    verdicts = [latency and latency["verdict"] for latency in figures]
    assert verdicts == [None, "PASS", str(unsure), None, "REGRESSED"]


def test_nothing_is_worse_where_the_bad_end_is_not_slower(search: Any) -> None:
    border, found = search(1.0, 3.0, 1.001)
    assert border is None
    assert len(found.row.asked) == 1
    told = lines(found, border, "m-fp32", "latency", "sme2 run m")
    assert told[0] == "m-fp32: nothing is worse at torch==2.2 than at torch==2.0 (latency)."


def test_an_end_that_cannot_be_told_ends_the_search(search: Any) -> None:
    with pytest.raises(RunError, match=r"2\.2 is slower than torch==2\.0\. Too noisy\."):
        search(1.0, 1.5, Outcome.INCONCLUSIVE)
    with pytest.raises(UsageError, match=r"2\.0, which --good names, .*Name a version that can"):
        search(ModelError("It fails."), 1.5)
    with pytest.raises(UsageError, match=r"2\.1, which --bad names, cannot be measured: It fails"):
        search(1.0, ModelError("It fails."))
    # Without its device no other change can be measured either.
    with pytest.raises(TargetError, match="gone"):
        search(1.0, TargetError("The phone is gone."), 1.5)


def check(verdict: Outcome, interval: tuple[float, float] | None = None) -> Check:
    return Check("latency against a", verdict, "", interval=interval)


@pytest.mark.parametrize("verdict", list(Outcome))
def test_only_what_is_sure_is_good_or_bad(verdict: Outcome) -> None:
    sure = {Outcome.REGRESSED: True, Outcome.PASS: False, Outcome.IMPROVED: False}
    assert is_slower(check(verdict)) is sure.get(verdict)
    assert is_slower(bisecting.same_as_good("a")) is False


def test_the_border_lies_halfway_to_what_the_bad_end_is_sure_to_have() -> None:
    assert halfway(check(Outcome.REGRESSED, (1.5, 1.7)), 0.02) == pytest.approx(0.25)
    # Never below what is tolerated, and that alone where nothing is sure.
    assert halfway(check(Outcome.REGRESSED, (1.03, 1.7)), 0.02) == 0.02
    assert halfway(check(Outcome.REGRESSED, (0.5, 1.7)), 0.02) == 0.02
    assert halfway(check(Outcome.REGRESSED), 0.02) == 0.02


@pytest.mark.parametrize(("changes", "looks"), [(2, 1), (3, 2), (9, 4), (64, 7), (65, 7)])
def test_how_many_verdicts_a_search_gives(changes: int, looks: int) -> None:
    assert bisecting.looks_needed(changes) == looks
    assert looks <= 1 + math.ceil(math.log2(changes))


def test_earlier_pairs_count_if_they_decided_the_same_question() -> None:
    verdicts = (Outcome.INCONCLUSIVE, Outcome.PASS)
    told = [replace(check(verdict), limit=limit) for verdict in verdicts for limit in (0.1, 0.2)]
    assert bisecting.decided(told, "a", 0.2) is told[3]
    assert bisecting.decided(told, "a", 0.3) is None
    assert bisecting.decided(told, "b", 0.2) is None
    assert bisecting.decided(told[:2], "a", 0.2) is None


def case(*, operators: int = 3, size: int | None = 1000) -> CaseResult:
    made = gate_examples.emulated()
    entry = replace(made.structures[Arm.ON].operators[0], count=operators)
    return replace(made, structures={Arm.ON: Structure((entry,))}, pte_bytes=size, costs={})


def test_the_first_figure_that_is_worse_is_taken() -> None:
    bad = case(operators=5, size=2000)
    assert worse_figure(case(), bad, None) == "operators"
    assert worse_figure(case(), bad, "size") == "size"
    # Nothing is worse where it only got better, or grew by less than a hundredth.
    assert worse_figure(case(), case(), "size") is None
    assert worse_figure(case(operators=5), case(operators=3), "operators") is None
    assert worse_figure(case(), case(size=1009), "size") is None
    # What one end does not have is named.
    with pytest.raises(RunError, match="but size could not: "):
        worse_figure(case(), case(size=None), "size")
    # No instructions were counted.
    with pytest.raises(RunError, match=r"is worse, but cost.*, size could not: "):
        worse_figure(case(size=None), case(), None)


def test_a_commit_is_bad_if_it_is_nearer_to_the_bad_end() -> None:
    good, bad = case(size=1000), case(size=2000)
    sizes = (900, 1400, 1500, 3000, None)
    judged = [FIGURES["size"].is_bad(good, bad, case(size=size)) for size in sizes]
    assert judged == [False, False, True, True, None]


KNOWN = ("2.13.0", "2.9.1", "2.12.1", "2.12.0", "2.10.0", "2.8.0")
BUILDS = ("2.13.0+cpu", "2.13.0", "2.12.1", "2.12.1+cpu", "2.12.0+cu130")


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (KNOWN, ["2.9.1", "2.10.0", "2.12.0", "2.12.1", "2.13.0"]),
        # An end that pip does not list may be in a folder of wheels.
        (KNOWN, ["2.11.9", "2.12.0", "2.12.1", "2.12.2"]),
        # An older bad end is searched for back in time.
        (KNOWN, ["2.12.1", "2.12.0", "2.10.0", "2.9.1"]),
        # Builds for something else are left out.
        (BUILDS, ["2.11.0", "2.12.1", "2.13.0"]),
        (BUILDS, ["2.11.0+cpu", "2.12.1+cpu", "2.13.0+cpu"]),
        # The same version in another build is not a version between.
        (BUILDS, ["2.12.1", "2.13.0+cpu"]),
    ],
)
def test_versions_are_in_order_with_both_ends(known: tuple[str, ...], found: list[str]) -> None:
    good, bad = Pin("torch", found[0]), Pin("torch", found[-1])
    pins = rows.releases_between(good, bad, known)
    assert [pin.version for pin in pins] == found
    assert ReleaseRow(pins, Settings(), lambda line: None).backwards == (found[-1] == "2.9.1")


def test_only_packages_that_change_something_are_taken() -> None:
    assert parse_release("executorch==1.5.0") == Pin("executorch", "1.5.0")
    assert parse_release("v1.0") is None
    with pytest.raises(UsageError, match=r"'numpy' is not .*one of: executorch, torch, torchao"):
        parse_release("numpy==2.0")
    with pytest.raises(UsageError, match=r"'1\.x' is not a version"):
        parse_release("torch==1.x")


@pytest.mark.parametrize(
    ("bad", "named", "message"),
    [
        (Pin("torchao", "0.18.0"), [], "two packages"),
        (Pin("torch", "2.13"), [], "are the same version"),
        (Pin("torch", "2.15"), ["2.14", "2.15", "1.4.0"], r"--versions: 1\.4\.0 does not lie betw"),
    ],
)
def test_what_is_searched_lies_between_two_ends(bad: Pin, named: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rows.check_ends(Pin("torch", "2.13.0"), bad, named)


def test_a_package_that_is_not_installed_needs_a_bad_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(UsageError, match="torch is not installed"):
        rows.installed_pin("torch")


def test_another_version_goes_before_the_installed_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    about = tmp_path / "pytest-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest\nVersion: 0.1\n")
    monkeypatch.setattr(rows, "package_folder", lambda pin, progress: tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    before = list(sys.path)
    installed = importlib.metadata.version("pytest")
    pins = [Pin("pytest", version) for version in ("0.1", installed)]
    made = ReleaseRow(pins, Settings(), lambda line: None)
    with made.shown(0):
        assert importlib.metadata.version("pytest") == "0.1"
    with made.shown(1):
        assert importlib.metadata.version("pytest") == installed
        assert sys.path == before
    assert sys.path == before
    assert made.commands(Border(0, 1), "sme2 run x") == (
        "See it run: sme2 run x",
        f"Before it: PYTHONPATH={tmp_path} sme2 run x",
    )
    chosen = Settings(device="emulated", models=("x",), variants=(parse_variant("int8"),))
    chosen = replace(chosen, model_folders=(Path("m"),), runtime="1.5.1")
    kept = replace(made, settings=chosen)
    export = "sme2 export x --variant int8 --models-folder m"
    assert kept.commands(Border(0, 1), "sme2 run x") == (
        f'See it run: sme2 run "$({export})" --device emulated',
        f'Before it: sme2 run "$(PYTHONPATH={tmp_path} {export})" --device emulated',
    )


@pytest.mark.parametrize("changes", [2, 3, 10, 64, 65])
def test_every_step_is_found_in_few_looks(changes: int) -> None:
    for step in range(1, changes):
        asked: list[int] = []

        def is_bad(number: int, step: int = step, asked: list[int] = asked) -> bool:
            asked.append(number)
            return number >= step

        assert rows.find_border(changes, is_bad) == Border(step - 1, step)
        assert len(asked) <= math.ceil(math.log2(changes - 1)) if changes > 2 else not asked
        assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(("step", "border", "doubtful"), [(8, (7, 8), 0), (5, (3, 7), 3)])
def test_what_cannot_be_judged_is_passed_over(
    step: int, border: tuple[int, int], doubtful: int
) -> None:
    """Where the border is among them, that is said."""
    found = rows.find_border(11, lambda number: None if number in {4, 5, 6} else number >= step)
    assert (found, found.doubtful) == (Border(*border), doubtful)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "a repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for number in range(5):
        (root / "file").write_text(str(number))
        git(root, "add", "file")
        git(root, "commit", "-q", "-m", f"change {number}")
    return root


def test_both_ends_are_among_the_commits_and_a_merge_is_one_change(repository: Path) -> None:
    found = commits_between(repository, "HEAD~3", "HEAD")
    assert [commit.subject for commit in found] == [f"change {number}" for number in (1, 2, 3, 4)]
    assert found[-1].key == git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "-b", "side", "HEAD~1")
    git(repository, "commit", "-q", "--allow-empty", "-m", "on the side")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "merged", "side")
    found = commits_between(repository, "HEAD~1", "main")
    assert [commit.subject for commit in found] == ["change 4", "merged"]
    with pytest.raises(UsageError, match="not among the first parents"):
        commits_between(repository, "side", "main")


def test_names_of_commits_are_checked(repository: Path, tmp_path: Path) -> None:
    for name in ("gone", "-q", "--output=x", "HEAD:file", ""):
        with pytest.raises(UsageError, match="is not a commit of this repository"):
            commits_between(repository, name, "HEAD")
    with pytest.raises(UsageError, match="are the same commit"):
        commits_between(repository, "HEAD", "main")
    with pytest.raises(UsageError, match="is not in a git repository"):
        rows.repository_of(tmp_path)


def test_the_users_own_work_tree_stays_as_it_is(repository: Path, tmp_path: Path) -> None:
    (repository / "file").write_text("work that is not committed")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/hook-ran'\n")
    hook.chmod(0o755)
    commits = commits_between(repository, "HEAD~3", "HEAD")
    with rows.work_tree(repository, commits[0]) as tree:
        (tree / "left behind").write_text("")
        row = rows.CommitRow(tree, commits, Settings(model_folders=(Path("models"),)))
        for number, commit in enumerate(commits):
            with row.shown(number) as settings:
                assert settings.model_folders == (tree / "models",)
            assert (tree / "file").read_text() == commit.subject[-1]
            assert not (tree / "left behind").exists()
    assert (repository / "file").read_text() == "work that is not committed"
    assert git(repository, "worktree", "list").count("\n") == 0
    assert not tree.exists()
    assert not (tmp_path / "hook-ran").exists()
