"""torchvision for models, also where its compiled operators do not load.

torchvision's binary is built against one build of torch. Beside another (a CPU build, say) its
operators are missing, and its Python code fails on import although no network needs them: it
describes ``nms`` and its quantized twin to torch before anything calls them. Declaring the two
is enough for ``torchvision.models``, and for timm and transformers on top of it.
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
    """The module ``torchvision``, imported whole."""
    try:
        importlib.import_module("torchvision.models")
    except RuntimeError as error:
        if not misses_operators(error):
            raise
        _declare_operators()
        # A half-made import must not be found again.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        importlib.import_module("torchvision.models")
    return sys.modules["torchvision"]


def misses_operators(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, is torchvision missing its compiled operators."""
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
