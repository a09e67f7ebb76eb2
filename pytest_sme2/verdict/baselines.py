"""What was accepted as good, one JSON file per model, variant and target: load, update, write.

Whether something new is worse is decided by the checks.
"""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_sme2.errors import BaselineError, BusyError
from pytest_sme2.export.variant import file_part
from pytest_sme2.profile.cost import stored_operator
from pytest_sme2.results.case import (
    RUNTIME,
    Accepted,
    Baseline,
    BaselineChange,
    BaselineFigures,
    BaselineSession,
    CaseResult,
    Sample,
    StoredGeneration,
    Structure,
)
from pytest_sme2.results.evidence import Kernel, KernelCensus, StoredOperator
from pytest_sme2.results.run import Arm, Fingerprint
from pytest_sme2.system.files import (
    is_sealed,
    json_value,
    read_text_if_there,
    remove_leftovers,
    replacing,
    safe_name,
    sealed,
    structured,
)
from pytest_sme2.system.locks import locked
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.cost import steady_costs
from pytest_sme2.verdict.generation import stored_generation
from pytest_sme2.verdict.judging import (
    PROVISIONAL_SESSIONS,
    estimate_text,
    significant,
    starts_epoch,
    steady_speedup,
    too_hot,
)
from pytest_sme2.verdict.limits import limit_facts, limits_for
from pytest_sme2.verdict.numerics import same_sample

MAX_SESSIONS = 20
"""Per thread count. Older ones are dropped, so that a file that is updated daily stays readable."""
BUSY = 0.05
"""Wall time over CPU time, less 1: above it, something else had the core so often that a latency
measured at another time cannot be compared. Interleaved pairs share such times and still can."""

LOCK_NAME, LOCK_SECONDS = ".lock", 60.0

SCHEMA = 5
"""A change of the file's meaning raises it."""
_LONGEST_LINE = 400
_CONFLICT = re.compile(r"^(<<<<<<< |=======$|>>>>>>> )", re.MULTILINE)
_REMEDY = (
    "Restore it from version control, or remove it and run with --update-baselines. "
    "It was not changed."
)


def parse(text: str, path: Path) -> Baseline:
    """The baseline that a file's text holds."""
    if _CONFLICT.search(text):
        raise BaselineError(
            f"{path}: holds the conflict markers of a merge: both branches updated this baseline. "
            f"Keep one side (git checkout --ours or --theirs -- {path}), then run with "
            "--update-baselines on the merged code."
        )
    document = json_value(
        text, f"{path}: the baseline", remedy=_REMEDY, error=BaselineError, strict=True
    )
    document = document if isinstance(document, dict) else {}
    version = document.get("schema")
    if isinstance(version, int) and version > SCHEMA:
        raise BaselineError(
            f"{path}: was written with schema {version}; this pytest-sme2 knows up to {SCHEMA}. "
            "Update pytest-sme2. The baseline was not changed."
        )
    if version in (2, 3, 4):
        raise BaselineError(
            f"{path}: was written by an older version. Remove it and run with --update-baselines."
        )
    problem = f"its schema is {version!r}, not {SCHEMA}"
    if version == SCHEMA:
        # Such a thing was never measured. Who seals it again stands in the diff.
        problem = "it is not as --update-baselines wrote it (edited or merged by hand?)"
    # Whoever no longer wants a figure compared deletes its line.
    promised = document.pop("promised", {})
    if version == SCHEMA and is_sealed(document):
        try:
            baseline: Baseline = structured({**document, "promised": promised}, Baseline)
            return baseline
        except ValueError as error:
            problem = str(error)
    raise BaselineError(f"{path}: the baseline cannot be read: {problem}. {_REMEDY}")


def render(baseline: Baseline) -> str:
    """The file's text: sorted, one fact per line, so that a diff shows what changed."""
    try:
        document = {"schema": SCHEMA, **_to_document(baseline)}
        promised = document.pop("promised", {})
        return _render({**sealed(document), "promised": promised}, "") + "\n"
    except ValueError as error:
        raise BaselineError(
            f"The baseline of {baseline.model}-{baseline.variant} cannot be written: a value is "
            f"not a number ({error}). Measure it again."
        ) from error


def _to_document(value: Any) -> Any:
    """JSON types. What is as usual is left out."""
    if isinstance(value, Mapping):
        return {str(name): _to_document(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_to_document(each) for each in value]
    # A trailing .0 only adds noise to a diff.
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if not dataclasses.is_dataclass(value):
        return value
    return {
        entry.name: _to_document(each)
        for entry in dataclasses.fields(value)
        # Another version may have other usual limits.
        if (each := getattr(value, entry.name)) != _usual(entry) or isinstance(each, float)
    }


def _usual(entry: dataclasses.Field[Any]) -> Any:
    made = entry.default_factory
    return entry.default if made is dataclasses.MISSING else made()


def _render(value: Any, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        line = json.dumps(value, sort_keys=True, allow_nan=False)
        flat = not any(isinstance(entry, (dict, list)) for entry in value.values())
        # Only facts about one thing share a line; its name stands before them.
        if flat and indent and len(line) <= _LONGEST_LINE and len({*map(type, value.values())}) > 1:
            return line
        # The schema number comes first: it says how to read the rest.
        keys = sorted(value, key=lambda key: (bool(indent) or key != "schema", key))
        entries = [f"{inner}{json.dumps(key)}: {_render(value[key], inner)}" for key in keys]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(entry, (dict, list)) for entry in value):
        entries = [inner + _render(entry, inner) for entry in value]
        return "[\n" + ",\n".join(entries) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)


def baseline_path(root: Path, model: str, variant: str, fingerprint: Fingerprint) -> Path:
    """``<target key>/<model>-<variant>.json``; a name with odd characters is escaped."""
    return root / safe_name(fingerprint.key) / file_name(model, variant)


def file_name(model: str, variant: str) -> str:
    return f"{safe_name(model)}-{file_part(variant)}.json"


def load(root: Path, model: str, variant: str, fingerprint: Fingerprint) -> Baseline | None:
    """The baseline of a model and variant on this target; None where there is none."""
    path = baseline_path(root, model, variant, fingerprint)
    baseline = read(path)
    differing = () if baseline is None else differing_facts(baseline.fingerprint, fingerprint)
    if differing:
        raise BaselineError(
            f"{path}: is the baseline of another target: {'; '.join(differing)}. "
            "Remove it and run with --update-baselines on this target."
        )
    return baseline


def load_structure(
    root: Path, model: str, variant: str, fingerprint: Fingerprint
) -> Baseline | None:
    """The target's own baseline, else the emulator's: structure is the same on any machine."""
    own = load(root, model, variant, fingerprint)
    return own or load(root, model, variant, Fingerprint("emulated", ()))


def read(path: Path) -> Baseline | None:
    """The baseline in one file, which has the name of what it is of."""
    text = read_text_if_there(path, remedy=_REMEDY, error=BaselineError)
    if text is None:
        return None
    found = parse(text, path)
    if path.name != file_name(found.model, found.variant):
        raise BaselineError(
            f"{path}: is the baseline of {found.model}-{found.variant}. Move it back to its own "
            "name, or remove it and run with --update-baselines."
        )
    return found


def differing_facts(theirs: Fingerprint, ours: Fingerprint) -> tuple[str, ...]:
    """What tells two targets apart, one phrase per fact; empty where they are the same.

    Emulated targets are all the same: nothing that depends on the machine is compared there.
    """
    if theirs.target != ours.target:
        return (f"target {theirs.target!r} there, {ours.target!r} here",)
    if ours.target == "emulated":
        return ()
    there, here = dict(theirs.facts), dict(ours.facts)
    return tuple(
        f"{name} {there.get(name)!r} there, {here.get(name)!r} here"
        for name in sorted({*there, *here})
        if there.get(name) != here.get(name)
    )


def update(
    baseline: Baseline | None,
    measured: CaseResult,
    *,
    force: bool = False,
    accepted: Accepted | None = None,
) -> tuple[Baseline, tuple[BaselineChange, ...]]:
    """The baseline that accepts what was measured, and what that changes. Pure.

    What was not measured this time (an arm, the kernels, a thread count) is kept, and so is what
    does not depend on the machine, where it differs by no more than noise.
    ``force`` accepts a session that was measured on a busy machine.
    """
    refuse_unfit(measured, force=force)
    old = baseline or Baseline(measured.model, measured.variant, measured.fingerprint, {})
    kernels = {arm: _census_of_names(census) for arm, census in measured.kernels.items()}
    new = replace(
        old,
        fingerprint=measured.fingerprint,
        structures={**old.structures, **measured.structures},
        kernels={**old.kernels, **kernels},
        costs=steady_costs(_of_same_program(old.costs, old, measured), measured),
        operators={**_of_same_program(old.operators, old, measured), **_programs(measured)},
        sessions=_with_session(old, measured),
        figures=_with_figures(old, measured),
        generation=stored_generation(old.generation, measured),
        pte_bytes=measured.pte_bytes if measured.pte_bytes is not None else old.pte_bytes,
        pte_sha256=measured.pte_sha256 or old.pte_sha256,
        versions=measured.versions or old.versions,
        weights=measured.weights,
        settings=settings_of(measured),
        samples=_steady_samples(old.samples, measured),
        **({} if accepted is None else _accepted(old, measured, accepted)),
    )
    return new, changes(baseline, new)


def _census_of_names(census: KernelCensus) -> KernelCensus:
    """The census without its counts, which depend on how blocks were translated."""
    names = {(kernel.name, kernel.family) for kernel in census.kernels}
    kernels = tuple(Kernel(name, family, 1) for name, family in sorted(names))
    return KernelCensus(census.arm, census.source, kernels)


_Part = TypeVar("_Part")


def _of_same_program(
    parts: Mapping[Arm, _Part], old: Baseline, measured: CaseResult
) -> dict[Arm, _Part]:
    """Those of arms whose operators are still the old ones."""
    same = {**old.structures, **measured.structures}
    return {arm: part for arm, part in parts.items() if same.get(arm) == old.structures.get(arm)}


def _programs(measured: CaseResult) -> dict[Arm, tuple[StoredOperator, ...]]:
    """The operators of what was not counted, without their times: these differ from run to run."""
    return {
        arm: tuple(map(stored_operator, profile.operators))
        for arm, profile in measured.profiles.items()
        if arm not in measured.costs
    }


def _accepted(old: Baseline, measured: CaseResult, accepted: Accepted) -> dict[str, Any]:
    """The fields that hold what must be compared from now on; what was promised before stays."""
    found: dict[str, Any] = {}
    if accepted.limits is not None:
        found["limits"] = limits_for(measured.variant, accepted.limits)
    if accepted.figures:
        figures = {**old.promised.get(measured.threads, {}), **accepted.figures}
        found["promised"] = {**old.promised, measured.threads: figures}
    return found


def _steady_samples(old: Mapping[str, Sample], measured: CaseResult) -> dict[str, Sample]:
    """The old ones where only the last digits differ, as they do from host to host."""
    return {
        name: old[name]
        if name in old and same_sample(name, old[name], sample, measured.variant)
        else sample
        for name, sample in measured.samples.items()
    }


def _with_figures(old: Baseline, measured: CaseResult) -> dict[int, BaselineFigures]:
    """The figures of every thread count, those of the measured one brought up to date."""
    if measured.emulated:
        return dict(old.figures)
    before = old.at(measured.threads)
    now = BaselineFigures(
        speedup=steady_speedup(before.speedup, measured.speedup),
        peak_bytes={**before.peak_bytes, **(measured.peak_bytes or {})},
    )
    return dict(old.figures) if now == before else {**old.figures, measured.threads: now}


def refuse_unfit(measured: CaseResult, *, force: bool = False) -> None:
    """An error if this must not become a baseline: what is stored is believed from then on."""
    who = f"{measured.model}-{measured.variant}"
    if measured.interference is not None and measured.interference > BUSY and not force:
        raise BaselineError(
            f"{who}: it was not stored, because the machine was busy: wall time was "
            f"{measured.interference:.0%} over CPU time, and at most {BUSY:.0%} is allowed. "
            "Measure again on an idle machine, or store it all the same with "
            "--update-baselines=all."
        )
    if measured.throttled_pairs:
        raise BaselineError(f"{who}: it was not stored. {too_hot(measured.throttled_pairs)}")
    if (evidence := measured.evidence) is not None and not evidence.valid:
        raise BaselineError(f"{who}: the pair is not valid and was not stored: {evidence.message}")
    timed = measured.medians_ns, measured.speedup, measured.shares, measured.loads_ns
    if measured.emulated and any(value is not None for value in timed):
        raise BaselineError(
            f"{who}: emulated times say nothing about hardware and are never stored. "
            "Update times on a real device."
        )
    if measured.emulated != (measured.fingerprint.target == "emulated"):
        raise BaselineError(
            f"{who}: only real devices and --device=emulated have baselines; a fake phone has none."
        )
    if measured.emulated and measured.fingerprint.sme1:
        raise BaselineError(
            f"{who}: the emulated CPU sme1 has no baselines of its own. Store the arm sme1 of the "
            "default CPU: --sme2-arms off,sme1,on."
        )
    if measured.nan_arms:
        arms = " and ".join(str(arm) for arm in measured.nan_arms)
        raise BaselineError(
            f"{who}: the output holds NaN (SME2 {arms}) and was not stored. "
            "Correct the model or its export first."
        )
    if not measured.structures:
        raise BaselineError(f"{who}: nothing was traced, so there is no structure to store.")


def _with_session(old: Baseline, measured: CaseResult) -> tuple[BaselineSession, ...]:
    medians = measured.medians_ns or {}
    if not any(medians.values()):
        return old.sessions
    yardstick, busy = measured.yardstick_ns, measured.interference or 0.0
    phases = {} if measured.generation is None else measured.generation.phases_ns
    session = BaselineSession(
        session=measured.session,
        recorded=measured.recorded,
        epoch=_epoch(old, measured),
        threads=measured.threads,
        runner=measured.runner,
        executorch=measured.versions.get(RUNTIME, ""),
        medians_ns=_rounded_times(medians),
        loads_ns=_rounded_times(measured.loads_ns or {}),
        phases_ns={phase: _rounded_times(found) for phase, found in phases.items()},
        yardstick_ns=None if yardstick is None else significant(yardstick),
        program=measured.pte_sha256,
        inputs=measured.inputs,
        runtime=measured.runtime,
        conditions=dict(measured.conditions),
        interference=round(busy, 2) if busy > BUSY else None,
    )
    # Storing the same session twice must not make it count twice.
    kept = [
        entry
        for entry in old.sessions
        if (entry.session, entry.threads) != (session.session, session.threads)
    ]
    dropped = [entry for entry in kept if entry.threads == session.threads][: 1 - MAX_SESSIONS]
    return (*(entry for entry in kept if entry not in dropped), session)


def _rounded_times(times: Mapping[Arm, tuple[float, ...]]) -> dict[Arm, tuple[float, ...]]:
    return {arm: tuple(map(significant, values)) for arm, values in times.items()}


def _epoch(old: Baseline, measured: CaseResult) -> int:
    """Which epoch a new session belongs to: the last one, unless something else is measured now."""
    current = old.current(measured.threads)
    same = all(old.structures.get(arm) == found for arm, found in measured.structures.items())
    if starts_epoch(current, measured, same_structure=same):
        return 1 + max((entry.epoch for entry in old.sessions), default=0)
    return current[-1].epoch


def store(
    root: Path,
    measured: CaseResult,
    *,
    force: bool = False,
    accepted: Accepted | None = None,
    timeout_seconds: float = LOCK_SECONDS,
) -> tuple[Path, tuple[BaselineChange, ...]]:
    """Bring the file of what was measured up to date, and name the changes.

    Read, merge and write happen under one lock, so two updates at once lose nothing; the file is
    replaced in one step, so a killed one leaves the old or the new. A file that cannot be read is
    an error and is left as it is.
    """
    refuse_unfit(measured, force=force)
    path = baseline_path(root, measured.model, measured.variant, measured.fingerprint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        doing = f"updating the baselines in {root}"
        with locked(root / LOCK_NAME, doing, timeout_seconds=timeout_seconds):
            # Baselines are committed; the lock beside them is not.
            if not (ignored := root / ".gitignore").exists():
                ignored.write_text(f"/{LOCK_NAME}\n", encoding="utf-8")
            remove_leftovers(path)
            old = load(root, measured.model, measured.variant, measured.fingerprint)
            new, changed = update(old, measured, force=force, accepted=accepted)
            if new != old:
                with replacing(path, durable=True) as file:
                    file.write(render(new).encode())
    except BusyError as error:
        raise BaselineError(str(error)) from error
    except OSError as error:
        raise BaselineError(
            f"{path}: cannot be written: {error.strerror or error}. Check that the folder is "
            "writable and the disk is not full. The old baseline is unchanged."
        ) from error
    return path, changed


def settings_of(measured: CaseResult) -> dict[str, str]:
    """What the figures of a case depend on besides its program and its inputs."""
    cpu = dict(measured.fingerprint.facts).get("cpu", "") if measured.emulated else ""
    return {"runner": measured.runner, **({"cpu": cpu} if cpu else {})}


def changes(old: Baseline | None, new: Baseline) -> tuple[BaselineChange, ...]:
    """What differs between two baselines, one entry per value, in words."""
    before, after = {} if old is None else dict(_facts(old)), dict(_facts(new))
    return tuple(
        BaselineChange(name, before.get(name, "none"), after.get(name, "none"))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )


def _facts(baseline: Baseline) -> Iterator[tuple[str, str]]:
    """Everything a baseline says: names and short texts."""
    for arm in Arm:
        if (structure := baseline.structures.get(arm)) is not None:
            yield from _structure_facts(structure, arm)
        if (census := baseline.kernels.get(arm)) is not None:
            # A place in a library is meaningless, and moves with every build.
            named = (kernel for kernel in census.kernels if kernel.named)
            yield from ((f"kernel {kernel.name} ({arm})", "runs") for kernel in named)
    for arm, cost in baseline.costs.items():
        yield f"instructions ({arm})", f"{cost.total.instructions:,}"
        yield f"outer products ({arm})", f"{cost.total.outer_products:,}"
        yield f"counted on ({arm})", cost.cpu
    for threads in sorted({session.threads for session in baseline.sessions}):
        yield from _latency_facts(baseline, threads)
    for threads, figures in sorted(baseline.figures.items()):
        yield from _figure_facts(figures, count(threads, "thread"))
    if baseline.generation is not None:
        yield from _generation_facts(baseline.generation)
    if baseline.pte_bytes is not None:
        yield "program size", f"{baseline.pte_bytes} bytes"
    yield "weights", baseline.weights
    yield from ((f"version of {name}", version) for name, version in baseline.versions.items())
    yield from sorted(baseline.settings.items())
    for name, sample in baseline.samples.items():
        size = f"{sample.kind}, root mean square {sample.scale:.4g}"
        yield name, f"{sample.sha256} ({size})"
    if baseline.limits is not None:
        yield from (("limit " + name, said) for name, said in limit_facts(baseline.limits))


def _structure_facts(structure: Structure, arm: Arm) -> Iterator[tuple[str, str]]:
    if arm is not Arm.OFF:
        name = "SME2 coverage" if arm is Arm.ON else f"coverage ({arm})"
        yield name, f"{structure.sme2} of {count(structure.matrix, 'matrix operator')}"
    for entry in structure.operators:
        yield f"operator {entry.name} ({arm}, {entry.executor})", str(entry.count)


def _generation_facts(stored: StoredGeneration) -> Iterator[tuple[str, str]]:
    yield "generation", f"{stored.prompt_tokens} tokens and {stored.new_tokens} more"
    for arm, costs in stored.costs.items():
        yield f"instructions of the prompt ({arm})", f"{costs.instructions[0]:,}"
        yield f"instructions of new tokens ({arm})", f"{sum(costs.instructions[1:]):,}"


def _figure_facts(figures: BaselineFigures, at: str) -> Iterator[tuple[str, str]]:
    if figures.speedup is not None:
        yield f"speedup ({at})", estimate_text(figures.speedup)
    for arm, peak in figures.peak_bytes.items():
        yield f"peak memory ({arm}, {at})", f"{peak / 1e6:.1f} MB"


def _latency_facts(baseline: Baseline, threads: int) -> Iterator[tuple[str, str]]:
    current, at = baseline.current(threads), count(threads, "thread")
    for arm in Arm:
        medians = [value for entry in current for value in entry.medians_ns.get(arm, ())]
        if medians:
            yield f"latency ({arm}, {at})", f"{statistics.median(medians) / 1e6:.3f} ms"
    missing = len(current) < PROVISIONAL_SESSIONS
    note = f" (provisional until {PROVISIONAL_SESSIONS})" if missing else ""
    yield f"sessions ({at})", f"{len(current)}{note}"
