"""The device a run works on, and what a case is run with on it: the runner, and the request for one
process. It is chosen when first needed, exchanged when it dies or another is asked.

How a phone is leased is the business of ``targets``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_sme2.errors import ConnectionLostError, NotMeasurableError, Sme2Error, TargetError
from pytest_sme2.results.evidence import KernelCensus
from pytest_sme2.results.run import PAIR, Arm, Artifact, Capabilities, FarmDevice, Run, RunRequest
from pytest_sme2.results.timing import INTERRUPTED, Moment, PairedTiming, Sustained
from pytest_sme2.session.settings import Settings
from pytest_sme2.system import platforms, provision
from pytest_sme2.system.locks import machine_lock, shared_lock
from pytest_sme2.system.platforms import emulated_on
from pytest_sme2.system.qemu import DEFAULT_CPU, Qemu, find_qemu, parse_cpu
from pytest_sme2.system.terminal import Say
from pytest_sme2.targets.base import Target, Thermal
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.local import MacTarget, this_machine
from pytest_sme2.targets.phone.answers import check_threads
from pytest_sme2.targets.settings import parse_device
from pytest_sme2.timing.pairs import StillOpen, measure_pairs
from pytest_sme2.timing.processes import BLOCK_PAIRS, SamplingPlan, Starter, starter_on

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.targets.base import Job
    from pytest_sme2.targets.labgrid import Lab

_Value = TypeVar("_Value")

# An emulator is some hundred times slower than a device, and slower still on a busy machine.
EMULATED_SECONDS = 3600.0
_SYSTEMS = {"mac": "macOS", "linux": "Linux"}


MOMENT_SECONDS = 2.0
MOMENTS = 3
"""Of one process: its start lets the device rest, and a verdict counts processes."""
FEWEST_MOMENTS = 60
MOST_RUNS = 20_000
"""Of a run under load."""


class HeldDevice:
    """One device at a time, for the whole of a worker's run."""

    clock = staticmethod(time.monotonic)
    """What time budgets are measured with."""
    blocks_due = BLOCK_PAIRS
    """How many pairs in long blocks the run still owes; its first pairs in turns pay them."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self.settings = settings
        self._handed: FarmDevice | None = None
        self.say = say
        self._target: Target | None = None
        self._prepared = False
        self._lost: list[Target] = []
        """Those that died: they stay leased, and are restored if they are back at the end."""
        self.notes: list[str] = []
        """What was done to have the device: an emulator that was fetched, for example."""
        self.missing: TargetError | None = None
        """Why there is no device that can be used."""

    @functools.cached_property
    def farm(self) -> Lab | None:
        """Who hands out phones and takes them back, if that is not this machine."""
        if self.settings.lab is None:
            return None
        from pytest_sme2.targets.labgrid import Lab

        return Lab(self.settings.lab, self.settings.lab_filter, self.say)

    @property
    def chosen(self) -> Target:
        """The target as it was chosen; nothing is changed on it yet."""
        if self._target is None:
            try:
                self._target = self._choose()
            except TargetError as error:
                self.missing = error
                raise
        return self._target

    @property
    def prepared(self) -> Target:
        """The target, ready to run."""
        target = self.chosen
        if not self._prepared:
            try:
                target.prepare()
            except ConnectionLostError:
                self.give_up()
                raise
            self._prepared = True
        return target

    def give_up(self) -> None:
        """The device died: whatever comes next gets another one, if there is any."""
        if self._target is not None:
            self._lost.append(self._target)
            self._hand_back(lost=True)
            self._target, self._prepared = None, False

    def close(self) -> None:
        """Leave every device as it was found, also those that were given up, if they are back."""
        held, self._target, self._prepared = self._target, None, False
        lost, self._lost = self._lost, []
        try:
            if held is not None:
                held.restore()
        finally:
            self._hand_back(lost=False)
            for target in lost:
                if hasattr(target, "patience_seconds"):
                    target.patience_seconds = 1.0
                with contextlib.suppress(TargetError):
                    target.restore()

    def _hand_out(self) -> Settings:
        """The settings that choose the farm's phone, if there is a farm."""
        settings = self.settings
        if self.farm is None or settings.device != "android" or settings.fake_phone:
            return settings
        self._handed = found = self.farm.acquire()
        return replace(settings, serials=(found.serial,), adb_server=found.adb_server)

    def _hand_back(self, *, lost: bool) -> None:
        handed, self._handed = self._handed, None
        if self.farm is not None and handed is not None:
            self.farm.release(handed, lost=lost)

    def _choose(self) -> Target:
        settings, self.notes = self._hand_out(), []
        try:
            return choose_target(settings, progress=self._note)
        except BaseException as error:
            # A wait that somebody ended says nothing against the phone.
            self._hand_back(lost=isinstance(error, TargetError))
            raise

    def _note(self, line: str) -> None:
        self.notes.append(line)
        self.say(line)

    @property
    def target(self) -> Target:
        """The target, ready to run."""
        target = self.prepared
        if self.settings.require_sme2 and not target.capabilities().sme2:
            self.missing = TargetError(
                f"--sme2-require: {target.name} has no SME2: {target.capabilities().reason} "
                "Choose another device with --device, or leave --sme2-require out."
            )
            raise self.missing
        return target

    @functools.cached_property
    def runner(self) -> Runner:
        from pytest_sme2.runners.sme2 import wheel_runner
        from pytest_sme2.runners.stock import pair_runner
        from pytest_sme2.session.bundle import open_bundle

        settings = self.settings
        if settings.runners is not None:
            return pair_runner(*settings.runners)
        if settings.device == "android" and settings.device_bundle is not None:
            return open_bundle(settings.device_bundle).runner
        return wheel_runner(self.target.platform, progress=self.say, fresh=settings.fresh)

    def check_runner(self) -> None:
        """An error if the runner cannot be made, without making it. A missing device is reported by
        what needs it, and a phone is not taken for this.
        """
        from pytest_sme2.runners.sme2 import check_wheel_runner

        settings = self.settings
        if "runner" in self.__dict__ or settings.runners or settings.device == "android":
            return
        with contextlib.suppress(TargetError, NotMeasurableError):
            check_wheel_runner(self.chosen.platform)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Both arms and the one that was asked for; the off arm alone where there is no SME."""
        able = self.target.capabilities()
        if not able.switches:
            return (Arm.OFF,)
        # On a chip without SME2, on is SME1 already.
        if Arm.SME1 not in self.settings.arms or not able.sme2:
            return PAIR
        if able.timing:
            raise TargetError(
                f"The arm sme1 is for the emulator: {self.target.name} is timed in pairs of on and "
                "off. Give --device=emulated, or leave --sme2-arms out."
            )
        return (*PAIR, Arm.SME1)

    @property
    def timed(self) -> bool:
        """Whether times of the target mean anything."""
        return self.target.capabilities().timing

    def require_timing(self) -> None:
        able = self.target.capabilities()
        if not able.timing:
            raise NotMeasurableError(f"{self.target.name} cannot measure time: {able.reason}")

    def require_sme2(self) -> None:
        able = self.target.capabilities()
        if not able.switches:
            raise NotMeasurableError(f"{self.target.name} has no SME2: {able.reason}")

    def request(self, artifact: Artifact, arm: Arm, threads: int, **choices: Any) -> RunRequest:
        """One process; ``choices`` are further fields of the request."""
        request = RunRequest(artifact=artifact, arm=arm, threads=threads)
        if not self.timed:
            sme1 = self.target.capabilities().sme1
            request = replace(request, timeout_seconds=EMULATED_SECONDS, sme1=sme1)
        else:
            check_threads(threads, self.target.cores)
        return replace(request, **choices)

    def redo(self, measure: Callable[[], _Value]) -> _Value:
        """``measure()``, again from the start where the connection to the device was lost."""
        from pytest_sme2.targets.phone.target import Recoverable, redo_when_lost

        if not isinstance(self.target, Recoverable):
            return measure()
        patience = self.settings.patience_seconds
        return redo_when_lost(self.target, measure, patience_seconds=patience, progress=self.say)

    def run(self, request: RunRequest, folder: Path, runner: Runner | None = None) -> Run:
        """One process of the runner, or of another one, on the target."""
        return self.redo(lambda: self.target.run(runner or self.runner, request, folder))

    def kernels(
        self, request: RunRequest, folder: Path, runner: Runner | None = None
    ) -> KernelCensus:
        """The kernels of one inference."""
        from pytest_sme2.targets.emulated import collect_census

        return self.redo(
            lambda: collect_census(self.target, runner or self.runner, request, folder)
        )

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """One measurement at a time on one machine, across all processes; a phone is leased."""
        if self.settings.device == "android":
            yield
            return
        # One for the machine, not for the cache: two caches share the same cores.
        lock = machine_lock("measuring")
        with shared_lock(lock, "measuring on this machine", say=self.say, timeout_seconds=-1):
            yield

    def cool_down(self) -> None:
        """Before a block of timed processes: wait for a device that gets hot."""
        self.redo(self.target.cool_down)

    def conditions(self) -> Mapping[str, str]:
        """What may change the speed of the device from day to day, where it shows that."""
        return self.redo(self.target.conditions)

    def plan(self, **choices: Any) -> SamplingPlan:
        """For so long as the run's settings say; only the ratio is asked for unless chosen."""
        given: dict[str, Any] = {
            "threshold": None,
            "budget_seconds": self.settings.budget_seconds,
            "limit_seconds": self.settings.limit_seconds,
        }
        return SamplingPlan(**given | choices)

    def starter(self, jobs: Mapping[str, Job], **choices: Any) -> Starter:
        """Starts processes on the target; ``choices`` are further ones of ``starter_on``."""
        return starter_on(self.target, jobs, clock=self.clock, redo=self.redo, **choices)

    def measure_pairs(
        self, title: str, starter: Starter, plan: SamplingPlan, still_open: StillOpen | None = None
    ) -> PairedTiming:
        """Of the starter's two jobs, the reference first."""
        reference, candidate = starter.runs

        def progress(line: str) -> None:
            self.say(f"{title}: {line}")

        return measure_pairs(starter, reference, candidate, plan, progress, still_open)


def measure_sustained(
    bench: HeldDevice, title: str, request: RunRequest, folder: Path
) -> Sustained:
    """For as long as the settings say, alone on the device."""
    seconds = bench.settings.sustain_seconds or 0.0
    bench.require_timing()
    with bench.exclusively():
        moments, ended = _load(bench, title, request, folder, seconds)
    return Sustained(Arm(request.arm), tuple(moments), ended)


def _load(
    bench: HeldDevice, title: str, request: RunRequest, folder: Path, seconds: float
) -> tuple[list[Moment], str]:
    """Nothing is waited for in between. Ctrl-C, or a device that must be left alone, ends it."""
    target, moments, ended = bench.target, list[Moment](), ""
    request = replace(request, cpus=target.pinned(request.threads), warmup=1, runs=3)
    single = statistics.median(bench.run(request, folder).wall_ns) / 1e9
    length = MOMENTS * min(MOMENT_SECONDS, seconds / FEWEST_MOMENTS)
    bench.cool_down()
    begun = bench.clock()
    target.pauses = False
    try:
        while not ended and (now := bench.clock() - begun) < seconds:
            runs = min(MOST_RUNS, max(1, round(length / single)))
            bench.say(f"{title}: {now:.0f} of {seconds:.0f} s under load, {single * 1e3:.3f} ms")
            run = bench.run(replace(request, runs=runs), folder)
            single, thermal = statistics.fmean(run.wall_ns) / 1e9, target.thermal()
            process = moments[-1].process + 1 if moments else 0
            moments += moments_of(run, bench.clock() - begun, thermal, process)
            ended = "critical heat" if thermal.critical else ""
    except KeyboardInterrupt:
        ended = INTERRUPTED
    finally:
        target.pauses = True
    return moments, ended


def moments_of(run: Run, ended: float, thermal: Thermal, process: int) -> Iterator[Moment]:
    """Equal parts of a process that ended then."""
    number = min(MOMENTS, len(run.wall_ns))
    edges = [len(run.wall_ns) * edge // number for edge in range(number + 1)]
    left = sum(run.wall_ns)
    for start, end in itertools.pairwise(edges):
        part = run.wall_ns[start:end]
        left -= sum(part)
        yield Moment(
            ended - left / 1e9,
            statistics.fmean(part),
            run.clock_ghz,
            thermal.cap_ghz,
            thermal.celsius,
            process,
        )


def choose_target(
    settings: Settings,
    *,
    wait_seconds: float = 3600.0,
    progress: Say | None = None,
) -> Target:
    """The target the settings ask for; where all phones are in use, one is waited for.

    ``auto`` is this machine if it has SME2, else the emulator if there is one, else this machine
    without SME2, whose capabilities then say why; never this machine if that is emulated itself.
    ``emulated`` fetches a missing emulator if there is a ``progress``.
    """
    device = parse_device(settings.device)
    if device == "android":
        return _phone(settings, wait_seconds, progress)
    if device == "emulated":
        return _emulator(settings, progress)
    if device == "auto":
        return _automatic(settings)
    local = this_machine()
    if local.name != device:
        raise TargetError(
            f"--device={device} runs on this machine, but this machine runs "
            f"{_SYSTEMS.get(local.name, local.name)}. Choose {local.name}, emulated or auto."
        )
    if (real := emulated_on()) is not None:
        raise TargetError(
            f"--device={device} cannot be used: this machine is emulated on {real}, so its times "
            "say nothing about hardware. Choose emulated, or run on the machine itself."
        )
    return local


def is_emulated(settings: Settings) -> bool:
    """Whether the chosen device is an emulator."""
    if settings.device != "auto":
        return settings.device == "emulated" or settings.fake_phone
    try:
        return isinstance(choose_target(settings), EmulatedTarget)
    except Sme2Error:
        # What is wrong with the device is for the first test that needs it to say.
        return True


def _emulator(settings: Settings, progress: Say | None = None) -> EmulatedTarget:
    chosen = settings.emulated_cpu
    cpu = DEFAULT_CPU if chosen is None else parse_cpu(chosen)
    return EmulatedTarget(_qemu("--device=emulated", progress), cpu=cpu)


def _qemu(what: str, progress: Say | None) -> Qemu:
    """The emulator for ``what``; fetched if it is missing and there is a ``progress``."""
    try:
        return find_qemu()
    except TargetError:
        if progress is None:
            raise
        progress("no emulator with SME2 was found: fetching one, as `sme2 provision` does")
        provided = provision.qemu(progress, check=False)
        if provided.found is None:
            raise TargetError(f"{what} cannot be used. {provided.remedy}") from None
        return find_qemu()


def _phone(settings: Settings, timeout: float, progress: Say | None) -> Target:
    """A phone that is this process's own from here on, until it is restored."""
    options: dict[str, Any] = {
        "progress": progress,
        "patience_seconds": min(15.0, settings.patience_seconds),
        "cpus": settings.cpus,
    }
    # What only phones need is imported only for them.
    if settings.fake_phone:
        from pytest_sme2.fake_phone.lab import open_fake_phone

        emulator = _qemu("--sme2-phone=fake", progress)
        return open_fake_phone(emulator.path, **options)
    from pytest_sme2.targets.phone.adb import choose_serials, open_server
    from pytest_sme2.targets.phone.target import lease_phone

    server = open_server(settings.adb_server)
    serials = choose_serials(server, settings.serials)
    return lease_phone(server, serials, timeout=timeout, **options)


def _automatic(settings: Settings) -> Target:
    if emulated_on() is not None:
        return _emulator(settings)
    local = this_machine()
    if local.capabilities().sme2:
        return local
    try:
        return _emulator(settings)
    except TargetError as error:
        return this_machine(note=f"Nor can it be emulated: {error}")


def sme_word(able: Capabilities) -> str:
    """What a device has of SME."""
    return "SME2" if able.sme2 else "SME1, no SME2" if able.sme1 else "no SME2"


def header_lines(bench: HeldDevice) -> list[str]:
    settings = bench.settings
    if settings.device == "android":
        return [f"sme2: device android ({_phone_words(settings)})"]
    try:
        target = bench.chosen
        able = target.capabilities()
    except Sme2Error as error:
        return [f"sme2: --device={settings.device} cannot be used: {error}"]
    times = "timing" if able.timing else "structure only, no timing"
    try:
        version = f"ExecuTorch {importlib.metadata.version('executorch')}"
    except importlib.metadata.PackageNotFoundError:
        version = "ExecuTorch not installed"
    chosen = "auto: " if settings.device == "auto" else ""
    lines = [
        *(f"sme2: {note}" for note in bench.notes),
        f"sme2: device {chosen}{target.name} ({sme_word(able)}, {times}), {version}",
    ]
    if isinstance(target, MacTarget):
        state = ", ".join(f"{name} {value}" for name, value in target.state().items())
        lines.append(f"sme2: {target.cpu}, {state}")
        lines += [f"sme2: warning: {warning}" for warning in platforms.read_power().warnings]
    return lines


def _phone_words(settings: Settings) -> str:
    """Which phones, without reaching for one: a worker leases it when it measures."""
    if settings.fake_phone:
        return "a fake phone in a sandbox on this machine, emulated: no timing"
    if settings.lab is not None:
        tags = ", ".join(f"{name}={value}" for name, value in settings.lab_filter.items())
        return f"from the labgrid coordinator {settings.lab}; {tags or 'any place'}"
    return ", ".join(settings.serials) or "the attached one"
