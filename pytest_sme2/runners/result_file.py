"""The file that the runner leaves: JSON in, a run out. Whatever is wrong with it raises."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_sme2.results import CoreUse, Output, Run, RunRequest
from pytest_sme2.system.wording import count


def run_of(
    document: Mapping[str, Any], request: RunRequest, outputs: Path | None, **facts: Any
) -> Run:
    """A run with what else is known of it.

    ValueError, KeyError or TypeError where the document is not what was asked for.
    """
    if document["schema"] != 1:
        raise ValueError(f"its schema is {document['schema']!r}, not 1")
    if document["sme2"]["requested"] != str(request.switch):
        raise ValueError("it belongs to the other arm")
    if len(document["wall_ns"]) != request.runs or len(document["cpu_ns"]) != request.runs:
        raise ValueError(f"it does not have {count(request.runs, 'run')}")
    if not all(_amount(value) for value in document["wall_ns"]):
        raise ValueError("a run took no time")
    steps = request.inferences if request.generate else 0
    if len(document.get("step_wall_ns", ())) != steps:
        raise ValueError(f"it does not have {count(steps, 'step')}")
    effective = document["sme2"]["effective"]
    return Run(
        request=request,
        sme2_effective=None if effective is None else bool(effective),
        wall_ns=tuple(map(_amount, document["wall_ns"])),
        cpu_ns=tuple(map(_amount, document["cpu_ns"])),
        warmup_wall_ns=tuple(map(_amount, document["warmup_wall_ns"])),
        load_ns=_amount(document["load_ns"]),
        peak_rss_load_bytes=_optional_amount(document["peak_rss_load_bytes"]),
        peak_rss_bytes=_optional_amount(document["peak_rss_bytes"]),
        outputs=tuple(_read_output(value, outputs) for value in document["outputs"]),
        cpu_features=tuple(str(name) for name in document["cpu_features"]),
        # A runner of an older version, in a bundle, does not tell it.
        vector_bits=_optional_amount(document["sme2"].get("vector_bits")),
        cores=_read_cores(document.get("cores")),
        **_read_clock(document.get("clock")),
        step_wall_ns=tuple(map(_amount, document.get("step_wall_ns", ()))),
        step_peak_bytes=tuple(map(_amount, document.get("step_peak_rss_bytes", ()))),
        **facts,
    )


def _amount(value: object) -> int:
    """A time or a size in 64 bits, as the runner counts them."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is neither a time nor a size")
    return value


def _optional_amount(value: object) -> int | None:
    return None if value is None else _amount(value)


def _read_cores(value: Any) -> CoreUse | None:
    # A runner of an older version, in a bundle, does not know them.
    if value is None:
        return None
    return CoreUse(
        performance_ns=_amount(value["performance_ns"]),
        efficiency_ns=_amount(value["efficiency_ns"]),
        energy_nj=_amount(value["energy_nj"]),
        quality=str(value["quality"]),
    )


def _read_clock(value: Any) -> dict[str, Any]:
    # Nor does it count cycles.
    if value is None:
        return {}
    cycles, ns = _amount(value["cycles"]), _amount(value["ns"])
    known = cycles > 0 < ns
    return {"clock_ghz": cycles / ns if known else None, "uncounted": str(value["refused"])[:200]}


def _read_output(value: Any, folder: Path | None) -> Output:
    return Output(
        dtype=str(value["dtype"]),
        shape=tuple(map(_amount, value["shape"])),
        sha256=str(value["sha256"]),
        has_nan=bool(value["has_nan"]),
        file=None if folder is None or value["file"] is None else folder / Path(value["file"]).name,
    )
