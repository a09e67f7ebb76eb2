"""Says why an export failed: the operator and the line of the model behind an error."""

from __future__ import annotations

import errno
import functools
import importlib.util
import linecache
import os
import re
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The runtime writes aten::add.out, torch writes aten.add.out.
_OPERATOR = re.compile(r"\b[a-z_][a-z0-9_]*(?:::|\.)[a-z_0-9]+(?:\.[A-Za-z_0-9]+)?")
_TOOLS = re.compile(r"[/\\\\](?:torch|executorch|torchao|pytest_sme2|sympy|networkx)[/\\\\]")
# Errors that many models meet, and what helps.
_WAYS_OUT = {
    r"data-dependent|DataDependent|GuardOnDataDependentSymNode": (
        "The model branches or takes a size from a tensor's values, which a program cannot. Use "
        "torch.where, a fixed size, or leave that part outside of the exported module."
    ),
    r"Cache\b.*(?:pytree|register)|(?:pytree|register).*Cache\b": (
        "Hugging Face's cache is not a tensor: build the model with use_cache=False, or wrap it so "
        "that it takes and gives tensors."
    ),
    r"functionalize_rng|aten[.:]+(?:bernoulli|native_dropout)": (
        "The model draws random numbers: call eval(), and leave dropout out of forward."
    ),
    r"(?:complex64|ComplexFloat|complex128)": (
        "Programs have no complex numbers: write rotations with sine and cosine."
    ),
    r"quantized_decomposed::dequantize": (
        "XNNPACK does not take that operator with quantized weights, and ExecuTorch has no kernel "
        "for them. Use another variant, or an operator that XNNPACK takes (convolutions over one "
        "or two dimensions, linear layers)."
    ),
    r"non-NHWC compatible node": (
        "XNNPACK takes that operator for images alone: give it four dimensions, as in "
        "`layer(x.unsqueeze(-1)).squeeze(-1)`."
    ),
    r"Missing out variants?": (
        "ExecuTorch has no kernel for that operator: write it with others, or register a kernel."
    ),
    f"{os.strerror(errno.ENOSPC)}|{os.strerror(errno.EDQUOT)}": (
        "Free space where the cache and the temporary files are: `sme2 clean` shows what it holds."
    ),
}


def explain(error: BaseException, progress: Reporter) -> str:
    """Two or three sentences: what failed and why, in which operator or line, and a way out."""
    chain = causes(error)
    texts = [" ".join(str(link).split()) for link in chain]
    operator, place = _operator_in(" ".join(texts)), own_line(error, progress.own_files)
    node = _node_of(operator, progress) if operator else None
    # A pass that fails says what it does, and has the operator at hand.
    node = node or _node_at_hand(chain)
    if node is not None:
        place = place or _line_of_node(node, progress)
        if operator is None or _words(target_name(node))[:2] != _words(operator)[:2]:
            operator = target_name(node)
    inner = _deepest(_frames(error), _is_library)
    if place and inner and inner != place:
        place = f"{place}, in {inner}"
    parts = [f"{progress.stage} failed: {type(error).__name__}: {shorten(texts[0])}"]
    if texts[-1] and texts[-1] not in texts[0]:
        parts.append(f"The cause: {type(chain[-1]).__name__}: {shorten(texts[-1])}")
    if operator:
        parts.append(f"Operator: {operator}.")
    if place:
        parts.append(f"At {place}.")
    ways_out = [way for known, way in _WAYS_OUT.items() if re.search(known, "\n".join(texts))]
    return " ".join([*parts, *ways_out[:1]])


def causes(error: BaseException) -> list[BaseException]:
    """The error, and what caused it, the first cause last."""
    chain = [error]
    while (deeper := chain[-1].__cause__ or chain[-1].__context__) and deeper not in chain:
        chain.append(deeper)
    return chain


def _node_at_hand(chain: Sequence[BaseException]) -> Any:
    """The operator that the innermost code had in a variable when it failed."""
    import torch

    frames = [frame for frame, _ in traceback.walk_tb(chain[-1].__traceback__)]
    for frame in reversed(frames):
        # `target_node` where a pass changes what goes into it.
        names = sorted(frame.f_locals, key=lambda name: name != "target_node")
        for value in map(frame.f_locals.__getitem__, names):
            if isinstance(value, torch.fx.Node) and value.op == "call_function":
                return value
    return None


def shorten(text: str, limit: int = 300) -> str:
    shortened = text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
    return shortened if shortened.endswith((".", "…", "!", "?")) else shortened + "."


def _operator_in(text: str) -> str | None:
    """The first operator name in a message."""
    import torch

    for match in _OPERATOR.finditer(re.sub(r"\btorch\._?ops\.", "", text)):
        namespace, name, *_ = _words(match[0])
        # torch.ops accepts any namespace, but finds only operators that exist.
        if getattr(getattr(torch.ops, namespace), name, None) is not None:
            return match[0]
    return None


def _words(operator: str) -> list[str]:
    return re.split(r"::|\.", operator)


def own_line(error: BaseException, own: Collection[Path]) -> str | None:
    """The deepest line of the model's own code in the traceback of the error or its causes."""
    places = (_deepest(_frames(link), set(map(str, own)).__contains__) for link in causes(error))
    return next(filter(None, places), None)


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """The files and lines that an error came through."""
    found = traceback.walk_tb(error.__traceback__)
    return [(frame.f_code.co_filename, line) for frame, line in found]


def _deepest(frames: Sequence[tuple[str, int]], chosen: Callable[[str], bool]) -> str | None:
    """The last line of a file that is chosen, and where it is."""
    for file, line in reversed(frames):
        if chosen(file):
            code = linecache.getline(file, line).strip()
            return f"{file}:{line}" + (f" `{code}`" if code else "")
    return None


def _node_of(operator: str, progress: Reporter) -> Any:
    """The operator in the captured graph; one that only unpacks weights stands for who needs it."""
    for program in (progress.captured, progress.lowered):
        for node in () if program is None else program.graph.nodes:
            if node.op == "call_function" and _words(target_name(node))[:2] == _words(operator)[:2]:
                unpacks = _words(operator)[0] == "quantized_decomposed" and node.users
                return next(iter(node.users)) if unpacks else node
    return None


def _line_of_node(node: Any, progress: Reporter) -> str | None:
    """The place in the model that a node of a graph comes from, else in a library's model."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    frames = [(file, int(line)) for file, line in lines]
    owned = set(map(str, progress.own_files))
    return _deepest(frames, owned.__contains__) or _deepest(frames, _is_library)


def _is_library(file: str) -> bool:
    """Whether a file belongs to an installed package that models come from."""
    return "site-packages" in file and not _TOOLS.search(file)


def keep_helper_frames() -> None:
    """Let a node of a graph remember the lines of all functions of the model. Torch keeps those of
    ``forward`` alone, which places what a helper does at the line that calls it.
    """
    from torch.fx.proxy import TracerBase

    found = (importlib.util.find_spec(name) for name in ("torch", "torchao", "pytest_sme2"))
    tools = tuple(f"{Path(spec.origin).parent}{os.sep}" for spec in found if spec and spec.origin)

    @functools.cache
    def is_model(file: str) -> bool:
        return not file.startswith(("<", *tools))

    def filtered(_: Any, stack: traceback.StackSummary) -> traceback.StackSummary:
        frames = [frame for frame in stack if is_model(frame.filename)]
        first = next((row for row, frame in enumerate(frames) if frame.name == "forward"), None)
        return traceback.StackSummary.from_list([] if first is None else frames[first:])

    tracer: Any = TracerBase
    tracer._filter_traceback_frames = filtered


@dataclass
class Reporter:
    """How far the export got, for error messages."""

    say: Callable[[str], None]
    stage: str = "starting"
    captured: Any = None
    lowered: Any = None
    own_files: tuple[Path, ...] = ()

    def enter(self, stage: str) -> None:
        self.stage = stage
        self.say(stage)


def target_name(node: Any) -> str:
    name = str(getattr(node.target, "__name__", node.target))
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return name
    return f"{schema.name}.{schema.overload_name or 'default'}"
