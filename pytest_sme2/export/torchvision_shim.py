"""Imports torchvision even if its compiled operators do not load.

torchvision's binary fits only one build of torch. With another one (for example a CPU build) its
operators are missing. Its Python code then fails on import, because it describes ``nms`` and
``qnms`` to torch, although no network needs them. Declaring the two is enough for
``torchvision.models``, and for timm and transformers.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
# The declarations live as long as this object does.
_declared: list[Any] = []


def import_torchvision() -> Any:
    """The module ``torchvision``, fully imported."""
    try:
        importlib.import_module("torchvision.models")
    except RuntimeError as error:
        if not misses_operators(error):
            raise
        _declare_operators()
        # Remove a half-finished import.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        importlib.import_module("torchvision.models")
    return sys.modules["torchvision"]


def misses_operators(error: BaseException | None) -> bool:
    """Whether an error, or its cause, is that torchvision's compiled operators are missing."""
    while error is not None:
        if isinstance(error, RuntimeError) and "operator torchvision::" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _declare_operators() -> None:
    if _declared:
        return
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _OPERATORS:
        library.define(schema)
    _declared.append(library)
