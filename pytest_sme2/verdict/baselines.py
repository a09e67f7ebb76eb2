"""What was accepted as good, one JSON file per model, variant and target: load, update, write.

The file's form is in baseline_file.py. Whether something new is worse is decided by the checks.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path

from pytest_sme2.errors import BaselineError, BusyError
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.profile.cost import stored
from pytest_sme2.results import (
    RUNTIME,
    Agreement,
    Arm,
    Baseline,
    BaselineChange,
    BaselineFigures,
    BaselineSession,
    CaseResult,
    Estimate,
    Fingerprint,
    Profile,
    StoredCost,
    Structure,
)
from pytest_sme2.system.files import remove_leftovers, replacing, safe_name
from pytest_sme2.system.locks import locked
from pytest_sme2.verdict.baseline_file import census_of_names, damaged, parse, render
from pytest_sme2.verdict.judging import number
from pytest_sme2.verdict.stored_latency import PROVISIONAL_SESSIONS, starts_epoch

MAX_SESSIONS = 20
"""A thread count. Older ones are dropped, so that a file that is updated daily stays readable."""

LOCK_NAME = ".lock"
LOCK_SECONDS = 60.0


# --- Where a baseline lies ------------------------------------------------------------------------


def baseline_path(root: Path, model: str, variant: str, fingerprint: Fingerprint) -> Path:
    """``<target key>/<model>-<variant>.json``; a name with odd characters is escaped."""
    return root / safe_name(fingerprint.key) / _file_name(model, variant)


def _file_name(model: str, variant: str) -> str:
    return f"{safe_name(model)}-{parse_variant(variant)}.json"


# --- Reading --------------------------------------------------------------------------------------


def load(root: Path, model: str, variant: str, fingerprint: Fingerprint) -> Baseline | None:
    """The baseline of a model and variant on this target; None where there is none.

    Raises:
        BaselineError: it is corrupt, of a newer schema, or of another model or target.
    """
    path = baseline_path(root, model, variant, fingerprint)
    baseline = read(path)
    if baseline is not None:
        _check_identity(path, baseline, model, variant, fingerprint)
    return baseline


def load_structure(
    root: Path, model: str, variant: str, fingerprint: Fingerprint
) -> Baseline | None:
    """The target's own baseline, else the emulator's: structure is the same on any machine."""
    own = load(root, model, variant, fingerprint)
    return own if own is not None else load(root, model, variant, Fingerprint("emulated", ()))


def read(path: Path) -> Baseline | None:
    """The baseline in one file, whatever it is of."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(damaged(path, str(error))) from error
    return parse(text, path)


def _check_identity(
    path: Path, baseline: Baseline, model: str, variant: str, fingerprint: Fingerprint
) -> None:
    for what, theirs, ours in (
        ("model", baseline.model, model),
        ("variant", baseline.variant, variant),
    ):
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
    """What tells two targets apart, one phrase a fact; empty where they are the same.

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


# --- Updating -------------------------------------------------------------------------------------


def update(
    baseline: Baseline | None, measured: CaseResult
) -> tuple[Baseline, tuple[BaselineChange, ...]]:
    """The baseline that accepts what was measured, and what that changes. Pure.

    What was not measured this time (an arm, the kernels, a thread count) is kept.

    Raises:
        BaselineError: what was measured must not become a baseline.
    """
    refuse_unfit(measured)
    old = baseline or Baseline(measured.model, measured.variant, measured.fingerprint, {})
    if (old.model, old.variant) != (measured.model, measured.variant):
        raise BaselineError(
            f"{measured.model}-{measured.variant} cannot update the baseline of "
            f"{old.model}-{old.variant}."
        )
    differing = differing_facts(old.fingerprint, measured.fingerprint)
    if differing:
        raise BaselineError(
            f"{measured.model}-{measured.variant}: the baseline is of another target "
            f"({'; '.join(differing)}). Update it on its own target."
        )
    kernels = {arm: census_of_names(census) for arm, census in measured.kernels.items()}
    new = replace(
        old,
        fingerprint=measured.fingerprint,
        structures={**old.structures, **measured.structures},
        kernels={**old.kernels, **kernels},
        costs={**old.costs, **{arm: stored(cost) for arm, cost in measured.costs.items()}},
        sessions=_with_session(old, measured),
        figures=_with_figures(old, measured),
        pte_bytes=measured.pte_bytes if measured.pte_bytes is not None else old.pte_bytes,
        pte_sha256=measured.pte_sha256 or old.pte_sha256,
        agreements=tuple(map(_rounded, measured.agreements)) or old.agreements,
        versions=measured.versions or old.versions,
        weights=measured.weights,
    )
    return new, changes(baseline, new)


def _with_figures(old: Baseline, measured: CaseResult) -> dict[int, BaselineFigures]:
    """The figures of every thread count, those of the measured one brought up to date."""
    if measured.emulated:
        return dict(old.figures)
    before, profiles = old.at(measured.threads), measured.profiles.items()
    now = BaselineFigures(
        speedup=_bounded(measured.speedup) or before.speedup,
        shares={**before.shares, **(measured.shares or {})},
        category_ns={**before.category_ns, **{arm: dict(p.category_ns) for arm, p in profiles}},
        operator_ns={**before.operator_ns, **{arm: operator_times(p) for arm, p in profiles}},
        peak_bytes={**before.peak_bytes, **(measured.peak_bytes or {})},
    )
    return dict(old.figures) if now == before else {**old.figures, measured.threads: now}


def refuse_unfit(measured: CaseResult) -> None:
    """An error if this must not become a baseline: what is stored is believed from then on."""
    who = f"{measured.model}-{measured.variant}"
    if measured.evidence is not None and not measured.evidence.valid:
        raise BaselineError(
            f"{who}: the pair is not valid and was not stored: {measured.evidence.message}"
        )
    timed = measured.medians_ns, measured.speedup, measured.shares, measured.loads_ns
    if measured.emulated and any(value is not None for value in timed):
        raise BaselineError(
            f"{who}: emulated times say nothing about hardware and are never stored. "
            "Update latencies on a device that can vouch for timing."
        )
    if measured.emulated != (measured.fingerprint.target == "emulated"):
        raise BaselineError(
            f"{who}: emulated runs and the target {measured.fingerprint.target!r} were mixed. "
            "Measure one target at a time."
        )
    if measured.nan_arms:
        arms = " and ".join(str(arm) for arm in measured.nan_arms)
        raise BaselineError(
            f"{who}: the output holds NaN (SME2 {arms}) and was not stored. "
            "Correct the model or its export first."
        )
    if not measured.structures:
        raise BaselineError(f"{who}: nothing was traced, so there is no structure to store.")


def operator_times(profile: Profile) -> dict[str, float]:
    """The time of each operator name, its occurrences added up."""
    times: dict[str, float] = {}
    for entry in profile.operators:
        times[entry.operator.name] = times.get(entry.operator.name, 0.0) + entry.time_ns
    return times


def _rounded(agreement: Agreement) -> Agreement:
    """As many digits as mean something: the last ones differ from host to host."""

    def digits(value: float) -> float:
        return float(f"{value:.3g}")

    sqnr, cosine = agreement.sqnr_db, agreement.cosine
    return replace(
        agreement,
        max_abs=digits(agreement.max_abs),
        max_rel=digits(agreement.max_rel),
        sqnr_db=None if sqnr is None else digits(sqnr),
        cosine=None if cosine is None else round(cosine, 6),
    )


def _bounded(estimate: Estimate | None) -> Estimate | None:
    """An estimate from too few pairs has no interval, and is not worth keeping."""
    if estimate is None or not math.isfinite(estimate.high):
        return None
    return estimate


def _with_session(old: Baseline, measured: CaseResult) -> tuple[BaselineSession, ...]:
    if measured.medians_ns is None or not any(measured.medians_ns.values()):
        return old.sessions
    session = BaselineSession(
        session=measured.session,
        recorded=measured.recorded,
        epoch=_epoch(old, measured),
        threads=measured.threads,
        runner=measured.runner,
        executorch=measured.versions.get(RUNTIME, ""),
        medians_ns=dict(measured.medians_ns),
        loads_ns=dict(measured.loads_ns or {}),
        yardstick_ns=measured.yardstick_ns,
        program=measured.pte_sha256,
        runtime=measured.runtime,
    )
    # Storing the same session twice must not make it count twice.
    kept = [
        entry
        for entry in old.sessions
        if (entry.session, entry.threads) != (session.session, session.threads)
    ]
    same = [entry for entry in kept if entry.threads == session.threads]
    dropped = {id(entry) for entry in same[: max(0, len(same) + 1 - MAX_SESSIONS)]}
    return (*(entry for entry in kept if id(entry) not in dropped), session)


def _epoch(old: Baseline, measured: CaseResult) -> int:
    """Which epoch a new session belongs to: the last one, unless something else is measured now."""
    current = old.current(measured.threads)
    if starts_epoch(
        current,
        made_by=(measured.runner, measured.versions.get(RUNTIME, "")),
        program=measured.pte_sha256,
        runtime=measured.runtime,
        medians_ns=measured.medians_ns or {},
        same_structure=all(
            old.structures.get(arm) == found for arm, found in measured.structures.items()
        ),
    ):
        return 1 + max((entry.epoch for entry in old.sessions), default=0)
    return current[-1].epoch


# --- What an update changes -----------------------------------------------------------------------


def changes(old: Baseline | None, new: Baseline) -> tuple[BaselineChange, ...]:
    """What differs between two baselines, one entry a value, in words."""
    before = {} if old is None else _facts(old)
    after = _facts(new)
    return tuple(
        BaselineChange(name, before.get(name, "none"), after.get(name, "none"))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )


def _facts(baseline: Baseline) -> dict[str, str]:
    """Everything a baseline says, as a flat table of short texts."""
    facts: dict[str, str] = {}
    for arm in Arm:
        structure = baseline.structures.get(arm)
        if structure is not None:
            facts |= _structure_facts(structure, arm)
        census = baseline.kernels.get(arm)
        if census is not None:
            facts |= {f"kernel {kernel.name} ({arm})": "runs" for kernel in census.kernels}
    for arm, cost in baseline.costs.items():
        facts |= _cost_facts(cost, arm)
    for threads in sorted({session.threads for session in baseline.sessions}):
        facts |= _latency_facts(baseline, threads)
    for threads, figures in sorted(baseline.figures.items()):
        facts |= _figure_facts(figures, threads)
    if baseline.pte_bytes is not None:
        facts["program size"] = f"{baseline.pte_bytes} bytes"
    facts["weights"] = baseline.weights
    facts |= {f"version of {name}": version for name, version in baseline.versions.items()}
    return facts


def _structure_facts(structure: Structure, arm: Arm) -> dict[str, str]:
    facts = {}
    if arm is Arm.ON:
        facts["SME2 coverage"] = f"{structure.sme2} of {structure.matrix} matrix operators"
    for entry in structure.operators:
        name = f"operator {entry.name} ({arm}, {entry.executor})"
        facts[name] = str(entry.count)
    return facts


def _cost_facts(cost: StoredCost, arm: Arm) -> dict[str, str]:
    return {
        f"instructions ({arm})": f"{cost.total.instructions:,}",
        f"outer products ({arm})": f"{cost.total.outer_products:,}",
        f"counted on ({arm})": cost.cpu,
    }


def _figure_facts(figures: BaselineFigures, threads: int) -> dict[str, str]:
    count = number(threads, "thread")
    facts = {}
    if figures.speedup is not None:
        speedup = figures.speedup
        facts[f"speedup ({count})"] = (
            f"{speedup.value:.2f}x [{speedup.low:.2f}, {speedup.high:.2f}]"
        )
    for arm, shares in figures.shares.items():
        facts |= {f"share of {key} ({arm}, {count})": f"{s.value:.1%}" for key, s in shares.items()}
    for arm, peak in figures.peak_bytes.items():
        facts[f"peak memory ({arm}, {count})"] = f"{peak / 1e6:.1f} MB"
    return facts


def _latency_facts(baseline: Baseline, threads: int) -> dict[str, str]:
    facts = {}
    current = baseline.current(threads)
    for arm in Arm:
        medians = [value for entry in current for value in entry.medians_ns.get(arm, ())]
        if medians:
            name = f"latency ({arm}, {number(threads, 'thread')})"
            facts[name] = f"{statistics.median(medians) / 1e6:.3f} ms"
    count = f"{len(current)}"
    if len(current) < PROVISIONAL_SESSIONS:
        count += f" (provisional until {PROVISIONAL_SESSIONS})"
    facts[f"sessions ({number(threads, 'thread')})"] = count
    return facts


# --- Writing --------------------------------------------------------------------------------------


def store(
    root: Path, measured: CaseResult, *, timeout_seconds: float = LOCK_SECONDS
) -> tuple[Path, tuple[BaselineChange, ...]]:
    """Bring the file of what was measured up to date, and say what that changed.

    Read, merge and write happen under one lock, so two updates at once lose nothing; the file is
    replaced in one step, so a killed one leaves the old or the new. A file that cannot be read is
    an error and is left as it is.
    """
    refuse_unfit(measured)
    path = baseline_path(root, measured.model, measured.variant, measured.fingerprint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        doing = f"updating the baselines in {root}"
        with locked(root / LOCK_NAME, doing, timeout_seconds=timeout_seconds):
            remove_leftovers(path)
            old = load(root, measured.model, measured.variant, measured.fingerprint)
            new, changed = update(old, measured)
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
