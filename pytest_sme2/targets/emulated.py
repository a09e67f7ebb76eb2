"""SME2 on a machine without it: a Linux process in QEMU's user mode, and what QEMU saw of it.

The instructions are real, so operators, kernels and outputs are exact; times mean nothing. How the
logs are read is the business of ``trace/kernel_log.py``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

from pytest_sme2.errors import BuildError, RunError, Sme2Error, StorageError
from pytest_sme2.results.evidence import CountedInference, KernelCensus
from pytest_sme2.results.run import SME1_ONLY, Arm, Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.system.cache import (
    cache_folder,
    made_once,
    mark_used,
    put_in_place,
    trusted,
    working_folder,
)
from pytest_sme2.system.files import (
    decode,
    encode,
    file_sha256,
    inside,
    is_sealed,
    read_json,
    sealed,
    unwritable,
)
from pytest_sme2.system.locks import locked
from pytest_sme2.system.platforms import LINUX_AARCH64, host_platform
from pytest_sme2.system.processes import BASIC_ENVIRONMENT, run_process
from pytest_sme2.system.provision import find_compiler
from pytest_sme2.system.qemu import DEFAULT_CPU, EmulatedCpu, Qemu
from pytest_sme2.targets.base import (
    LOG_NAME,
    RESULT_NAME,
    Job,
    Target,
    check_request,
    make_place,
    run_here,
)
from pytest_sme2.trace.kernel_log import (
    census_from_qemu_log,
    census_from_xnnpack_log,
    read_counts,
)

_CPU = "sys/devices/system/cpu"
# One core that reports no caches. The CPU is QEMU's "max" (implementer 0, part 0x051).
FILES: dict[str, str] = {
    f"{_CPU}/possible": "0\n",
    f"{_CPU}/present": "0\n",
    f"{_CPU}/online": "0\n",
    f"{_CPU}/kernel_max": "255\n",
    f"{_CPU}/cpu0/regs/identification/midr_el1": "0x00000000000f0510\n",
    f"{_CPU}/cpu0/topology/physical_package_id": "0\n",
    f"{_CPU}/cpu0/topology/cluster_cpus_list": "0\n",
    f"{_CPU}/cpu0/topology/core_siblings_list": "0\n",
    f"{_CPU}/cpu0/topology/package_cpus_list": "0\n",
    f"{_CPU}/cpu0/cpufreq/cpuinfo_max_freq": "1000000\n",
    f"{_CPU}/cpu0/cpufreq/cpuinfo_min_freq": "1000000\n",
    "sys/devices/soc0/image_version": "\n",
    # Nothing of the host's is loaded into it. An Arm machine may name a library here.
    "etc/ld.so.preload": "",
}
# Symbols are looked up when a library is loaded, not when one is first called in an inference.
_VARIABLES = ("LD_BIND_NOW=1",)
# What is set for this process or for QEMU itself, and is not meant for the program.
_HIDDEN = (*BASIC_ENVIRONMENT, "GLIBC_TUNABLES")
_SEED = "1"


def guest_options() -> tuple[str, ...]:
    """The options of QEMU that pin what the program sees."""
    return (
        *("-L", str(guest_root())),
        *("-seed", _SEED),
        *("-U", ",".join(_HIDDEN)),
        *("-E", ",".join(_VARIABLES)),
    )


def guest_root() -> Path:
    """The folder with the files that stand in for the host's; made where it is missing."""
    digest = hashlib.sha256(json.dumps(FILES, sort_keys=True).encode()).hexdigest()[:12]
    folder = cache_folder() / "tools" / f"guest-{digest}"
    return made_once(folder, "making the emulator's files", _write_files)


def _write_files(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="ascii")
    return folder


# On x86, QEMU's translated code uses 256-bit AVX and its own functions plain SSE. Where one of them
# calls the C library's fused multiply-add, in AVX again, the processor changes states at every
# step: without it, emulated SME2 in fp32 is six times faster, and the same to the last bit.
_FAST_ON_X86 = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4"}


@dataclass(frozen=True)
class EmulatedTarget(Target):
    """An emulated CPU with SME2, and one without."""

    qemu: Qemu
    cpu: EmulatedCpu = DEFAULT_CPU
    switch_cpu: bool = True
    """Whether the CPU of the off arm has no SME2; if not, the runner alone hides it, as it must on
    hardware."""
    options: tuple[str, ...] = ()
    """Further ones of QEMU, such as those that log what it executes."""
    before: tuple[str, ...] = ()
    """What stands before QEMU in its command: a program that starts it."""

    name = "emulated"
    platform = LINUX_AARCH64

    def capabilities(self) -> Capabilities:
        return Capabilities(
            timing=False,
            sme2=not self.cpu.sme1,
            reason="the CPU is emulated, so its times say nothing about hardware.",
            sme1=self.cpu.sme1,
        )

    def launcher(self, arm: Arm) -> tuple[str, ...]:
        """What stands before the runner's own command."""
        cpu = self.cpu.model(arm if self.switch_cpu else Arm.ON)
        emulator = str(self.qemu.path.absolute())
        return (*self.before, emulator, "-cpu", cpu, *guest_options(), *self.options)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the emulator itself needs to see, beside the usual."""
        return _FAST_ON_X86 if platform.machine() in ("x86_64", "AMD64") else {}

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        job = Job(runner, request, folder)
        check_request(self, job)
        launcher = self.launcher(request.arm)
        return run_here(
            self.name, job, emulated=True, launcher=launcher, environment=self.environment
        )

    def fingerprint(self) -> Fingerprint:
        facts = {"cpu": self.cpu.model(Arm.ON), "qemu": self.qemu.version}
        if self.cpu.sme1:
            facts["sme2"] = SME1_ONLY
        return Fingerprint(target=self.name, facts=tuple(sorted(facts.items())))


SOURCE = Path(__file__).parent.parent / "trace" / "block_counter.c"

_COUNTER = "block_counter"
_BUILD_SECONDS = 300.0
# Blocks as they are translated, system calls, and what hardly ever happens: the sum of their bits
# is a number that stands nowhere else in QEMU's memory. The bits are those of QEMU's qemu/log.h.
_ITEMS = "in_asm,strace,unimp,mmu,pcall,fpu"
_LEVEL = 1 << 1 | 1 << 19 | 1 << 10 | 1 << 12 | 1 << 6 | 1 << 17
# exec and nochain: every block that runs, and no jump from one to the next without a line.
_EVERY_BLOCK = 1 << 5 | 1 << 13
# The counter's exit code.
_UNWRITABLE = 120


def block_counter(*, fresh: bool = False) -> Path:
    """The counter for this machine: from the cache, else compiled now, by one process."""
    compiler = find_compiler(host_platform())
    digest = hashlib.sha256(SOURCE.read_bytes())
    digest.update(os.fsencode(f"{compiler.cxx}\0{compiler.version}\0{host_platform()}"))
    folder = cache_folder() / "tools" / f"{_COUNTER}-{digest.hexdigest()[:12]}"

    def compile_it(work: Path) -> Path:
        # A C++ compiler is what building the runner asks for; it knows C as well.
        command = [compiler.cxx, "-x", "c", "-O2", str(SOURCE), "-o", str(work / _COUNTER)]
        finished = run_process(command, timeout_seconds=_BUILD_SECONDS)
        if finished.returncode != 0:
            raise BuildError(
                "The program that counts instructions could not be compiled with "
                f"{compiler.cxx}: {finished.stderr.strip()[-500:]}"
            )
        return work

    doing = "compiling the counter of instructions"
    return made_once(folder, doing, compile_it, fresh=fresh) / _COUNTER


def _counting(target: EmulatedTarget, counts: Path, log: Path, *, late: bool) -> EmulatedTarget:
    """The target whose emulator is started by the counter, which reads what it logs.

    ``late``: the blocks that run are logged from the inference on, which takes a third of the time.
    """
    level = _LEVEL if late else _LEVEL | _EVERY_BLOCK
    items = _ITEMS if late else f"{_ITEMS},exec,nochain"
    added = hex(_EVERY_BLOCK if late else 0)
    return dataclasses.replace(
        target,
        options=("-d", items, "-D", "/proc/self/fd/3"),
        before=(str(block_counter()), str(counts), str(log), hex(level), added),
    )


def raise_failure(failure: RunError, log: Path, counts: Path) -> NoReturn:
    """Raise why the run failed: an emulator whose counter failed says less than the counter."""
    found = re.findall(rb"^block_counter: (.*)$", log.read_bytes(), re.MULTILINE)
    if not found:
        raise failure
    problem = found[-1].decode(errors="replace")
    if f"exit code {_UNWRITABLE}" in str(failure):
        raise unwritable(counts, OSError(0, problem)) from failure
    raise RunError(f"The program that counts instructions failed: {problem}.") from failure


# in_asm: every block of code as it is translated, which is when it is first about to run.
# strace: where the loader maps the libraries. Both work in every version that knows SME2.
_LOG_ITEMS = "in_asm,strace"
_COUNTS_NAME = "blocks.counts"
_LOG_NAME = "qemu.log"
# What the counter says where it could not switch the log on.
_LATE_PROBLEMS = (
    "the log could not be switched on",
    "the runner did not pause before the inference",
)
# A program's last call, and what threads that end with it may log behind that.
_END_BYTES = 65536


@dataclass(frozen=True)
class Traced:
    """A traced run, and what the device saw of it."""

    run: Run
    census: KernelCensus | None = None
    counted: CountedInference | None = None
    """None where it was not asked to count."""
    remembered: bool = False
    """Whether it was made before and taken from the cache."""


def collect_census(
    target: Target, runner: Runner, request: RunRequest, folder: Path
) -> KernelCensus:
    """The kernels of one inference: from the emulator where there is one, else XNNPACK's log."""
    # One inference runs every kernel there is; more would only make it slow.
    once = dataclasses.replace(request, warmup=0, runs=1, keep_outputs=False)
    if isinstance(target, EmulatedTarget):
        return cast(KernelCensus, observed_run(target, runner, once, folder).census)
    return _logged(target, runner, once, folder)


def observed_run(
    target: EmulatedTarget, runner: Runner, request: RunRequest, folder: Path
) -> Traced:
    """A run and its kernels in one; with ``request.counted``, also all that it executed."""
    with _log_file(folder) as log:
        if request.counted:
            run, counted = _counted(target, Job(runner, request, folder), log)
        else:
            options = ("-d", _LOG_ITEMS, "-D", str(log))
            observed = dataclasses.replace(target, options=options)
            run, counted = observed.run(runner, request, folder), None
        if not log.exists():
            raise RunError(
                f"The emulator {target.qemu.path} wrote no log of what it translated. "
                "Is it QEMU's own user-mode emulator? The run's log is " + str(run.log)
            )
        _refuse_cut_log(log)
        census = census_from_qemu_log(log, runner.files(request.arm), request.arm)
    if census.blocks == 0:
        raise RunError(
            f"The log of the emulator {target.qemu.path} ({target.qemu.version}) holds no "
            "translated block, so nothing can be said about kernels. Use another version of QEMU."
        )
    return Traced(run, census, counted)


def _counted(target: EmulatedTarget, job: Job, log: Path) -> tuple[Run, CountedInference]:
    """Runs and counts; leaves in ``log`` all lines but those of blocks that ran."""
    run, counted = _counted_once(target, job, log, late=True)
    if counted.problem in _LATE_PROBLEMS or not any(part.code for part in counted.segments):
        # Another QEMU, or one that may not be written to: the whole log takes longer.
        run, counted = _counted_once(target, job, log, late=False)
    return run, counted


def _counted_once(
    target: EmulatedTarget, job: Job, log: Path, *, late: bool
) -> tuple[Run, CountedInference]:
    request = job.request
    counts = log.with_name(_COUNTS_NAME)
    job.folder.mkdir(parents=True, exist_ok=True)
    try:
        try:
            counting = _counting(target, counts, log, late=late)
            run = counting.run(job.runner, request, job.folder)
        except RunError as failure:
            raise_failure(failure, job.folder / LOG_NAME, counts)
        _refuse_cut_log(log)
        files = job.runner.files(request.arm)
        return run, read_counts(counts, log, files, target.cpu.vector_bits, request.inferences)
    finally:
        counts.unlink(missing_ok=True)


@contextlib.contextmanager
def _log_file(folder: Path) -> Iterator[Path]:
    """A place for the emulator's log; what a killed run left there is overwritten."""
    log = folder.absolute() / _LOG_NAME
    try:
        log.unlink(missing_ok=True)
        yield log
    finally:
        log.unlink(missing_ok=True)


def _refuse_cut_log(log: Path) -> None:
    """QEMU does not say when it could not write: a kernel that is missing would pass for gone."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _END_BYTES))
        end = file.read()
    # An empty log is an emulator that does not log, unless there was no room for a single line.
    whole = b"exit_group(" in end or not end
    if whole and (end or shutil.disk_usage(log.parent).free > _END_BYTES):
        return
    full = OSError(errno.ENOSPC, "the emulator's log is cut short, No space left on device")
    raise unwritable(log, full)


def _logged(target: Target, runner: Runner, request: RunRequest, folder: Path) -> KernelCensus:
    run = target.run(runner, request, folder)
    if run.log is None:
        raise RunError(f"The target {target.name!r} keeps no log to find kernels in.")
    with run.log.open(encoding="utf-8", errors="replace") as file:
        census = census_from_xnnpack_log(file, request.arm)
    if not census.operators and not census.candidates:
        raise RunError(
            f"The log {run.log} holds no line of XNNPACK's, so the kernels on {target.name!r} are "
            "not to be seen. Build runners with `sme2 build --variant xnnlog`, and give them as "
            "--sme2-runner; or use --device emulated."
        )
    return census


_RECORD = "remembered.json"
# What a census and counts are made by: with other code, a run must be looked at again.
_CODE = (
    *("system/elf.py", "trace/block_counter.c", "trace/instructions.py"),
    *("trace/kernel_log.py", "targets/base.py", "targets/emulated.py"),
)


def remembered_run(
    target: EmulatedTarget,
    runner: Runner,
    request: RunRequest,
    folder: Path,
    *,
    fresh: bool = False,
    cache: Path | None = None,
) -> Traced:
    """A run that may have been made before; ``fresh``: run it in any case."""
    root = cache or cache_folder()
    kept = root / "emulated" / run_key(target, runner, request)
    job = Job(runner, request, folder)
    if fresh and request.counted:
        block_counter(fresh=True)
    found = None if fresh else _recall(target, job, kept)
    if found is not None:
        return found
    made = observed_run(target, runner, request, folder)
    _keep(made, folder, kept)
    return made


def run_key(target: EmulatedTarget, runner: Runner, request: RunRequest) -> str:
    """Everything that operators, kernels and outputs depend on, as one hash."""
    package, artifact = Path(__file__).parent.parent, request.artifact
    asked = {
        field.name: getattr(request, field.name)
        for field in dataclasses.fields(request)
        # How long it may take, and where, changes nothing about what is computed.
        if field.name not in ("artifact", "timeout_seconds", "cpus")
    }
    parts = {
        "code": [_file_hash(package / name) for name in _CODE],
        "machine": platform.machine(),
        # Without the place of the cache: one that was moved, or is another machine's, is as good.
        "emulator": [
            _file_hash(target.qemu.path),
            *(word.removeprefix(f"{cache_folder()}/") for word in target.launcher(request.arm)[1:]),
        ],
        "environment": dict(target.environment),
        "runner": [runner.kind, runner.sha256],
        "program": [artifact.sha256, artifact.method],
        "files": [
            [step if isinstance(step, int) else file_sha256(step) for step in files]
            for files in (artifact.input_files, *artifact.generation_files)
        ],
        "request": asked,
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]


@functools.cache
def _file_hash(path: Path) -> str:
    return file_sha256(path)


def _recall(target: EmulatedTarget, job: Job, kept: Path) -> Traced | None:
    """The run that is kept there, put where the job wants it; None where there is no whole one."""
    try:
        record = read_json(trusted(kept, kept.parent.parent) / _RECORD, remedy="")
        if not is_sealed(record) or record["key"] != kept.name:
            return None
        census: KernelCensus = decode(record["census"], KernelCensus, kept)
        counted: CountedInference | None = decode(record["counted"], CountedInference | None, kept)
        place = make_place(job, target.name, emulated=True)
        for name, digest in record["files"].items():
            copy = inside(job.folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            shutil.copyfile(inside(kept, name), copy)
            # The copy, not what is kept: another machine may write there meanwhile.
            if file_sha256(copy) != digest:
                return None
        run = job.runner.read_result(job.request, place)
        mark_used(kept)
        return Traced(run, census, counted, remembered=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, Sme2Error):
        # Never kept, or damaged since: it is made again, and says itself what is wrong here.
        return None


def _locked(kept: Path) -> contextlib.AbstractContextManager[None]:
    return locked(Path(f"{kept}.lock"), f"writing {kept}")


def _keep(made: Traced, folder: Path, kept: Path) -> None:
    run = made.run
    here = folder.absolute()
    written = [run.log, run.etdump, *(output.file for output in run.outputs)]
    names = [path.absolute().relative_to(here) for path in written if path is not None]
    if (here / RESULT_NAME).is_file():  # a stock runner leaves none
        names.append(Path(RESULT_NAME))
    record = {
        "key": kept.name,
        "census": encode(made.census),
        "counted": encode(made.counted),
        "files": {str(name): file_sha256(folder / name) for name in names},
    }
    # The run itself is whole: a full or read-only cache only means to run it once more.
    with (
        contextlib.suppress(OSError, StorageError),
        _locked(kept),
        working_folder(kept) as temporary,
    ):
        for name in names:
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, temporary / name)
        (temporary / _RECORD).write_text(json.dumps(sealed(record)), encoding="utf-8")
        put_in_place(temporary, kept)
