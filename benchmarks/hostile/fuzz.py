"""Damaged files of every kind the product reads: one of its own errors, or a sound value.

Anything else that is raised, a reading that takes seconds, one that takes gigabytes, and an error
that does not name its file, is not clean.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import signal
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import FrameType

from benchmarks.hostile.damage import damaged_bytes, damaged_json, damaged_text
from benchmarks.hostile.stage import Attempt, NotCleanError, Subject, expect
from pytest_sme2.cli.commands.history import history_lines
from pytest_sme2.cli.commands.run import template
from pytest_sme2.cli.experiments import read_plan
from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.store import load_artifact
from pytest_sme2.plugin.conclusion import update_baseline
from pytest_sme2.profile.beside import (
    SCHEMA,
    SHAPES,
    beside,
    keep_origins,
    kept_origins,
    kept_shapes,
)
from pytest_sme2.report.history import FILE, HistoryRecord, Value, add_records, read_history
from pytest_sme2.report.history_series import all_series
from pytest_sme2.report.html import history_page, write_html
from pytest_sme2.report.markdown import run_report
from pytest_sme2.report.versus_baseline import update_lines
from pytest_sme2.report.writing import validate_run, write_case
from pytest_sme2.results import PAIR, Arm, Artifact, RunRequest
from pytest_sme2.runners.base import LeftFiles
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.runners.stock import read_observed
from pytest_sme2.session.run_directory import TESTS, read_record, read_shard
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.debian_packages import (
    Archive,
    parse_deb822,
    system_archives,
)
from pytest_sme2.targets.phone.adb import AdbDevice
from pytest_sme2.trace.etrecord import read_attribution
from pytest_sme2.trace.library import read_package
from pytest_sme2.trace.program import read_outline
from pytest_sme2.verdict import baselines, limits, ratios, structure, times
from pytest_sme2.verdict.baseline_file import render
from pytest_sme2.verdict.judging import stored_frontier
from tests.support import damaged_etdumps, gate_examples, records
from tests.support.artifacts import make_artifact
from tests.support.library_writer import KERNEL, SME2_KERNEL, macho
from tests.support.phones import answering
from tests.support.readers import repeated_method

DATA = Path(__file__).parents[2] / "tests" / "data"
CODE = "__import__('pathlib').Path('/tmp/hostile-code-was-run').touch()"

SECONDS = 20
"""Of processor time, so that a busy machine does not count."""
MEMORY_BYTES = 1 << 30
"""Mostly for the libraries that a first reading loads."""
ARCHIVE_MEMORY_BYTES = 1 << 27
LONGEST_MESSAGE = 4000


@contextlib.contextmanager
def bounded(memory_bytes: int) -> Iterator[None]:
    """Cut short what takes too long, and on Linux what takes too much memory."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise NotCleanError(f"took more than {SECONDS} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = soft
    if sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        most = used + memory_bytes
    handler = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)


def read_within_bounds(
    read: Callable[[], object], name: str, *, memory_bytes: int = MEMORY_BYTES
) -> None:
    """One reading; an error of ours must be about ``name`` and short enough to read."""
    with bounded(memory_bytes):
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


@functools.cache
def _dumps() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(damaged_etdumps.DUMPS.glob("*.etdump")))


def etdump(chance: Random, folder: Path) -> None:
    """A hundred at a time; they are small and quickly read."""
    tracemalloc.start()
    try:
        for _ in range(100):
            damaged_etdumps.read(damaged_etdumps.mutate(chance, _dumps()))
    finally:
        tracemalloc.stop()


RUNNER_JSON = """{"schema":1,"executorch":"1.5.1","platform":"linux-aarch64",
"sme2":{"requested":"on","effective":true,"source":"getauxval"},
"cpu_features":["asimd","sme","sme2"],"threads":1,"load_ns":149136316,
"warmup_wall_ns":[497053127],"wall_ns":[397053127,398053127],"cpu_ns":[238963550,238963551],
"peak_rss_load_bytes":23732224,"peak_rss_bytes":24879104,
"outputs":[{"dtype":"float32","shape":[1,1],"sha256":"96","has_nan":false,"file":"o.bin"}]}"""


def runner_result(chance: Random, folder: Path) -> None:
    """The result a runner leaves, read and used the way a measurement does."""
    from pytest_sme2.timing.processes import interference

    result = folder / "runner.json"
    result.write_bytes(damaged_json(chance, RUNNER_JSON))
    (folder / "o.bin").write_bytes(bytes(4))
    artifact = Artifact("toy", "fp32", folder, folder / "toy.pte", "", (), ())
    request = RunRequest(artifact, Arm.ON, runs=2, warmup=1)

    def read() -> None:
        left = LeftFiles("emulated", True, result, folder / "runner.log", None, folder)
        run = Sme2Runner("wheel", "linux-aarch64", "1.5.1", folder).read_result(request, left)
        interference(run)
        expect(all(value > 0 for value in run.wall_ns), f"times that cannot be: {run.wall_ns}")

    read_within_bounds(read, result.name)


def baseline(chance: Random, folder: Path) -> None:
    """A baseline, read, held against a measurement, and updated."""
    measured = gate_examples.measured(frontier=gate_examples.frontier())
    path = baselines.baseline_path(folder, measured.model, measured.variant, measured.fingerprint)
    path.parent.mkdir(parents=True)
    stored = gate_examples.baseline(frontier=stored_frontier(None, measured.frontier))
    damaged = damaged_json(chance, render(stored))
    path.write_bytes(damaged)

    def read() -> None:
        found = baselines.load(folder, measured.model, measured.variant, measured.fingerprint)
        some = limits.default_limits()
        for arm in PAIR:
            structure.check_operators(measured, found, arm)
            structure.check_kernels(measured, found, arm)
            times.check_latency(measured, found, some, arm)
            ratios.check_memory(measured, found, some, arm)
            times.check_load(measured, found, some, arm)
        structure.check_coverage(measured, found, some)
        ratios.check_speedup(measured, found, some)
        ratios.check_frontier(measured, found, some)
        ratios.check_size(measured, found, some)
        for category in (measured.shares or {}).get(Arm.ON, {}):
            ratios.check_share(measured, found, some, category)

    read_within_bounds(read, path.name)
    try:
        baselines.store(folder, measured)
    except Sme2Error:
        expect(path.read_bytes() == damaged, "what could not be read was overwritten")


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


def artifact_meta(chance: Random, folder: Path) -> None:
    """An export's own record."""
    path = make_artifact(folder / "a", "toy_cnn", "fp32").folder / "export_meta.json"
    path.write_bytes(damaged_json(chance, path.read_text("utf-8")))

    def read() -> None:
        artifact = load_artifact(path.parent)
        files = [artifact.pte, *artifact.input_files, *artifact.reference_files]
        for file in files:
            expect(file.parent == path.parent, f"{file} is outside of the artifact")

    read_within_bounds(read, str(path.parent))


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


@functools.cache
def _etrecord() -> dict[str, bytes]:
    with zipfile.ZipFile(DATA / "etrecords" / "toy.etrecord") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def etrecord(chance: Random, folder: Path) -> None:
    """The archive damaged as bytes, in one of its documents, or with code where text should be."""
    mark = Path("/tmp/hostile-code-was-run")
    path = folder / "toy.etrecord"
    entries = dict(_etrecord())
    name = chance.choice([name for name in entries if entries[name].startswith(b"{")])
    if chance.random() < 0.2:
        document = json.loads(entries[name])
        entries[name] = json.dumps(document).replace('"debug_handle": "', f'"x": "{CODE}').encode()
    else:
        entries[name] = damaged_json(chance, entries[name].decode())
    with zipfile.ZipFile(path, "w", chance.choice((0, zipfile.ZIP_DEFLATED))) as archive:
        for member, content in entries.items():
            archive.writestr(member, content)
    if chance.random() < 0.3:
        path.write_bytes(damaged_bytes(chance, path.read_bytes()))
    read_within_bounds(lambda: read_attribution(path), path.name)
    expect(not mark.exists(), "code from the file was run")


def program(chance: Random, folder: Path) -> None:
    """A program of somebody else, damaged: what its methods take is read before it is run."""
    path = folder / "toy.pte"
    name = chance.choice(("methods.pte", "toy_fp16.pte", "toy_int8.pte"))
    content = (DATA / "programs" / name).read_bytes()
    if chance.random() < 0.1:
        content = repeated_method(content, chance.choice((2, 500, 10**5)))
    path.write_bytes(damaged_bytes(chance, content))
    read_within_bounds(lambda: read_outline(path), path.name)


def history(chance: Random, folder: Path) -> None:
    path = folder / FILE
    figures: dict[str, Value] = {"instructions (on)": (742, None, None), "speedup": (2.5, 2, 3)}
    record = HistoryRecord("toy-fp32", "emulated", "2026-01-01", "s", None, figures=figures)
    # So often that changes are looked for.
    add_records(path, [replace(record, session=f"s{number}") for number in range(15)])
    path.write_bytes(damaged_bytes(chance, path.read_bytes()))

    def read() -> None:
        series = all_series(read_history(folder))
        list(history_lines(series))
        history_page(series)

    read_within_bounds(read, path.name)


TESTS_TEXT = """{"schema":2,"exit_code":0,"tests":{"test_it.py::test_it":{"outcome":"passed",
"seconds":1.5}},"found":["test_it.py::test_it"],"number":1,"of":2}"""

SHAPES_TEXT = """{"schema":1,"methods":[{"name":"forward","calls":{"0":[{"operation":"convolution",
"inputs":[[1,8,8,3],[8,3,3,3]],"output":[1,8,8,8]}]}}]}"""


SOURCES = b"""\
Types: deb deb-src
URIs: http://archive.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF

deb [arch=amd64 signed-by=/k.gpg] http://example.invalid stable main
"""


def apt_sources(chance: Random, folder: Path) -> None:
    """What was read is written again: it must say the same, or apt reads something else."""
    (folder / "sources.list.d").mkdir()
    for ending in ("list", "sources"):
        path = folder / "sources.list.d" / f"a.{ending}"
        path.write_bytes(damaged_text(chance, SOURCES))
    found: list[Archive] = []

    def read() -> None:
        found.extend(system_archives(folder))

    read_within_bounds(read, "a.")
    for archive in found:
        expect(list(parse_deb822(archive.stanza())) == [archive], f"{archive} changed")


def adb(chance: Random, folder: Path) -> None:
    """A server that says anything at all, in place of adb's protocol."""
    good = chance.choice(
        (
            b"OKAY0004abcd",
            b"FAIL0003no!",
            b"OKAY" + bytes(8) + b"OKAY" + b"\1\4\0\0\0text" + b"\3\1\0\0\0\0",
            b"OKAY" + bytes(8) + b"OKAY" + b"DATA\4\0\0\0text" + b"DONE\0\0\0\0",
            b"OKAY" + bytes(8) + b"OKAY" + b"\1\xff\xff\xff\xff" + bytes(5000),
        )
    )
    answer = damaged_bytes(chance, good) if chance.random() < 0.8 else good
    with answering(answer) as server:
        device = AdbDevice(server, "phone")
        asked = chance.choice(
            (
                lambda: server.devices(),
                lambda: device.features(),
                lambda: device.shell("id", timeout=5),
                lambda: device.pull("/x", folder / "x", timeout=5),
                lambda: device.push(b"data", "/x", timeout=5),
            )
        )
        read_within_bounds(asked, "")
    expect({path.name for path in folder.iterdir()} <= {"x"}, "something is left")


def library(chance: Random, folder: Path) -> None:
    """A library in an archive; one of the two is damaged."""
    made = macho(SME2_KERNEL, [KERNEL])
    content = made if chance.random() < 0.3 else damaged_bytes(chance, made)
    path = folder / "app.apk"
    with zipfile.ZipFile(path, "w", chance.choice((0, zipfile.ZIP_DEFLATED))) as archive:
        archive.writestr("lib/arm64-v8a/libexecutorch.so", content)
    if content == made:
        path.write_bytes(damaged_bytes(chance, path.read_bytes()))
    read_within_bounds(lambda: read_package(path), path.name)


OBSERVED = (
    'PyTorchObserver {"prompt_tokens":14,"generated_tokens":54,"model_load_start_ms":100,'
    '"model_load_end_ms":2377,"inference_start_ms":2377,"inference_end_ms":3566,'
    '"prompt_eval_end_ms":2541,"first_token_ms":2541,"aggregate_sampling_time_ms":19,'
    '"SCALING_FACTOR_UNITS_PER_SECOND":1000}\n'
)


def _read_observed(path: Path) -> None:
    """What a runner of language models printed: no time is negative or without end."""
    for found in read_observed(path):
        expect(all(0 <= time <= 1e9 for time in found.token_ms.values()), "impossible times")


def _one_file(name: str, content: str | bytes, read: Callable[[Path], object]) -> Subject:
    kind = f"fuzz-{name.partition('.')[0]}"
    return Subject(kind, f"damaged {name}", 500, 30, damaged_file(name, content, read))


SUBJECTS = (
    Subject("fuzz-etdump", "damaged ETDumps (a hundred a trial)", 100, 3, etdump),
    Subject("fuzz-runner", "damaged runner results", 2000, 100, runner_result),
    Subject("fuzz-baseline", "damaged baselines: read, compared, updated", 800, 40, baseline),
    Subject("fuzz-run-directory", "damaged run directories: reported", 300, 10, run_directory),
    Subject("fuzz-artifact", "damaged export records", 1000, 60, artifact_meta),
    Subject("fuzz-library", "damaged libraries and apps", 1000, 40, library),
    Subject("fuzz-etrecord", "damaged and malicious ETRecords", 1000, 40, etrecord),
    Subject("fuzz-program", "damaged programs without model code", 1000, 40, program),
    Subject("fuzz-history", "damaged files of a history", 500, 30, history),
    Subject("fuzz-apt-sources", "damaged sources of apt", 500, 30, apt_sources),
    Subject("fuzz-adb", "answers that are not adb's protocol", 500, 30, adb),
    _one_file("experiment.json", template("mac"), read_plan),
    _one_file("limits.toml", LIMITS, lambda path: limits.resolve("fp16@256", files=[path])),
    _one_file("llama.log", OBSERVED.encode(), _read_observed),
)

# Every module that reads a file or an answer from outside, and the subject that damages it.
READERS = {
    "cli/experiments": "fuzz-experiment",
    "export/store": "fuzz-artifact",
    "profile/beside": "fuzz-run-directory",
    "report/history": "fuzz-history",
    "report/writing": "fuzz-run-directory",
    "runners/sme2": "fuzz-runner",
    "session/analysis": "fuzz-run-directory",
    "session/run_directory": "fuzz-run-directory",
    "system/debian_packages": "fuzz-apt-sources",
    "targets/phone/adb": "fuzz-adb",
    "trace/etdump": "fuzz-etdump",
    "trace/etrecord": "fuzz-etrecord",
    "trace/library": "fuzz-library",
    "runners/stock": "fuzz-llama",
    "verdict/baseline_file": "fuzz-baseline",
    "verdict/baselines": "fuzz-baseline",
    "verdict/limits": "fuzz-limits",
}
# Why nothing is damaged here of these modules, which read as well.
_REASONS = {
    "reads files of this package": (
        "cli/commands/init", "cli/commands/run", "fake_phone/supervisor", "profile/kernel_matrix",
        "profile/known_names", "report/html",
    ),
    "reads what this package, its parent or its child has just written": (
        "cli/commands/advise", "cli/commands/export", "cli/experiments", "cli/running",
        "export/artifacts", "export/lowering", "export/server", "fake_phone/lab",
        "fake_phone/supervisor", "plugin/hooks", "system/confine", "trace/kernel_log",
    ),
    "reads the user's own Python files or sources, which are run as well": (
        "export/registry", "runners/source_build", "session/session", "session/trials",
    ),
    "reads the kernel's own files": (
        "cli/commands/doctor", "system/processes", "targets/local", "timing/selfcheck",
    ),
    "nonsense there is tested in tests/unit": (
        "export/weights", "session/bundle", "system/elf", "system/locks", "system/platforms",
        "targets/phone/leases", "targets/phone/power",
    ),
    "what is damaged is made anew": ("system/cache", "targets/census"),
    "unpacks a wheel that pip has checked": ("runners/sdk",),
    "is what the others read with": ("system/reading",),
    "reads numbers of any value as they are": ("verdict/numerics",),
}  # fmt: skip
NOT_FUZZED = {module for modules in _REASONS.values() for module in modules}
