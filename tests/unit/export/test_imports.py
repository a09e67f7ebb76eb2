"""What an export does to torch before it uses it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sme2.export.imports import share_node_sources

torch = pytest.importorskip("torch")


class _Small(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, rows: Any) -> Any:
        return torch.nn.functional.layer_norm(self.layer(rows), (4,))


def _histories() -> list[str]:
    """Where each node of a graph came from, after two passes over it."""
    program = torch.export.export(_Small(), (torch.ones(2, 4),))
    program = program.run_decompositions().run_decompositions()
    # A graph has another number each time.
    return [
        " ".join(word for word in repr(source).split() if not word.startswith("graph_id"))
        for node in program.graph.nodes
        for source in node.meta.get("from_node", [])
    ]


# torch uses what it has deprecated itself.
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_shared_histories_say_the_same_as_copied_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.fx.traceback import NodeSource

    copied = _histories()
    # Also puts back what the call sets.
    monkeypatch.setattr(NodeSource, "__deepcopy__", None, raising=False)
    share_node_sources()
    assert _histories() == copied
    assert any("layer_norm" in history for history in copied)
