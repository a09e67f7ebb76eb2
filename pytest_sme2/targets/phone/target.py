"""A phone over adb as a target: prepared, measured on, and restored.

The protocol is in ``adb.py``, the phone's folder in ``storage.py``, its settings in ``power.py``,
its heat in ``heat.py``. A lost connection raises ConnectionLostError; then the caller uses
``recover`` and measures the pair again from the start (``retry.py``).
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import shlex
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_sme2.errors import (
    ConnectionLostError,
    DeviceTimeoutError,
    RunError,
    Sme2Warning,
    TargetError,
)
from pytest_sme2.results import Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.abi import AARCH64, machine_name, unmet_needs
from pytest_sme2.runners.base import ProcessFiles, Runner
from pytest_sme2.system.elf import is_elf, read_needs
from pytest_sme2.system.platforms import ANDROID_ARM64, LINUX_AARCH64
from pytest_sme2.targets.base import ETDUMP_NAME, LOG_NAME, OUTPUTS_NAME, RESULT_NAME, check_request
from pytest_sme2.targets.phone.adb import AdbDevice, quote
from pytest_sme2.targets.phone.choice import make_ready
from pytest_sme2.targets.phone.claim import Claim
from pytest_sme2.targets.phone.cores import Core, check_choice, pick_cores, read_cores
from pytest_sme2.targets.phone.heat import Thermometer
from pytest_sme2.targets.phone.leases import Lease
from pytest_sme2.targets.phone.power import PhonePower
from pytest_sme2.targets.phone.script import (
    Answer,
    PhoneRun,
    explain,
    parse_answer,
    phone_command,
    phone_limit,
)
from pytest_sme2.targets.phone.silicon import (
    READ_SILICON,
    Silicon,
    VectorLength,
    parse_silicon,
    parse_vector_length,
    vector_program,
)
from pytest_sme2.targets.phone.storage import ROOT, RUNS, PhoneStorage

FAKE_PROPERTY = "ro.pytest_sme2.fake"
"""The property that marks a fake phone, however it is reached."""
LAUNCHER_PROPERTY = "ro.pytest_sme2.launcher"
"""A fake phone's emulator: the start of a runner's command."""

_ATTEMPTS = 3
_PROPERTIES = (
    "ro.product.manufacturer",
    "ro.product.model",
    "ro.build.version.release",
    "ro.build.fingerprint",
    "ro.product.cpu.abilist",
    "ro.soc.manufacturer",
    "ro.soc.model",
    "ro.board.platform",
    "ro.boot.qemu",
    FAKE_PROPERTY,
    LAUNCHER_PROPERTY,
)


class AndroidTarget:
    """One phone during its measurements."""

    name = "android"
    platform = LINUX_AARCH64
    """The platform of the default runner: the self-contained bundle, which needs no NDK."""

    def __init__(
        self,
        device: AdbDevice,
        *,
        power_mode: str = "keep",
        fixed_performance: bool = False,
        cpus: str | Sequence[int] = (),
        emulated: bool | None = None,
        xnnpack_log: bool = False,
        max_celsius: float | None = None,
        cool_seconds: float = 300.0,
        patience_seconds: float = 15.0,
        lease: Lease | None = None,
        claim: Claim | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """``emulated`` means that times are never latency; by default the phone itself says so.

        ``patience_seconds`` is how long to wait for a phone after its connection was lost.
        ``max_celsius`` waits for lower temperatures, where the phone tells them.
        ``xnnpack_log`` appends XNNPACK's lines of logcat to a run's log.
        """
        self.device = device
        self.power_mode = power_mode
        self.wants_fixed_performance = fixed_performance
        self.cpus = cpus
        self._emulated = emulated
        self.xnnpack_log = xnnpack_log
        self.max_celsius = max_celsius
        self.cool_seconds = cool_seconds
        self.patience_seconds = patience_seconds
        self.lease = lease
        self.claim = claim
        self.progress = progress
        self.storage = PhoneStorage(device, progress=progress)
        self.events: list[str] = []
        """What happened on the phone that a reader of its results should know."""
        self.power = PhonePower(device, event=self.events.append)
        self.thermometer = Thermometer(device, progress=progress, event=self.events.append)
        self.properties: dict[str, str] = {}
        self.silicon = Silicon()
        self.vector: VectorLength | None = None
        self.screen = "unknown"
        self.cores: tuple[Core, ...] = ()
        self._hot = False
        self._checked: set[Path] = set()

    @property
    def serial(self) -> str:
        return self.device.serial

    @property
    def soc(self) -> str:
        """The SoC's name, as the phone reports it."""
        known = self._known()
        named = f"{known.get('ro.soc.manufacturer', '')} {known.get('ro.soc.model', '')}".strip()
        return named or known.get("ro.board.platform", "") or "an unknown SoC"

    @property
    def emulated(self) -> bool:
        """Whether it is not a real phone: a fake one, or Android's own emulator."""
        if self._emulated is not None:
            return self._emulated
        known = self._known()
        return bool(known.get(FAKE_PROPERTY)) or known.get("ro.boot.qemu") == "1"

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
            self.power.apply(self.power_mode, fixed_performance=self.wants_fixed_performance)
            self.cores = read_cores(self.device)
            if self.cpus:
                check_choice(self.cpus, self.cores)
            self.vector = self._read_vector_length()
            self.screen = self.power.screen()
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
        if "shell_v2" not in self.device.features():
            raise TargetError(f"{self.serial} is too old: it needs Android 7 or newer.")
        command = "; ".join(quote(["getprop", name]) for name in _PROPERTIES)
        done = self.device.shell(f"{command}; echo ==; {READ_SILICON}")
        values, _, rest = done.text.partition("==\n")
        lines = [*values.splitlines(), *[""] * len(_PROPERTIES)]
        self.properties = dict(zip(_PROPERTIES, lines, strict=False))
        self.silicon = parse_silicon(rest)
        abis = self.properties.get("ro.product.cpu.abilist", "")
        if "arm64-v8a" not in abis.split(","):
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
        reasons = []
        if self.emulated:
            reasons.append("a fake or emulated phone's times say nothing about a phone.")
        sme2 = self.silicon.sme2
        if not sme2:
            reasons.append(self.silicon.missing_sme2(self.soc))
        return Capabilities(timing=not self.emulated, sme2=sme2, reason=" ".join(reasons))

    def _launcher(self) -> list[str]:
        """What comes before a program: a fake phone's emulator, else nothing."""
        return shlex.split(self._known().get(LAUNCHER_PROPERTY, ""))

    def _read_vector_length(self) -> VectorLength | None:
        if not self.silicon.sme:
            return None
        program = f"{ROOT}/vector-length"
        self.device.push(vector_program(), program, mode=0o755)
        asked = self.device.shell([*self._launcher(), program])
        self.device.shell(["rm", "-f", program])
        found = parse_vector_length(asked.stdout) if asked.code == 0 else None
        if found is not None and found.bits < found.most:
            self._tell(
                f"runs with streaming vectors of {found.bits} bits, and its chip can do "
                f"{found.most}: Linux's default is in /proc/sys/abi/sme_default_vector_length"
            )
        return found

    def _tell(self, said: str) -> None:
        """For the report, once, however often the phone is prepared."""
        if said not in self.events:
            self.events.append(said)
            warnings.warn(Sme2Warning(f"{self.serial} {said}."), stacklevel=2)

    def pinned(self, threads: int) -> tuple[int, ...]:
        """The cores for a process with so many threads; none means any."""
        return pick_cores(self.cpus, self.cores, threads)

    def fingerprint(self) -> Fingerprint:
        """The phone and its settings; the settings are known once it is prepared."""
        known = self._known()
        facts = {
            "model": f"{known['ro.product.manufacturer']} {known['ro.product.model']}",
            "soc": self.soc,
            "build": known["ro.build.fingerprint"],
            "android": known["ro.build.version.release"],
            "power_mode": self.power_mode,
            "fixed_performance": "on" if self.power.fixed_performance else "off",
            "cpus": self._cores_chosen(),
            "screen": self.screen,
        }
        if self.silicon.sme:
            facts["sme_vector_bits"] = "unknown" if self.vector is None else str(self.vector.bits)
        return Fingerprint(self.name, tuple(sorted(facts.items())))

    def _cores_chosen(self) -> str:
        if self.cpus:
            return ",".join(map(str, pick_cores(self.cpus, self.cores)))
        return "fastest kind" if self.cores else "any"

    def state(self) -> dict[str, str]:
        """What is not in the fingerprint: the serial and the state of the phone."""
        return {
            "serial": self.serial,
            "kernel": self.silicon.kernel,
            "cpu_parts": self.silicon.cores(),
            "cpu_features": " ".join(self.silicon.features),
            "sme_vector_bits": "unknown" if self.vector is None else str(self.vector),
            **self.power.observe(),
            **self._heat(),
            **({"events": "; ".join(self.events)} if self.events else {}),
        }

    def _heat(self) -> dict[str, str]:
        heat = self.thermometer.read()
        zones = (f"{name} {value:g}" for name, value in heat.zones.items())
        return {"heat": str(heat), "thermal_zones": ", ".join(zones)}

    def conditions(self) -> dict[str, str]:
        """Of its state, what makes it slower or faster."""
        state = {**self.power.observe(), **self._heat()}
        names = {"governor": "governor", "heat": "heat", "battery_celsius": "temperature"}
        return {name: state[key] for key, name in names.items() if state.get(key)}

    def cool_down(self) -> None:
        """Wait until the phone says that it is cool, but not for ever."""
        now = self.power.screen()
        if now != self.screen:
            self._tell(f"had its screen {self.screen} at the start, and {now} later")
        self.thermometer.wait_until_cool(celsius=self.max_celsius, seconds=self.cool_seconds)

    def put(self, files: Sequence[Path]) -> None:
        """Push files before a run; those on the phone are not pushed again."""
        for path in files:
            self.storage.put({path.name: path})

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        """One process of the runner on the phone; its files end up in ``folder``."""
        self._check_runner(runner, request)
        if self.claim is not None:
            self.claim.renew()
        if self._hot:
            self.cool_down()
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / LOG_NAME
        # Files of an earlier run must not be taken for this one's.
        for stale in (folder / RESULT_NAME, folder / ETDUMP_NAME, log):
            stale.unlink(missing_ok=True)
        process = self._plan(runner, request)
        script = process.script(xnnpack_log=self.xnnpack_log)
        try:
            done = self.device.shell(script, timeout=request.timeout_seconds)
        except DeviceTimeoutError as error:
            said = self._end(process)
            log.write_bytes(process.header() + said + b"[time limit]\n")
            raise RunError(
                f"{self._failed(request)}: it did not finish within {request.timeout_seconds:g} s "
                "and was stopped; allow more time if the model is that slow. "
                f"Its log is {log}"
            ) from error
        except ConnectionLostError:
            raise
        except BaseException:
            # For example Ctrl-C: no process of ours may keep heating the phone.
            self._end(process)
            raise
        return self._collect(runner, request, folder, process, parse_answer(self.serial, done))

    def _plan(self, runner: Runner, request: RunRequest) -> PhoneRun:
        cores = request.cpus or self.pinned(request.threads)
        name = uuid.uuid4().hex
        place = f"{RUNS}/{name}"
        files = self._put(runner, request, place)
        home = self.storage.put({path.name: path for path in runner.files(request.arm)})
        command = phone_command(
            [
                *self._launcher(),
                *runner.command(request, files),
            ],
            cores=cores,
            timeout_seconds=request.timeout_seconds,
        )
        limit = phone_limit(request.timeout_seconds)
        return PhoneRun(name, place, home, command, files, longest_seconds=limit)

    def _put(self, runner: Runner, request: RunRequest, place: str) -> ProcessFiles:
        artifact = request.artifact
        model = self.storage.put({artifact.pte.name: artifact.pte})
        inputs = [(self.storage.put({file.name: file}), file) for file in artifact.input_files]
        return ProcessFiles(
            model=f"{model}/{artifact.pte.name}",
            inputs=tuple(f"{there}/{file.name}" for there, file in inputs),
            result=f"{place}/{RESULT_NAME}",
            etdump=f"{place}/{ETDUMP_NAME}" if runner.traces(request) else None,
            outputs=f"{place}/{OUTPUTS_NAME}" if request.keep_outputs else None,
        )

    def _end(self, process: PhoneRun) -> bytes:
        """End a run on the phone, and return its output."""
        # Without a connection, the next connection ends it.
        said = b""
        with contextlib.suppress(TargetError):
            self.storage.kill_run(process.name)
            said = self.device.shell(process.tail()).stdout
            self._remove(process)
        return said

    def _remove(self, process: PhoneRun) -> None:
        self.device.shell(["rm", "-rf", process.place])

    def _collect(
        self, runner: Runner, request: RunRequest, folder: Path, process: PhoneRun, answer: Answer
    ) -> Run:
        log, result = folder / LOG_NAME, folder / RESULT_NAME
        log.write_bytes(process.header() + answer.log + f"[exit {answer.code}]\n".encode())
        throttled = self._hot = answer.throttled
        if answer.code != 0:
            self._remove(process)
            problem = explain(runner, request, answer.code, answer.log.decode(errors="replace"))
            raise RunError(f"{self._failed(request)}: {problem} Its log is {log}")
        if answer.document:
            result.write_bytes(answer.document)
        etdump = outputs = None
        if process.files.etdump is not None and answer.has_etdump:
            etdump = folder / ETDUMP_NAME
            self.device.pull(process.files.etdump, etdump)
        if process.files.outputs is not None:
            outputs = folder / OUTPUTS_NAME
            self._pull_outputs(process.files.outputs, outputs)
        if process.keeps_files:
            self._remove(process)
        run = runner.read_result(
            request,
            target=self.name,
            emulated=self.emulated,
            result=result,
            etdump=etdump,
            outputs=outputs,
            log=log,
        )
        return dataclasses.replace(run, throttled=throttled)

    def _pull_outputs(self, remote: str, local: Path) -> None:
        local.mkdir(exist_ok=True)
        # The runner names them itself: output_0.bin and so on.
        for name in self.device.check(["ls", "-1", remote]).splitlines():
            self.device.pull(f"{remote}/{name}", local / Path(name).name)

    def _failed(self, request: RunRequest) -> str:
        artifact = request.artifact
        return (
            f"{artifact.model} ({artifact.variant}) failed on {self.serial} with SME2 {request.arm}"
        )

    def _check_runner(self, runner: Runner, request: RunRequest) -> None:
        """Check here what the phone would report less clearly."""
        if runner.platform not in (LINUX_AARCH64, ANDROID_ARM64):
            raise TargetError(
                f"The runner is for {runner.platform}, but the phone needs {ANDROID_ARM64} or the "
                f"self-contained {LINUX_AARCH64} bundle. Make one with: sme2 bundle --phone OUT"
            )
        check_request(self.name, runner.platform, self.capabilities(), runner, request)
        if runner.folder in self._checked:
            return
        files = {path.name: path for path in runner.files(request.arm)}
        for path in filter(is_elf, files.values()):
            machine = read_needs(path).machine
            if machine != AARCH64:
                raise TargetError(
                    f"{path.name} of the runner is for {machine_name(machine)}, "
                    f"but the phone {self.serial} is arm64-v8a. Build it for arm64."
                )
        for name, absent in unmet_needs(files).items():
            raise TargetError(
                f"{name} of the runner needs {', '.join(absent)}, which neither phones nor the "
                "bundle have. Make it again with: sme2 bundle --phone OUT"
            )
        self._checked.add(runner.folder)

    def restore(self) -> None:
        """Restore the phone, and release it."""
        try:
            self._insist(self._restore)
        finally:
            if self.lease is not None:
                self.lease.release()

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
