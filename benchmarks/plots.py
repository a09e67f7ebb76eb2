"""The plot of how cost grows, as SVG, from the kept result. Needs matplotlib."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "benchmarks-growth.svg"
_AXES = ("models", "devices", "runs", "operators")


def mark(details: Mapping[str, Any]) -> str:
    """What the plot carries, so that a plot of other figures is noticed."""
    text = json.dumps(details, sort_keys=True)
    return f"growth {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def draw_growth(details: Mapping[str, Any], path: Path) -> None:
    """Cost against amount of work, both logarithmic: a straight line of slope 1 is linear."""
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text, and the same figures give the same file.
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 8, "axes.titlesize": 9}
    ):
        figure = Figure(figsize=(10, 7.5), layout="constrained")
        grid = figure.subplots(2, 2)
        for place, axis in zip(grid.flat, _AXES, strict=True):
            if axis not in details:
                place.set_visible(False)
                continue
            _draw_axis(place, axis, details[axis])
        figure.savefig(path, format="svg", metadata={"Date": None, "Description": mark(details)})


def _draw_axis(place: Any, axis: str, stages: Mapping[str, Any]) -> None:
    for stage, growth in stages.items():
        sizes = sorted(map(int, growth["seconds"]))
        costs = [growth["seconds"][str(size)] for size in sizes]
        place.plot(sizes, costs, marker="o", markersize=3, linewidth=1.2,
                   label=f"{stage}: n^{growth['exponent']:.2f}")  # fmt: skip
    every = [(int(n), cost) for g in stages.values() for n, cost in g["seconds"].items()]
    low, high = min(n for n, _ in every), max(n for n, _ in every)
    top = max(cost for _, cost in every)
    slope = -1 if axis == "devices" else 1
    ends = (top * (low / high), top) if slope == 1 else (top, top * (low / high))
    place.plot((low, high), ends, color="grey", linestyle=":", linewidth=1, label="linear")
    place.set(xscale="log", yscale="log", xlabel=axis, title=f"{low:,} to {high:,} {axis}")
    place.set_ylabel("seconds a run (wall)" if axis == "devices" else "CPU seconds")
    place.grid(visible=True, which="major", alpha=0.3)
    place.legend(fontsize=7, frameon=False)
