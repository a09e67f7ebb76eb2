"""More damaged files: those that come from other tools, other people, and devices."""

from __future__ import annotations

import functools
import io
import json
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks.hostile.damage import damaged_bytes, damaged_json, damaged_text
from benchmarks.hostile.fuzz import damaged_file, read_within_bounds
from benchmarks.hostile.stage import Subject, expect
from pytest_sme2.cli.commands.history import history_lines
from pytest_sme2.export.registry import discover
from pytest_sme2.export.weights import upstream_of
from pytest_sme2.profile.beside import (
    ORIGINS,
    SCHEMA,
    SHAPES,
    beside,
    keep_origins,
    kept_origins,
    kept_shapes,
)
from pytest_sme2.profile.kernel_matrix import read_matrix
from pytest_sme2.report.history import FILE, HistoryRecord, Value, add_records, read_history
from pytest_sme2.report.history_page import history_page
from pytest_sme2.report.history_series import all_series
from pytest_sme2.results import Arm, Cell, CellAnswer, KernelMatrix
from pytest_sme2.runners.stock import read_observed
from pytest_sme2.session import run_directory
from pytest_sme2.system.debian_packages import (
    Archive,
    parse_deb822,
    system_archives,
    unpack_content,
)
from pytest_sme2.system.elf import read_layout
from pytest_sme2.targets.phone.adb import AdbDevice, quote
from pytest_sme2.targets.phone.answers import (
    parse_cores,
    parse_silicon,
    parse_temperature,
    parse_thermal_status,
    parse_vector_length,
    parse_zones,
)
from pytest_sme2.targets.phone.leases import CLAIM, read_claim
from pytest_sme2.targets.phone.power import NOTE, SETTINGS, Heat, parse_note
from pytest_sme2.targets.phone.silicon import vector_program
from pytest_sme2.trace.etrecord import read_attribution
from pytest_sme2.trace.library import read_package
from pytest_sme2.trace.program import read_outline
from tests.support.library_writer import KERNEL, SME2_KERNEL, macho
from tests.support.phones import answering
from tests.support.readers import repeated_method
from tools.matrix.comparing import write_matrix
from tools.sweep.programs import draw
from tools.sweep.results import SWEEP, SweepResults, read_results, write_results
from tools.sweep.running import BatchResult, Difference

DATA = Path(__file__).parents[2] / "tests" / "data"
CODE = "__import__('pathlib').Path('/tmp/hostile-code-was-run').touch()"


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


TESTS = """{"schema":2,"exit_code":0,"tests":{"test_it.py::test_it":{"outcome":"passed",
"seconds":1.5}},"found":["test_it.py::test_it"],"number":1,"of":2}"""


tests_of_shard = damaged_file(
    run_directory.TESTS, TESTS, lambda path: run_directory.read_shard(path.parent)
)


SHAPES_TEXT = """{"schema":1,"methods":[{"name":"forward","calls":{"0":[{"operation":"convolution",
"inputs":[[1,8,8,3],[8,3,3,3]],"output":[1,8,8,8]}]}}]}"""


def shapes(chance: Random, folder: Path) -> None:
    etdump = folder / "run.etdump"
    text = SHAPES_TEXT.replace('"schema":1', f'"schema":{SCHEMA}')
    damaged_file(beside(etdump, SHAPES).name, text, lambda _: kept_shapes(etdump))(chance, folder)


WEIGHTS = b"""\
file = "net.pt"
source = "a place"
licence = "MIT"
url = "https://example.invalid/net.pt"
sha256 = "0123456789abcdef"
state = "model"
"""
MODEL = "from pytest_sme2 import register_model\n@register_model('net')\nclass M: pass\n"


def weights(chance: Random, folder: Path) -> None:
    (folder / "model.py").write_text(MODEL, "utf-8")
    entry = discover([folder], entry_points=False).get("net")
    damaged_file("weights.toml", WEIGHTS, lambda _: upstream_of(entry))(chance, folder)


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


def debian_package(chance: Random, folder: Path) -> None:
    names = ("usr/bin/tool", "../out", "/out", "a", "a/b", "a" * 300, "\udcff", ".", "", "a/../b")
    kinds = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for _ in range(chance.choice((1, 3, 6))):
            member = tarfile.TarInfo(chance.choice(names))
            member.type, member.linkname = chance.choice(kinds), chance.choice(names)
            data = b"data" if member.isreg() else b""
            member.size, member.mode = len(data), chance.randrange(0o10000)
            archive.addfile(member, io.BytesIO(data))
    content = folder / "content.tar"
    content.write_bytes(
        damaged_bytes(chance, raw.getvalue()) if chance.random() < 0.5 else raw.getvalue()
    )
    target = folder / "in" / "side"
    target.mkdir(parents=True)
    read_within_bounds(lambda: unpack_content(content, target, "a.deb"), "a.deb")
    left = {path.name for path in (*folder.iterdir(), *(folder / "in").iterdir())}
    expect(left == {"content.tar", "in", "side"}, f"written outside: {left}")


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


NOTE_TEXT = json.dumps(
    {"version": 1, "settings": {"low_power": "0", "animator_duration_scale": None},
     "fixed_performance": True}
)  # fmt: skip


def note(chance: Random, folder: Path) -> None:
    """The note of old settings on a phone: only our settings are put back, with plain values."""
    text = damaged_json(chance, NOTE_TEXT).decode("utf-8", "replace")

    def read() -> None:
        settings, _, _ = parse_note(text, "phone")
        expect({*settings} <= {*SETTINGS}, f"settings of others: {settings}")
        for value in settings.values():
            quote(["settings", "put", "global", "name", value or ""]).encode()

    read_within_bounds(read, NOTE)


def origins(chance: Random, folder: Path) -> None:
    etdump = folder / "run.etdump"
    keep_origins(etdump, DATA / "etrecords" / "toy.etrecord", lambda line: None)
    path = beside(etdump, ORIGINS)
    damaged_file(path.name, path.read_text("utf-8"), lambda _: kept_origins(etdump))(chance, folder)


def kernel_matrix(chance: Random, folder: Path) -> None:
    path = folder / "matrix.json"
    cell = Cell("linear", "fp32", 32, "regular")
    answer = CellAnswer(cell, "sme2", "kernel", ("Fully Connected",), 4096, 900, 60.0)
    write_matrix(KernelMatrix("1.5.1", "2.13.0", "0.18.0", "max", (answer,)), path)
    damaged_file(path.name, path.read_text("utf-8"), read_matrix)(chance, folder)


def sweep_results(chance: Random, folder: Path) -> None:
    program = draw(0, 1, "fp16")
    seen = Difference(program, "crash", "strict", Arm.ON, "it crashed")
    batch = BatchResult(0, "fp16", 8, 30.0, 12, 8, ("a program: why",), (seen,))
    wanted = SweepResults(0, "1.5.1", "11.1.2", ("strict",))
    write_results(replace(wanted, batches=(batch,)), folder)
    text = (folder / SWEEP).read_text("utf-8")
    damaged_file(SWEEP, text, lambda _: read_results(folder, wanted))(chance, folder)


CLAIM_TEXT = '{"host": "lab", "user": "me", "pid": 812, "lock": "lab:1:2", "token": "0a"}'


def claim(chance: Random, folder: Path) -> None:
    text = damaged_json(chance, CLAIM_TEXT).decode("utf-8", "replace")
    read_within_bounds(lambda: read_claim(text), CLAIM)


PHONE_TEXT = b"""\
6.6.30-android15
==
processor\t: 0
Features\t: fp asimd sme sme2
CPU implementer\t: 0x41
CPU part\t: 0xd8c
==
# CONFIG_ARM64_SME is not set
/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq:3600000
Cpus_allowed_list:\t0-7
Thermal Status: 1
Current temperatures from HAL:
\tTemperature{mValue=57.8, mType=0, mName=CPU0, mStatus=3}
/sys/class/thermal/thermal_zone1/type:soc
/sys/class/thermal/thermal_zone1/temp:62000
"""


def phone_answers(chance: Random, folder: Path) -> None:
    """What a phone prints: whatever it is, there is a value, and no core that cannot be."""
    text = damaged_text(chance, PHONE_TEXT).decode("utf-8", "replace")

    def read() -> None:
        parse_silicon(text).missing_sme2("X")
        expect(all(core.number < 10_000 for core in parse_cores(text)), "an impossible core")
        str(Heat(parse_thermal_status(text), parse_temperature(text)))
        parse_zones(text)
        parse_vector_length(damaged_bytes(chance, bytes(16)))

    read_within_bounds(read, "the phone")


def layout(chance: Random, folder: Path) -> None:
    path = folder / "program"
    path.write_bytes(damaged_bytes(chance, vector_program()))
    read_within_bounds(lambda: read_layout(path), path.name)


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


observer = damaged_file("llama.log", OBSERVED.encode(), _read_observed)

SUBJECTS = (
    Subject("fuzz-observer", "damaged output of llama_main", 500, 30, observer),
    Subject("fuzz-library", "damaged libraries and apps", 1000, 40, library),
    Subject("fuzz-etrecord", "damaged and malicious ETRecords", 1000, 40, etrecord),
    Subject("fuzz-program", "damaged programs without model code", 1000, 40, program),
    Subject("fuzz-history", "damaged files of a history", 500, 30, history),
    Subject("fuzz-tests", "damaged tests.json", 500, 30, tests_of_shard),
    Subject("fuzz-shapes", "damaged run.shapes.json", 1000, 40, shapes),
    Subject("fuzz-origins", "damaged run.origins.json", 1000, 40, origins),
    Subject("fuzz-matrix", "damaged kernel matrices", 500, 30, kernel_matrix),
    Subject("fuzz-sweep", "damaged results of a sweep", 500, 30, sweep_results),
    Subject("fuzz-weights", "damaged weights.toml", 500, 30, weights),
    Subject("fuzz-apt-sources", "damaged sources of apt", 500, 30, apt_sources),
    Subject("fuzz-package", "malicious Debian packages", 500, 30, debian_package),
    Subject("fuzz-note", "damaged notes on a phone", 500, 30, note),
    Subject("fuzz-claim", "damaged leases on a phone", 500, 30, claim),
    Subject("fuzz-phone", "damaged answers of a phone", 500, 30, phone_answers),
    Subject("fuzz-layout", "damaged programs for phones", 500, 30, layout),
    Subject("fuzz-adb", "answers that are not adb's protocol", 500, 30, adb),
)

# Every module that reads a file or an answer from outside, and the subject that damages it.
READERS = {
    "cli/experiment_file": "fuzz-experiment",
    "export/store": "fuzz-artifact",
    "export/weights": "fuzz-weights",
    "profile/kernel_matrix": "fuzz-matrix",
    "profile/beside": "fuzz-shapes",
    "report/history": "fuzz-history",
    "report/validation": "fuzz-run-directory",
    "runners/sme2": "fuzz-runner",
    "session/analysis": "fuzz-run-directory",
    "session/bundle": "fuzz-bundle",
    "session/run_directory": "fuzz-metrics",
    "system/debian_packages": "fuzz-package",
    "system/elf": "fuzz-qemu-log",
    "targets/phone/adb": "fuzz-adb",
    "targets/phone/leases": "fuzz-claim",
    "targets/phone/power": "fuzz-note",
    "trace/etdump": "fuzz-etdump",
    "trace/etrecord": "fuzz-etrecord",
    "trace/library": "fuzz-library",
    "runners/stock": "fuzz-observer",
    "verdict/baseline_file": "fuzz-baseline",
    "verdict/baselines": "fuzz-baseline",
    "verdict/limits": "fuzz-limits",
}
# Why nothing is damaged here of these modules, which read as well.
_REASONS = {
    "reads files of this package": (
        "cli/commands/init", "fake_phone/root", "profile/known_names", "report/html",
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
    "nonsense there is tested in tests/unit/system": (
        "system/locks", "system/platforms",
    ),
    "what is damaged is made anew": ("report/writing", "system/cache", "targets/census"),
    "unpacks a wheel that pip has checked": ("runners/sdk",),
    "is what the others read with": ("system/reading",),
    "reads numbers of any value as they are": ("verdict/numerics",),
}  # fmt: skip
NOT_FUZZED = {module for modules in _REASONS.values() for module in modules}
