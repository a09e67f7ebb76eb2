"""Puts the run directories of several machines together, and notices what is missing."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_sme2.errors import UsageError
from pytest_sme2.report.writing import write_case, write_run
from pytest_sme2.session.run_directory import CaseRecord, find_records, read_record, write_record
from pytest_sme2.session.shard import SCHEMA, RanTest, Shard, read_shard, write_shard
from pytest_sme2.system.wording import count

MOST_NAMED = 3
# Of pytest: tests failed, and no test was left for this shard.
_ENDED = (0, 1, 5)


@dataclass(frozen=True)
class Merged:
    """Several runs as one."""

    cases: tuple[tuple[Path, CaseRecord], ...]
    tests: Mapping[str, RanTest]
    problems: tuple[str, ...]
    """What is missing, was done twice, or does not fit together; one sentence each."""

    @property
    def failed(self) -> bool:
        wrong = any(test.outcome in ("failed", "error") for test in self.tests.values())
        return wrong or bool(self.problems)


def merge(folders: Sequence[Path], out: Path) -> Merged:
    """Copy every case into ``out``, with the checks of all shards; ``out`` is new."""
    shards = {folder: read_shard(folder) for folder in folders}
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("A run directory is named twice. Name each once.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{str(out)!r} is there already. Choose a new folder for --out.")
    problems = [*_problems(shards)]
    cases: dict[Path, CaseRecord] = {}
    for root in folders:
        for folder in find_records(root):
            record, place = read_record(folder), out / folder.relative_to(root)
            other = cases.get(place)
            if other is None:
                shutil.copytree(folder, place, ignore=_links)
                cases[place] = record
                continue
            if other.measured.pte_sha256 != record.measured.pte_sha256:
                problems.append(
                    f"{record.id} is another program in {root} than in an earlier run directory: "
                    "its checks are not of one program. Run all shards on one commit."
                )
            added = (check for check in record.checks if check not in other.checks)
            cases[place] = replace(other, checks=(*other.checks, *added))
    for place, record in cases.items():
        write_record(place, record)
        write_case(place, record)
    write_run(out, list(cases.values()))
    tests = {name: test for shard in shards.values() for name, test in shard.tests.items()}
    found = tuple(sorted({name for shard in shards.values() for name in shard.found}))
    merged = Merged(tuple(cases.items()), dict(sorted(tests.items())), tuple(problems))
    write_shard(out, Shard(SCHEMA, int(merged.failed), merged.tests, found))
    return merged


def _links(folder: str, names: list[str]) -> list[str]:
    """What is not copied: a link may lead anywhere."""
    return [name for name in names if Path(folder, name).is_symlink()]


def _problems(shards: Mapping[Path, Shard]) -> list[str]:
    problems = []
    for folder, shard in shards.items():
        if shard.exit_code not in _ENDED:
            problems.append(
                f"{folder}: pytest ended with exit code {shard.exit_code} before all its tests "
                "had run."
            )
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
        problems.append(
            f"{count(len(lost), 'test')} of {len(found)} ran in no shard: {_named(lost)}."
        )
    twice = sorted(name for name, times in ran.items() if times > 1)
    if twice:
        problems.append(f"{count(len(twice), 'test')} ran in more than one shard: {_named(twice)}.")
    return problems


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
