"""What was accepted as good, one JSON file per model, variant and target: load, update, write.

The file's form is in baseline_file.py. Whether something new is worse is decided by the checks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_sme2.errors import BaselineError, BusyError
from pytest_sme2.export.variant import file_part
from pytest_sme2.profile.cost import stored_operator
from pytest_sme2.results import (
    RUNTIME,
    Accepted,
    Agreement,
    Arm,
    Baseline,
    BaselineChange,
    BaselineFigures,
    BaselineSession,
    CaseResult,
    Category,
    Fingerprint,
    Profile,
    Sample,
    Spread,
    StoredGeneration,
    StoredOperator,
    Structure,
)
from pytest_sme2.system.files import remove_leftovers, replacing, safe_name
from pytest_sme2.system.locks import locked
from pytest_sme2.system.reading import read_text_if_there
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.baseline_file import REMEDY, census_of_names, parse, render
from pytest_sme2.verdict.cost import steady_costs
from pytest_sme2.verdict.generation import stored_generation
from pytest_sme2.verdict.judging import (
    PROVISIONAL_SESSIONS,
    estimate_text,
    same_work,
    session_interval,
    significant,
    starts_epoch,
    steady_speedup,
    stored_frontier,
    too_hot,
)
from pytest_sme2.verdict.limits import limit_facts, limits_for
from pytest_sme2.verdict.numerics import same_sample

MAX_SESSIONS = 20
"""Per thread count. Older ones are dropped, so that a file that is updated daily stays readable."""
STEADY_SESSIONS = 5
"""With so many sessions, one more of the same program that differs by noise alone adds only
lines to the file, and is not stored."""
BUSY = 0.05
"""Wall time over CPU time, less 1: above it, something else had the core so often that a latency
measured at another time cannot be compared. Interleaved pairs share such times and still can."""
WIDE_LATENCY = 0.10
"""The middle nine tenths of a session's processes over their median: above it, the session can
only show large changes."""
WIDE_SHARE = 0.10
"""The same for a share of the time, in parts of the whole."""

SYSTEM_FACTS = frozenset({"android", "build"})
"""What of a fingerprint changes with an update of a phone's system."""

SHARES = "share of "

LOCK_NAME, LOCK_SECONDS = ".lock", 60.0


def baseline_path(root: Path, model: str, variant: str, fingerprint: Fingerprint) -> Path:
    """``<target key>/<model>-<variant>.json``; a name with odd characters is escaped."""
    return root / safe_name(fingerprint.key) / file_name(model, variant)


def file_name(model: str, variant: str) -> str:
    return f"{safe_name(model)}-{file_part(variant)}.json"


def load(root: Path, model: str, variant: str, fingerprint: Fingerprint) -> Baseline | None:
    """The baseline of a model and variant on this target; None where there is none."""
    path = baseline_path(root, model, variant, fingerprint)
    baseline = read(path)
    if baseline is not None:
        _check_identity(path, baseline, model, variant, fingerprint)
    return baseline


def load_structure(
    root: Path, model: str, variant: str, fingerprint: Fingerprint
) -> Baseline | None:
    """The target's own baseline, else that of its last system build, else the emulator's.

    A system update must not make a phone lose its baseline. Structure is the same on any machine.
    """
    return (
        load(root, model, variant, fingerprint)
        or _of_another_build(root, model, variant, fingerprint)
        or load(root, model, variant, Fingerprint("emulated", ()))
    )


def _of_another_build(
    root: Path, model: str, variant: str, fingerprint: Fingerprint
) -> Baseline | None:
    """The newest baseline of the same device with another build of its system."""
    if not SYSTEM_FACTS & {*dict(fingerprint.facts)}:
        return None
    found = []
    for path in sorted(root.glob(f"{fingerprint.target}-*/{file_name(model, variant)}")):
        baseline = read(path)
        if baseline is not None and not differing_facts(baseline.fingerprint, fingerprint):
            found.append(baseline)
    return max(found, key=lambda old: [entry.recorded for entry in old.sessions[-1:]], default=None)


def system_change(theirs: Fingerprint, ours: Fingerprint) -> str | None:
    """What to say where the device is the same and its system is not; else None."""
    there, here = dict(theirs.facts), dict(ours.facts)
    names = sorted(name for name in SYSTEM_FACTS if there.get(name) != here.get(name))
    if theirs.target != ours.target or not names:
        return None
    facts = "; ".join(f"{name} {there.get(name)!r} then, {here.get(name)!r} now" for name in names)
    return f"The system of the device has changed since the baseline ({facts})."


def read(path: Path) -> Baseline | None:
    """The baseline in one file, whatever it is of."""
    text = read_text_if_there(path, remedy=REMEDY, error=BaselineError)
    return None if text is None else parse(text, path)


def _check_identity(
    path: Path, baseline: Baseline, model: str, variant: str, fingerprint: Fingerprint
) -> None:
    for what, ours in (("model", model), ("variant", variant)):
        theirs = getattr(baseline, what)
        if theirs != ours:
            raise BaselineError(
                f"{path}: is the baseline of {what} {theirs!r}, not of {ours!r}. "
                "Move it back to its own name, or remove it and run with --update-baselines."
            )
    differing = differing_facts(baseline.fingerprint, fingerprint)
    if differing:
        raise BaselineError(
            f"{path}: is the baseline of another target: {'; '.join(differing)}. "
            "Remove it and run with --update-baselines on this target."
        )


def differing_facts(theirs: Fingerprint, ours: Fingerprint) -> tuple[str, ...]:
    """What tells two targets apart, one phrase per fact; empty where they are the same.

    The build of a phone's system does not: ``system_change`` says where it differs.
    Emulated targets are all the same: nothing that depends on the machine is compared there.
    """
    if theirs.target != ours.target:
        return (f"target {theirs.target!r} there, {ours.target!r} here",)
    if ours.target == "emulated":
        return ()
    there, here = dict(theirs.facts), dict(ours.facts)
    return tuple(
        f"{name} {there.get(name)!r} there, {here.get(name)!r} here"
        for name in sorted({*there, *here} - SYSTEM_FACTS)
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

    What was not measured this time (an arm, the kernels, a thread count) is kept, and so is a
    figure that differs by no more than noise: two updates of the same thing give the same file.
    ``force`` accepts a session that was measured on a busy machine.
    """
    refuse_unfit(measured, force=force)
    old = baseline or Baseline(measured.model, measured.variant, measured.fingerprint, {})
    kernels = {arm: census_of_names(census) for arm, census in measured.kernels.items()}
    kept = [entry for entry in old.agreements if entry.arm not in measured.structures]
    agreements = (*map(_rounded, measured.agreements), *kept)
    new = replace(
        old,
        fingerprint=measured.fingerprint,
        structures={**old.structures, **measured.structures},
        kernels={**old.kernels, **kernels},
        costs=steady_costs(_of_same_program(old.costs, old, measured), measured),
        operators={**_of_same_program(old.operators, old, measured), **_programs(measured)},
        sessions=_with_session(old, measured),
        figures=_with_figures(old, measured),
        frontier=stored_frontier(old.frontier, measured.frontier),
        generation=stored_generation(old.generation, measured),
        pte_bytes=measured.pte_bytes if measured.pte_bytes is not None else old.pte_bytes,
        pte_sha256=measured.pte_sha256 or old.pte_sha256,
        agreements=agreements if measured.agreements else old.agreements,
        versions=measured.versions or old.versions,
        weights=measured.weights,
        settings=settings_of(measured),
        samples=_steady_samples(old.samples, measured),
        **({} if accepted is None else _accepted(old, measured, accepted)),
    )
    return new, changes(baseline, new)


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
        before = old.promised.get(measured.threads, {})
        # Which categories a program has changes with the program.
        if any(name.startswith(SHARES) for name in accepted.figures):
            before = {name: test for name, test in before.items() if not name.startswith(SHARES)}
        figures = {**before, **accepted.figures}
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
    before, profiles = old.at(measured.threads), measured.profiles.items()
    now = BaselineFigures(
        speedup=steady_speedup(before.speedup, measured.speedup),
        shares=_by_arm(before.shares, measured.shares or {}, _steady_shares),
        category_ns=_by_arm(
            before.category_ns, {arm: dict(p.category_ns) for arm, p in profiles}, _steady_times
        ),
        operator_ns=_by_arm(
            before.operator_ns, {arm: operator_times(p) for arm, p in profiles}, _steady_times
        ),
        peak_bytes=_by_arm(before.peak_bytes, measured.peak_bytes or {}, _steady_size),
    )
    return dict(old.figures) if now == before else {**old.figures, measured.threads: now}


_Figure = TypeVar("_Figure")


def _by_arm(
    old: Mapping[Arm, _Figure],
    new: Mapping[Arm, _Figure],
    choose: Callable[[_Figure | None, _Figure], _Figure],
) -> dict[Arm, _Figure]:
    return {**old, **{arm: choose(old.get(arm), value) for arm, value in new.items()}}


def _steady_shares(
    old: Mapping[Category, Spread] | None, new: Mapping[Category, Spread]
) -> Mapping[Category, Spread]:
    kept = {}
    for category, share in new.items():
        before = (old or {}).get(category)
        # A point more than the runs' own spread is noise, too.
        if before is None or not before.low - 0.01 <= share.value <= before.high + 0.01:
            before = Spread(round(share.value, 4), round(share.low, 4), round(share.high, 4))
        kept[category] = before
    return kept


_Name = TypeVar("_Name")


def _steady_times(
    old: Mapping[_Name, float] | None, new: Mapping[_Name, float]
) -> Mapping[_Name, float]:
    if old is not None and {*old} == {*new}:
        before, now = sum(old.values()), sum(new.values())
        if abs(now - before) <= 0.05 * before:
            return old
    return {name: significant(value) for name, value in new.items()}


def _steady_size(old: int | None, new: int) -> int:
    return new if old is None or abs(new - old) > 0.02 * old else old


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


def doubts(measured: CaseResult) -> tuple[str, ...]:
    """What of a stored session will be of little use later, one sentence each."""
    found = []
    for arm, medians in (measured.medians_ns or {}).items():
        ordered, edge = sorted(medians), len(medians) // 20
        spread = (ordered[-1 - edge] - ordered[edge]) / statistics.median(ordered) if medians else 0
        if spread > WIDE_LATENCY:
            found.append(
                f"latency ({arm}): the processes of this session spread by {spread:.0%}, so it can "
                "only show changes of that size. Measure again on an idle machine."
            )
    for arm, shares in (measured.shares or {}).items():
        for category, share in shares.items():
            if share.high - share.low > WIDE_SHARE:
                found.append(
                    f"share of {category} ({arm}): {share.value:.1%} spreads from {share.low:.1%} "
                    f"to {share.high:.1%}, so a change within that cannot be seen. Measure again "
                    "on an idle machine."
                )
    return tuple(found)


def operator_times(profile: Profile) -> dict[str, float]:
    """The time of each operator name, its occurrences added up."""
    times: dict[str, float] = {}
    for entry in profile.operators:
        times[entry.operator.name] = times.get(entry.operator.name, 0.0) + entry.time_ns
    return times


def _rounded(agreement: Agreement) -> Agreement:
    """As many digits as mean something: the last ones differ from host to host."""
    sqnr, cosine = agreement.sqnr_db, agreement.cosine
    return replace(
        agreement,
        max_abs=significant(agreement.max_abs, 3),
        max_rel=significant(agreement.max_rel, 3),
        sqnr_db=None if sqnr is None else significant(sqnr, 3),
        cosine=None if cosine is None else round(cosine, 6),
    )


def _with_session(old: Baseline, measured: CaseResult) -> tuple[BaselineSession, ...]:
    medians = measured.medians_ns or {}
    if not any(medians.values()) or _adds_nothing(old, measured):
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


def _adds_nothing(old: Baseline, measured: CaseResult) -> bool:
    """Whether there are enough sessions of this very code, and this one differs by noise alone."""
    current = old.current(measured.threads)
    if len(current) < STEADY_SESSIONS or not same_work(measured, current):
        return False
    for arm, medians in (measured.medians_ns or {}).items():
        before = [entry.medians_ns[arm] for entry in current if entry.medians_ns.get(arm)]
        low, high = session_interval(medians, before) if before else (math.inf, 0.0)
        if not low <= 1 <= high:
            return False
    return True


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
    accept: Callable[[tuple[BaselineChange, ...]], bool] = bool,
    timeout_seconds: float = LOCK_SECONDS,
) -> tuple[Path, tuple[BaselineChange, ...]]:
    """Bring the file of what was measured up to date if its changes are accepted, and name them.

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
            if new != old and (not changed or accept(changed)):
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
    if (stored := baseline.frontier) is not None:
        best = ", ".join(f"{arm} {count(of, 'thread')}" for arm, of in stored.best.items())
        yield "best against best", f"{estimate_text(stored.speedup)} ({best})"
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
    for phase, speedup in stored.speedups.items():
        yield f"speedup of {phase}", estimate_text(speedup)


def _figure_facts(figures: BaselineFigures, at: str) -> Iterator[tuple[str, str]]:
    if figures.speedup is not None:
        yield f"speedup ({at})", estimate_text(figures.speedup)
    for arm, shares in figures.shares.items():
        for key, share in shares.items():
            yield f"share of {key} ({arm}, {at})", f"{share.value:.1%}"
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
