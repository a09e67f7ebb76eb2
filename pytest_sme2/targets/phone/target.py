"""A phone over adb as a target: leased, prepared, measured on, and restored.

The protocol is in ``adb.py``, the phone's folder in ``processes.py``, its settings and heat in
``power.py``. A lost connection raises ConnectionLostError; then ``redo_when_lost`` finds the phone
again, and measures the pair from the start.

A lease is a lock on a file, so it ends with its process however that ends. There is one for each
phone and adb server on this machine, whichever user asks and whatever the cache is.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import math
import secrets
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from pytest_sme2.errors import (
    BusyError,
    ConnectionLostError,
    DeviceGoneError,
    DeviceTimeoutError,
    Sme2Warning,
    TargetError,
)
from pytest_sme2.results.run import SME1_ONLY, Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.base import TURN_DESCRIPTOR, LeftFiles, Player, Runner
from pytest_sme2.system.locks import holder_of, machine_lock, shared_lock
from pytest_sme2.system.platforms import ANDROID_ARM64, LINUX_AARCH64
from pytest_sme2.system.processes import Finished
from pytest_sme2.targets.base import (
    Job,
    Target,
    Thermal,
    check_request,
    count_turns,
    make_place,
    on_cores,
    run_failed,
)
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer, make_ready, own_serial, quote
from pytest_sme2.targets.phone.answers import (
    READ_CORES,
    READ_SILICON,
    Answer,
    Core,
    ShellResult,
    Silicon,
    caps_text,
    clock_change,
    cores_text,
    parse_cores,
    parse_lines,
    parse_list,
    parse_names,
    parse_page_size,
    parse_parts,
    parse_silicon,
    pick_cores,
    read_cores_under_load,
)
from pytest_sme2.targets.phone.power import CRITICAL, THROTTLES, PhonePower, Thermometer
from pytest_sme2.targets.phone.processes import (
    GRACE_SECONDS,
    RUNS,
    PhoneRun,
    PhoneStorage,
    explain,
    write_log,
)

FAKE_PROPERTY = "ro.pytest_sme2.fake"
"""The property that marks a fake phone, however it is reached."""
LAUNCHER_PROPERTY = "ro.pytest_sme2.launcher"
"""A fake phone's emulator: the start of a runner's command."""

_ATTEMPTS = 3
LOAD_SECONDS = 2.0
"""For so long a core is busy before its cap is read."""
_PROPERTIES = (
    *("ro.product.manufacturer", "ro.product.model", "ro.product.cpu.abilist"),
    *("ro.build.version.release", "ro.build.fingerprint"),
    *("ro.soc.manufacturer", "ro.soc.model", "ro.board.platform"),
    *("ro.boot.qemu", FAKE_PROPERTY, LAUNCHER_PROPERTY),
)


@dataclass(eq=False, repr=False)
class AndroidTarget(Target):
    """One phone during its measurements."""

    device: AdbDevice
    cpus: str | Sequence[int] = ()
    emulated: bool | None = None
    """Whether its times are never latency; None: the phone itself says so."""
    cool_seconds: float = 300.0
    patience_seconds: float = 15.0
    """How long to wait for a phone after its connection was lost."""
    lease: contextlib.ExitStack | None = None
    progress: Callable[[str], None] | None = None
    cores: tuple[Core, ...] = field(default=(), init=False)
    """As they were at the start."""

    name = "android"
    platform = LINUX_AARCH64
    """The platform of the default runner: the self-contained bundle, which needs no NDK."""

    def __post_init__(self) -> None:
        self.storage = PhoneStorage(self.device, progress=self.progress)
        self.events: list[str] = []
        """What happened on the phone that a reader of its results should know."""
        self.power = PhonePower(self.device, self.events.append)
        self.thermometer = Thermometer(self.device, self.progress, self.events.append)
        self.properties: dict[str, str] = {}
        self.silicon = Silicon()
        self.screen = "unknown"
        self._hot = False

    @property
    def serial(self) -> str:
        return self.device.serial

    @property
    def soc(self) -> str:
        """The SoC's name, as the phone reports it."""
        known = self._known()
        named = f"{known['ro.soc.manufacturer']} {known['ro.soc.model']}".strip()
        return named or known["ro.board.platform"] or "an unknown SoC"

    def prepare(self) -> None:
        """Connect, clean up after an interrupted run, and prepare the phone for measuring."""
        self._insist(self._prepare)

    def _prepare(self) -> None:
        self.device.server.ensure_running()
        make_ready(self.device.server, self.serial, seconds=self.patience_seconds)
        self._read_facts()
        if self.power.restore() and self.progress is not None:
            self.progress(f"{self.serial}: restored settings that an interrupted run had changed")
        self.storage.tidy()
        # The settings are changed from here on, and restored however this process ends.
        atexit.register(self._restore_quietly)
        try:
            self.power.apply()
            if not self.cores:  # a later preparation keeps the caps that the session began with
                seconds = 0.1 if self.emulated else LOAD_SECONDS
                self.cores = parse_cores(self.device.shell(read_cores_under_load(seconds)).text)
            pick_cores(self.cpus, self.cores)  # refuses those that are not there
            self.screen = self.power.screen()
            if self.power.charging() == "no":
                self._tell("is not plugged in: its screen goes off after a while, and clocks drop")
            self.cool_down()
        except BaseException:
            self._restore_quietly()
            raise

    def recover(self) -> None:
        """Find and prepare the phone again after a lost connection."""
        self.storage.forget()
        self._prepare()

    def _insist(self, action: Callable[[], None]) -> None:
        """Do something that can be repeated, despite a few lost connections."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return action()
            except ConnectionLostError:
                # An adb server needs a moment to notice that a device is gone.
                time.sleep(0.2)
        return action()

    def _read_facts(self) -> None:
        command = "; ".join(quote(["getprop", name]) for name in _PROPERTIES)
        done = self.device.shell(f"{command}; echo ==; {READ_SILICON}")
        values, rest = parse_parts(done.text, 2)
        lines = parse_lines(values, len(_PROPERTIES))
        self.properties = dict(zip(_PROPERTIES, lines, strict=True))
        self.silicon = parse_silicon(rest)
        if self.emulated is None:
            # A fake phone, or Android's own emulator.
            fake = self.properties[FAKE_PROPERTY]
            self.emulated = bool(fake) or self.properties["ro.boot.qemu"] == "1"
        abis = self.properties["ro.product.cpu.abilist"]
        if "arm64-v8a" not in parse_list(abis):
            raise TargetError(
                f"{self.serial} runs {abis or 'an unknown ABI'}, not arm64-v8a. "
                "Use a 64-bit Arm phone."
            )

    def _known(self) -> dict[str, str]:
        if not self.properties:
            self._read_facts()
        return self.properties

    def capabilities(self) -> Capabilities:
        self._known()
        chip = self.silicon
        fake = (
            "a fake or emulated phone's times say nothing about a phone." if self.emulated else ""
        )
        reason = f"{fake} {'' if chip.sme2 else chip.missing_sme2(self.soc)}".strip()
        return Capabilities(not self.emulated, chip.sme2, reason, sme1=chip.sme and not chip.sme2)

    def _launcher(self) -> tuple[str, ...]:
        """What comes before a program: a fake phone's emulator, else nothing."""
        return parse_list(self._known()[LAUNCHER_PROPERTY], " ")

    def _note(self, said: str) -> bool:
        """For the report, once, however often it is said; whether it is new."""
        new = said not in self.events
        if new:
            self.events.append(said)
        return new

    def _tell(self, said: str) -> None:
        """For the report, and for the one who waits."""
        if self._note(said):
            warnings.warn(Sme2Warning(f"{self.serial} {said}."), stacklevel=2)

    def pinned(self, threads: int, *, mixed: bool = False) -> tuple[int, ...]:
        return pick_cores(self.cpus, self.cores, threads, mixed=mixed)

    def fingerprint(self) -> Fingerprint:
        """The phone and its settings; the settings are known once it is prepared."""
        known = self._known()
        pinned = ",".join(map(str, pick_cores(self.cpus, self.cores))) if self.cpus else ""
        facts = {
            "model": f"{known['ro.product.manufacturer']} {known['ro.product.model']}",
            "soc": self.soc,
            "cpus": pinned or ("fastest kind" if self.cores else "any"),
            "screen": self.screen,
        }
        if self.capabilities().sme1:
            facts["sme2"] = SME1_ONLY
        return Fingerprint(self.name, tuple(sorted(facts.items())))

    def state(self) -> dict[str, str]:
        """What is not in the fingerprint: the serial and the state of the phone."""
        return {
            "serial": self.serial,
            "kernel": self.silicon.kernel,
            "cpu_parts": self.silicon.cores(),
            "cpu_features": " ".join(self.silicon.features),
            **self.power.observe(),
            "heat": str(self.thermometer.read()),
            **({"events": "; ".join(self.events)} if self.events else {}),
        }

    def conditions(self) -> dict[str, str]:
        state = self.power.observe()
        found = {
            "build": self._known()["ro.build.fingerprint"],
            "governor": state["governor"],
            "heat": str(self.thermometer.read()),
            "temperature": state.get("battery_celsius"),
            "clock caps": caps_text(parse_cores(self.device.shell(READ_CORES).text)),
        }
        return {name: value for name, value in found.items() if value}

    def cool_down(self) -> None:
        """Wait until the phone says that it is cool, but not for ever."""
        self.thermometer.wait_until_cool(self.cool_seconds)

    def thermal(self) -> Thermal:
        heat, used = self.thermometer.read(), self.pinned(1)
        cores = parse_cores(self.device.shell(READ_CORES).text)
        ours = [core for core in cores if not used or core.number in used]
        caps = [core.cap_khz for core in ours if core.cap_khz]
        cap = max(caps) / 1e6 if caps else None
        return Thermal(heat.celsius, cap, (heat.status or 0) >= CRITICAL)

    @property
    def waited_seconds(self) -> float:
        return self.thermometer.waited_seconds

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        (run,) = self._watched([Job(runner, request, folder)])
        return run

    def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]:
        """One process per job; a program on the phone gives them their turns."""
        return self._watched(jobs, count_turns(jobs))

    def _watched(self, jobs: Sequence[Job], turns: int | None = None) -> list[Run]:
        """Check, cool down if the last run was hot, run, and remember whether this one was."""
        for job in jobs:
            self._check_runner(job)
            if not job.request.cpus:
                self.pinned(job.request.threads)  # refuses before any push
        if self._hot and self.pauses:
            self.cool_down()
        self._hot = True  # unless we learn that it is not
        runs = self._run_all(jobs, turns)
        self._hot = any(run.throttled for run in runs)
        if any(run.spoiled for run in runs) and self.screen == "on":
            self._tell(f"{runs[0].spoiled}; it was switched on again")
            self.power.wake()
        return runs

    def _run_all(self, jobs: Sequence[Job], turns: int | None) -> list[Run]:
        """One process per job, whose files end up in the job's folder.

        With ``turns``, they take so many turns, which a program of the first runner gives them.
        """
        places = [make_place(job, self.name, emulated=bool(self.emulated)) for job in jobs]
        name = uuid.uuid4().hex
        if turns is None:
            started = self._plan(jobs[0], name, f"{RUNS}/{name}")
            started = replace(started, command=self._placed(jobs[0], started.command))
        else:
            started = self._giver(jobs, turns, name)
        done = self._shell(started, jobs, places)
        try:
            runs, answers = started.processes, started.parse(self.device.serial, done)
            # Where some have no answer, reading the one that has raises why.
            return [
                self._collect(job, place, run, answer)
                for job, place, run, answer in zip(jobs, places, runs, answers, strict=True)
                if answer is not None
            ]
        finally:
            if started.keeps_files:
                self.device.shell(["rm", "-rf", started.place])

    def _giver(self, jobs: Sequence[Job], turns: int, name: str) -> PhoneRun:
        """The program that starts the processes and gives them their turns."""
        place = f"{RUNS}/{name}"
        players = [
            self._plan(job, name, f"{place}/{index}", turn_descriptor=TURN_DESCRIPTOR)
            for index, job in enumerate(jobs)
        ]
        # Processes with as many threads share their cores; else each is put on its own.
        shared = len({(job.request.threads, job.request.cpus) for job in jobs}) == 1
        given = []
        for job, player in zip(jobs, players, strict=True):
            command = player.command if shared else self._placed(job, player.command)
            given.append(Player(player.log, player.home, command))
        command = (*self._launcher(), *jobs[0].runner.turn_giver(turns, given))
        command = self._placed(jobs[0], command, one_core=True) if shared else command
        return replace(players[0], place=place, command=command, players=tuple(players))

    def _plan(
        self, job: Job, name: str, place: str, turn_descriptor: int | None = None
    ) -> PhoneRun:
        runner, request = job.runner, job.request

        def there(file: Path) -> str:
            return f"{self.storage.put({file.name: file})}/{file.name}"

        files = job.files(there, lambda name: f"{place}/{name}", turn_descriptor)
        home = self.storage.put({path.name: path for path in runner.files(request.arm)})
        command = (*self._launcher(), *runner.command(request, files))
        limit = math.ceil(request.timeout_seconds) + GRACE_SECONDS
        return PhoneRun(name, place, home, command, files, longest_seconds=limit)

    def _placed(
        self, job: Job, command: Sequence[str], *, one_core: bool = False
    ) -> tuple[str, ...]:
        """The command on its cores.

        With ``one_core``, on one of them where that is enough: on two cores, processes that take
        turns would each have different noise.
        """
        request = job.request
        cores = request.cpus or self.pinned(request.threads)
        if one_core and cores and not request.cpus and request.threads == 1:
            cores = (secrets.choice(cores),)
        return on_cores(command, cores)

    def _shell(
        self, started: PhoneRun, jobs: Sequence[Job], places: Sequence[LeftFiles]
    ) -> ShellResult:
        """The answer of a script that runs processes; none of them stays when it fails."""
        seconds = max(job.request.timeout_seconds for job in jobs)
        try:
            return self.device.shell(started.script(), timeout=seconds)
        except DeviceTimeoutError as error:
            logs = self._end(started)
            for process, place, log in zip(started.processes, places, logs, strict=True):
                write_log(place, process, log, "time limit")
            late = Finished(0, "", "", timed_out=True)
            raise self._failure(jobs[0], places[0], late) from error
        except ConnectionLostError:
            raise
        except BaseException:
            # For example Ctrl-C: no process of ours may keep heating the phone.
            self._end(started)
            raise

    def _end(self, started: PhoneRun) -> list[bytes]:
        """End the processes of one run on the phone, and return what each had printed."""
        # Without a connection, the next connection ends them.
        with contextlib.suppress(TargetError):
            self.storage.kill_run(started.name)
            logs = [self.device.shell(process.tail()).stdout for process in started.processes]
            self.device.shell(["rm", "-rf", started.place])
            return logs
        return [b"" for _ in started.processes]

    def _collect(self, job: Job, place: LeftFiles, process: PhoneRun, answer: Answer) -> Run:
        write_log(place, process, answer.log, f"exit {answer.code}")
        if answer.code != 0:
            # A process that was killed cannot end what it had started.
            self.storage.kill_run(process.name)
            said = answer.log.decode(errors="replace")
            raise self._failure(job, place, Finished(answer.code, "", said, timed_out=False))
        if answer.document:
            place.result.write_bytes(answer.document)
        if place.etdump is not None and process.files.etdump is not None:
            if self.device.shell(["ls", process.files.etdump]).code == 0:
                self.device.pull(process.files.etdump, place.etdump)
            else:
                place = replace(place, etdump=None)
        if place.outputs is not None and process.files.outputs is not None:
            self._pull_outputs(process.files.outputs, place.outputs)
        run = job.runner.read_result(job.request, place)
        used = job.request.cpus or self.pinned(job.request.threads)
        change = clock_change(self.cores, answer.caps, used)
        if 0 < answer.status < THROTTLES:
            self._note(f"was warm meanwhile (thermal status {answer.status}), and not slowed down")
        screen = answer.screen
        return replace(
            run,
            throttled=answer.status >= THROTTLES,
            clock_change=change,
            meant_for=tuple(used),
            spoiled=""
            if "unknown" in (screen, self.screen) or screen == self.screen
            else f"the screen was {screen}, and {self.screen} at the start",
        )

    def _pull_outputs(self, remote: str, local: Path) -> None:
        local.mkdir(exist_ok=True)
        # The runner names them itself: output_0.bin and so on.
        said = self.device.check(["ls", "-1", remote])
        for name in parse_names(self.device.serial, said):
            self.device.pull(f"{remote}/{name}", local / name)

    def _failure(self, job: Job, place: LeftFiles, finished: Finished) -> Exception:
        problem = explain(job.runner, job.request, finished)
        return run_failed(self.device.serial, job, place, problem)

    def _check_runner(self, job: Job) -> None:
        """Check here what the phone would report less clearly."""
        runner = job.runner
        if runner.platform not in (LINUX_AARCH64, ANDROID_ARM64):
            raise TargetError(
                f"The runner is for {runner.platform}, but the phone needs {ANDROID_ARM64} or the "
                f"self-contained {LINUX_AARCH64} bundle. Make one with: sme2 bundle --phone OUT"
            )
        check_request(self, job, runner.platform)

    def restore(self) -> None:
        """Restore the phone, and release it."""
        try:
            self._insist(self._restore)
        finally:
            self.release()

    def release(self) -> None:
        """Let others use the phone."""
        if self.lease is not None:
            self.lease.close()

    def _restore(self) -> None:
        self.device.server.ensure_running()
        make_ready(self.device.server, self.serial, seconds=self.patience_seconds)
        self.power.restore()
        self.storage.tidy()
        atexit.unregister(self._restore_quietly)

    def _restore_quietly(self) -> None:
        # An error cannot be reported here, and the note is still on the phone.
        with contextlib.suppress(TargetError):
            self.power.restore()


def phone_facts(target: AndroidTarget) -> dict[str, str]:
    """What there is to tell of a prepared phone."""
    page = "getconf PAGE_SIZE || grep -m1 KernelPageSize /proc/self/smaps"
    version, build = (
        target.properties.get(f"ro.build.{name}") for name in ("version.release", "fingerprint")
    )
    return {
        **dict(target.fingerprint().facts),
        **target.state(),
        "Android": f"{version or '?'}, {build or 'an unknown build'}",
        "cores": cores_text(target.cores, [core.number for core in target.cores]),
        "page size": parse_page_size(target.device.shell(f"{{ {page}; }} 2>/dev/null").text),
    }


_PAUSE_SECONDS = 0.1
_own: dict[tuple[str, str], str] = {}
"""What phones on the network answered, by adb server and address."""
_ours: set[Path] = set()
"""The lock files of this process's phones, also of one that was lost: it is to be restored."""


def _lock_file(server: AdbServer, serial: str) -> Path:
    # Under all of its names a phone is one: by cable, and by network.
    name = _own.get(key := (str(server), serial)) or own_serial(server, serial)
    if name != serial:
        _own[key] = name  # also when it does not answer any more
    digest = hashlib.sha256(f"{server}\n{name}".encode()).hexdigest()[:24]
    return machine_lock(f"phone-{digest}")


def take_lease(server: AdbServer, serial: str) -> contextlib.ExitStack | None:
    """The right to use a phone until it is closed; None while somebody has it."""
    file, lease = _lock_file(server, serial), contextlib.ExitStack()
    try:
        lease.enter_context(shared_lock(file, f"using {serial}"))
    except BusyError:
        return None
    _ours.add(file)
    lease.callback(_ours.discard, file)
    return lease


def is_leased(server: AdbServer, serial: str) -> bool:
    """Whether a process of this machine uses the phone."""
    lease = take_lease(server, serial)
    if lease is not None:
        lease.close()
    return lease is None


def lease_phone(
    server: AdbServer,
    serials: Sequence[str],
    *,
    timeout: float = 3600.0,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> AndroidTarget:
    """The first free phone, as a target that keeps its lease until ``restore``.

    One that does not work is passed over. ``options`` go to AndroidTarget.
    """
    deadline, said = time.monotonic() + timeout, False
    refused: dict[str, TargetError] = {
        serial: TargetError(f"{serial} was lost before.")
        for serial in serials
        if _lock_file(server, serial) in _ours
    }
    while usable := [serial for serial in serials if serial not in refused]:
        for serial in usable:
            lease = take_lease(server, serial)
            if lease is None:
                continue
            device = AdbDevice(server, serial)
            target = AndroidTarget(device, lease=lease, progress=progress, **options)
            try:
                make_ready(server, serial, seconds=target.patience_seconds)
                return target
            except BaseException as error:
                lease.close()
                if not isinstance(error, TargetError):
                    raise
                refused[serial] = error
        busy = [serial for serial in usable if serial not in refused]
        held = ", ".join(f"{serial}{holder_of(_lock_file(server, serial))}" for serial in busy)
        if busy and time.monotonic() > deadline:
            raise TargetError(
                f"All devices are in use by other processes for {timeout:g} s: {held}. Attach "
                "more, or run fewer workers."
            )
        if busy and progress is not None and not said:
            progress(f"waiting for one of {len(busy)} devices to become free: {held}")
            said = True
        time.sleep(_PAUSE_SECONDS if busy else 0)
    errors = list(refused.values())
    told = " ".join(map(str, errors)) or "None was given."
    # With a single phone, its own error is enough.
    raise errors[0] if len(errors) == 1 else TargetError(f"No device is left. {told}")


Result = TypeVar("Result")
_RETRIES = 3


@runtime_checkable
class Recoverable(Protocol):
    """A target that can be found again after its connection was lost."""

    events: list[str]
    """What a reader of its results should know."""

    def recover(self) -> None: ...


def redo_when_lost(
    target: Recoverable,
    measure: Callable[[], Result],
    *,
    patience_seconds: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Do ``measure`` (a whole pair), and repeat it from the start if the connection is lost.

    After the last retry, or if the device does not come back, raise one error.
    """
    for attempt in range(_RETRIES + 1):
        try:
            return measure()
        except ConnectionLostError as error:
            if attempt == _RETRIES:
                raise DeviceGoneError(
                    f"Stopped after {_RETRIES + 1} attempts: the connection was lost each time. "
                    f"Last: {error} Check the cable, the hub and the phone's power saving."
                ) from error
            if progress is not None:
                progress(f"{error} Measuring the pair again.")
            lost = time.monotonic()
            _recover(target, patience_seconds, error)
            seconds = time.monotonic() - lost
            target.events.append(f"was away for {seconds:.0f} s, and a pair was repeated")
    raise AssertionError("the loop returns or raises")


def _recover(target: Recoverable, seconds: float, lost: ConnectionLostError) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return target.recover()
        except ConnectionLostError as error:
            if time.monotonic() > deadline:
                raise DeviceGoneError(
                    f"{lost} It did not come back within {seconds:g} s: {error}"
                ) from error
            time.sleep(0.5)
