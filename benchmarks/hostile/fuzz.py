"""Damaged files of the kinds that people send each other: one of our own errors, or a sound value.

Anything else that is raised, a reading that takes seconds, one that takes gigabytes, and an error
that does not name its file, is not clean.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType

from benchmarks.hostile.damage import damaged_bytes, damaged_json, damaged_text
from benchmarks.trials import Attempt, NotCleanError, Subject, expect
from pytest_sme2.cli.commands.run import template
from pytest_sme2.cli.experiments import read_plan
from pytest_sme2.errors import Sme2Error
from pytest_sme2.plugin.conclusion import update_baseline
from pytest_sme2.profile.beside import (
    SCHEMA,
    SHAPES,
    beside,
    keep_origins,
    kept_origins,
    kept_shapes,
)
from pytest_sme2.report.html import write_html
from pytest_sme2.report.markdown import run_report
from pytest_sme2.report.versus_baseline import update_lines
from pytest_sme2.report.writing import validate_run, write_case
from pytest_sme2.session.run_directory import TESTS, read_record, read_shard
from pytest_sme2.session.settings import Settings
from pytest_sme2.verdict import baselines, limits
from tests.support import gate_examples, records

DATA = Path(__file__).parents[2] / "tests" / "data"

SECONDS = 20
"""Of processor time, so that a busy machine does not count."""
MEMORY_BYTES = 1 << 30
"""Mostly for the libraries that a first reading loads."""
LONGEST_MESSAGE = 4000


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Cut short what takes too long, and on Linux what takes too much memory."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise NotCleanError(f"took more than {SECONDS} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = soft
    if sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        most = used + MEMORY_BYTES
    handler = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)


def read_within_bounds(read: Callable[[], object], name: str) -> None:
    """One reading; an error of ours must be about ``name`` and short enough to read."""
    with bounded():
        try:
            read()
        except Sme2Error as error:
            text = str(error)
            expect(text.strip(), f"{type(error).__name__} without a message")
            expect(name in text, f"the message does not name {name}: {text[:300]}")
            expect(len(text) <= LONGEST_MESSAGE, f"a message of {len(text)} letters: {text[:300]}")


def damaged_file(name: str, content: str | bytes, read: Callable[[Path], object]) -> Attempt:
    """One file that is read as it is; bytes are text with lines, other text is JSON."""

    def attempt(chance: Random, folder: Path) -> None:
        path = folder / name
        path.write_bytes(
            damaged_json(chance, content)
            if isinstance(content, str)
            else damaged_text(chance, content)
        )
        read_within_bounds(lambda: read(path), path.name)

    return attempt


def run_directory(chance: Random, folder: Path) -> None:
    """Any file of a run directory damaged or gone: checked, read, and reported on."""
    case = records.toy_run(folder, emulated=chance.random() < 0.3)[0]
    write_case(case, read_record(case))
    etdump = case / next(iter(read_record(case).etdumps.values()))
    beside(etdump, SHAPES).write_text(
        SHAPES_TEXT.replace('"schema":1', f'"schema":{SCHEMA}'), "utf-8"
    )
    keep_origins(etdump, DATA / "etrecords" / "toy.etrecord", lambda line: None)
    (folder / TESTS).write_text(TESTS_TEXT, "utf-8")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in chance.sample(files, chance.choice((1, 1, 2, 4))):
        action = chance.random()
        if action < 0.15:
            path.unlink()
        elif action < 0.25:
            path.unlink()
            path.mkdir()
        elif path.suffix == ".json":
            path.write_bytes(damaged_json(chance, path.read_text("utf-8")))
        else:
            path.write_bytes(damaged_bytes(chance, path.read_bytes()))

    def report() -> None:
        record = read_record(case)
        write_case(case, record)
        run_report([record])
        write_html(folder / "report.html", [(case, record)])
        settings = Settings(baseline_dir=folder / "baselines")
        update_lines([update_baseline(record, settings)], str(folder))

    for read in (
        lambda: validate_run(folder),
        lambda: kept_shapes(etdump),
        lambda: kept_origins(etdump),
        lambda: read_shard(folder),
        report,
    ):
        read_within_bounds(read, str(folder))


LIMITS = b"""\
max_regression = "3%"
min_speedup = "1.5x"
min_coverage = 0.9
max_memory_bytes = "300 MB"

[shares.CONV]
min = 0.1
max = "80%"

[tolerance.fp16]
max_rel = 0.05
min_sqnr_db = 35.0

[variant."fp16@256"]
max_regression = 0.05
"""


TESTS_TEXT = """{"schema":2,"exit_code":0,"tests":{"test_it.py::test_it":{"outcome":"passed",
"seconds":1.5}},"found":["test_it.py::test_it"],"number":1,"of":2}"""

SHAPES_TEXT = """{"schema":1,"methods":[{"name":"forward","calls":{"0":[{"operation":"convolution",
"inputs":[[1,8,8,3],[8,3,3,3]],"output":[1,8,8,8]}]}}]}"""


def _one_file(name: str, content: str | bytes, read: Callable[[Path], object]) -> Subject:
    kind = f"fuzz-{name.partition('.')[0]}"
    return Subject(kind, f"damaged {name}", 500, damaged_file(name, content, read))


SUBJECTS = (
    # Its seal refuses every damage: what a damaged one says is compared with nothing.
    _one_file("baseline.json", baselines.render(gate_examples.baseline()), baselines.read),
    Subject("fuzz-run-directory", "damaged run directories: reported", 300, run_directory),
    _one_file("experiment.json", template("mac"), read_plan),
    _one_file("limits.toml", LIMITS, lambda path: limits.resolve("fp16@256", files=[path])),
)
