"""What all benchmarks share: claims, samples, arguments, tables, and how they are run.

A claim is a figure, its limit, its peer. A limit is written down before anything is measured, in
the script of the benchmark that it belongs to. Samples that are collected a little at a time stand
one a line, in JSON; a collection that was killed goes on where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_sme2.errors import Sme2Error
from pytest_sme2.system.files import write_json
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.system.processes import git
from pytest_sme2.system.wording import count
from pytest_sme2.targets.local import LocalTarget

ROOT = Path(__file__).parents[1]


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
    peer_value: float = 0.0

    @property
    def met(self) -> bool | None:
        """None where there is no limit; a figure that is not a number meets none."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.least else self.value <= self.limit

    def told_value(self) -> str:
        return told(self.value, self.unit)

    def told_peer(self) -> str:
        return f"{self.peer}: {told(self.peer_value, self.unit)}" if self.peer else ""


def told(value: float, unit: str) -> str:
    """Three digits that count; whole numbers whole."""
    if math.isnan(value):
        return "unknown"
    if unit == "%":
        return f"{100 * value:.3g} %"
    digits = f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"
    return f"{digits}x" if unit == "x" else f"{digits} {unit}".rstrip()


def finish(
    claims: Sequence[Claim], path: Path | None, details: Mapping[str, Any] | None = None
) -> int:
    """Print details and claims, store them where asked to; the exit code: 1 beyond a limit."""
    # Rows were told when they were finished.
    told_now = {name: value for name, value in (details or {}).items() if name != "rows"}
    print(json.dumps(told_now, indent=1, ensure_ascii=False))
    for claim in claims:
        text = f"{claim.what}: {claim.told_value()}{'; ' * bool(claim.peer)}{claim.told_peer()}"
        if claim.limit is not None:
            limit = f"{'≥' if claim.least else '≤'} {told(claim.limit, claim.unit)}"
            text += f" (limit {limit}: {'met' if claim.met else 'MISSED'})"
        print(text)
    if path is not None:
        write_json(path, {"claims": [asdict(claim) for claim in claims], "details": details or {}})
    return 1 if any(claim.met is False for claim in claims) else 0


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


@dataclass(frozen=True)
class Verdict:
    """What the gate said about a program so many times slower than the reference."""

    kind: str
    factor: float
    outcome: str
    green: bool


def gate_claims(kind: str, verdicts: Sequence[Verdict]) -> list[Claim]:
    slower = [one.green for one in verdicts if one.factor != 1]
    equal = [one for one in verdicts if one.factor == 1]
    red = Counter(one.outcome for one in equal if not one.green)
    names = ", ".join(f"{times} {name}" for name, times in sorted(red.items()))
    return [
        Claim("slower", f"{kind} verdicts on programs at least 5 % slower", len(slower),
              limit=FEWEST_SLOWER, least=True),
        Claim("green", "of these, green", sum(slower), limit=0),
        Claim("equal", f"{kind} verdicts on equal programs", len(equal),
              limit=FEWEST_EQUAL, least=True),
        Claim("alarms", f"of these, red{f' ({names})' if names else ''}", red.total(),
              limit=len(equal) // EQUAL_FOR_A_RED_ONE),
        Claim("open", "of these, INCONCLUSIVE, which warns",
              sum(one.outcome == "INCONCLUSIVE" for one in equal)),
    ]  # fmt: skip


def account(verdicts: Iterable[Verdict]) -> dict[str, dict[str, Counter[str]]]:
    """By kind and factor: how often each verdict was given."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for one in verdicts:
        by_factor = found.setdefault(one.kind, {})
        by_factor.setdefault(f"{one.factor:g}", Counter())[one.outcome] += 1
    return found


SAMPLES_SCHEMA = 2


def read_records(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a last one that was cut off by a kill is left out."""
    records: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), start=1):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            print(f"{path}:{number}: cut off, left out", file=sys.stderr)
            continue
        if entry.get("schema") != SAMPLES_SCHEMA:
            raise SystemExit(f"{path}:{number}: another schema; collect into a new file")
        records.append(entry)
    return records


def append_record(path: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What was written: the entry, with when it was and how busy the machine."""
    written = {
        "schema": SAMPLES_SCHEMA,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load": os.getloadavg()[0],
        **entry,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_off = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        # A line that a kill cut off stays a line of its own.
        file.write(("\n" if cut_off else "") + json.dumps(written, separators=(",", ":")) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return written


def parser_of(text: str | None, samples: str = "") -> argparse.ArgumentParser:
    """What a benchmark says of itself and, as its first argument, ``--json``.

    One that keeps ``samples`` has two commands: to collect more, and to report on them.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the claims to this file")
    if samples:
        parser.add_argument("command", choices=("collect", "report"))
        parser.add_argument("--minutes", type=float, default=60, help="to collect; default: 60")
        parser.add_argument(
            "--samples", type=Path, default=Path(samples), help="one a line; default: %(default)s"
        )
    return parser


def table_lines(*rows: Sequence[str], numbers: Sequence[int] = ()) -> list[str]:
    """A table of Markdown, the headings first; columns of numbers are set to the right."""
    rule = ["---:" if column in numbers else "---" for column in range(len(rows[0]))]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in (rows[0], rule, *rows[1:]))
    return [f"| {' | '.join(row)} |" for row in escaped]


@dataclass(frozen=True)
class Table:
    """Lines that a command makes, the page they stand in, and their name between its marks."""

    path: Path
    name: str
    command: str
    make: Callable[[], Sequence[str]]

    @property
    def marks(self) -> tuple[str, str]:
        return f"<!-- begin {self.name}: {self.command} -->\n", "<!-- end -->\n"

    def write(self) -> None:
        self.path.write_text(self.put(self.path.read_text("utf-8")), "utf-8")

    def put(self, text: str) -> str:
        """The page's text with the table in its place."""
        first, last = self.marks
        before, begin, rest = text.partition(first)
        _, end, after = rest.partition(last)
        if not begin or not end:
            raise SystemExit(
                f"{self.path.name} has lost the lines around its table {self.name}: {first}… {last}"
            )
        lines = "\n".join(self.make())
        return f"{before}{begin}\n{lines}\n\n{end}{after}"


@dataclass(frozen=True)
class Benchmark:
    """One script of this folder; all of them take ``--json FILE``."""

    name: str
    headline: str = ""
    """For the README: ``{key}`` is a claim's figure, ``{key.peer}`` its peer's."""
    words: tuple[str, ...] = ()
    """What a full run is told."""
    quick: tuple[str, ...] | None = None
    """None where few trials would say nothing: it is then left out of a quick run."""
    long: bool = False
    """It is run only when it is named, or with --all."""

    def command(self, *, quick: bool) -> list[str]:
        """As it is typed after ``python``."""
        return ["-m", f"benchmarks.{self.name}", *((self.quick or ()) if quick else self.words)]


PACKAGES = ("pytest-sme2", "pytest", "pytest-benchmark", "executorch", "torch", "numpy", "scipy")
SCHEMA = 1


def machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": dict(LocalTarget().fingerprint().facts)["cpu"],
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": platform.platform(terse=True),
        "platform": host_platform(),
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def commit(folder: Path) -> str:
    """The checkout's commit, with a mark where files differ from it."""
    try:
        return git(folder, "describe", "--always", "--dirty=+", "--exclude=*").strip()
    except Sme2Error:
        return "unknown"


def read_result(path: Path) -> dict[str, Any]:
    """One benchmark's figures, and how they came about."""
    result: dict[str, Any] = json.loads(path.read_text("utf-8"))
    result["claims"] = [Claim(**claim) for claim in result["claims"]]
    return result


def run_one(benchmark: Benchmark, folder: Path, *, quick: bool) -> int:
    """Run one benchmark alone and write its result; the exit code, 1 if a limit was missed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark.name}.json"
    path.unlink(missing_ok=True)
    begun = time.monotonic()
    words = benchmark.command(quick=quick)
    code = subprocess.run(
        [sys.executable, *words, "--json", str(path)], cwd=ROOT, check=False
    ).returncode
    if code not in (0, 1) or not path.is_file():
        path.unlink(missing_ok=True)
        print(f"{benchmark.name}: no result: it ended with exit code {code}", file=sys.stderr)
        return 3
    known = {
        "schema": SCHEMA,
        "name": benchmark.name,
        "command": shlex.join(["python", *words]),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(time.monotonic() - begun, 1),
        "commit": commit(ROOT),
        "machine": machine(),
        "versions": versions(),
    }
    write_json(path, {**known, **json.loads(path.read_text("utf-8"))})
    return code
