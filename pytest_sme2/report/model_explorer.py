"""Node data for Model Explorer: what ran each node of a program, what it cost, what changed.

Arm's adapter calls a method's graph after it, and the graph of a call to XNNPACK
``FILE::METHOD_CHAIN_INSTRUCTION``; in that, nodes are called by their place.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.profile.compare import match_operators
from pytest_sme2.profile.matching import match_nodes
from pytest_sme2.report.cost import engine_names, engines_of
from pytest_sme2.results import SHOWN, Arm, Executor, Profile
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.files import write_text
from pytest_sme2.trace.program import read_nodes

FOLDER = "model-explorer"
_NEON, _WORSE, _BETTER = "#ffd27f", "#ff8a80", "#a5e6b4"
COLOURS = {"SME2": _BETTER, "SME1": "#a5d8e6", "NEON": _NEON, "XNNPACK": _NEON, "portable": _WORSE}
_COSTLY = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#ff9d3b"}]

Node = tuple[str, str]
"""The names of a graph and of a node in it."""


def program_of(folder: Path, record: CaseRecord) -> Path:
    path = folder / record.measured.program
    if not path.is_file():
        raise UsageError(f"{path}: the program of {record.id} is not there any more. Run it again.")
    return path


def write_node_data(folder: Path, record: CaseRecord, before: CaseRecord | None) -> list[Path]:
    """The files of one case; of the same case ``before``, what changed since."""
    measured, program = record.measured, program_of(folder, record)
    graphs, arm = read_nodes(program), measured.arm
    placed = {
        arm: place_operators(measured.profiles[arm], program.name, graphs)
        for arm in SHOWN
        if arm in measured.profiles
    }
    spent = {arm: values for arm in placed if (values := _values(record, arm))}
    tables: dict[str, dict[Node, Any]] = {
        str(arm): _sums(placed[arm][0], values) for arm, values in spent.items()
    }
    if total := sum(spent.get(arm, ())):
        shares = tables[str(arm)].items()
        tables["percent"] = {node: round(100 * value / total, 3) for node, value in shares}
    # The last one is what Model Explorer shows at first.
    tables["ran"] = _ran(record, *placed[arm])
    if before is not None and arm in spent:
        tables["changed"] = _sums(placed[arm][0], _changes(before, record, spent[arm]))
    written = []
    for name, found in tables.items():
        written.append(folder / FOLDER / f"{name}.json")
        write_text(written[-1], json.dumps(_document(name, found), separators=(",", ":")))
    return written


def place_operators(
    profile: Profile, file: str, graphs: Mapping[str, Mapping[int, Sequence[int]]]
) -> tuple[list[list[Node]], dict[Node, int]]:
    """For each operator the nodes it stands on, call and own; and operators others are part of."""
    asked = {member.instruction for member in profile.operators}
    method = max(graphs, key=lambda name: len(asked & graphs[name].keys()))
    places: list[list[Node]] = []
    calls: dict[int, list[int]] = {}
    for row, member in enumerate(profile.operators):
        places.append([(method, f"{method}_0_{member.instruction}")])
        if member.operator.executor is Executor.DELEGATED:
            calls.setdefault(member.call, []).append(row)
    parts: dict[Node, int] = {}
    for rows in calls.values():
        instruction = profile.operators[rows[0]].instruction
        graph = f"{file}::{method}_0_{instruction}"
        operations = [profile.operators[row].operator.operation for row in rows]
        ran, fused = match_nodes(operations, graphs[method].get(instruction, ()))
        for row, node in zip(rows, ran, strict=True):
            places[row] += [] if node is None else [(graph, str(node))]
        parts |= {(graph, str(node)): rows[place] for node, place in fused.items()}
    return places, parts


def _ran(
    record: CaseRecord, places: Sequence[Sequence[Node]], parts: Mapping[Node, int]
) -> dict[Node, str]:
    """What ran each node; of a call what ran most of its operators."""
    names = engine_names([record.measured])
    engines = [names[each] for each in engines_of(record.measured, record.measured.arm)]
    found: dict[Node, Counter[str]] = {}
    for engine, nodes in zip(engines, places, strict=True):
        for node in nodes:
            found.setdefault(node, Counter())[engine] += 1
    ran = {node: counted.most_common(1)[0][0] for node, counted in found.items()}
    return ran | {node: f"{engines[row]}, fused" for node, row in parts.items()}


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


def _sums(places: Sequence[Sequence[Node]], values: Sequence[float]) -> dict[Node, float]:
    found: dict[Node, float] = {}
    for nodes, value in zip(places, values, strict=True):
        for node in nodes:
            found[node] = found.get(node, 0) + value
    return found


def _document(name: str, found: Mapping[Node, Any]) -> dict[str, Any]:
    graphs: dict[str, Any] = {}
    for (graph, node), value in found.items():
        result = {"value": value}
        if name == "ran":
            result["bgColor"] = COLOURS[value.partition(",")[0]]
        elif name == "changed" and value:
            result["bgColor"] = _WORSE if value > 0 else _BETTER
        graphs.setdefault(graph, {"results": {}})["results"][node] = result
        if name not in ("ran", "changed"):
            graphs[graph]["gradient"] = _COSTLY
    return graphs
