"""One run's state: what was chosen, and each stage's result for each case, made on demand.

Which lines of a model's sources changed since its baseline was committed.

Only for what measures, in the user's own working tree. Git is asked for a commit and for the
contents of files, by commands that run no program that a repository names: no diff, no status, no
filter, no signature, no fetch. What cannot be known is left out, and nothing gets worse.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TypeVar, cast

from pytest_sme2.errors import (
    LASTING,
    DeviceGoneError,
    ModelError,
    NotMeasurableError,
    RunError,
    Sme2Error,
)
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import ModelEntry, Registry, discover
from pytest_sme2.export.variant import Variant
from pytest_sme2.results.case import Baseline, CaseResult, Check, Limits
from pytest_sme2.results.evidence import Evidence, InferenceCost, Pair
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import Arm, Artifact, ChangedLines, Fingerprint, Run, RunRequest
from pytest_sme2.results.timing import Frontier, Outcome, PairedTiming, Sustained
from pytest_sme2.session.case_result import (
    Timing,
    assemble,
    generate,
    measure_case,
    measure_frontier,
    new_session,
)
from pytest_sme2.session.case_trace import (
    cost_of,
    evidence_of,
    profile_of,
    trace_case,
    why_not_counted,
)
from pytest_sme2.session.cases import Case, chosen_programs, select_cases
from pytest_sme2.session.device import HeldDevice, is_emulated, measure_sustained
from pytest_sme2.session.reference import OpenReference, kept_reference, open_reference
from pytest_sme2.session.run_directory import (
    SCHEMA,
    CaseRecord,
    hold_run_directory,
    run_command,
    write_record,
)
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.cache import apply_limit
from pytest_sme2.system.files import safe_name
from pytest_sme2.system.platforms import LINUX_X86_64
from pytest_sme2.system.processes import git
from pytest_sme2.system.terminal import Say
from pytest_sme2.targets.emulated import Traced
from pytest_sme2.timing.processes import FEWEST_RUNS
from pytest_sme2.verdict import baselines, limits
from pytest_sme2.verdict.baselines import baseline_path
from pytest_sme2.verdict.times import FEWEST_INFERENCES

_SECONDS = 10.0
_SAFE = ("--no-replace-objects", "-c", "core.fsmonitor=false")
# In a clone without all contents, those that are missing are not asked for.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
_MOST_BYTES = 2 << 20


def changed_since(root: Path, measured: CaseResult, model: Path | None) -> tuple[ChangedLines, ...]:
    """Those of a case's sources, ``model`` first, that differ from the commit of its baseline."""
    known = (measured.fingerprint, Fingerprint("emulated", ()))
    paths = (baseline_path(root, measured.model, measured.variant, each) for each in known)
    path = next((path for path in paths if path.is_file()), None)
    sources = [] if model is None else [model]
    for profile in measured.profiles.values():
        origins = [member.origin for member in profile.operators if member.origin]
        ways = [frame for origin in origins for frame in origin.way]
        sources += [Path(frame.file) for frame in ways if not frame.installed]
    return () if path is None else changed_lines(path, sources)


def changed_lines(baseline: Path, sources: Iterable[Path]) -> tuple[ChangedLines, ...]:
    """Of each source that differs from what it was when the baseline was committed."""
    try:
        folder = baseline.resolve(strict=True).parent
        root = Path(_git(folder, "rev-parse", "--show-toplevel").rstrip("\n")).resolve()
        commit = _git(root, "rev-list", "-1", "HEAD", "--", _name(root, baseline)).strip()
        # One that was updated since may be of any state of the sources.
        if not re.fullmatch("[0-9a-f]{40,64}", commit) or _committed(
            root, commit, baseline
        ) != _lines(baseline):
            return ()
    except (RunError, OSError, ValueError):
        return ()
    found = []
    for source in dict.fromkeys(each.resolve() for each in sources):
        try:
            old, new = _committed(root, commit, source), _lines(source)
        except (OSError, ValueError):
            continue
        codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        edits = [(range(a + 1, b + 1), range(c + 1, d + 1)) for tag, a, b, c, d in codes
                 if tag != "equal"]  # fmt: skip
        if edits:
            found.append(ChangedLines(source, tuple(edits)))
    return tuple(found)


def _git(folder: Path, *words: str) -> str:
    return git(folder, *_SAFE, *words, seconds=_SECONDS, variables=_NO_FETCH)


def _name(root: Path, file: Path) -> str:
    """As git calls it; ValueError for a file that is elsewhere."""
    return file.resolve().relative_to(root).as_posix()


def _committed(root: Path, commit: str, file: Path) -> list[str]:
    """The lines that it had; none where it was not there."""
    name = _name(root, file)
    try:
        return _git(root, "cat-file", "blob", f"{commit}:{name}").splitlines()
    except RunError:
        return []


def _lines(file: Path) -> list[str]:
    if file.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{file} is no source")
    return file.read_text("utf-8", errors="replace").splitlines()


_Value = TypeVar("_Value")
_Method = TypeVar("_Method", bound=Callable[..., Any])

# An emulated run is exact at the first try, and slow; a real one needs several runs.
EMULATED_TRACE = {"warmup": 0, "runs": 1}
DEVICE_TRACE = {"warmup": 3, "runs": 10}


def _stage(method: _Method) -> _Method:
    """Made once for each case, and on one device."""

    @functools.wraps(method)
    def stage(self: Session, *key: object) -> Any:
        def once() -> object:
            return self._once(lambda: method(self, *key), method.__name__, *key)

        return self.on_one_device(once)

    return cast(_Method, stage)


class Session:
    """Holds what one run shares between its tests."""

    def __init__(
        self,
        settings: Settings,
        say: Say = lambda line: None,
        identity: str | None = None,
        *,
        worker: bool = False,
    ) -> None:
        """``worker``: another process of this run holds the run directory."""
        self.settings = settings
        self.say = say
        self._identity = identity
        self.bench = HeldDevice(settings, say)
        self._made: dict[tuple[object, ...], object] = {}
        self._held = contextlib.ExitStack() if worker else None
        self.refused: Sme2Error | None = None
        """Why this run cannot have its run directory."""

    def _once(self, make: Callable[[], _Value], *key: object) -> _Value:
        """``make()``, the first time it is asked for under this key; its failure as well."""
        if key not in self._made:
            try:
                self._made[key] = make()
            except LASTING as error:
                self._made[key] = error
                raise
        made = self._made[key]
        if isinstance(made, LASTING):
            raise made
        return made  # type: ignore[return-value]

    @functools.cached_property
    def origin(self) -> tuple[str, str]:
        """This run's own name, shared by all its workers, and when it began."""
        name, begun = new_session()
        return self._identity or name, begun

    @functools.cached_property
    def registry(self) -> Registry:
        return discover(self.settings.model_folders)

    @functools.cached_property
    def programs(self) -> list[Case]:
        return chosen_programs(self.settings)

    def cases(
        self,
        models: Iterable[str] | None = None,
        variants: Iterable[str] | None = None,
        *,
        everything: bool = False,
    ) -> list[Case]:
        """The selected cases, or those of a run that selects none; ``models`` and ``variants``
        narrow them, as a test's marker does.
        """
        settings, programs = self.settings, self.programs
        if everything:
            settings = replace(settings, models=(), variants=())
            programs = chosen_programs(settings)
        return select_cases(
            self.registry,
            programs,
            settings,
            emulated=self.emulated,
            models=models,
            variants=variants,
        )

    def variant(self, entry: ModelEntry, asked: Variant) -> Variant:
        """The one variant that ``asked`` means on the device; as it stands where there is none."""
        return (*entry.resolve(asked, emulated=self.emulated), asked)[0]

    @functools.cached_property
    def emulated(self) -> bool:
        """Whether the device is an emulator. Asked while tests are collected, so it is cheap."""
        return is_emulated(self.settings)

    def on_one_device(self, measure: Callable[[], _Value]) -> _Value:
        """``measure()``; only measurements of one device are compared, so those of one that died
        are forgotten.
        """
        try:
            return measure()
        except DeviceGoneError:
            self._made = {key: made for key, made in self._made.items() if key[0] == "artifact"}
            self.bench.give_up()
            raise

    @functools.cached_property
    def reference(self) -> OpenReference:
        """What ``--against`` names, ready to be run."""
        if self.settings.against is None:
            raise NotMeasurableError("nothing to measure against: give --against REF")
        return open_reference(self.settings.against, self.bench.target.platform, progress=self.say)

    def baseline_reference(self, case: Case) -> OpenReference | None:
        """What the case's baseline was measured on, where the cache still has it."""
        baseline = self.baseline(case)
        if baseline is None:
            return None
        return kept_reference(baseline, case.threads, self.bench.runner)

    @functools.cached_property
    def out(self) -> Path:
        """The run directory."""
        return self.settings.run_directory

    def take_folder(self) -> None:
        """Make the run directory this run's; an error where another run uses it."""
        if self._held is None and self.refused is None:
            try:
                self._held = hold_run_directory(self.out)
            except Sme2Error as error:
                self.refused = error
        if self.refused is not None:
            raise self.refused

    @functools.cached_property
    def _begun(self) -> None:
        """What is wrong with the runner or the run directory is told first."""
        self.bench.check_runner()
        self.take_folder()

    def folder(self, case: Case) -> Path:
        """The case's part of the run directory."""
        _ = self._begun
        return self.out / safe_name(case.id) / "runs" / self.bench.target.name

    def arms(self, case: Case) -> tuple[Arm, ...]:
        """Those that the case is run with."""
        return self.bench.arms

    def runtime(self, case: Case) -> tuple[str, str]:
        """The version of ExecuTorch that runs the case, and the hash of the runner."""
        return self.bench.runner.executorch, self.bench.runner.sha256

    def artifact(self, case: Case) -> Artifact:
        if case.program is not None:
            return case.program
        if case.problem is not None or case.entry is None or case.variant is None:
            raise ModelError(case.problem or f"{case.model} is not a model")
        entry, variant = case.entry, case.variant
        _ = self._begun  # an export may take long
        return self._once(
            lambda: export_model(
                entry,
                variant,
                weights=self.settings.weights,
                progress=self.say,
                fresh=self.settings.fresh,
            ),
            "artifact",
            case.model,
            variant,
        )

    @property
    def _amount(self) -> Mapping[str, int]:
        return DEVICE_TRACE if self.bench.timed else EMULATED_TRACE

    def request(self, case: Case, arm: Arm, **choices: int | bool) -> RunRequest:
        return self.bench.request(self.artifact(case), arm, case.threads, **choices)

    @_stage
    def trace(self, case: Case, arm: Arm) -> Traced:
        """One process with the event tracer on; its outputs are kept."""
        choices = {"traced": True, "keep_outputs": True, "counted": not self.uncounted(case)}
        request = self.request(case, arm, **choices, **self._amount)
        self.say(f"{case.id}: traced run on {self.bench.target.name}, SME2 {arm}")
        folder = self.folder(case) / f"{self.bench.target.name}_sme2_{arm}"
        return trace_case(self.bench, request, folder)

    def traced(self, case: Case, arm: Arm) -> Run:
        return self.trace(case, arm).run

    @_stage
    def profile(self, case: Case, arm: Arm) -> Profile:
        return profile_of(case.id, self.trace(case, arm), self.bench)

    def uncounted(self, case: Case) -> str:
        """Why the case's cost cannot be counted; empty where it can."""
        return why_not_counted(self.bench, case.threads)

    @_stage
    def cost(self, case: Case, arm: Arm) -> InferenceCost | str:
        """What one inference executed; a reason where that is not known."""
        return cost_of(self.bench, self.trace(case, arm), self.profile(case, arm))

    @_stage
    def evidence(self, case: Case) -> Evidence | None:
        """Whether the pair shows SME2 on and off; None where only one arm is run."""
        if not {Arm.ON, Arm.OFF} <= set(arms := self.arms(case)):
            return None
        seen = {a: (self.trace(case, a), self.profile(case, a), self.cost(case, a)) for a in arms}
        return evidence_of(self.bench, seen)

    @_stage
    def pair(self, case: Case) -> Pair:
        """One on/off pair: a traced and an untraced process of each arm, and the evidence."""
        untraced: dict[Arm, tuple[Run, ...]] = {}
        for arm in self.bench.arms:
            folder = self.folder(case) / f"untraced_sme2_{arm}"
            request = self.request(case, arm, keep_outputs=True, **self._amount)
            untraced[arm] = (self.bench.run(request, folder),)
        return self._pair(case, untraced)

    def _pair(self, case: Case, untraced: Mapping[Arm, Sequence[Run]]) -> Pair:
        arms = self.arms(case)
        return Pair(
            artifact=self.artifact(case),
            target=self.bench.target.name,
            on=tuple(untraced.get(Arm.ON, ())),
            off=tuple(untraced.get(Arm.OFF, ())),
            evidence=self.evidence(case),
            traced={arm: self.traced(case, arm) for arm in arms},
            censuses={arm: self.trace(case, arm).census for arm in arms},
        )

    @_stage
    def timing(self, case: Case) -> Timing:
        """Untraced processes in pairs, alone on the machine; only where times mean something."""
        self.bench.require_timing()
        # Exporting and building come first: they must not eat the time budget.
        for arm in self.bench.arms:
            self.traced(case, arm)
        requests = {arm: self.request(case, arm) for arm in self.bench.arms}
        fewest = FEWEST_INFERENCES if self.limits(case).max_p95 else FEWEST_RUNS
        self.bench.cool_down()
        with self.bench.exclusively():
            return measure_case(self.bench, case.id, self.folder(case), requests, fewest)

    @_stage
    def sustained(self, case: Case) -> Sustained | None:
        """The arm that speaks under a sustained load; None where none was asked for."""
        if self.settings.sustain_seconds is None:
            return None
        request, folder = self.request(case, self.bench.arms[0]), self.folder(case) / "sustained"
        return measure_sustained(self.bench, case.id, request, folder)

    @_stage
    def frontier(self, case: Case) -> Frontier:
        """The case with all numbers of threads of the run, and the best of each arm."""
        counts = self.settings.threads
        return measure_frontier(self.bench, case, counts, self.artifact, self.folder)

    def measured(self, case: Case, *, timed: bool) -> CaseResult:
        """Everything about the case; without ``timed`` its structure and outputs, and its times
        only if they are known already.
        """
        return self.on_one_device(lambda: self._measured(case, timed))

    def _measured(self, case: Case, timed: bool) -> CaseResult:
        if timed:
            self.timing(case)
            self.sustained(case)
        known = functools.partial(self._known, case)
        timing, frontier, sustained = map(known, ("timing", "frontier", "sustained"))

        def make() -> CaseResult:
            self.artifact(case)  # a broken model needs no device to say so
            arms, (runtime, runtime_sha256) = self.arms(case), self.runtime(case)
            requests = {arm: self.request(case, arm) for arm in arms}
            return assemble(
                self._pair(case, timing.processes if timing else {}),
                self.bench.target.fingerprint(),
                session=self.origin[0],
                recorded=self.origin[1],
                runtime=runtime,
                profiles={arm: self.profile(case, arm) for arm in arms},
                timing=timing,
                runtime_sha256=runtime_sha256,
                costs={arm: self.cost(case, arm) for arm in arms},
                frontier=frontier,
                sustained=sustained,
                generation=generate(self.bench, case.id, requests, self.folder(case), timing),
            )

        return self._once(make, "measured", case, *map(bool, (timing, frontier, sustained)))

    def _known(self, case: Case, stage: str) -> Any:
        """What the stage made, if it ran and did not fail."""
        made = self._made.get((stage, case))
        return None if isinstance(made, LASTING) else made

    def measurement(self, case: Case) -> PairedTiming | None:
        """The pairs behind the timing, where the case was timed in pairs."""
        timing: Timing | None = self._known(case, "timing")
        return None if timing is None else timing.measurement

    def changed_lines(self, case: Case) -> tuple[ChangedLines, ...]:
        """Those of the model that differ from the commit of its baseline."""
        root, model = self.settings.baseline_folder, case.entry.file if case.entry else None
        found = self.measured(case, timed=False)
        return self._once(lambda: changed_since(root, found, model), "changed lines", case.id)

    def baseline(self, case: Case) -> Baseline | None:
        """The stored baseline; with ``--update-baselines`` nothing is compared with the old one."""
        if self.settings.update_baselines:
            return None

        def make() -> Baseline | None:
            # The emulator's operators are those of any Arm CPU, and of no other.
            other = self.bench.target.platform == LINUX_X86_64
            load = baselines.load if other else baselines.load_structure
            fingerprint = self.bench.target.fingerprint()
            root = self.settings.baseline_folder
            found = load(root, case.model, case.variant_name, fingerprint)
            return found.on_chip(fingerprint) if found else None

        return self._once(make, "baseline", case.model, case.variant_name)

    def limits(self, case: Case) -> Limits:
        files = [self.settings.baseline_folder / "limits.toml"]
        if case.entry is not None and case.entry.folder is not None:
            files.append(case.entry.folder / "limits.toml")
        return limits.resolve(case.variant_name, files=files, command_line=self.settings.limits)

    @_stage
    def state(self, case: Case) -> Mapping[str, str]:
        """What else of the device's state a reader of the case may want to know."""
        return self.bench.target.state()

    def keep(
        self,
        case: Case,
        measured: CaseResult,
        checks: Iterable[Check],
        limits: Limits | None = None,
    ) -> Path:
        """Write the case's part of the run directory; returns its folder."""
        folder, arms = self.folder(case), self.arms(case)
        dumps = {arm: self.traced(case, arm).etdump for arm in arms}
        write_record(
            folder,
            CaseRecord(
                schema=SCHEMA,
                id=case.id,
                measured=measured,
                measurement=self.measurement(case),
                checks=tuple(checks),
                state=self.state(case),
                remembered=tuple(arm for arm in arms if self.trace(case, arm).remembered),
                reproduce=run_command(case, self.settings, self.bench.target.name),
                etdumps={arm: str(dump.relative_to(folder)) for arm, dump in dumps.items() if dump},
                limits=limits,
            ),
        )
        return folder

    def keep_measured(self, case: Case) -> Path:
        """The same, if anything new was measured. The checks of all tests come at the end."""
        measured, limits = self.measured(case, timed=False), self.limits(case)
        return self._once(lambda: self.keep(case, measured, (), limits), "kept", case, id(measured))

    def keep_failed(self, case: Case, error: Sme2Error) -> tuple[Path, Check]:
        """Write a case that could not be exported, so that it stands in every report; its folder,
        and its only check, which failed.
        """
        target, (name, begun) = self.bench.target, self.origin
        check = Check("export", Outcome.FAILED, str(error).splitlines()[0])
        measured = CaseResult(
            model=case.model,
            variant=case.variant_name,
            fingerprint=target.fingerprint(),
            emulated=self.emulated,
            runner="",
            session=name,
            recorded=begun,
            threads=case.threads,
            weights="",
        )
        folder = self.folder(case)
        command = run_command(case, self.settings, target.name)
        write_record(
            folder, CaseRecord(SCHEMA, case.id, measured, None, (check,), {}, reproduce=command)
        )
        return folder, check

    def close(self) -> None:
        """Leave the device as it was found, and the run directory to others."""
        if self._held is not None:
            self._held.close()
        self.bench.close()
        if self._made:
            apply_limit()
