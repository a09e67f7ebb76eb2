"""Trials that must end clean: how they are chosen, counted and repeated, and commands in them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness import Claim, clean_claims, finish, parser_of

SECONDS = 900
"""For a command; the slowest takes a third of it."""


class NotCleanError(Exception):
    """A trial did not end as it should; the text says in what way."""


class NotPossibleError(Exception):
    """This machine cannot stage the fault; the text says what it lacks."""


Attempt = Callable[[Random, Path], str | None]
"""One trial, with its dice and an empty folder; its outcome, where several are clean."""


@dataclass(frozen=True)
class Subject:
    """One kind of trial: what it is called, how often it is done, and what one of them does."""

    name: str
    what: str
    full: int
    """How many trials a run has; a quick one has a fortieth of them."""
    attempt: Attempt
    """Raises NotCleanError; anything else that it raises is not a clean ending either."""

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def expect(condition: object, problem: str) -> None:
    """Raise NotCleanError with ``problem`` unless the condition holds."""
    if not condition:
        raise NotCleanError(problem)


@dataclass(frozen=True)
class Ending:
    """How a command ended, and all that it printed."""

    code: int
    said: str

    def expect(self, code: int, *words: str) -> None:
        """It ended like this, with these words and in plain ones: nobody is shown a traceback."""
        last = "\n".join(self.said.strip().splitlines()[-25:])
        for mark in ("Traceback (most recent call last)", "INTERNALERROR"):
            expect(mark not in self.said, f"it shows a traceback:\n{last}")
        expect(self.code == code, f"its exit code is {self.code}, not {code}:\n{last}")
        text = " ".join(self.said.split())
        for word in words:
            expect(word in text, f"it does not say {word!r}:\n{last}")

    def expect_plain(self) -> None:
        self.expect(self.code)

    def expect_refusal(self, *words: str) -> None:
        """It failed, and said this."""
        self.expect(self.code if self.code in (2, 3, 4) else 1, *words)


def start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def ending_of(process: subprocess.Popen[bytes]) -> Ending:
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        text = said.decode(errors="replace")[-2000:]
        raise NotCleanError(f"hung for {SECONDS} s: {text}") from None
    return Ending(process.returncode, said.decode(errors="replace"))


def count(
    subject: Subject, numbers: Iterable[int], seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Do the trials with these numbers; what was not clean is said at once, with how to repeat."""
    row: dict[str, Any] = {"name": subject.name, "what": subject.what, "trials": 0, "clean": 0}
    outcomes: Counter[str] = Counter()
    started = time.monotonic()
    for number in numbers:
        # The same dice for the same trial, whatever ran before.
        chance = Random(f"{seed}/{subject.name}/{number}")
        with tempfile.TemporaryDirectory(prefix="trial-", ignore_cleanup_errors=True) as folder:
            try:
                outcomes[subject.attempt(chance, Path(folder).resolve()) or ""] += 1
                row["clean"] += 1
            except NotPossibleError as reason:
                row["not possible here"] = str(reason)
                break
            except Exception:
                again = f"--only {shlex.quote(str(subject))} --seed {seed} --trial {number}"
                say(f"NOT CLEAN: {traceback.format_exc(limit=-6).rstrip()}\n  again: {again}")
        row["trials"] += 1
    if outcomes.keys() - {""}:
        row["outcomes"] = dict(outcomes)
    row["seconds"] = round(time.monotonic() - started, 1)
    return row


def run(
    told: str | None,
    subjects: Sequence[Subject],
    words: Sequence[str] | None = None,
    claims: Callable[[Sequence[Mapping[str, Any]]], list[Claim]] = clean_claims,
    at_once: int = 1,
) -> int:
    """The command of a benchmark that consists of trials."""
    parser = parser_of(told)
    parser.add_argument("--quick", action="store_true", help="fewer trials: minutes")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--only", action="append", metavar="WORDS", help="those with these words")
    parser.add_argument("--trial", type=int, metavar="N", help="only the one with this number")
    arguments = parser.parse_args(words)
    only, trial = arguments.only or [""], arguments.trial
    chosen: dict[Subject, range] = {}
    for subject in subjects:
        if any(part in str(subject) for part in only):
            number = max(1, subject.full // 40) if arguments.quick else subject.full
            chosen[subject] = range(number) if trial is None else range(trial, trial + 1)
    if not chosen:
        parser.error(f"choose from: {', '.join(subject.name for subject in subjects)}")
    print(f"seed {arguments.seed}\n{'what':<60} {'trials':>6} {'clean':>6} {'seconds':>8}")

    def row_of(subject: Subject) -> dict[str, Any]:
        row = count(subject, chosen[subject], arguments.seed, lambda line: print(line, flush=True))
        counts = f"{row['trials']:>6} {row['clean']:>6} {row['seconds']:>8.1f}"
        more = [
            f"  {name}: {row[name]}" for name in ("outcomes", "not possible here") if name in row
        ]
        print(f"{subject!s:<60} {counts}{''.join(more)}", flush=True)
        return row

    # Signals reach the main thread alone.
    each = map if at_once == 1 else ThreadPoolExecutor(at_once).map
    rows = [*each(row_of, chosen)]
    details = {"seed": arguments.seed, "quick": arguments.quick, "rows": rows}
    return finish(claims(rows), arguments.json, details)
