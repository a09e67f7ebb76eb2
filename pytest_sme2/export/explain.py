"""Says why an export failed: the operator and the line of the model behind an error."""

from __future__ import annotations

import errno
import linecache
import os
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The runtime writes aten::add.out, torch writes aten.add.out.
_OPERATOR = re.compile(r"\b[a-z_][a-z0-9_]*(?:::|\.)[a-z_0-9]+(?:\.[A-Za-z_0-9]+)?")


_TOOLS = re.compile(r"[/\\\\](?:torch|executorch|torchao|pytest_sme2|sympy|networkx)[/\\\\]")
# Errors that many models meet, and what helps.
_WAYS_OUT = (
    (
        re.compile(r"data-dependent|DataDependent|GuardOnDataDependentSymNode"),
        "The model branches or takes a size from a tensor's values, which a program cannot. Use "
        "torch.where, a fixed size, or leave that part outside of the exported module.",
    ),
    (
        re.compile(r"Cache\b.*(?:pytree|register)|(?:pytree|register).*Cache\b"),
        "Hugging Face's cache is not a tensor: build the model with use_cache=False, or wrap it so "
        "that it takes and gives tensors.",
    ),
    (
        re.compile(r"functionalize_rng|aten[.:]+(?:bernoulli|native_dropout)"),
        "The model draws random numbers: call eval(), and leave dropout out of forward.",
    ),
    (
        re.compile(r"(?:complex64|ComplexFloat|complex128)"),
        "Programs have no complex numbers: write rotations with sine and cosine.",
    ),
    (
        re.compile(r"Missing out variants?"),
        "ExecuTorch has no kernel for that operator: write it with others, or register a kernel.",
    ),
    (
        re.compile(f"{os.strerror(errno.ENOSPC)}|{os.strerror(errno.EDQUOT)}"),
        "Free space where the cache and the temporary files are: `sme2 clean` shows what it holds.",
    ),
)


def explain(error: BaseException, progress: Reporter) -> str:
    """One or two sentences: what failed, in which operator or line."""
    text = " ".join(str(error).split())
    operator = _operator_in(text)
    place = own_line(error, progress.own_files)
    if not place and operator:
        place = _line_of_operator(operator, progress)
    inner = _library_line(error)
    if place and inner and inner != place:
        place = f"{place}, in {inner}"
    parts = [f"{progress.stage} failed: {type(error).__name__}: {shorten(text)}"]
    if operator:
        parts.append(f"Operator: {operator}.")
    if place:
        parts.append(f"At {place}.")
    way_out = next((remedy for known, remedy in _WAYS_OUT if known.search(text)), "")
    if way_out:
        parts.append(way_out)
    return " ".join(parts)


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


def own_line(error: BaseException, own: tuple[Path, ...]) -> str | None:
    """The deepest line of the model's own code in the traceback of the error or its causes."""
    owned = {str(file) for file in own}
    seen: BaseException | None = error
    while seen is not None:
        frames = [
            (frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(seen.__traceback__)
            if frame.f_code.co_filename in owned
        ]
        if frames:
            return _place(*frames[-1])
        seen = seen.__cause__ or seen.__context__
    return None


def _line_of_operator(operator: str, progress: Reporter) -> str | None:
    """The place in the model that an operator of the captured graph comes from."""
    if progress.captured is None:
        return None
    for node in progress.captured.graph.nodes:
        if node.op == "call_function" and _words(target_name(node))[:2] == _words(operator)[:2]:
            trace = node.meta.get("stack_trace") or ""
            frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
            owned = {str(file) for file in progress.own_files}
            # The line of the model, else that of the library that it comes from.
            for chosen in (owned.__contains__, _is_library):
                found = [(file, int(line)) for file, line in frames if chosen(file)]
                if found:
                    return _place(*found[-1])
    return None


def _is_library(file: str) -> bool:
    """Whether a file belongs to an installed package that models come from."""
    return "site-packages" in file and not _TOOLS.search(file)


def _library_line(error: BaseException) -> str | None:
    """The deepest line of a library's model in the traceback, such as one of transformers."""
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_library(frame.f_code.co_filename)
    ]
    return _place(*frames[-1]) if frames else None


def _place(file: str, line: int) -> str:
    code = linecache.getline(file, line).strip()
    return f"{file}:{line}" + (f" `{code}`" if code else "")


@dataclass
class Reporter:
    """How far the export got, for error messages."""

    say: Callable[[str], None]
    stage: str = "starting"
    captured: Any = None
    own_files: tuple[Path, ...] = field(default_factory=tuple)

    def enter(self, stage: str) -> None:
        self.stage = stage
        self.say(stage)


def target_name(node: Any) -> str:
    name = str(getattr(node.target, "__name__", node.target))
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return name
    return f"{schema.name}.{schema.overload_name or 'default'}"
