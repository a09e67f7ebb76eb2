"""Whether node data for Model Explorer holds all that was measured, on nodes that exist."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_sme2.report.model_explorer import place_operators
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.profile import Executor
from pytest_sme2.trace.program import read_nodes

# What XNNPACK adds, so that it has no node of its own.
ADDED = {"Clamp"}


def assert_all_is_on_nodes(found: Mapping[str, Any], measured: CaseResult, program: Path) -> None:
    graphs = read_nodes(program)
    known = graphs_of_adapter(program)
    for profile in measured.profiles.values():
        places, _ = place_operators(profile, program.name, graphs)
        own: dict[tuple[str, str], list[str]] = {}
        for member, nodes in zip(profile.operators, places, strict=True):
            assert len(nodes) == 1 + (member.operator.executor is Executor.DELEGATED), member.label
            if len(nodes) > 1:
                own.setdefault(nodes[-1], []).append(member.operator.operation)
        added = {name for names in own.values() if len(names) > 1 for name in names[1:]}
        assert added <= ADDED
    for name, data in found.items():
        for graph, entry in data.items():
            nodes = entry["results"]
            if known is not None:
                assert nodes.keys() <= known[graph], (name, graph)
            if name in ("on", "off", "changed") and "::" in graph:
                method, _, call = graph.partition("::")[2].rpartition("_0_")
                whole = data[method]["results"][f"{method}_0_{call}"]["value"]
                assert abs(sum(each["value"] for each in nodes.values()) - whole) < 0.1


def graphs_of_adapter(program: Path) -> dict[str, set[str]] | None:
    """The nodes of each graph that Arm's adapter makes of it; None where it is not installed."""
    if find_spec("pte_adapter_model_explorer") is None:
        return None
    from pte_adapter_model_explorer.main import PTEAdapter

    collections = PTEAdapter().convert(str(program), {})["graphCollections"]
    return {
        graph.id: {node.id for node in graph.nodes}
        for collection in collections
        for graph in collection.graphs
    }
