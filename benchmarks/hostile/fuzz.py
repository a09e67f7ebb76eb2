"""Damaged files of every kind the product reads: one of its own errors, or a sound value.

Anything else that is raised, a reading that takes seconds, one that takes gigabytes, and an error
that does not name its file, is not clean.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import json
import os
import resource
import signal
import sys
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType

from benchmarks.hostile.damage import damaged_bytes, damaged_json, damaged_text
from benchmarks.hostile.stage import Attempt, NotCleanError, Subject, expect
from pytest_sme2.cli.experiment_file import read_plan, template
from pytest_sme2.errors import EtdumpError, Sme2Error
from pytest_sme2.export.store import load_artifact
from pytest_sme2.plugin.conclusion import update_baseline
from pytest_sme2.report.html import write_html
from pytest_sme2.report.markdown import run_report
from pytest_sme2.report.validation import validate_run
from pytest_sme2.report.versus_baseline import update_lines
from pytest_sme2.report.writing import write_case
from pytest_sme2.results import PAIR, Arm, Artifact, RunRequest
from pytest_sme2.runners.base import LeftFiles
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session.bundle import MANIFEST, open_bundle, write_bundle
from pytest_sme2.session.run_directory import METRICS, read_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.trace.kernel_log import census_from_qemu_log, census_from_xnnpack_log
from pytest_sme2.verdict import baselines, limits, ratios, structure, times
from pytest_sme2.verdict.baseline_file import render
from pytest_sme2.verdict.stored_latency import stored_frontier
from tests.support import damaged_etdumps, gate_examples, records
from tests.support.artifacts import make_artifact
from tests.support.elf_writer import write_elf

SECONDS = 20
"""Of processor time, so that a busy machine does not count."""
MEMORY_BYTES = 1 << 30
"""Mostly for the libraries that a first reading loads."""
ARCHIVE_MEMORY_BYTES = 1 << 27
SWOLLEN_BYTES = 1 << 28
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


def etdump_file(chance: Random, folder: Path) -> None:
    """A damaged dump as a file, read by way of the analysis."""
    from pytest_sme2.session.analysis import analyze_file

    path = folder / "run.etdump"
    path.write_bytes(damaged_etdumps.mutate(chance, _dumps()))

    def read() -> None:
        with contextlib.suppress(EtdumpError):
            analyze_file(path)

    read_within_bounds(read, path.name)


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


def experiment(chance: Random, folder: Path) -> None:
    path = folder / "experiment.json"
    text = template(chance.choice(("mac", "android", "linux", "emulated")))
    path.write_bytes(damaged_json(chance, text))
    read_within_bounds(lambda: read_plan(path), path.name)


def metrics(chance: Random, folder: Path) -> None:
    """A case of a run directory, read and reported on."""
    case = records.toy_run(folder, emulated=chance.random() < 0.3)[0]
    path = case / METRICS
    path.write_bytes(damaged_json(chance, path.read_text("utf-8")))

    def read() -> None:
        record = read_record(case)
        write_case(case, record)
        run_report([record])
        write_html(folder / "report.html", [(case, record)])
        with contextlib.suppress(Sme2Error):
            settings = Settings(baseline_dir=folder / "baselines")
            update_lines([update_baseline(record, settings)], str(folder))

    read_within_bounds(read, METRICS)


def run_directory(chance: Random, folder: Path) -> None:
    """Any file of a run directory damaged or gone; ``sme2 report --check`` has to say so."""
    case = records.toy_run(folder)[0]
    write_case(case, read_record(case))
    files = sorted(path for path in case.rglob("*") if path.is_file())
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
    read_within_bounds(lambda: validate_run(folder), folder.name)


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


def _small_bundle(folder: Path) -> bytes:
    runner = folder / "made" / "runner"
    runner.mkdir(parents=True)
    (runner / "sme2_runner").write_bytes(b"#!/bin/sh\n")
    (runner / "sme2_runner").chmod(0o755)
    artifact = make_artifact(folder / "made" / "a", "toy_cnn", "fp32")
    made = Sme2Runner("wheel", "linux-aarch64", "1.5.1", runner)
    return write_bundle(folder / "made" / "b.tar.gz", made, [artifact]).read_bytes()


def bundle(chance: Random, folder: Path) -> None:
    """A bundle damaged as bytes, in its manifest, or by members that no bundle holds."""
    data = _small_bundle(folder)
    way = chance.random()
    if way < 0.02:
        data = _swollen_header()
    elif way < 0.3:
        data = damaged_bytes(chance, data)
    else:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = [(member, _content(archive, member)) for member in archive]
        data = _packed(
            chance.choice((_changed_manifest, _changed_record, _strange_members))(chance, members)
        )
    path = folder / "b.tar.gz"
    path.write_bytes(data)
    before = {item for item in folder.rglob("*") if "cache" not in item.parts}

    def read() -> None:
        found = open_bundle(path, cache=folder / "cache")
        for artifact in found.artifacts.values():
            inside = artifact.pte.resolve().is_relative_to(folder / "cache")
            expect(inside, f"{artifact.pte} is outside of the cache")

    read_within_bounds(read, path.name, memory_bytes=ARCHIVE_MEMORY_BYTES)
    after = {item for item in folder.rglob("*") if "cache" not in item.parts}
    expect(after == before, f"written outside of the cache: {after - before}")


_Members = list[tuple[tarfile.TarInfo, bytes]]


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def _packed(members: _Members) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), compresslevel=1)


def _changed_manifest(chance: Random, members: _Members) -> _Members:
    return [
        (member, damaged_json(chance, content.decode()) if member.name == MANIFEST else content)
        for member, content in members
    ]


def _changed_record(chance: Random, members: _Members) -> _Members:
    """An artifact's own record damaged, and the manifest made to agree with it."""
    changed: _Members = []
    for member, content in members:
        if member.name.endswith("export_meta.json"):
            content = damaged_json(chance, content.decode())
        changed.append((member, content))
    document = json.loads(changed[0][1])
    for member, content in changed[1:]:
        facts = document["files"][member.name]
        facts |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return [(changed[0][0], json.dumps(document).encode()), *changed[1:]]


def _strange_members(chance: Random, members: _Members) -> _Members:
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
    for _ in range(chance.choice((1, 2))):
        member, content = chance.choice(members[1:])
        changed = tarfile.TarInfo(
            chance.choice((member.name, "../evil", "/evil", "runner/../../evil", "runner/\udcff"))
        )
        if chance.random() < 0.6:
            changed.type, changed.linkname = chance.choice(kinds), "../../made/b.tar.gz"
        members.insert(chance.randrange(len(members) + 1), (changed, content))
    return members


@functools.cache
def _swollen_header() -> bytes:
    """An archive of a megabyte that begins with a header of a quarter of a gigabyte."""
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, SWOLLEN_BYTES
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as stream:
        stream.write(header.tobuf())
        for _ in range(SWOLLEN_BYTES >> 20):
            stream.write(bytes(1 << 20))
    return packed.getvalue()


XNNPACK_LOG = b"""\
Note (XNNPACK): Using gemm microkernel 'xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2'. (x.c:1)
Note (XNNPACK): Using batched gemm microkernel 'xnn_f32_gemm_minmax_ukernel_6x8__neonfma'. (x.c:2)
I 00:00:00.001 executorch:executor_runner.cpp:1] Model loaded in 66.6 ms.
Debug (XNNPACK): running operator 8:0 (Fully Connected (NC, PF32) GEMM)
Debug (XNNPACK): running operator 9:1 (Convolution (NHWC, F32) IGEMM)
Debug (XNNPACK): running operator 10:0 (Softmax (NC, F32))
"""


def _read_xnnpack_log(path: Path) -> None:
    with path.open(encoding="utf-8", errors="replace") as file:
        census_from_xnnpack_log(file, Arm.ON)


xnnpack_log = damaged_file("runner.log", XNNPACK_LOG * 9, _read_xnnpack_log)


def qemu_log(chance: Random, folder: Path) -> None:
    """The emulator's log, and now and then the library it speaks of."""
    library = write_elf(
        folder / "libkernels.so",
        [
            (0x1100, 0x40, "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"),
            (0x1300, 0x40, "xnn_f16_gemm_minmax_ukernel_6x8__neonfp16arith_ld64"),
        ],
        unwind=[(0x1800, 0x100)],
    )
    if chance.random() < 0.2:
        library.write_bytes(damaged_bytes(chance, library.read_bytes()))
    path = folder / "qemu.log"
    path.write_bytes(damaged_text(chance, _qemu_log(library.name)))
    named = library.name if library.exists() else path.name
    read_within_bounds(lambda: census_from_qemu_log(path, [library], Arm.ON), named)


def _qemu_log(library: str) -> bytes:
    base = 0x7F0000000000
    lines = [
        f'81 openat(AT_FDCWD,"./{library}",O_RDONLY|O_CLOEXEC) = 4',
        f"81 mmap(NULL,36864,PROT_READ,MAP_PRIVATE,4,0) = 0x{base:016x}",
        f"81 mmap(0x{base + 0x1000:016x},36864,PROT_EXEC|PROT_READ,MAP_PRIVATE|MAP_FIXED,4,0x1000)"
        f" = 0x{base + 0x1000:016x}",
    ]
    for address in (0x1100, 0x1110, 0x1300, 0x1800, 0x1A00):
        lines += ["----------------", "IN: ", f"0x{base + address:012x}:  d503201f  nop      "]
        lines += [f"0x{base + address + 4:012x}:  4e20d400  fadd     v0.4s, v0.4s, v0.4s", ""]
    return "\n".join([*lines, "81 exit_group(0)", ""]).encode()


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


limits_file = damaged_file(
    "limits.toml", LIMITS, lambda path: limits.resolve("fp16@256", files=[path])
)

SUBJECTS = (
    Subject("fuzz-etdump", "damaged ETDumps (a hundred a trial)", 100, 3, etdump),
    Subject("fuzz-etdump-file", "damaged ETDump files, analysed", 300, 20, etdump_file),
    Subject("fuzz-runner", "damaged runner results", 2000, 100, runner_result),
    Subject("fuzz-baseline", "damaged baselines: read, compared, updated", 800, 40, baseline),
    Subject("fuzz-experiment", "damaged experiment files", 1000, 60, experiment),
    Subject("fuzz-metrics", "damaged metrics.json: read and reported on", 150, 8, metrics),
    Subject("fuzz-run-directory", "damaged run directories, validated", 80, 5, run_directory),
    Subject("fuzz-artifact", "damaged export records", 1000, 60, artifact_meta),
    Subject("fuzz-bundle", "damaged and malicious bundles", 300, 25, bundle),
    Subject("fuzz-xnnpack-log", "damaged XNNPACK logs", 500, 30, xnnpack_log),
    Subject("fuzz-qemu-log", "damaged QEMU logs and libraries", 500, 30, qemu_log),
    Subject("fuzz-limits", "damaged limits.toml", 1000, 60, limits_file),
)
