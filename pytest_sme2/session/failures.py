"""What could not be made, and the line of the model behind it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from pytest_sme2.errors import (
    BuildError,
    EtdumpError,
    ExportError,
    ModelError,
    RunError,
)
from pytest_sme2.results import FORWARD, Artifact, Origin
from pytest_sme2.system.files import from_here
from pytest_sme2.trace.etrecord import read_attribution

LASTING = (ModelError, ExportError, BuildError, RunError)
"""Not worth retrying."""


# ExecuTorch's words in a runner's log.
_OPERATOR = re.compile(
    r"kernel '([\w:.]{1,200})' not found|in operator ([\w:.]{1,200}): "
    r"|Failed to create ([\w ]{1,100}) node \d"
)
# What the XNNPACK delegate calls the operators that it takes; of several in a model, the first is
# named.
_IN_XNNPACK = {
    "BMM": "aten.bmm",
    "StaticConstantPad": "aten.constant_pad_nd",
    "StaticResizeBilinear2DNode": "aten.upsample_bilinear2d",
    "average pooling": "aten.avg_pool2d",
    **{f"cat{count}": "aten.cat" for count in range(2, 6)},
    "convolution": "aten.convolution",
    "deconvolution": "aten.convolution",
    "depthwise convolution": "aten.convolution",
    "global average pooling": "aten.mean",
    "linear": "aten.linear",
    "maxpool2d": "aten.max_pool2d",
    "softmax": "aten._softmax",
    "static slice": "aten.slice_copy",
    "static transpose": "aten.permute_copy",
}
_INSTEAD = {
    "aten._embedding_bag": "Use nn.Embedding, and a sum or mean over the words.",
    "aten.max_pool3d_with_indices": "Use nn.MaxPool2d, once over images and once over time.",
    "aten.convolution": "It takes convolutions over one and two dimensions.",
    "aten.histc": "Compare with each number, and sum.",
}
_LONGEST_LOG = 1 << 20


def with_line(error: RunError, artifact: Artifact, log: Path) -> RunError:
    """The error, with the operator that failed, its line in the model, and what to use instead."""
    text = str(error)
    with contextlib.suppress(OSError), log.open("rb") as file:
        text += file.read(_LONGEST_LOG).decode(errors="replace")
    found = _OPERATOR.search(text)
    if found is None:
        return error
    operator = (found[1] or found[2] or "").replace("::", ".").rpartition(".")[0]
    operator = operator or _IN_XNNPACK.get(found[3], f"XNNPACK's {found[3]}")
    parts = [f"{str(error).rstrip('.')}.", f"Operator: {operator}."]
    place = _origin(artifact, operator)
    if place is not None:
        module = f" of the module {place.module}" if place.module else ""
        parts.append(f"At {from_here(Path(place.file))}:{place.line} `{place.code}`{module}.")
    if found[1]:
        parts.append("ExecuTorch has no kernel for it.")
        parts.append(_INSTEAD.get(operator, "Write it with others, or name a runner that has one."))
    elif found[3]:
        parts.append("XNNPACK refuses it. Try another data type, or write it with other operators.")
    elif operator in _INSTEAD:
        parts.append(_INSTEAD[operator])
    return RunError(" ".join(parts))


def _origin(artifact: Artifact, operator: str) -> Origin | None:
    """Where the model has it, by its ETRecord."""
    if artifact.etrecord is None:
        return None
    try:
        members = read_attribution(artifact.etrecord, artifact.method or FORWARD).nodes.values()
    except EtdumpError:
        return None
    return next(
        (
            origin
            for calls in members
            for name, origin in calls
            if name.startswith(f"{operator}.") and origin.file
        ),
        None,
    )
