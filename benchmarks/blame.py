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
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Claim, append_record, finish, parser_of, read_records
from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.report.versus_baseline import cause_text, failure_text
from pytest_sme2.results.case import Check
from pytest_sme2.session.cases import Case
from pytest_sme2.session.gate import Gate
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.structure import located
from tests.support.git import git

PLANTED = ROOT / "benchmarks" / "planted"
WORK = ROOT / "sme2-out" / "blame"
VARIANTS = ("fp32", "fp16", "int8")
FEWEST, RIGHT, MOST_LINES = 300, 0.98, 20
_EVERYWHERE = re.compile(r"(all|\d+ of) .*(grew|shrank)")
_NAMED = re.compile(r"(near )?(?:`[^`]*` )?(?:at )?([\w./-]+\.py):([0-9]+)(?:-([0-9]+))?")


@dataclass
class Edit:
    """What is done to one file of a model, and which lines it is right to name."""

    model: str
    kind: str
    file: str = "model.py"
    everywhere: bool = False
    hunks: list[tuple[list[str], list[str]]] = field(default_factory=list)
    callers: list[str] = field(default_factory=list)

    def made(self) -> tuple[str, str]:
        """The file as it was, and as it is then."""
        before = after = (PLANTED / self.model / self.file).read_text("utf-8")
        for old, new in self.hunks:
            gone, come = ("".join(f"{line}\n" for line in lines) for lines in (old, new))
            assert gone in after, f"{self.kind}: {old[0].strip()} is not in {self.file}"
            after = after.replace(gone, come, 1)
        return before, after

    def guilty(self) -> set[tuple[str, int]]:
        """The lines that it is right to name, of the old file and of the new one."""
        old, new = sides = [text.splitlines() for text in self.made()]
        codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        rows = {
            row
            for tag, *ends in codes
            for row in (*range(ends[0], ends[1]), *range(ends[2], ends[3]))
            if tag != "equal"
        }
        found = {(self.file, row + 1) for row in rows}
        texts = [(self.file, side) for side in sides]
        for other in (PLANTED / self.model).glob("*.py"):
            if other.name != self.file:
                texts.append((other.name, other.read_text("utf-8").splitlines()))
        for file, lines in texts:
            for row, line in enumerate(lines, start=1):
                found |= {(file, row) for call in self.callers if call in line}
        return found

    def judged(self, said: str) -> dict[str, bool]:
        """Whether the headline is right, and whether it names an innocent line."""
        guilty = self.guilty()
        named = [
            (near, any((Path(file).name, row) in guilty for row in range(int(a), int(b or a) + 1)))
            for near, file, a, b in _NAMED.findall(said)
        ]
        if self.everywhere:
            return {"right": bool(_EVERYWHERE.match(said)), "innocent": False}
        return {
            "right": any(hit for _, hit in named),
            "innocent": not all(near or hit for near, hit in named),
        }


def edits_of(model: str) -> dict[str, Edit]:
    """``[kind]`` with a file or ``all``, then lines with ``-``, ``+``, and ``@`` for callers."""
    found: dict[str, Edit] = {}
    for line in (PLANTED / model / "edits.txt").read_text("utf-8").splitlines():
        mark, rest = line[:1], line[1:]
        if mark == "[":
            kind, _, more = rest.partition("]")
            edit = found[kind] = Edit(model, kind)
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
        out=WORK / "out" / model, baseline_dir=WORK / model / "baselines",
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
    gate = Gate(session, case, lambda checks: None)
    gate.check_coverage()
    gate.check_operators()
    gate.check_delegation()
    gate.check_cost()
    return gate.checks


def tried(model: str, edit: Edit, variant: str) -> Iterator[dict[str, Any]]:
    """What is said of one edit with git and without; how that is judged may change."""
    place = WORK / model / model / edit.file
    text, new = edit.made()
    place.write_text(new, "utf-8")
    session = session_of(model, variant)
    try:
        (case,) = session.cases()
        checks = checks_of(session, case)
        measured, baseline = session.measured(case, timed=False), session.baseline(case)
        for knows in (True, False):
            changed = session.changed_lines(case) if knows else ()
            named = located(checks, measured, baseline, None, changed)
            chief = next(check for check in named if check.metric == "cost (on)")
            parts = [int(line.partition(":")[0].replace(",", "")) for line in chief.details]
            yield {
                "model": model,
                "kind": edit.kind,
                "variant": variant,
                "git": knows,
                "verdict": str(chief.verdict),
                "said": cause_text(chief),
                "exact": sum(parts) == (chief.new or 0) - (chief.old or 0),
                "lines": len(failure_text(measured, named).splitlines()),
            }
    finally:
        session.close()
        place.write_text(text, "utf-8")


def collect(path: Path, minutes: float) -> None:
    """What is not in the file yet, until the time is over; the quickest data type first."""
    until = time.monotonic() + 60 * minutes
    done = {(row["model"], row["kind"], row["variant"]) for row in read_records(path)}
    begun = set()
    models = sorted(folder.parent.name for folder in PLANTED.glob("*/edits.txt"))
    for variant, model in itertools.product(VARIANTS, models):
        for edit in edits_of(model).values():
            key = model, edit.kind, variant
            if key in done or time.monotonic() > until:
                continue
            if model not in begun:
                begun.add(model)
                begin(model)
            try:
                rows = [*tried(model, edit, variant)]
            except Sme2Error as error:
                print("FAILED", *key, error, flush=True)
                continue
            for row in rows:
                append_record(path, row)
                judged = edit.judged(row["said"])
                mark = "right" if judged["right"] and not judged["innocent"] else "WRONG"
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
    arguments = parser_of(__doc__, samples="sme2-out/blame.jsonl").parse_args(argv)
    if arguments.command == "collect":
        collect(arguments.samples, arguments.minutes)
        return 0
    rows = [
        row | edits_of(row["model"])[row["kind"]].judged(row["said"])
        for row in read_records(arguments.samples)
    ]
    wrong = [row for row in rows if not row["right"] or row["innocent"] or not row["exact"]]
    return finish(claims(rows), arguments.json, {"wrong": wrong})


if __name__ == "__main__":
    # To be told to end is to be interrupted: the edit is undone.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
