"""``sme2 merge``: the runs of several machines as one: one run directory, one exit code."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_sme2.cli.options import Arguments, chosen, shared, show
from pytest_sme2.errors import UsageError, plain
from pytest_sme2.report.history import write_history
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.report.writing import measured_commit, write_case, write_run
from pytest_sme2.session.run_directory import (
    CaseRecord,
    Shard,
    find_records,
    read_record,
    read_shard,
    write_record,
)
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import new_folder
from pytest_sme2.system.wording import count, some_of
from pytest_sme2.verdict import contract
from pytest_sme2.verdict.judging import FAILING

EXAMPLE = "sme2 merge shard-1 shard-2 --out merged"
ARGUMENTS: Arguments = {
    "run_dir RUN_DIR+": "the run directory of one shard",
    "--out DIR!": "the new run directory",
    **shared("baseline-dir", "history"),
}


def run(arguments: argparse.Namespace) -> int:
    settings = Settings(**chosen(arguments))
    baselines, history = settings.baseline_folder, settings.history
    if settings.baseline_dir is not None and not baselines.is_dir():
        raise UsageError(f"--baseline-dir: there is no folder {str(settings.baseline_dir)!r}.")
    merged = merge(arguments.run_dir, arguments.out, baselines)
    records = [record for _, record in merged.cases]
    if history is not None:
        commits = {measured_commit(folder) for folder, _ in merged.cases}
        write_history(history, records, (commits.pop() or None) if len(commits) == 1 else None)
    outcomes = Counter(merged.tests.values())
    told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    counts = (
        f"{count(len(arguments.run_dir), 'shard')}, {count(len(merged.cases), 'case')}, "
        f"{count(len(merged.tests), 'test')}: {told}"
    )
    document = {
        "cases": [record.id for record in records],
        "tests": dict(merged.tests),
        "problems": list(merged.problems),
        "failed": merged.failed,
    }
    show(arguments, document, [*map(plain, run_lines(records)), counts])
    bad = [f"failed: {some_of(merged.bad, MOST_NAMED)}."] if merged.bad else []
    for told in (*bad, *merged.problems):
        print(f"sme2: {plain(told)}", file=sys.stderr)
    return int(merged.failed)


MOST_NAMED = 3
# Of pytest: tests failed, and no test was left for this shard.
_ENDED = (0, 1, 5, 125)
_BAD = ("failed", "error")


@dataclass(frozen=True)
class Merged:
    cases: tuple[tuple[Path, CaseRecord], ...]
    tests: Mapping[str, str]
    problems: tuple[str, ...]
    """What is missing, was done twice, or does not fit together; one sentence each."""

    @property
    def bad(self) -> list[str]:
        return [name for name, ended in self.tests.items() if ended in _BAD]

    @property
    def failed(self) -> bool:
        return bool(self.bad or self.problems)


def merge(folders: Sequence[Path], out: Path, baselines: Path) -> Merged:
    """Copy every case into ``out``, with the checks of all shards, which together must have
    compared all that ``baselines`` store of their device; ``out`` appears when whole.
    """
    shards = {folder: read_shard(folder) for folder in folders}
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("A run directory is named twice. Name each once.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{str(out)!r} is there already. Choose a new folder for --out.")
    with new_folder(out) as made:
        merged = _fill(made, shards, baselines)
    cases = tuple((out / place.relative_to(made), record) for place, record in merged.cases)
    return replace(merged, cases=cases)


def _fill(out: Path, shards: Mapping[Path, Shard], baselines: Path) -> Merged:
    made: dict[Path, dict[Path, CaseRecord]] = {}
    commits: dict[str, Path] = {}
    problems: list[str] = []
    for root, shard in shards.items():
        folders = [*find_records(root)]
        problems += _unexplained(root, shard, folders)
        for folder in folders:
            record, place = read_record(folder), out / folder.relative_to(root)
            commits.setdefault(measured_commit(folder), root)
            others = made.setdefault(place, {})
            others[folder] = record
            (first, *_) = others.values()
            if first.measured.pte_sha256 != record.measured.pte_sha256:
                problems.append(
                    f"{record.id} is another program in {root} than in an earlier run directory: "
                    "its checks are not of one program. Run all shards on one commit."
                )
    problems = [*_problems(shards), *problems]
    known = [f"{commit} in {root}" for commit, root in commits.items() if commit]
    if len(known) > 1:
        told = " and ".join(known)
        problems.append(f"These are not parts of one run: the project's commit is {told}.")
    cases: dict[Path, CaseRecord] = {}
    for place, records in made.items():
        folder, record = _joined(records)
        shutil.copytree(folder, place, ignore=_links)
        cases[place] = record
        write_record(place, record)
        write_case(place, record)
    write_run(out, list(cases.values()))
    tests = {name: ended for shard in shards.values() for name, ended in shard.tests.items()}
    asked = [shard.asked for shard in shards.values() if shard.asked is not None]
    if asked:
        judged = contract.judge(baselines, [*cases.values()], contract.join(asked))
        problems += () if {*_BAD} & {*tests.values()} else judged.failed
        problems += [*judged.open, *(judged.empty if cases else ())]
    return Merged((*cases.items(),), dict(sorted(tests.items())), (*problems,))


def _joined(records: Mapping[Path, CaseRecord]) -> tuple[Path, CaseRecord]:
    """The case of the first run, with the checks of all."""
    (folder, first), *_ = records.items()
    checks = dict.fromkeys(check for record in records.values() for check in record.checks)
    return folder, replace(first, checks=tuple(checks))


def _links(folder: str, names: list[str]) -> list[str]:
    """What is not copied: a link may lead anywhere."""
    return [name for name in names if Path(folder, name).is_symlink()]


def _unexplained(root: Path, shard: Shard, folders: Sequence[Path]) -> Iterator[str]:
    """What of a run its records do not show."""
    there = {str(folder.relative_to(root)) for folder in folders}
    gone = sorted({*shard.cases} - there)
    if gone:
        yield (
            f"{root}: {count(len(gone), 'case')} that it measured, and whose folder is gone: "
            f"{some_of(gone, MOST_NAMED)}. Copy the whole run directory."
        )
    if shard.cases and shard.asked is None:
        yield f"{root}: nothing was compared: it is a run that stored baselines."
    yield from (f"{root}: {problem}" for problem in shard.problems)
    checks = [check for folder in folders for check in read_record(folder).checks]
    bad = {*_BAD} & {*shard.tests.values()} or any(each.verdict in FAILING for each in checks)
    if shard.exit_code == 1 and not (bad or shard.problems):
        yield f"{root}: pytest ended with exit code 1, and none of its tests and checks says why."


def _problems(shards: Mapping[Path, Shard]) -> list[str]:
    problems = [
        f"{folder}: pytest ended with exit code {shard.exit_code} before all its tests had run."
        for folder, shard in shards.items()
        if shard.exit_code not in _ENDED
    ]
    totals = {shard.of for shard in shards.values() if shard.of is not None}
    if len(totals) > 1:
        told = " and of ".join(map(str, sorted(totals)))
        problems.append(f"Some runs are of {told} shards. Merge the shards of one run.")
    for of in totals:
        here = {shard.number for shard in shards.values() if shard.of == of}
        missing = [str(number) for number in range(1, of + 1) if number not in here]
        if missing:
            problems.append(f"Shards that are missing, of {of}: {', '.join(missing)}.")
    ran = Counter(name for shard in shards.values() for name in shard.tests)
    found = {name for shard in shards.values() for name in shard.found}
    lost = sorted(found - set(ran))
    if lost:
        number = f"{count(len(lost), 'test')} of {len(found)}"
        problems.append(f"{number} ran in no shard: {some_of(lost, MOST_NAMED)}.")
    twice = sorted(name for name, times in ran.items() if times > 1)
    if twice:
        problems.append(
            f"{count(len(twice), 'test')} ran in more than one shard: {some_of(twice, MOST_NAMED)}."
        )
    return problems
