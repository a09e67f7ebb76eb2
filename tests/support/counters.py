"""The counter of executed blocks, compiled once for the tests of a process."""

from __future__ import annotations

import functools
from pathlib import Path

from pytest_sme2.targets.emulated import block_counter


@functools.cache
def compiled_counter() -> Path:
    return block_counter()
