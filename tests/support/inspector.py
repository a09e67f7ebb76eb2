"""The reader's columns against ExecuTorch's reading of the same file: needs the export extra."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pytest_sme2.results.run import Columns
from pytest_sme2.trace.etdump import read_etdump


def assert_same_events(columns: Columns, data: bytes) -> None:
    """Row by row, as ExecuTorch deserializes the file."""
    from executorch.devtools.inspector._inspector_utils import gen_etdump_object

    etdump = gen_etdump_object(etdump_data=data)
    assert columns.block_names == tuple(run.name for run in etdump.run_data)
    events = [
        (block, event.profile_event)
        for block, run in enumerate(etdump.run_data)
        for event in run.events or ()
        if event.profile_event is not None
    ]
    assert columns.block.tolist() == [block for block, _ in events]
    assert columns.start.tolist() == [event.start_time for _, event in events]
    assert columns.end.tolist() == [event.end_time for _, event in events]
    assert columns.instruction.tolist() == [event.instruction_id for _, event in events]
    assert columns.chain.tolist() == [event.chain_index for _, event in events]
    assert columns.delegate_id.tolist() == [event.delegate_debug_id_int for _, event in events]
    assert [columns.names[code] if code >= 0 else None for code in columns.delegate_name] == [
        event.delegate_debug_id_str or None for _, event in events
    ]


Series = dict[tuple[str, int, Any], tuple[list[int], list[float]]]


def by_signature(columns: Columns) -> list[tuple[str, Series]]:
    """Starts and durations of equal events of equal blocks, grouped as Inspector groups them."""
    rows_of: dict[int, list[int]] = defaultdict(list)
    for row, block in enumerate(columns.block.tolist()):
        rows_of[block].append(row)
    groups: dict[tuple[Any, ...], Series] = {}
    for block, rows in rows_of.items():
        keys = []
        for row in rows:
            delegate: Any = int(columns.delegate_id[row])
            if delegate == -1:
                code = columns.delegate_name[row]
                delegate = columns.names[code] if code >= 0 else None
            keys.append((columns.names[columns.name[row]], int(columns.instruction[row]), delegate))
        assert len(set(keys)) == len(keys), "Inspector would merge equal events of one run"
        series = groups.setdefault((columns.block_names[block], *sorted(keys, key=str)), {})
        for key, row in zip(keys, rows, strict=True):
            starts, durations = series.setdefault(key, ([], []))
            starts.append(int(columns.start[row]))
            durations.append(float(columns.end[row] - columns.start[row]))
    return [(signature[0], series) for signature, series in groups.items()]


def inspected(data: bytes) -> list[tuple[str, Series]]:
    from executorch.devtools import Inspector
    from executorch.devtools.inspector import TimeScale

    inspector = Inspector(etdump_data=data, target_time_scale=TimeScale.NS)
    return [
        (
            block.name,
            {
                (event.name, event._instruction_id, event.delegate_debug_identifier): (
                    event.start_time,
                    event.perf_data.raw,
                )
                for event in block.events
                if event.perf_data is not None
            },
        )
        for block in inspector.event_blocks
    ]


def assert_equal_to_inspector(data: bytes) -> Columns:
    columns = read_etdump(data)
    assert_same_events(columns, data)
    assert by_signature(columns) == inspected(data)
    return columns
