"""Damaged ETDumps, and what reading them must give: a reason, or sound columns."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import numpy as np

from pytest_sme2.errors import EtdumpError
from pytest_sme2.results.run import Columns
from pytest_sme2.trace.etdump import read_etdump

DUMPS = Path(__file__).parents[1] / "data" / "etdumps"

# What reading a file may take: the CPU time of so many steps of a plain loop on the same machine.
# An emulated machine, or a busy one, takes longer for both.
STEPS = 300_000
# Seconds that no machine needs to be compared for.
AT_ONCE = 0.05
MEMORY_FACTOR = 10
# What NumPy and the interpreter take for even the smallest file.
MEMORY_FLOOR = 128 * 1024


def read(data: bytes) -> str | None:
    """Read within the promised bounds: None for a sound parse, else the error's first words.

    AssertionError where a promise is broken; anything but EtdumpError passes through.
    """
    # Now and then the interpreter enlarges a table of its own, or the machine is busy elsewhere:
    # a broken promise is one that stays broken.
    for _ in range(3):
        columns, problem, seconds, memory = _measure(data)
        if memory <= MEMORY_FACTOR * len(data) + MEMORY_FLOOR and _is_quick(seconds):
            break
    else:
        raise AssertionError(f"took {seconds:.2f} s, {memory} bytes for a file of {len(data)}")
    if columns is not None:
        check(columns)
    return problem


def _is_quick(seconds: float) -> bool:
    """Whether the loop takes longer than ``seconds``. It is left as soon as that is known."""
    if seconds <= AT_ONCE:
        return True
    started = time.process_time()
    for step in range(STEPS):
        str(step)
        if time.process_time() - started >= seconds:
            return True
    return False


def _measure(data: bytes) -> tuple[Columns | None, str | None, float, int]:
    """The columns or the problem, and the seconds and bytes it took to find out."""
    columns = problem = None
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    started = time.process_time()
    try:
        columns = read_etdump(data)
    except EtdumpError as error:
        problem = str(error).partition(": ")[2].partition(" at offset")[0]
    seconds = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    return columns, problem, seconds, peak - before


def check(columns: Columns) -> None:
    """AssertionError unless the columns hold together."""
    rows = columns.name.size
    for column in ("block", "run", "start", "end", "instruction", "chain", "depth", "parent"):
        assert getattr(columns, column).size == rows, f"{column} is shorter or longer"
    if not rows:
        return
    assert 0 <= columns.name.min() <= columns.name.max() < len(columns.names), "name"
    assert columns.delegate_name.max() < len(columns.names), "delegate_name"
    assert (np.diff(columns.block) >= 0).all(), "blocks out of order"
    assert columns.block.max() < len(columns.block_names), "block"
    assert -1 <= columns.run.min() <= columns.run.max() < max(columns.runs, 1), "run"
    assert (columns.start <= columns.end).all(), "an end before its start"
    inner = columns.parent >= 0
    outer = columns.parent[inner]
    assert (columns.depth[~inner] == 0).all(), "depth of a root"
    assert (columns.depth[inner] == columns.depth[outer] + 1).all(), "depth"
    assert (columns.block[inner] == columns.block[outer]).all(), "parent's block"
