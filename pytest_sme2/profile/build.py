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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_sme2.errors import EtdumpError
from pytest_sme2.profile.categories import DELEGATE_CALL, OPERATOR_CALL, Rule
from pytest_sme2.profile.coverage import NAMES, NAMES_AND_KERNELS, coverage, settled
from pytest_sme2.profile.operators import LONGEST, Rows, Selection, distinct, durations, select
from pytest_sme2.profile.origins import match_origins
from pytest_sme2.profile.shapes import match_shapes
from pytest_sme2.results import (
    Attribution,
    Category,
    Columns,
    Executor,
    KernelCensus,
    MethodShapes,
    Operator,
    OperatorProfile,
    Profile,
    RobustStats,
)
from pytest_sme2.system.wording import count

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


def robust_stats(values: Iterable[float]) -> RobustStats:
    """Statistics that a few bad values cannot bend, beside those that they can."""
    known = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=np.float64)
    return robust_stats_of_each(known[np.newaxis])[0]


def robust_stats_of_each(series: ArrayLike) -> list[RobustStats]:
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

MOST_METHODS = 50
"""Sets of runs that get a profile each. A file of a megabyte can hold thousands of them."""

OVERHEAD_PARTS = ("delegate calls", "operator calls", "between calls")


@dataclass(frozen=True, eq=False)
class _Group:
    """The runs that executed the same operators in the same order."""

    labels: tuple[str, ...]
    operators: tuple[Operator, ...]
    instructions: tuple[int, ...]
    calls: tuple[int, ...]
    method: str
    end_to_end: NDArray[np.int64]
    """Per run."""
    matrix: NDArray[np.int64]
    """Runs by operators: how long each took."""
    overhead: NDArray[np.float64]
    """Runs by OVERHEAD_PARTS."""
    first: int
    """The first of the runs, so that of equally frequent methods the first one comes first."""


def build_profile(
    columns: Columns | Sequence[Columns],
    *,
    rules: Sequence[Rule] = (),
    census: KernelCensus | None = None,
    attribution: Attribution | None = None,
    shapes: Sequence[MethodShapes] = (),
) -> Profile:
    """The profile of the operators that most runs executed; runs that differ are named in a note.

    Several dumps are taken as one series of runs.
    """
    profiles = build_profiles(
        columns, rules=rules, census=census, attribution=attribution, shapes=shapes
    )
    return leave_out(profiles[0], profiles[1:])


def leave_out(chosen: Profile, others: Sequence[Profile]) -> Profile:
    """``chosen`` with a note of the runs that are not in it."""
    if not others:
        return chosen
    left_out = sum(other.runs for other in others)
    runs = count(chosen.runs + left_out, "run")
    counts = ", ".join(str(len(other.operators)) for other in others)
    note = (
        f"left out: {left_out} of {runs} executed other operators ({counts} of them "
        f"instead of {len(chosen.operators)}): another method, or control flow that depends "
        "on the input"
    )
    return replace(chosen, notes=(*chosen.notes, note))


def build_profiles(
    columns: Columns | Sequence[Columns],
    *,
    rules: Sequence[Rule] = (),
    census: KernelCensus | None = None,
    attribution: Attribution | None = None,
    shapes: Sequence[MethodShapes] = (),
) -> tuple[Profile, ...]:
    """One profile for each set of runs that executed the same operators; most runs first.

    An ETDump does not name its methods, but two methods have different operators. ``shapes`` are
    those of the program, where it is at hand.
    """
    dumps = (columns,) if isinstance(columns, Columns) else tuple(columns)
    selections = [select(dump, rules=rules) for dump in dumps]
    if not sum(selection.execute.size for selection in selections):
        raise EtdumpError(
            "The ETDump holds no inference: there is no Method::execute event in it. Run the "
            "program at least once with the event tracer on before the dump is written."
        )
    for selection in selections:
        if (durations(selection.columns, selection.execute) >= LONGEST).any():
            raise EtdumpError(
                "The ETDump holds a Method::execute of more than a year: its times are damaged, "
                "or the device's clock jumped. Run the program again."
            )
    load_ns = _load_times(dumps)
    groups = _groups(selections)
    notes = tuple(_notes(selections, groups[MOST_METHODS:]))
    return tuple(
        _profile(group, load_ns, notes, census=census, attribution=attribution, shapes=shapes)
        for group in groups[:MOST_METHODS]
    )


def _notes(selections: Sequence[Selection], left_out: Sequence[_Group]) -> Iterator[str]:
    excess = max(selection.excess for selection in selections)
    if excess > NOTABLE_EXCESS:
        yield (
            f"the operators of a delegate call took up to {excess:.0%} longer than the call "
            "itself: they overlap or count time in another unit; they were scaled to the call's "
            "time"
        )
    if left_out:
        runs = sum(group.end_to_end.size for group in left_out)
        yield (
            f"the runs executed {MOST_METHODS + len(left_out)} different sets of operators; the "
            f"{MOST_METHODS} most frequent are shown, and {count(runs, 'run')} left out"
        )


def _load_times(dumps: Sequence[Columns]) -> Mapping[str, float]:
    """The mean time of each load and init event."""
    times: dict[str, list[int]] = {}
    for dump in dumps:
        rows = np.flatnonzero(dump.run < 0)
        for name, ns in zip(dump.name[rows].tolist(), durations(dump, rows).tolist(), strict=True):
            times.setdefault(dump.names[name], []).append(ns)
    return {name: sum(values) / len(values) for name, values in times.items()}


# --- runs that executed the same ------------------------------------------------------------------


def _groups(selections: Sequence[Selection]) -> list[_Group]:
    names: dict[str, int] = {}
    pieces: dict[bytes, list[_Group]] = {}
    for selection in selections:
        shared = np.fromiter(
            (names.setdefault(name, len(names)) for name in selection.columns.names),
            dtype=np.int64,
        )
        for signature, group in _pieces(selection, shared):
            pieces.setdefault(signature, []).append(group)
    groups = [_joined(parts) for parts in pieces.values()]
    return sorted(groups, key=lambda group: (-group.end_to_end.size, group.first))


def _pieces(selection: Selection, shared: Rows) -> Iterable[tuple[bytes, _Group]]:
    """Groups of one dump, each with a key that is the same in other dumps."""
    columns = selection.columns
    runs = selection.execute.size
    counts = np.bincount(selection.run, minlength=runs)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    order = np.arange(selection.run.size)
    if (np.diff(selection.run) < 0).any():
        order = np.argsort(selection.run, kind="stable")
    for size in np.unique(counts).tolist():
        members = np.flatnonzero(counts == size)
        places = order[first[members][:, None] + np.arange(size)]
        rows = selection.rows[places]
        # The instruction may be -1, which must not wipe out the name.
        instruction = columns.instruction[rows].astype(np.int64) & 0xFFFF_FFFF
        keys = (shared[columns.name[rows]] << 32) | instruction
        for which in _equal_rows(keys):
            yield keys[which[0]].tobytes(), _group(selection, members[which], places[which])


def _equal_rows(keys: Rows) -> list[Rows]:
    """The positions of equal rows together; almost always there is one set."""
    if not keys.size or bool((keys == keys[0]).all()):
        return [np.arange(keys.shape[0])]
    _, inverse = np.unique(keys, axis=0, return_inverse=True)
    inverse = inverse.ravel()
    return [np.flatnonzero(inverse == value) for value in range(int(inverse.max()) + 1)]


def _group(selection: Selection, runs: Rows, places: Rows) -> _Group:
    """``places``: runs by operators, positions in the selection's arrays."""
    columns = selection.columns
    example = selection.rows[places[0]]
    names = columns.name[example].tolist()
    _, calls = np.unique(selection.call[places[0]], return_inverse=True)
    execute = selection.execute[runs]
    end_to_end = durations(columns, execute)
    return _Group(
        labels=tuple(columns.names[name] for name in names),
        operators=tuple(selection.operators[name] for name in names),
        instructions=tuple(columns.instruction[example].tolist()),
        calls=tuple(calls.ravel().tolist()),
        method=columns.block_names[int(columns.block[execute[0]])],
        end_to_end=end_to_end,
        matrix=selection.duration[places],
        overhead=_overhead(selection, runs, places, end_to_end),
        first=int(runs[0]),
    )


def _overhead(
    selection: Selection, runs: Rows, places: Rows, end_to_end: NDArray[np.int64]
) -> NDArray[np.float64]:
    """What no operator took, by the call it was spent in."""
    columns = selection.columns
    overhead = np.zeros((runs.size, len(OVERHEAD_PARTS)))
    if places.size:
        calls, owner = distinct(selection.call[places].ravel())
        taken = np.bincount(owner, weights=selection.duration[places].ravel())
        left = durations(columns, calls) - taken
        run_of_call = np.zeros(calls.size, dtype=np.int64)
        run_of_call[owner] = np.repeat(np.arange(runs.size), places.shape[1])
        for part, name in enumerate((DELEGATE_CALL, OPERATOR_CALL)):
            wanted = np.fromiter((known == name for known in columns.names), dtype=bool)
            chosen = wanted[columns.name[calls]]
            overhead[:, part] = np.bincount(
                run_of_call[chosen], weights=left[chosen], minlength=runs.size
            )
    total = end_to_end - selection.duration[places].sum(axis=1)
    spent = overhead.sum(axis=1)
    # A call inside of a call is in both: the two together have no more than was spent.
    overhead *= (np.minimum(total, spent) / np.where(spent, spent, 1))[:, np.newaxis]
    overhead[:, 2] = total - overhead.sum(axis=1)
    return overhead


def _joined(parts: list[_Group]) -> _Group:
    names = ("end_to_end", "matrix", "overhead")
    series: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in names
    }
    return replace(parts[0], **series)


# --- a group to a profile -------------------------------------------------------------------------


def _profile(
    group: _Group,
    load_ns: Mapping[str, float],
    notes: tuple[str, ...],
    *,
    census: KernelCensus | None,
    attribution: Attribution | None,
    shapes: Sequence[MethodShapes],
) -> Profile:
    end_to_end = robust_stats(group.end_to_end)
    typical = ~outliers(group.end_to_end.astype(np.float64))
    whole = float(group.end_to_end[typical].sum(dtype=np.float64))
    scale = 1.0 / whole if whole else 0.0
    shares = group.matrix[typical].sum(axis=0, dtype=np.float64) * scale
    overhead = group.overhead[typical].sum(axis=0) * scale * end_to_end.median
    operators = _operators(group, shares, end_to_end.median, census, attribution, shapes)
    category_ns, category_counts = _parts(operators, lambda found: found.category, Category)
    kind_ns, kind_counts = _parts(operators, lambda found: (found.category, found.kind))
    executor_ns, executor_counts = _parts(operators, lambda found: found.executor, Executor)
    return Profile(
        method=group.method,
        runs=group.end_to_end.size,
        typical_runs=int(typical.sum()),
        end_to_end=end_to_end,
        end_to_end_ns=tuple(group.end_to_end.tolist()),
        operators=operators,
        category_ns=category_ns,
        kind_ns=kind_ns,
        executor_ns=executor_ns,
        overhead_ns=float(overhead.sum()),
        overhead_parts_ns=dict(zip(OVERHEAD_PARTS, overhead.tolist(), strict=True)),
        category_counts=category_counts,
        kind_counts=kind_counts,
        executor_counts=executor_counts,
        coverage=coverage(operators, source=NAMES if census is None else NAMES_AND_KERNELS),
        load_ns=load_ns,
        unknown=tuple(
            dict.fromkeys(each.operator.name for each in operators if not each.operator.known)
        ),
        notes=(*_group_notes(group), *notes),
    )


def _operators(
    group: _Group,
    shares: NDArray[np.float64],
    end_to_end: float,
    census: KernelCensus | None,
    attribution: Attribution | None,
    methods: Sequence[MethodShapes],
) -> tuple[OperatorProfile, ...]:
    medians = np.median(group.matrix, axis=0).tolist() if group.labels else []
    samples = group.matrix.T.tolist()
    aten = attribution.aten if attribution else {}
    modules = attribution.modules if attribution else {}
    traced = list(zip(group.operators, group.instructions, strict=True))
    shapes, origins = match_shapes(traced, methods), match_origins(traced, attribution)
    return tuple(
        OperatorProfile(
            index=index,
            label=group.labels[index],
            operator=settled(group.operators[index], shapes[index], census),
            instruction=instruction,
            median_ns=medians[index],
            share=share,
            time_ns=share * end_to_end,
            samples_ns=tuple(samples[index]),
            call=group.calls[index],
            aten=aten.get(instruction, ()),
            modules=modules.get(instruction, ()),
            shapes=shapes[index],
            origin=origin,
            module="" if origin is None or origin.near else origin.module,
        )
        for index, (instruction, share, origin) in enumerate(
            zip(group.instructions, shares.tolist(), origins, strict=True)
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


def _group_notes(group: _Group) -> Iterator[str]:
    names = [operator.name for operator in group.operators]
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
    if not group.end_to_end.any():
        yield "Method::execute took no time on the device's clock, so there are no shares"
