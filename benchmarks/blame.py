"""Does a failure point at what was changed? Planted edits, each counted on the emulator.

    python -m benchmarks.blame collect --minutes 60   # as often as you like; it resumes
    python -m benchmarks.blame report

``benchmarks/planted`` has a folder for each model, with one edit of each kind. The first run of a
model stores its baselines and commits them with its sources. Each edit is then made, exported and
counted in three data types, and judged twice: knowing from git which lines changed, and without.

A headline is right if it names a line of the edit, or a line that calls what the edited line makes,
or if it says of an edit that makes everything larger that all grew. A line is innocent if it is
neither, and is not called near. The parts of a difference have to add up to it.
"""

from __future__ import annotations

import itertools
import re
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Claim, append_record, finish, parser_of, read_records
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.report.versus_baseline import failure_text
from pytest_sme2.results import Check, Limits
from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.verdict import baselines, cost, judging, structure
from pytest_sme2.verdict.growth import located
from tests.support.git import git

PLANTED = ROOT / "benchmarks" / "planted"
WORK = ROOT / "sme2-out" / "blame"
VARIANTS = ("fp32", "fp16", "int8")
FEWEST, RIGHT, MOST_LINES = 300, 0.98, 20
_NAMED = re.compile(r"(near )?(?:`[^`]*` )?(?:at )?([\w./-]+\.py):([0-9]+)(?:-([0-9]+))?")


@dataclass
class Edit:
    """What is done to one file of a model, and which lines it is right to name."""

    kind: str
    file: str = "model.py"
    everywhere: bool = False
    hunks: list[tuple[list[str], list[str]]] = field(default_factory=list)
    callers: list[str] = field(default_factory=list)

    def made(self, text: str) -> tuple[str, set[tuple[str, int]]]:
        """The file as it is then, and the guilty lines of the old and of the new one."""
        guilty: set[int] = set()
        for old, new in self.hunks:
            before, found, after = text.partition("\n".join(old) + "\n")
            assert found, f"{self.kind}: {old[0].strip()} is not in {self.file}"
            first = before.count("\n") + 1
            same = sum(a == b for a, b in zip(old, new, strict=False))
            guilty |= {*range(first + same, first + max(len(old), len(new)))}
            text = before + "".join(f"{line}\n" for line in new) + after
        lines = enumerate(text.splitlines(), start=1)
        guilty |= {row for row, line in lines if any(call in line for call in self.callers)}
        return text, {(self.file, row) for row in guilty}


def edits_of(model: str) -> dict[str, Edit]:
    """``[kind]`` with a file or ``all``, then lines with ``-``, ``+``, and ``@`` for callers."""
    found: dict[str, Edit] = {}
    for line in (PLANTED / model / "edits.txt").read_text("utf-8").splitlines():
        mark, rest = line[:1], line[1:]
        if mark == "[":
            kind, _, more = rest.partition("]")
            edit = found[kind] = Edit(kind)
            for word in more.split():
                edit.everywhere |= word == "all"
                edit.file = word if word.endswith(".py") else edit.file
        elif mark == "@":
            edit.callers.append(rest.strip())
        elif mark == "-" and (not edit.hunks or edit.hunks[-1][1]):
            edit.hunks.append(([rest], []))
        elif mark:
            edit.hunks[-1][mark == "+"].append(rest)
    return found


def session_of(model: str, *variants: str) -> Session:
    settings = Settings(
        device="emulated", models=(model,), model_folders=(WORK / model,),
        variants=tuple(map(parse_variant, variants)),
        out=WORK / "out", baseline_dir=WORK / model / "baselines",
    )  # fmt: skip
    return Session(settings)


def begin(model: str) -> None:
    """The model as it is written, with its baselines, in a repository of its own."""
    root = WORK / model
    if not (root / ".git").is_dir():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        git(root, "init", "-q")
    shutil.copytree(PLANTED / model, root / model, dirs_exist_ok=True)
    session = session_of(model, *VARIANTS)
    for case in session.cases():
        baselines.store(root / "baselines", session.measured(case, timed=False), force=True)
    session.close()
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", model)


def checks_of(session: Session, case: Case) -> list[Check]:
    """What the suite asks of a program without running a clock."""
    measured, baseline, limits = (
        session.measured(case, timed=False),
        session.baseline(case),
        Limits(),
    )
    found = [structure.check_coverage(measured, baseline, limits)]
    for arm in session.arms(case):
        found += [
            structure.check_operators(measured, baseline, arm),
            structure.check_delegation(measured, baseline, arm),
            cost.check_cost(measured, baseline, limits, arm),
        ]
    return found


def judge(edit: Edit, guilty: set[tuple[str, int]], checks: Sequence[Check]) -> dict[str, Any]:
    """What the headline named, and whether that is right."""
    chief = next(check for check in checks if check.metric == "cost (on)")
    said = ": ".join(filter(None, (chief.cause, chief.where)))
    named = [
        (bool(near), Path(file).name, range(int(first), int(last or first) + 1))
        for near, file, first, last in _NAMED.findall(chief.where)
    ]
    hits = [any((file, row) in guilty for row in rows) for _, file, rows in named]
    all_grew = bool(re.match(r"(all|\d+ of) .*(grew|shrank)", chief.cause))
    parts = [int(re.split(":", line)[0].replace(",", "")) for line in chief.details]
    return {
        "verdict": str(chief.verdict),
        "said": said,
        "right": all_grew if edit.everywhere else any(hits),
        "innocent": not edit.everywhere
        and any(not near and not hit for (near, *_), hit in zip(named, hits, strict=True)),
        "exact": sum(parts) == (chief.new or 0) - (chief.old or 0),
    }


def tried(model: str, edit: Edit, variant: str) -> Iterator[dict[str, Any]]:
    """One edit, judged with git and without."""
    place = WORK / model / model / edit.file
    text = (PLANTED / model / edit.file).read_text("utf-8")
    new, guilty = edit.made(text)
    place.write_text(new, "utf-8")
    session = session_of(model, variant)
    try:
        (case,) = session.cases()
        checks = checks_of(session, case)
        measured, baseline = session.measured(case, timed=False), session.baseline(case)
        for knows in (True, False):
            changed = session.changed_lines(case) if knows else ()
            named = located(checks, measured, baseline, None, changed)
            whole = failure_text(judging.verdict(measured, named))
            row = {"model": model, "kind": edit.kind, "variant": variant, "git": knows}
            yield row | judge(edit, guilty, named) | {"lines": len(whole.splitlines())}
    finally:
        session.close()
        place.write_text(text, "utf-8")


def collect(path: Path, minutes: float, only: Sequence[str]) -> None:
    """What is not in the file yet, until the time is over; the quickest data type first."""
    until = time.monotonic() + 60 * minutes
    done = {(row["model"], row["kind"], row["variant"]) for row in read_records(path)}
    begun = set()
    models = sorted(folder.parent.name for folder in PLANTED.glob("*/edits.txt"))
    for variant, model in itertools.product(VARIANTS, models):
        for edit in edits_of(model).values():
            key = model, edit.kind, variant
            if key in done or (only and not {*only} <= {*key}) or time.monotonic() > until:
                continue
            if model not in begun:
                begun.add(model)
                begin(model)
            for row in tried(model, edit, variant):
                append_record(path, row)
                mark = "right" if row["right"] and not row["innocent"] else "WRONG"
                words = (*key, "git" * row["git"], "exact" * row["exact"], row["lines"])
                print(mark, *words, row["said"], flush=True)


def claims(rows: Sequence[Mapping[str, Any]]) -> list[Claim]:
    lines = [row["lines"] for row in rows]
    return [
        Claim("edits", "planted edits, by model, data type, and with git or without",
              len(rows), limit=FEWEST, least=True),
        Claim("right", "headlines that name a line of the edit, or rightly that all grew",
              sum(row["right"] for row in rows) / len(rows), "%", limit=RIGHT, least=True),
        Claim("innocent", "headlines with a line that has nothing to do with the edit",
              sum(row["innocent"] for row in rows), limit=0),
        Claim("exact", "differences of which the parts do not add up",
              sum(not row["exact"] for row in rows), limit=0),
        Claim("median", "lines of a failure, the median",
              statistics.median(lines), limit=MOST_LINES),
        Claim("longest", "lines of the longest failure", max(lines)),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, samples="sme2-out/blame.jsonl")
    parser.add_argument(
        "--only", nargs="*", default=(), metavar="NAME", help="a model, kind or data type"
    )
    arguments = parser.parse_args(argv)
    if arguments.command == "collect":
        collect(arguments.samples, arguments.minutes, arguments.only)
        return 0
    rows = read_records(arguments.samples)
    wrong = [row for row in rows if not row["right"] or row["innocent"] or not row["exact"]]
    return finish(claims(rows), arguments.json, {"wrong": wrong})


if __name__ == "__main__":
    # To be told to end is to be interrupted: the edit is undone.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
