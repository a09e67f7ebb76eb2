"""``sme2 merge``: the runs of several machines as one: one report, one JUnit, one exit code."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from pytest_sme2.cli.options import Arguments, chosen, shared, show
from pytest_sme2.errors import UsageError, plain
from pytest_sme2.report.comment import comment_json
from pytest_sme2.report.history import write_history
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.report.writing import measured_commit, write_case, write_run
from pytest_sme2.results import CaseResult, Check
from pytest_sme2.session.run_directory import (
    SHARD_SCHEMA,
    CaseRecord,
    RanTest,
    Shard,
    find_records,
    read_record,
    read_shard,
    write_record,
    write_shard,
)
from pytest_sme2.session.settings import parse_report
from pytest_sme2.system.files import new_folder, write_text
from pytest_sme2.system.wording import count, some_of
from pytest_sme2.verdict import contract
from pytest_sme2.verdict.judging import FAILING

# What XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS = {"failed": "failure", "error": "error", "skipped": "skipped"}


def junit_text(tests: Mapping[str, RanTest]) -> str:
    """The document; the tests of a run are one suite."""
    outcomes = [test.outcome for test in tests.values()]
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        name="pytest",
        tests=str(len(tests)),
        failures=str(outcomes.count("failed")),
        errors=str(outcomes.count("error")),
        skipped=str(outcomes.count("skipped")),
        time=f"{sum(test.seconds for test in tests.values()):.3f}",
    )
    for node, test in tests.items():
        path, _, name = node.partition("::")
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=path.removesuffix(".py").replace("/", "."),
            name=name or path,
            time=f"{test.seconds:.3f}",
        )
        if test.outcome in _ELEMENTS:
            first = test.message.strip().partition("\n")[0]
            ElementTree.SubElement(case, _ELEMENTS[test.outcome], message=first).text = test.message
    ElementTree.indent(suites, " ")
    text = _NOT_XML.sub("\ufffd", ElementTree.tostring(suites, encoding="unicode"))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


EXAMPLE = "sme2 merge shard-1 shard-2 --out merged --junit junit.xml"
ARGUMENTS: Arguments = {
    "run_dir RUN_DIR+": "the run directory of one shard",
    "--out DIR!": "the new run directory",
    "--html FILE": "write the HTML report to this file",
    "--junit FILE": "write one JUnit file",
    "--comment FILE": "write what a comment on a pull request says, as JSON",
    **shared("baseline-dir", "history"),
}


def run(arguments: argparse.Namespace) -> int:
    html = None if arguments.html is None else parse_report(str(arguments.html))
    chosen_of = chosen(arguments, baseline_dir=None, history=None)
    baselines, history = chosen_of["baseline_dir"], chosen_of["history"]
    if baselines is not None and not baselines.is_dir():
        raise UsageError(f"--baseline-dir: there is no folder {str(baselines)!r}.")
    merged = merge(arguments.run_dir, arguments.out, baselines or Path("baselines"))
    records = [record for _, record in merged.cases]
    if html is not None:
        from pytest_sme2.report.html import write_html

        write_html(html, merged.cases)
    if arguments.junit is not None:
        write_text(arguments.junit, junit_text(merged.tests))
    if history is not None:
        commits = {measured_commit(folder) for folder, _ in merged.cases}
        write_history(history, records, (commits.pop() or None) if len(commits) == 1 else None)
    if arguments.comment is not None:
        write_text(arguments.comment, comment_json(records))
    outcomes = Counter(test.outcome for test in merged.tests.values())
    told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    counts = (
        f"{count(len(arguments.run_dir), 'shard')}, {count(len(merged.cases), 'case')}, "
        f"{count(len(merged.tests), 'test')}: {told}"
    )
    document = {
        "cases": [record.id for record in records],
        "tests": {name: test.outcome for name, test in merged.tests.items()},
        "problems": list(merged.problems),
        "odd": list(merged.odd),
        "failed": merged.failed,
    }
    show(arguments, document, [*map(plain, run_lines(records)), counts])
    for told in (*merged.odd, *merged.problems):
        print(f"sme2: {plain(told)}", file=sys.stderr)
    return int(merged.failed)


MOST_NAMED = 3
# Of pytest: tests failed, and no test was left for this shard.
_ENDED = (0, 1, 5, 125)


@dataclass(frozen=True)
class Merged:
    cases: tuple[tuple[Path, CaseRecord], ...]
    tests: Mapping[str, RanTest]
    problems: tuple[str, ...]
    """What is missing, was done twice, or does not fit together; one sentence each."""
    odd: tuple[str, ...] = ()
    """Where a phone differs from its kin, in sentences."""

    @property
    def failed(self) -> bool:
        return any(map(_test_failed, self.tests.values())) or bool(self.problems)


def merge(folders: Sequence[Path], out: Path, baselines: Path = Path("baselines")) -> Merged:
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
    facts: dict[str, dict[str, Path]] = {}
    problems: list[str] = []
    for root, shard in shards.items():
        folders = [*find_records(root)]
        problems += _unexplained(root, shard, folders)
        for folder in folders:
            record, place = read_record(folder), out / folder.relative_to(root)
            for name, value in _facts(folder, record.measured).items():
                facts.setdefault(name, {}).setdefault(value, root)
            others = made.setdefault(place, {})
            others[folder] = record
            (first, *_) = others.values()
            if first.measured.pte_sha256 != record.measured.pte_sha256:
                problems.append(
                    f"{record.id} is another program in {root} than in an earlier run directory: "
                    "its checks are not of one program. Run all shards on one commit."
                )
    # The same tests on several phones of one kind are not done twice.
    several = [list(records.values()) for records in made.values() if len(records) > 1]
    kin = bool(several) and all(map(_are_kin, several))
    problems = [*_problems(shards, kin=kin), *problems, *_mixed(facts)]
    odd: list[str] = []
    cases: dict[Path, CaseRecord] = {}
    for place, records in made.items():
        folder, record = _one_verdict(records, odd) if kin else _joined(records)
        shutil.copytree(folder, place, ignore=_links)
        cases[place] = record
        write_record(place, record)
        write_case(place, record)
    write_run(out, list(cases.values()))
    ran: dict[str, list[RanTest]] = {}
    for shard in shards.values():
        for name, test in shard.tests.items():
            ran.setdefault(name, []).append(test)
    tests = {name: _most(found, _test_failed) if kin else found[-1] for name, found in ran.items()}
    asked = [shard.asked for shard in shards.values() if shard.asked is not None]
    if asked:
        judged = contract.judge(baselines, [*cases.values()], contract.join(asked))
        problems += () if any(map(_test_failed, tests.values())) else judged.failed
        problems += [*judged.open, *(judged.empty if cases else ())]
    found = tuple(sorted({name for shard in shards.values() for name in shard.found}))
    merged = Merged((*cases.items(),), dict(sorted(tests.items())), (*problems,), (*odd,))
    names = tuple(str(place.relative_to(out)) for place in cases)
    whole = contract.join(asked) if asked else None
    write_shard(
        out, Shard(SHARD_SCHEMA, int(merged.failed), merged.tests, found, asked=whole, cases=names)
    )
    return merged


def _joined(records: Mapping[Path, CaseRecord]) -> tuple[Path, CaseRecord]:
    """The case of the first run, with the checks of all."""
    (folder, first), *_ = records.items()
    checks = dict.fromkeys(check for record in records.values() for check in record.checks)
    return folder, replace(first, checks=tuple(checks))


def _are_kin(records: Sequence[CaseRecord]) -> bool:
    """Whether they are of as many phones, all of one kind."""
    serials = {record.state.get("serial") for record in records}
    kinds = {record.measured.fingerprint for record in records}
    return len(kinds) == 1 and len(serials - {None}) == len(records)


def _one_verdict(records: Mapping[Path, CaseRecord], odd: list[str]) -> tuple[Path, CaseRecord]:
    """What most phones of a kind say of each figure, and which of them says something else."""
    found: dict[str, dict[str, Check]] = {}
    for record in records.values():
        for check in record.checks:
            found.setdefault(check.metric, {})[record.state.get("serial", "")] = check
    checks, strange = [], set()
    for metric, by_phone in found.items():
        kept = _most(sorted(by_phone.values(), key=lambda check: check.new or 0), _check_failed)
        checks.append(kept)
        for serial, check in by_phone.items():
            if _check_failed(check) != _check_failed(kept):
                strange.add(serial)
                case = next(iter(records.values())).id
                odd.append(
                    f"{case}: {metric} is {check.verdict} on the phone {serial}, and "
                    f"{kept.verdict} on its kin: {check.message}"
                )
    usual = (item for item in records.items() if item[1].state.get("serial") not in strange)
    folder, record = next(usual, next(iter(records.items())))
    return folder, replace(record, checks=tuple(checks))


def _check_failed(check: Check) -> bool:
    return check.verdict in FAILING


def _test_failed(test: RanTest) -> bool:
    return test.outcome in ("failed", "error")


_Found = TypeVar("_Found")


def _most(found: Sequence[_Found], failed: Callable[[_Found], bool]) -> _Found:
    """The one in the middle of those that most agree with; of two halves, the one that failed."""
    bad = [each for each in found if failed(each)]
    kept = bad if 2 * len(bad) >= len(found) else [each for each in found if not failed(each)]
    return kept[len(kept) // 2]


def _facts(folder: Path, measured: CaseResult) -> Mapping[str, str]:
    """What the cases of one run have in common."""
    device = measured.fingerprint
    emulator = device.facts if measured.emulated else ()
    return {
        "the project's commit": measured_commit(folder),
        f"the runner for {device.target}": measured.runtime[:12],
        **{f"the version of {name}": version for name, version in measured.versions.items()},
        **{f"the emulator's {name}": value for name, value in emulator},
    }


def _mixed(found: Mapping[str, Mapping[str, Path]]) -> Iterator[str]:
    """A sentence for each fact, by its values, that is not the same everywhere it is known."""
    for name, values in found.items():
        known = [f"{value} in {root}" for value, root in values.items() if value]
        if len(known) > 1:
            yield f"These are not parts of one run: {name} is {' and '.join(known)}."


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
    yield from (f"{root}: {problem}" for problem in shard.problems)
    bad = [*map(_test_failed, shard.tests.values()), *shard.problems]
    bad += [_check_failed(check) for folder in folders for check in read_record(folder).checks]
    if shard.exit_code == 1 and not any(bad):
        yield f"{root}: pytest ended with exit code 1, and none of its tests and checks says why."


def _problems(shards: Mapping[Path, Shard], *, kin: bool) -> list[str]:
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
    if twice and not kin:
        problems.append(
            f"{count(len(twice), 'test')} ran in more than one shard: {some_of(twice, MOST_NAMED)}."
        )
    return problems
