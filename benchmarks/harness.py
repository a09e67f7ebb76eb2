"""What all benchmarks share: claims and how they are told, stored and judged; samples; arguments.

A claim is a figure, its limit, its peer. A limit is written down before anything is measured, in
the script of the benchmark that it belongs to. Samples that are collected a little at a time stand
one a line, in JSON; a collection that was killed goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_sme2.errors import Sme2Error
from pytest_sme2.system.wording import count


@dataclass(frozen=True)
class Claim:
    """One figure; ``key`` names it within its benchmark."""

    key: str
    what: str
    value: float
    unit: str = ""
    limit: float | None = None
    """None where the figure is only told."""
    least: bool = False
    """Whether the limit is the least that is allowed; else it is the most."""
    peer: str = ""
    """What it is compared with, measured in the same run."""
    peer_value: float | None = None

    @property
    def met(self) -> bool | None:
        """None where there is no limit; a figure that is no number meets none."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.least else self.value <= self.limit

    @property
    def ratio(self) -> float | None:
        """The figure as a part of the peer's."""
        return self.value / self.peer_value if self.peer_value else None

    def told_value(self) -> str:
        return told(self.value, self.unit)

    def told_limit(self) -> str:
        if self.limit is None:
            return ""
        return f"{'≥' if self.least else '≤'} {told(self.limit, self.unit)}"

    def told_peer(self) -> str:
        if self.peer_value is None:
            return self.peer
        return f"{self.peer}: {told(self.peer_value, self.unit)}"

    def told_ratio(self) -> str:
        return "" if self.ratio is None else f"{number(self.ratio)}x"


def number(value: float) -> str:
    """Three digits that count; whole numbers whole."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = f"{value:.3g}"
    return digits if "e" not in digits else f"{value:.2e}"


def told(value: float, unit: str) -> str:
    if value != value:
        return "unknown"
    if unit == "%":
        return f"{100 * value:.3g} %"
    if unit == "x":
        return f"{number(value)}x"
    return f"{number(value)} {unit}".rstrip()


def claim_from(document: Mapping[str, Any]) -> Claim:
    return Claim(
        **{name: document[name] for name in Claim.__dataclass_fields__ if name in document}
    )


def finish(
    claims: Sequence[Claim], path: Path | None, details: Mapping[str, Any] | None = None
) -> int:
    """Print details and claims, store them where asked to; the exit code: 1 beyond a limit."""
    # Rows were told when they were finished.
    told_now = {name: value for name, value in (details or {}).items() if name != "rows"}
    print(json.dumps(told_now, indent=1, ensure_ascii=False))
    for claim in claims:
        bound = f" (limit {claim.told_limit()}: {'met' if claim.met else 'MISSED'})"
        peer = f"; {claim.told_peer()}, {claim.told_ratio()}" if claim.peer else ""
        print(f"{claim.what}: {claim.told_value()}{peer}{'' if claim.met is None else bound}")
    if path is not None:
        write_json(path, {"claims": [asdict(claim) for claim in claims], "details": details or {}})
    return 1 if any(claim.met is False for claim in claims) else 0


def write_json(path: Path, document: object) -> None:
    """Whole or not at all: a result that is there is a result that was finished."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    unfinished.replace(path)


def clean_claims(rows: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """The claim of trials that each must end clean; a row counts one kind of them."""
    trials = sum(row["trials"] for row in rows)
    clean = sum(row["clean"] for row in rows)
    return [
        Claim("trials", f"trials of {count(len(rows), 'kind')} of faults and damage", trials),
        Claim("clean", "trials that ended clean", clean, limit=trials, least=True),
    ]


FEWEST_SLOWER, FEWEST_EQUAL = 100, 300
EQUAL_FOR_A_RED_ONE = 500
"""Every red verdict on equal programs is a false alarm, whatever its name."""


def gate_claims(kind: str, verdicts: Sequence[tuple[float, str, bool]]) -> list[Claim]:
    """Of verdicts on programs where the truth is known: how much slower, what was said, green."""
    slower = [green for factor, _, green in verdicts if factor != 1]
    equal = [(str(outcome), green) for factor, outcome, green in verdicts if factor == 1]
    red = [outcome for outcome, green in equal if not green]
    names = ", ".join(f"{red.count(name)} {name}" for name in sorted(set(red)))
    return [
        Claim("slower", f"{kind} verdicts on programs at least 5 % slower", len(slower),
              limit=FEWEST_SLOWER, least=True),
        Claim("green", "of these, green", sum(slower), limit=0),
        Claim("equal", f"{kind} verdicts on equal programs", len(equal),
              limit=FEWEST_EQUAL, least=True),
        Claim("alarms", f"of these, red{f' ({names})' if names else ''}", len(red),
              limit=len(equal) // EQUAL_FOR_A_RED_ONE),
        Claim("open", "of these, INCONCLUSIVE, which warns",
              sum(outcome == "INCONCLUSIVE" for outcome, _ in equal)),
    ]  # fmt: skip


# --- samples --------------------------------------------------------------------------------------


SCHEMA = 2

Command = Callable[[argparse.Namespace], int]


def read_records(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a last one that was cut off by a kill is left out."""
    records: list[dict[str, Any]] = []
    if not path.exists():
        return records
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            print(f"{path}:{number}: cut off, left out", file=sys.stderr)
            continue
        if entry.get("schema") != SCHEMA:
            raise SystemExit(f"{path}:{number}: another schema; collect into a new file")
        records.append(entry)
    return records


def append_record(path: Path, entry: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_off = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        # A line that a kill cut off stays a line of its own.
        file.write(("\n" if cut_off else "") + json.dumps(entry, separators=(",", ":")) + "\n")
        file.flush()
        os.fsync(file.fileno())


class CommandLine:
    """``collect`` and ``report``. A benchmark adds its own options to ``collecting``."""

    def __init__(
        self, name: str, description: str | None, collect: Command, report: Command
    ) -> None:
        self.name = name
        self.parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        commands = self.parser.add_subparsers(dest="command", required=True)
        self.collecting = commands.add_parser("collect", help="measure and append what was found")
        self.collecting.add_argument(
            "--minutes", type=float, required=True, help="how long to go on"
        )
        self.collecting.set_defaults(run=collect)
        self.reporting = commands.add_parser("report", help="decide from what was collected")
        self.reporting.add_argument("--json", type=Path, metavar="FILE", help="for machines")
        self.reporting.set_defaults(run=report)

    def add_place(self, option: str, default: str, what: str) -> None:
        """Where the samples are, for both commands."""
        for command in (self.collecting, self.reporting):
            command.add_argument(
                option, type=Path, default=Path(default), help=f"{what}; default %(default)s"
            )

    def run(self, argv: Sequence[str] | None) -> int:
        arguments = self.parser.parse_args(argv)
        try:
            code: int = arguments.run(arguments)
        except Sme2Error as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            return error.exit_code
        return code


# --- arguments ------------------------------------------------------------------------------------


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """What a benchmark says of itself and, as its first argument, ``--json``."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the claims to this file")
    return parser
