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
        figure = Figure(figsize=(12, 7.5), layout="constrained")
        grid = figure.subplots(2, 2)
        for place, axis in zip(grid.flat, _AXES, strict=True):
            if axis not in details:
                place.set_visible(False)
                continue
            _draw_axis(place, axis, details[axis])
        figure.savefig(path, format="svg", metadata={"Date": None, "Description": mark(details)})


def _draw_axis(place: Any, axis: str, stages: Mapping[str, Any]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    costs = {
        stage: {int(size): cost for size, cost in growth["seconds"].items()}
        for stage, growth in stages.items()
    }
    for stage, by_size in costs.items():
        label = f"{stage}, n^{stages[stage]['exponent']:.2f}"
        sizes = sorted(by_size)
        place.plot(sizes, [by_size[size] for size in sizes], ".-", linewidth=1.2, label=label)
    every = sorted({size for by_size in costs.values() for size in by_size})
    top = max(cost for by_size in costs.values() for cost in by_size.values())
    # With more devices a run takes less time: there the ideal falls.
    ideal = [top * (every[0] / n if axis == "devices" else n / every[-1]) for n in every]
    place.plot(every, ideal, ":", color="grey", linewidth=1, label="linear")
    place.set(xscale="log", yscale="log", xlabel=axis)
    place.set_ylabel("seconds a run (wall)" if axis == "devices" else "CPU seconds")
    place.set_xticks(every, [f"{size:,}" for size in every])
    place.xaxis.set_minor_formatter(NullFormatter())
    place.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    place.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    place.yaxis.set_minor_formatter(NullFormatter())
    place.grid(visible=True, which="major", alpha=0.3)
    place.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, frameon=False)
