"""Kernel matrices as a page with filters. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pytest_sme2.results import KernelMatrix
from pytest_sme2.system.files import encode

_TEMPLATE = Path(__file__).parent / "page" / "matrix.html"


def page(matrices: Sequence[KernelMatrix]) -> str:
    """One file that needs no network; the oldest version comes first."""
    data = json.dumps({matrix.executorch: encode(matrix) for matrix in matrices})
    # No text of a matrix can end the script that holds it.
    return _TEMPLATE.read_text("utf-8").replace("@DATA@", data.replace("<", "\\u003c"))
