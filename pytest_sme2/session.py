"""One run's state: what was chosen, and each stage's result for each case, made on demand."""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pytest_sme2.errors import (
    BuildError,
    DeviceGoneError,
    ExportError,
    ModelError,
    RunError,
    Sme2Error,
    StorageError,
    TargetError,
    UnvouchedError,
)
from pytest_sme2.platforms import LINUX_X86_64
from pytest_sme2.registry import ModelEntry, Registry, discover, safe_name
from pytest_sme2.results import (
    Arm,
    Artifact,
    Baseline,
    Check,
    Comparison,
    Evidence,
    KernelCensus,
    Limits,
    Measured,
    Measurement,
    Pair,
    Profile,
    Run,
    RunRequest,
)
from pytest_sme2.settings import Settings, Variant, cache_folder, parse_variant

if TYPE_CHECKING:
    from pytest_sme2.against import OpenReference
    from pytest_sme2.held_device import HeldDevice
    from pytest_sme2.measure import Progress
    from pytest_sme2.occupation import Occupation
    from pytest_sme2.runners import Runner
    from pytest_sme2.targets.base import Target
    from pytest_sme2.timing import Timing

Say = Callable[[str], None]
_Value = TypeVar("_Value")
_Method = TypeVar("_Method", bound=Callable[..., Any])

# An emulated run is exact at the first try, and slow; a real one needs company to be typical.
EMULATED_TRACE = {"warmup": 0, "runs": 1}
# An emulator is some hundred times slower than a device, and a busy machine slows it once more:
# what takes minutes alone must not fail for that.
EMULATED_SECONDS = 3600.0
DEVICE_TRACE = {"warmup": 3, "runs": 10}


def _silent(line: str) -> None:
    """Nobody is watching."""


@dataclass(frozen=True)
class Case:
    """One model in one variant with one thread count: what a test is run for."""

    model: str
    variant: Variant | None
    threads: int = 1
    entry: ModelEntry | None = None
    problem: str | None = None
    """Why the model cannot be used; the other fields then only name it."""
    sweep: bool = False
    """Whether several thread counts are run, so that the id must tell them apart."""

    @property
    def id(self) -> str:
        if self.problem is not None:
            return f"{self.model}-broken"
        threads = f"-t{self.threads}" if self.sweep else ""
        return f"{self.model}-{self.variant}{threads}"


def _on_one_device(method: _Method) -> _Method:
    """Of a stage: all of it is measured on one device, from the start again where that died."""

    @functools.wraps(method)
    def stage(self: Session, *arguments: Any, **choices: Any) -> Any:
        return self.steadily(lambda: method(self, *arguments, **choices))

    return cast(_Method, stage)


# What would only fail again, after as long, for the next test that asks.
_LASTING = (ModelError, ExportError, BuildError, RunError)


@dataclass(frozen=True)
class _Failed:
    """In place of what could not be made."""

    error: Sme2Error


class Session:
    """Holds what one run shares between its tests."""

    def __init__(self, settings: Settings, say: Say = _silent, identity: str | None = None) -> None:
        self.settings = settings
        self.say = say
        self._identity = identity
        self._made: dict[tuple[object, ...], object] = {}
        self._steady = False

    def _once(self, make: Callable[[], _Value], *key: object) -> _Value:
        """``make()``, the first time it is asked for under this key; its failure as well."""
        if key not in self._made:
            try:
                self._made[key] = make()
            except _LASTING as error:
                self._made[key] = _Failed(error)
        made = self._made[key]
        if isinstance(made, _Failed):
            raise made.error
        return made  # type: ignore[return-value]

    @functools.cached_property
    def origin(self) -> tuple[str, str]:
        """This run's own name, shared by all its workers, and when it began."""
        from pytest_sme2.measured import new_session

        name, begun = new_session()
        return self._identity or name, begun

    # --- what to run ---------------------------------------------------------------------------

    @functools.cached_property
    def registry(self) -> Registry:
        return discover(self.settings.model_folders)

    def cases(
        self,
        models: Iterable[str] | None = None,
        variants: Iterable[str] | None = None,
    ) -> list[Case]:
        """The selected models times their selected variants times the thread counts.

        ``models`` and ``variants`` narrow the selection further, as a test's marker does. A name
        that no model has is a usage error; a broken model folder is a case of its own.
        """
        wanted = None if variants is None else {parse_variant(word) for word in variants}
        sweep = len(self.settings.threads) > 1
        cases = []
        for name in self._chosen(models):
            entry = self.registry.get(name)
            for variant in self._variants(entry):
                if wanted is not None and not wanted & {variant, Variant(variant.precision)}:
                    continue
                cases += [
                    Case(name, variant, threads, entry, sweep=sweep)
                    for threads in self.settings.threads
                ]
        if not self.settings.models and models is None:
            cases += [
                Case(problem.name, None, problem=f"{problem}\n{problem.traceback}".rstrip())
                for problem in self.registry.problems
            ]
        return cases

    def variant(self, entry: ModelEntry, asked: Variant) -> Variant:
        """The one variant that ``asked`` means on the device; as it stands where there is none."""
        return (*entry.resolve(asked, emulated=self.emulated), asked)[0]

    def _variants(self, entry: ModelEntry) -> Iterable[Variant]:
        if not self.settings.variants:
            return entry.defaults(emulated=self.emulated)
        found = (entry.resolve(asked, emulated=self.emulated) for asked in self.settings.variants)
        return dict.fromkeys(itertools.chain.from_iterable(found))

    @functools.cached_property
    def emulated(self) -> bool:
        """Whether the device is an emulator. Asked while tests are collected, so it is cheap."""
        if self.settings.device != "auto":
            return self.settings.device == "emulated" or self.settings.fake_phone
        from pytest_sme2.targets import EmulatedTarget, choose_target

        try:
            return isinstance(choose_target(self.settings), EmulatedTarget)
        except Sme2Error:
            # What is wrong with the device is for the first test that needs it to say.
            return True

    def _chosen(self, models: Iterable[str] | None) -> list[str]:
        selected = list(self.settings.models or self.registry.names)
        if models is None:
            return selected
        named = [self.registry.get(name).name for name in models]
        return [name for name in named if not self.settings.models or name in selected]

    # --- where it runs -------------------------------------------------------------------------

    @functools.cached_property
    def device(self) -> HeldDevice:
        """Who holds the target, and exchanges it where it must be."""
        from pytest_sme2.held_device import HeldDevice

        return HeldDevice(self.settings, lambda: self.origin[0], self.say)

    @property
    def chosen(self) -> Target:
        """The target as it was chosen; nothing is changed on it yet."""
        return self.device.chosen

    @property
    def target(self) -> Target:
        """The target, ready to run."""
        return self.device.prepared

    def ask_for(self, soc: str | None) -> None:
        """From now on the target is one whose chip's name holds ``soc``; None: any."""
        if self.device.ask_for(soc):
            self._forget_measured()

    def steadily(self, measure: Callable[[], _Value]) -> _Value:
        """``measure()``, again from its start on another phone of its kind where one died.

        So everything that is held against each other was measured on one device.
        """
        if self._steady:
            return measure()
        self._steady = True
        try:
            while True:
                try:
                    return measure()
                except DeviceGoneError as error:
                    self._forget_measured()
                    self.device.replace(error)
        finally:
            self._steady = False

    def _forget_measured(self) -> None:
        self._made = {key: made for key, made in self._made.items() if key[0] == "artifact"}
        self.__dict__.pop("baseline_bundle", None)

    @functools.cached_property
    def runner(self) -> Runner:
        from pytest_sme2.runners import wheel_runner

        if self.settings.runner_on is not None and self.settings.runner_off is not None:
            from pytest_sme2.stock_runner import pair_runner

            return pair_runner(self.settings.runner_on, self.settings.runner_off)
        if self.settings.device == "android" and self.settings.device_bundle is not None:
            from pytest_sme2.device_bundle import read_bundle

            return read_bundle(self.settings.device_bundle)
        return wheel_runner(self.target.platform, progress=self.say)

    @functools.cached_property
    def reference(self) -> OpenReference:
        """What ``--against`` names, ready to be run."""
        from pytest_sme2.against import open_reference

        if self.settings.against is None:
            raise UnvouchedError("nothing to measure against: give --against REF")
        return open_reference(self.settings.against, self.target.platform, progress=self.say)

    @functools.cached_property
    def baseline_bundle(self) -> OpenReference | None:
        """The bundle that was stored beside the baselines of this target, where there is one."""
        from pytest_sme2.against import bundle_beside, open_reference, parse_against

        path = bundle_beside(self.baseline_folder, self.target.fingerprint())
        if path is None:
            return None
        return open_reference(parse_against(str(path)), self.target.platform, progress=self.say)

    def baseline_reference(self, case: Case) -> OpenReference | None:
        """What was measured for the case's baseline, where it is at hand: in the bundle that was
        stored beside it, else in the cache.
        """
        if self.baseline_bundle is not None:
            return self.baseline_bundle
        from pytest_sme2.against import kept_reference

        baseline = self.baseline(case)
        return None if baseline is None else kept_reference(baseline, case.threads, self.runner)

    @functools.cached_property
    def out(self) -> Path:
        """The run directory."""
        return (self.settings.out or Path("sme2-out")).resolve()

    @functools.cached_property
    def occupation(self) -> Occupation:
        """The run directory is this run's; an error where another run is at it."""
        from pytest_sme2.occupation import Occupation

        return Occupation(self.out, self.origin[0])

    def folder(self, case: Case) -> Path:
        """The case's part of the run directory, which is this run's from now on."""
        _ = self.occupation
        asked = self.device.soc
        name = self.target.name if asked is None else f"{self.target.name}-{safe_name(asked)}"
        return self.out / safe_name(case.id) / "runs" / name

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Both arms, or the off arm alone where the target has no SME2."""
        return (Arm.ON, Arm.OFF) if self.target.capabilities().sme2 else (Arm.OFF,)

    def header(self) -> list[str]:
        """What is in effect, for the top of a run."""
        if self.settings.device == "android":
            return [f"sme2: device android ({self._phone_words()})"]
        try:
            target = self.chosen
            able = target.capabilities()
        except Sme2Error as error:
            return [f"sme2: --device={self.settings.device} cannot be used: {error}"]
        vouches = [
            "SME2" if able.sme2 else "no SME2",
            "timing" if able.timing else "structure only, no timing",
        ]
        try:
            version = f"ExecuTorch {importlib.metadata.version('executorch')}"
        except importlib.metadata.PackageNotFoundError:
            version = "ExecuTorch not installed"
        chosen = "auto: " if self.settings.device == "auto" else ""
        return [f"sme2: device {chosen}{target.name} ({', '.join(vouches)}), {version}"]

    def _phone_words(self) -> str:
        """Which phones, without reaching for one: a worker leases it when it measures."""
        if self.settings.fake_phone:
            return "a fake phone in a sandbox on this machine, emulated: no timing"
        serials = ", ".join(self.settings.serials) or "the attached one"
        return f"{serials}; power mode {self.settings.power_mode}"

    # --- the stages ----------------------------------------------------------------------------

    def artifact(self, case: Case) -> Artifact:
        if case.problem is not None or case.entry is None or case.variant is None:
            raise ModelError(case.problem or f"{case.model} is not a model")
        entry, variant = case.entry, case.variant

        def make() -> Artifact:
            from pytest_sme2.export import export_model

            return export_model(entry, variant, weights=self.settings.weights, progress=self.say)

        return self._once(make, "artifact", case.model, variant)

    def request(self, case: Case, arm: Arm, **choices: int | bool) -> RunRequest:
        request = RunRequest(artifact=self.artifact(case), arm=arm, threads=case.threads)
        if not self.target.capabilities().timing:
            request = replace(request, timeout_seconds=EMULATED_SECONDS)
        return replace(request, **choices)  # type: ignore[arg-type]

    def redo(self, measure: Callable[[], _Value]) -> _Value:
        """``measure()``, again from the start where the connection to the device was lost."""
        from pytest_sme2.targets.retry import Recoverable, redo_when_lost

        if not isinstance(self.target, Recoverable):
            return measure()
        patience = self.settings.patience_seconds
        return redo_when_lost(self.target, measure, patience_seconds=patience, progress=self.say)

    @_on_one_device
    def run(self, request: RunRequest, folder: Path) -> Run:
        """One process of the runner on the target."""
        return self.redo(lambda: self.target.run(self.runner, request, folder))

    @_on_one_device
    def traced(self, case: Case, arm: Arm) -> Run:
        """One process with the event tracer on; its outputs are kept."""
        return self._traced(case, arm)[0]

    @_on_one_device
    def census(self, case: Case, arm: Arm) -> KernelCensus | None:
        """The kernels that ran, where the target can tell."""
        return self._traced(case, arm)[1]

    def _traced(self, case: Case, arm: Arm) -> tuple[Run, KernelCensus | None, bool]:
        """The traced run, and whether it was made before; an emulator tells of the kernels in the
        same go, since it is slow.
        """

        def make() -> tuple[Run, KernelCensus | None, bool]:
            from pytest_sme2.rundir import experiment_folder
            from pytest_sme2.shapes import keep_shapes
            from pytest_sme2.targets import EmulatedTarget
            from pytest_sme2.targets.remembered import remembered_run

            amount = DEVICE_TRACE if self.target.capabilities().timing else EMULATED_TRACE
            request = self.request(case, arm, traced=True, keep_outputs=True, **amount)
            self.say(f"{case.id}: traced run with SME2 {arm} on {self.target.name}")
            folder = experiment_folder(self.folder(case), self.target.name, arm)
            if isinstance(self.target, EmulatedTarget):
                run, census, before = remembered_run(
                    self.target, self.runner, request, folder, fresh=self.settings.fresh
                )
            else:
                run, census, before = self.run(request, folder), None, False
            if run.etdump is not None:
                keep_shapes(run.etdump, request.artifact.pte, self.say)
            return run, census, before

        return self._once(make, "traced", case, arm)

    @_on_one_device
    def profile(self, case: Case, arm: Arm) -> Profile:
        def make() -> Profile:
            from pytest_sme2.etdump import read_etdump
            from pytest_sme2.profile import build_profile
            from pytest_sme2.shapes import kept_shapes

            run = self.traced(case, arm)
            if run.etdump is None:
                raise TargetError(f"{case.id}: the traced run left no ETDump. See {run.log}.")
            return build_profile(
                read_etdump(run.etdump),
                rules=self.settings.rules,
                census=self.census(case, arm),
                shapes=kept_shapes(run.etdump),
            )

        return self._once(make, "profile", case, arm)

    @_on_one_device
    def evidence(self, case: Case) -> Evidence | None:
        """Whether the pair shows SME2 on and off; None where only the off arm can run."""
        if Arm.ON not in self.arms:
            return None
        from pytest_sme2.evidence import check_pair

        return check_pair(on=self.profile(case, Arm.ON), off=self.profile(case, Arm.OFF))

    @_on_one_device
    def comparison(self, case: Case) -> Comparison:
        """Off against on."""
        self.require_sme2()
        from pytest_sme2.compare import compare

        return compare(self.profile(case, Arm.OFF), self.profile(case, Arm.ON))

    @_on_one_device
    def pair(self, case: Case) -> Pair:
        """One on/off pair: a traced and an untraced process of each arm, and the evidence."""

        def make() -> Pair:
            untraced: dict[Arm, tuple[Run, ...]] = dict.fromkeys(Arm, ())
            amount = DEVICE_TRACE if self.target.capabilities().timing else EMULATED_TRACE
            for arm in self.arms:
                folder = self.folder(case) / f"untraced_sme2_{arm}"
                request = self.request(case, arm, keep_outputs=True, **amount)
                untraced[arm] = (self.run(request, folder),)
            return Pair(
                artifact=self.artifact(case),
                target=self.target.name,
                on=untraced[Arm.ON],
                off=untraced[Arm.OFF],
                traced_on=self.traced(case, Arm.ON) if Arm.ON in self.arms else None,
                traced_off=self.traced(case, Arm.OFF),
                evidence=self.evidence(case),
            )

        return self._once(make, "pair", case)

    @_on_one_device
    def timing(self, case: Case) -> Timing:
        """Untraced processes in pairs, alone on the machine; only where times mean something."""
        self.require_timing()

        def make() -> Timing:
            from pytest_sme2.timing import measure_case

            # Exporting and building come first: they must not eat the time budget.
            for arm in self.arms:
                self.traced(case, arm)
            self.cool_down()
            with self.alone():
                return measure_case(self, case)

        return self._once(make, "timing", case)

    @_on_one_device
    def measured(self, case: Case, *, timed: bool) -> Measured:
        """Everything about the case; without ``timed`` its structure and outputs alone.

        What was timed already is included in any case.
        """
        if timed:
            self.timing(case)
        timing = self._made.get(("timing", case))

        def make() -> Measured:
            from pytest_sme2.measured import assemble
            from pytest_sme2.timing import Timing

            processes = timing.processes if isinstance(timing, Timing) else {}
            pair = Pair(
                artifact=self.artifact(case),
                target=self.target.name,
                on=tuple(processes.get(Arm.ON, ())),
                off=tuple(processes.get(Arm.OFF, ())),
                traced_on=self.traced(case, Arm.ON) if Arm.ON in self.arms else None,
                traced_off=self.traced(case, Arm.OFF),
                evidence=self.evidence(case),
                census_on=self.census(case, Arm.ON) if Arm.ON in self.arms else None,
                census_off=self.census(case, Arm.OFF),
            )
            return assemble(
                pair,
                self.target.fingerprint(),
                session=self.origin[0],
                recorded=self.origin[1],
                runtime=self.runner.executorch,
                profiles={arm: self.profile(case, arm) for arm in self.arms},
                measurement=self.measurement(case),
                yardstick_ns=timing.yardstick_ns if isinstance(timing, Timing) else None,
                runtime_sha256=self.runner.sha256,
            )

        return self._once(make, "measured", case, timing is not None)

    def measurement(self, case: Case) -> Measurement | None:
        """The pairs behind the timing, where the case was timed in pairs."""
        from pytest_sme2.timing import Timing

        timing = self._made.get(("timing", case))
        return timing.measurement if isinstance(timing, Timing) else None

    # --- what it is held against ---------------------------------------------------------------

    @property
    def baseline_folder(self) -> Path:
        return (self.settings.baseline_dir or Path("baselines")).resolve()

    def baseline(self, case: Case) -> Baseline | None:
        """The stored baseline; with ``--update-baselines`` nothing is held against the old one."""
        if self.settings.update_baselines:
            return None

        def make() -> Baseline | None:
            from pytest_sme2 import baselines

            # The emulator's operators are those of any Arm CPU, and of no other.
            arm_cpu = self.target.platform != LINUX_X86_64
            load = baselines.load_structure if arm_cpu else baselines.load
            return load(
                self.baseline_folder, case.model, str(case.variant), self.target.fingerprint()
            )

        return self._once(make, "baseline", case.model, case.variant)

    def limits(self, case: Case) -> Limits:
        from pytest_sme2 import limits

        files = [self.baseline_folder / "limits.toml"]
        if case.entry is not None and case.entry.folder is not None:
            files.append(case.entry.folder / "limits.toml")
        return limits.resolve(str(case.variant), files=files, command_line=self.settings.limits)

    # --- what it can vouch for -----------------------------------------------------------------

    def require_timing(self) -> None:
        able = self.target.capabilities()
        if not able.timing:
            raise UnvouchedError(f"{self.target.name} cannot vouch for timing: {able.reason}")

    def require_sme2(self) -> None:
        able = self.target.capabilities()
        if not able.sme2:
            raise UnvouchedError(f"{self.target.name} has no SME2: {able.reason}")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Measurements on one machine never overlap, whoever started them; a phone is leased."""
        if self.settings.device == "android":
            yield
            return
        from filelock import FileLock

        lock = FileLock(cache_folder() / "locks" / "measuring.lock")
        try:
            Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            raise StorageError(
                f"{lock.lock_file} cannot be written: {error.strerror or error}. "
                "Make room there, or name another folder in SME2_CACHE_DIR."
            ) from error
        try:
            yield
        finally:
            lock.release()

    def cool_down(self) -> None:
        """Before a block of timed processes: wait for a device that gets hot."""
        from pytest_sme2.targets.base import Observed

        if isinstance(self.target, Observed):
            self.redo(self.target.cool_down)

    def state(self, case: Case) -> Mapping[str, str]:
        """What else of the device's state a reader of the case may want to know."""
        from pytest_sme2.targets.base import Observed

        def make() -> Mapping[str, str]:
            return self.target.state() if isinstance(self.target, Observed) else {}

        return self._once(make, "state", case)

    # --- what is left behind -------------------------------------------------------------------

    def keep(self, case: Case, measured: Measured, checks: Iterable[Check]) -> Path:
        """Write the case's part of the run directory; returns its folder."""
        from pytest_sme2.rundir import SCHEMA, CaseRecord, write_record

        folder = self.folder(case)
        dumps = {arm: self.traced(case, arm).etdump for arm in self.arms}
        write_record(
            folder,
            CaseRecord(
                schema=SCHEMA,
                id=case.id,
                measured=measured,
                measurement=self.measurement(case),
                checks=tuple(checks),
                state=self.state(case),
                remembered=tuple(arm for arm in self.arms if self._traced(case, arm)[2]),
                etdumps={arm: str(dump.relative_to(folder)) for arm, dump in dumps.items() if dump},
            ),
        )
        return folder

    def show_progress(self, case: Case, progress: Progress) -> None:
        interval = ""
        if progress.interval is not None:
            low, high = progress.interval
            interval = f" [{low:.3f}, {high:.3f}]"
        self.say(
            f"{case.id}: pair {progress.pairs} of at most {progress.most_pairs}, "
            f"ratio {progress.ratio:.3f}{interval}, {progress.seconds_left:.0f} s left"
        )

    def close(self) -> None:
        """Leave the device as it was found."""
        if "occupation" in self.__dict__:
            self.occupation.leave()
        if "device" in self.__dict__:
            self.device.close()
