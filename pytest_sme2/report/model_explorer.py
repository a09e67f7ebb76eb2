"""Node data for Model Explorer: what ran each node of a program, what it cost, what changed.

Arm's adapter calls a method's graph after it, and the graph of a call to XNNPACK
``FILE::METHOD_CHAIN_INSTRUCTION``; in that, nodes are called by their place.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.profile.compare import match_operators
from pytest_sme2.profile.matching import match_nodes
from pytest_sme2.report.case_summary import engine_names, engines_of
from pytest_sme2.results.profile import Executor, Profile
from pytest_sme2.results.run import SHOWN, Arm
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.files import write_text
from pytest_sme2.trace.program import read_nodes

_NEON, _WORSE, _BETTER = "#ffd27f", "#ff8a80", "#a5e6b4"
COLOURS = {"SME2": _BETTER, "SME1": "#a5d8e6", "NEON": _NEON, "XNNPACK": _NEON, "portable": _WORSE}
_COSTLY = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#ff9d3b"}]

Node = tuple[str, str]
"""The names of a graph and of a node in it."""


def viewer(folder: Path, record: CaseRecord, before: CaseRecord | None) -> list[str]:
    """Writes the data of a case, and returns the command that shows it, from any folder."""
    folder = folder.absolute()
    program = folder / record.measured.program
    if not program.is_file():
        raise UsageError(f"{program}, the program of {record.id}, is gone. Run it again.")
    written = ",".join(map(str, write_node_data(folder, record, before)))
    return [
        *(sys.executable, "-m", "model_explorer", str(program), "--host=127.0.0.1"),
        *("--extensions=pte_adapter_model_explorer", f"--node_data_paths={written}"),
    ]


def write_node_data(folder: Path, record: CaseRecord, before: CaseRecord | None) -> list[Path]:
    """The files of one case; of the same case ``before``, what changed since."""
    measured, arm = record.measured, record.measured.arm
    program = folder / measured.program
    graphs = read_nodes(program)
    placed = {
        each: place_operators(measured.profiles[each], program.name, graphs)
        for each in SHOWN
        if each in measured.profiles
    }
    spent = {each: _values(record, each) for each in placed}
    tables: dict[str, Mapping[Node, Any]] = {
        str(each): _sums(placed[each][0], values) for each, values in spent.items() if values
    }
    places, parts = placed[arm]
    if whole := sum(spent[arm]):
        tables["percent"] = _sums(places, [round(100 * each / whole, 3) for each in spent[arm]])
    names = engine_names([measured])
    ran: dict[Node, list[str]] = {}
    for nodes, engine in zip(places, engines_of(measured, arm), strict=True):
        for node in nodes:
            ran.setdefault(node, []).append(names[engine])
    # Of a call, what ran most of its operators. Model Explorer shows the last file at first.
    tables["ran"] = {node: statistics.mode(each) for node, each in ran.items()} | {
        node: f"{ran[other][0]}, fused" for node, other in parts.items()
    }
    if before is not None and spent[arm]:
        tables["changed"] = _sums(places, _changes(before, record, spent[arm]))
    written = {folder / "model-explorer" / f"{name}.json": name for name in tables}
    for path, name in written.items():
        write_text(path, json.dumps(_document(name, tables[name]), separators=(",", ":")))
    return [*written]


def place_operators(
    profile: Profile, file: str, graphs: Mapping[str, Mapping[int, Sequence[int]]]
) -> tuple[list[list[Node]], dict[Node, Node]]:
    """For each operator the nodes it stands on, call and own; and the nodes that ran as others."""
    asked = {member.instruction for member in profile.operators}
    method = max(graphs, key=lambda name: len(asked & graphs[name].keys()))
    places: list[list[Node]] = []
    calls: dict[tuple[int, int], list[int]] = {}
    for row, member in enumerate(profile.operators):
        places.append([(method, f"{method}_0_{member.instruction}")])
        if member.operator.executor is Executor.DELEGATED:
            calls.setdefault((member.call, member.instruction), []).append(row)
    parts: dict[Node, Node] = {}
    for (_, instruction), rows in calls.items():
        graph = f"{file}::{method}_0_{instruction}"
        operations = [profile.operators[row].operator.operation for row in rows]
        ran, fused = match_nodes(operations, graphs[method].get(instruction, ()))
        for row, node in zip(rows, ran, strict=False):
            places[row].append((graph, str(node)))
        parts |= {(graph, str(node)): (graph, str(whole)) for node, whole in fused.items()}
    return places, parts


def _values(record: CaseRecord, arm: Arm) -> list[float]:
    """Instructions of each operator, or microseconds; never a time of an emulator."""
    measured = record.measured
    if not measured.emulated:
        return [round(member.time_ns / 1000, 3) for member in measured.profiles[arm].operators]
    cost = measured.costs.get(arm)
    return [] if cost is None else [entry.counts.instructions for entry in cost.operators]


def _changes(before: CaseRecord, after: CaseRecord, values: Sequence[float]) -> list[float]:
    arm = after.measured.arm
    old, new = (each.measured.profiles[arm].operators for each in (before, after))
    spent = dict(zip(map(id, old), _values(before, arm), strict=False))
    earlier = {id(each.after): spent.get(id(each.before), 0) for each in match_operators(old, new)}
    return [value - earlier.get(id(each), 0) for each, value in zip(new, values, strict=True)]


def _sums(places: Sequence[Sequence[Node]], values: Sequence[float]) -> Mapping[Node, float]:
    found: Counter[Node] = Counter()
    for nodes, value in zip(places, values, strict=True):
        found.update(dict.fromkeys(nodes, value))
    return found


def _document(name: str, found: Mapping[Node, Any]) -> dict[str, Any]:
    graphs: dict[str, Any] = {}
    for (graph, node), value in found.items():
        shown = graphs.setdefault(graph, {"results": {}})
        shown["results"][node] = {"value": value}
        if name == "ran":
            shown["results"][node]["bgColor"] = COLOURS[value.partition(",")[0]]
        elif name != "changed":
            shown["gradient"] = _COSTLY
        elif value:
            shown["results"][node]["bgColor"] = _WORSE if value > 0 else _BETTER
    return graphs
