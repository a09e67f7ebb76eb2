"""Where the time goes: the operators of all runs to shares, counts and statistics.

The shares. All use the same runs: those whose end-to-end time is not an outlier. An
operator's share is its time summed over these runs, divided by their end-to-end time; what no
operator took is the framework's overhead. Since all are fractions of one sum they add up to 1,
which medians taken one by one do not. Times in the breakdown are the share of the median
end-to-end time, so they add up to the number that is shown as latency.

Which events are operators is decided in ``operators.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_sme2.errors import EtdumpError
from pytest_sme2.profile.categories import DELEGATE_CALL, OPERATOR_CALL
from pytest_sme2.profile.coverage import Proof, coverage, settled
from pytest_sme2.profile.matching import match_origins, match_shapes
from pytest_sme2.profile.operators import LONGEST, Rows, Selection, durations, is_named, select
from pytest_sme2.results.evidence import KernelCensus, KernelFamily
from pytest_sme2.results.profile import (
    Category,
    Executor,
    Operator,
    OperatorProfile,
    Profile,
    RobustStats,
)
from pytest_sme2.results.run import Attribution, Columns, MethodShapes
from pytest_sme2.system.wording import count

if TYPE_CHECKING:
    import pandas as pd

# A modified z-score above this is an outlier (Iglewicz and Hoaglin, 1993).
OUTLIER_SCORE = 3.5
# Fewer values cannot tell an outlier from spread.
LEAST_FOR_OUTLIERS = 5
TRIM = 0.1


def outliers(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values lie too far from the median for the spread of the rest; per row of a matrix."""
    if values.shape[-1] < LEAST_FOR_OUTLIERS:
        return np.zeros(values.shape, dtype=bool)
    distance = np.abs(values - np.median(values, axis=-1, keepdims=True))
    # The median distance is 0 where over half of the values are equal; then the mean has to do.
    middle = 1.482602 * np.median(distance, axis=-1, keepdims=True)
    scale = np.where(middle, middle, 1.253314 * np.mean(distance, axis=-1, keepdims=True))
    return (distance > OUTLIER_SCORE * scale) & (scale > 0)


def robust_stats(values: ArrayLike) -> RobustStats:
    """Statistics that a few bad values cannot bend, beside those that they can."""
    return robust_stats_of_each([values])[0]


def robust_stats_of_each(series: Sequence[ArrayLike]) -> list[RobustStats]:
    """The same of many series of one length, at once: numpy takes as long for one as for many."""
    rows = np.asarray(series, dtype=np.float64)
    if not rows.size:
        return []
    ordered = np.sort(rows, axis=1)
    size = rows.shape[1]
    cut = int(size * TRIM)
    median = np.median(ordered, axis=1)
    mean = ordered.mean(axis=1)
    deviation = ordered.std(axis=1, ddof=1) if size > 1 else np.zeros(len(rows))
    # In the order of the fields of RobustStats.
    columns = [
        np.full(len(rows), size),
        median,
        mean,
        ordered[:, cut : size - cut].mean(axis=1),
        np.median(np.abs(ordered - median[:, np.newaxis]), axis=1),
        ordered[:, 0],
        ordered[:, -1],
        *np.percentile(ordered, [5, 25, 75, 95, 99], axis=1),
        deviation,
        np.divide(deviation, mean, out=np.zeros(len(rows)), where=mean != 0),
        outliers(rows).sum(axis=1),
    ]
    return [RobustStats(*row) for row in zip(*(each.tolist() for each in columns), strict=True)]


Key = TypeVar("Key", bound=Hashable)

# XNNPACK's whole microseconds may exceed the call's own time by a little; beyond this it is news.
NOTABLE_EXCESS = 0.02

OVERHEAD_PARTS = ("delegate calls", "operator calls", "between calls")


def build_profiles(
    columns: Columns,
    *,
    census: KernelCensus | None = None,
    attribution: Attribution | None = None,
    shapes: Sequence[MethodShapes] = (),
    executed: Sequence[KernelFamily] | None = None,
    executorch: str = "",
) -> tuple[Profile, ...]:
    """One profile for each set of runs that executed the same operators; most runs first.

    An ETDump does not name its methods, but two methods have different operators. A note of the
    first profile names the runs that are not in it. ``shapes`` are those of the program, where it
    is at hand; ``executed`` is what each operator of the one counted inference ran on. Else the
    names tell, by the table of that ``executorch``; of the newest where it is not known.
    """
    selection = select(columns)
    if not selection.execute.size:
        raise EtdumpError(
            "The ETDump holds no inference: there is no Method::execute event in it. Run the "
            "program at least once with the event tracer on before the dump is written."
        )
    if (durations(columns, selection.execute) >= LONGEST).any():
        raise EtdumpError(
            "The ETDump holds a Method::execute of more than a year: its times are damaged, "
            "or the device's clock jumped. Run the program again."
        )
    groups = _groups(selection)
    notes = tuple(_notes(selection))
    load_ns = _load_times(columns)
    proof = Proof(census, executed, executorch)
    first, *others = (
        _profile(group, notes, load_ns, proof, attribution or Attribution({}, {}), shapes)
        for group in groups
    )
    return _told_of(first, others), *others


def _told_of(chosen: Profile, others: Sequence[Profile]) -> Profile:
    """``chosen`` with a note of the runs that are not in it."""
    if not others:
        return chosen
    left_out = sum(other.runs for other in others)
    counts = ", ".join(str(len(other.operators)) for other in others)
    note = (
        f"left out: {left_out} of {count(chosen.runs + left_out, 'run')} executed other operators "
        f"({counts} of them instead of {len(chosen.operators)}): another method, or control flow "
        "that depends on the input"
    )
    return replace(chosen, notes=(*chosen.notes, note))


def _notes(selection: Selection) -> Iterator[str]:
    if selection.excess > NOTABLE_EXCESS:
        yield (
            f"the operators of a delegate call took up to {selection.excess:.0%} longer than the "
            "call itself: they overlap or count time in another unit; they were scaled to the "
            "call's time"
        )


def _load_times(columns: Columns) -> Mapping[str, float]:
    """The mean time of each load and init event."""
    times: dict[str, list[int]] = {}
    rows = np.flatnonzero(columns.run < 0)
    for name, ns in zip(columns.name[rows].tolist(), durations(columns, rows), strict=True):
        times.setdefault(columns.names[name], []).append(int(ns))
    return {name: sum(values) / len(values) for name, values in times.items()}


@dataclass(frozen=True, eq=False)
class _Group:
    """The runs that executed the same operators in the same order."""

    selection: Selection
    runs: Rows
    """Which runs of the selection."""
    places: Rows
    """Runs by operators: positions in the selection's arrays."""


def _groups(selection: Selection) -> list[_Group]:
    """Most runs first; of equally frequent ones the first one first."""
    columns = selection.columns
    order = np.argsort(selection.run, kind="stable")
    ends = np.cumsum(np.bincount(selection.run, minlength=selection.execute.size))
    rows = selection.rows[order]
    keys = np.stack([columns.name[rows], columns.instruction[rows]], axis=1)
    found: dict[bytes, tuple[list[int], list[Rows]]] = {}
    for run, places in enumerate(np.split(order, ends[:-1])):
        key = keys[ends[run] - places.size : ends[run]].tobytes()
        runs, members = found.setdefault(key, ([], []))
        runs.append(run)
        members.append(places)
    groups = [
        _Group(selection, np.array(runs), np.array(members)) for runs, members in found.values()
    ]
    return sorted(groups, key=lambda group: (-group.runs.size, group.runs[0]))


def _overhead(group: _Group, end_to_end: NDArray[np.int64]) -> NDArray[np.float64]:
    """What no operator took, of each run, by OVERHEAD_PARTS: the call it was spent in."""
    selection, runs, places = group.selection, group.runs, group.places
    columns = selection.columns
    overhead = np.zeros((runs.size, len(OVERHEAD_PARTS)))
    if places.size:
        calls, owner = np.unique(selection.call[places].ravel(), return_inverse=True)
        taken = np.bincount(owner, weights=selection.duration[places].ravel())
        left = durations(columns, calls) - taken
        run_of_call = np.zeros(calls.size, dtype=np.int64)
        run_of_call[owner] = np.repeat(np.arange(runs.size), places.shape[1])
        for part, name in enumerate((DELEGATE_CALL, OPERATOR_CALL)):
            chosen = is_named(columns, {name})[calls]
            overhead[:, part] = np.bincount(
                run_of_call[chosen], weights=left[chosen], minlength=runs.size
            )
    total = end_to_end - selection.duration[places].sum(axis=1)
    spent = overhead.sum(axis=1)
    # A call inside of a call is in both: the two together have no more than was spent.
    overhead *= (np.minimum(total, spent) / np.where(spent, spent, 1))[:, np.newaxis]
    overhead[:, 2] = total - overhead.sum(axis=1)
    return overhead


def _profile(
    group: _Group,
    notes: tuple[str, ...],
    load_ns: Mapping[str, float],
    proof: Proof,
    attribution: Attribution,
    shapes: Sequence[MethodShapes],
) -> Profile:
    columns, execute = group.selection.columns, group.selection.execute[group.runs]
    series = durations(columns, execute)
    end_to_end = robust_stats(series)
    typical = ~outliers(series.astype(np.float64))
    whole = float(series[typical].sum(dtype=np.float64))
    scale = 1.0 / whole if whole else 0.0
    overhead = _overhead(group, series)[typical].sum(axis=0) * scale * end_to_end.median
    samples = group.selection.duration[group.places]
    shares = samples[typical].sum(axis=0, dtype=np.float64) * scale
    operators = _operators(group, samples, shares, end_to_end.median, proof, attribution, shapes)
    category_ns, category_counts = _parts(operators, lambda found: found.category, Category)
    kind_ns, kind_counts = _parts(operators, lambda found: (found.category, found.kind))
    executor_ns, executor_counts = _parts(operators, lambda found: found.executor, Executor)
    return Profile(
        method=columns.block_names[int(columns.block[execute[0]])],
        runs=series.size,
        typical_runs=int(typical.sum()),
        end_to_end=end_to_end,
        end_to_end_ns=tuple(series.tolist()),
        operators=operators,
        category_ns=category_ns,
        kind_ns=kind_ns,
        executor_ns=executor_ns,
        overhead_ns=float(overhead.sum()),
        overhead_parts_ns=dict(zip(OVERHEAD_PARTS, overhead.tolist(), strict=True)),
        category_counts=category_counts,
        kind_counts=kind_counts,
        executor_counts=executor_counts,
        coverage=coverage(operators, proof),
        load_ns=load_ns,
        unknown=tuple(
            dict.fromkeys(each.operator.name for each in operators if not each.operator.known)
        ),
        notes=(*_group_notes([each.operator.name for each in operators], series), *notes),
    )


def _operators(
    group: _Group,
    samples: NDArray[np.int64],
    shares: NDArray[np.float64],
    end_to_end: float,
    proof: Proof,
    attribution: Attribution,
    methods: Sequence[MethodShapes],
) -> tuple[OperatorProfile, ...]:
    """``samples`` are runs by operators."""
    selection, columns = group.selection, group.selection.columns
    rows = selection.rows[group.places[0]]
    names = columns.name[rows].tolist()
    instructions = columns.instruction[rows].tolist()
    traced = [
        (selection.operators[name], row) for name, row in zip(names, instructions, strict=True)
    ]
    _, calls = np.unique(selection.call[group.places[0]], return_inverse=True)
    shapes, origins = match_shapes(traced, methods), match_origins(traced, attribution)
    medians, series = np.median(samples, axis=0).tolist(), samples.T.tolist()
    return tuple(
        OperatorProfile(
            index=index,
            label=columns.names[names[index]],
            operator=settled(operator, shapes[index], proof, index),
            instruction=instruction,
            median_ns=medians[index],
            share=share,
            time_ns=share * end_to_end,
            samples_ns=tuple(series[index]),
            call=int(calls[index]),
            aten=attribution.aten.get(instruction, ()),
            modules=attribution.modules.get(instruction, ()),
            shapes=shapes[index],
            origin=origin,
            module="" if origin is None or origin.near else origin.module,
        )
        for index, ((operator, instruction), share, origin) in enumerate(
            zip(traced, shares.tolist(), origins, strict=True)
        )
    )


def _parts(
    operators: Sequence[OperatorProfile],
    key: Callable[[Operator], Key],
    always: Iterable[Key] = (),
) -> tuple[dict[Key, float], dict[Key, int]]:
    """Time and number of the operators with the same key."""
    times: dict[Key, float] = dict.fromkeys(always, 0.0)
    counts: dict[Key, int] = dict.fromkeys(always, 0)
    for profile in operators:
        place = key(profile.operator)
        times[place] = times.get(place, 0.0) + profile.time_ns
        counts[place] = counts.get(place, 0) + 1
    return times, counts


def _group_notes(names: Sequence[str], end_to_end: NDArray[np.int64]) -> Iterator[str]:
    if opaque := names.count(DELEGATE_CALL):
        yield (
            f"{opaque} delegate call(s) hold no operators: the delegate was built without "
            "profiling, so their categories and SME2 coverage are not known"
        )
    if unnamed := names.count(OPERATOR_CALL):
        yield (
            f"{unnamed} operator call(s) name no kernel: ExecuTorch's scalar operators, or "
            "kernels that were registered by hand"
        )
    if not names:
        yield "the runs hold no operators at all: all time is overhead"
    if not end_to_end.any():
        yield "Method::execute took no time on the device's clock, so there are no shares"


def profile_frames(profile: Profile) -> dict[str, pd.DataFrame]:
    """A profile for notebooks: ``operators``, ``categories`` and ``runs``.

    Times are in nanoseconds, shares from 0 to 1. ``runs`` has one row per run and one column per
    operator (by index), after ``end_to_end_ns`` and ``overhead_ns``.
    """
    import pandas as pd

    runs = pd.DataFrame({each.index: each.samples_ns for each in profile.operators},
                        index=pd.RangeIndex(profile.runs, name="run"))  # fmt: skip
    end_to_end = pd.Series(profile.end_to_end_ns, index=runs.index)
    runs.insert(0, "overhead_ns", end_to_end - runs.sum(axis=1))
    runs.insert(0, "end_to_end_ns", end_to_end)
    names = ("index", "label", "time_ns", "median_ns", "share")
    rows = [[getattr(each, name) for name in names] for each in profile.operators]
    operators = pd.DataFrame(rows, columns=names)
    categories = pd.Series({str(key): time for key, time in profile.category_ns.items()})
    frame = categories.rename_axis("category").reset_index(name="time_ns")
    frame["share"] = frame["time_ns"].map(profile.share)
    return {"operators": operators, "categories": frame, "runs": runs}
