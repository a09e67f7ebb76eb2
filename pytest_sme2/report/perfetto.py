"""One inference after another as a Chrome trace, which Perfetto and chrome://tracing open. Pure.

Each arm is a process of its own; within it a run encloses its calls, and a call its operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_sme2.profile.categories import Rule
from pytest_sme2.profile.coverage import settled_operators
from pytest_sme2.profile.operators import Selection, durations, select
from pytest_sme2.results import Category, Columns, Counts, InferenceCost, Profile

# Colours of the trace format's own palette, as far apart as it has them.
_COLOURS = {
    Category.CONV: "thread_state_running",
    Category.GEMM: "rail_load",
    Category.DATA_MOVEMENT: "bad",
    Category.ELEMENTWISE: "yellow",
    Category.OTHER: "grey",
}
_CALL_COLOUR = "generic_work"
_THREAD = 1


@dataclass(frozen=True, eq=False)
class Track:
    """One process of the trace: all runs of one ETDump."""

    name: str
    columns: Columns
    rules: tuple[Rule, ...] = ()
    emulated: bool = False
    cost: InferenceCost | None = None
    profile: Profile | None = None
    """What is known of its operators beyond their names."""


def trace_document(tracks: Sequence[Track]) -> dict[str, Any]:
    """The trace in JSON's own types; times are microseconds from each track's first run on."""
    events: list[dict[str, Any]] = []
    for process, track in enumerate(tracks, start=1):
        note = " (emulated: its times say nothing about hardware)" if track.emulated else ""
        slices = [*_events(process, select(track.columns, rules=track.rules), track.profile)]
        _add_details(slices, track)
        events += [
            _metadata("process_name", process, name=track.name + note),
            _metadata("process_sort_index", process, sort_index=process),
            _metadata("thread_name", process, name="inference"),
            *slices,
        ]
        if track.cost is not None:
            events += _counters(slices, track.cost)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _add_details(slices: Sequence[dict[str, Any]], track: Track) -> None:
    """Add module, shapes, kernel and cost to the arguments of each operator's slice."""
    runs: dict[int, list[dict[str, Any]]] = {}
    for event in slices:
        if "executor" in event["args"]:
            runs.setdefault(event["args"]["run"], []).append(event["args"])
    for found in runs.values():
        # Another method, or control flow: then nothing is known of these.
        if track.profile is not None and len(found) == len(track.profile.operators):
            for details, member in zip(found, track.profile.operators, strict=True):
                details |= _known(module=member.module, shapes=str(member.shapes or ""))
        if track.cost is not None and len(found) == len(track.cost.operators):
            total = track.cost.total.instructions
            for details, entry in zip(found, track.cost.operators, strict=True):
                counts = entry.counts
                details |= _known(
                    kernel=entry.kernels[0][0] if entry.kernels else None,
                    instructions=counts.instructions,
                    outer_products=counts.outer_products,
                    cost_percent=round(100 * counts.instructions / total, 2) if total else None,
                    multiply_accumulates=entry.macs,
                )


def _counters(slices: Sequence[dict[str, Any]], cost: InferenceCost) -> Iterator[dict[str, Any]]:
    """A track of what each operator of the first run executed; one inference was counted."""
    operators = [one for one in slices if "executor" in one["args"] and one["args"]["run"] == 0]
    if len(operators) != len(cost.operators):
        return
    for event, entry in zip(operators, cost.operators, strict=True):
        for at, counts in ((event["ts"], entry.counts), (event["ts"] + event["dur"], Counts())):
            for name in ("instructions", "outer_products"):
                value = {name: getattr(counts, name)}
                title = name.replace("_", " ")
                yield {**event, "name": title, "ph": "C", "ts": at, "args": value}


def _known(**details: object) -> dict[str, object]:
    return {name: value for name, value in details.items() if value not in (None, "")}


def _metadata(kind: str, process: int, **arguments: object) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": _THREAD, "args": arguments}


def _events(
    process: int, selection: Selection, profile: Profile | None = None
) -> Iterator[dict[str, Any]]:
    columns = selection.columns
    known = {} if profile is None else settled_operators(profile)
    if not selection.execute.size:
        return
    origin = int(columns.start[selection.execute].min())

    def event(
        name: str, kind: str, start: int, length: int, colour: str = _CALL_COLOUR, **details: object
    ) -> dict[str, Any]:
        return {
            "name": name,
            "cat": kind,
            "ph": "X",
            "pid": process,
            "tid": _THREAD,
            "ts": (start - origin) / 1e3,
            "dur": length / 1e3,
            "cname": colour,
            "args": details,
        }

    lengths = durations(columns, selection.execute).tolist()
    starts = columns.start[selection.execute].tolist()
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        yield event(f"run {number}", "run", int(start), length, run=number)
    for call, members in _calls(selection).items():
        start = int(columns.start[call])
        length = max(int(columns.end[call]) - start, 0)
        alone = len(members) == 1 and int(selection.rows[members[0]]) == call
        if not alone:
            name = columns.names[columns.name[call]]
            yield event(name, "call", start, length, instruction=int(columns.instruction[call]))
        for position, at, took in _placed(selection, members, start, start + length):
            row = selection.rows[position]
            label = columns.names[columns.name[row]]
            operator = known.get(
                (label, int(columns.instruction[row])), selection.operators[columns.name[row]]
            )
            details = {
                "category": str(operator.category),
                "kind": operator.kind,
                "executor": str(operator.executor),
                "sme2": operator.proof,
                "run": int(selection.run[position]),
            }
            colour = _COLOURS[operator.category]
            yield event(label, str(operator.category), at, took, colour) | {"args": details}


def _calls(selection: Selection) -> dict[int, list[int]]:
    """The positions of the operators of each call, in the order in which they ended."""
    members: dict[int, list[int]] = {}
    for position, call in enumerate(selection.call.tolist()):
        members.setdefault(call, []).append(position)
    return members


def _placed(
    selection: Selection, members: Sequence[int], begin: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """Where the operators of a call lie: as recorded, but one after another and within the call.

    XNNPACK adds up whole microseconds, so its events may reach past the call's end, and a viewer
    takes what overlaps for a mistake.
    """
    left = sum(int(selection.duration[position]) for position in members)
    previous = begin
    for position in members:
        took = int(selection.duration[position])
        recorded = int(selection.columns.start[selection.rows[position]])
        at = min(max(recorded, previous), end - left)
        yield position, at, took
        previous = at + took
        left -= took
