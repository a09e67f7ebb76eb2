"""What a call of a program came from: ATen operators and modules, out of an ETRecord.

An ETRecord is a zip archive of JSON documents. ExecuTorch's own reader turns their strings into
code (``sympy.sympify``), so a file from somebody else could run commands. Here the two documents
that are needed are read as data; nothing is imported, unpickled or evaluated.

XNNPACK's operators have no handles of their own, so they carry what their whole delegate call came
from.
"""

from __future__ import annotations

import itertools
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sme2.errors import EtdumpError
from pytest_sme2.results.run import FORWARD, Attribution, Frame, Origin
from pytest_sme2.system.files import json_value, open_plain

_MARK = "ETRECORD_V0"
_HANDLES = "debug_handle_map"
_GRAPH = "edge_dialect_exported_program"
_EDGE_OPERATORS = "executorch.exir.dialects.edge.ops."
_TORCH_OPERATORS = "torch.ops."
# It takes one part of a result: no operator of the model.
_NOT_AN_OPERATOR = "_operator.getitem"
_TARGET = '"target": "'
_TORCH_FILES = ("/torch/", "\\torch\\")
_LONGEST_WAY = 20
_LARGEST_DOCUMENT = 256 << 20
# zipfile raises NotImplementedError and RuntimeError for methods and passwords that it lacks.
_BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, MemoryError)
_BAD_DOCUMENT = (ValueError, OverflowError, LookupError, TypeError, AttributeError)
_REMEDY = (
    "Use the ETRecord that was written when this program was exported, by ExecuTorch 1.0 or newer."
)


def read_attribution(etrecord: Path, method: str = FORWARD) -> Attribution:
    """The ATen operators and module paths of every instruction of a program's method."""
    try:
        with open_plain(etrecord) as file, zipfile.ZipFile(file) as archive:
            names = set(archive.namelist())
            # Where there is but one, its name may be left out.
            graphs = (f"{_GRAPH}/{method}", _GRAPH)
            graph_name = next((name for name in graphs if name in names), None)
            if _MARK not in names or _HANDLES not in names or graph_name is None:
                raise ValueError("it has no debug handles or no edge program")
            handles = _document(archive, etrecord, _HANDLES)[method]
            return _attribution(handles, _nodes(_document(archive, etrecord, graph_name)))
    except OSError as error:
        why = error.strerror or error
        raise EtdumpError(f"{str(etrecord)!r} cannot be read: {why}. {_REMEDY}") from error
    except (*_BAD_ARCHIVE, *_BAD_DOCUMENT) as error:
        why = f"{type(error).__name__}: {error}"[:300]
        raise EtdumpError(
            f"{str(etrecord)!r} is not an ETRecord that can be read ({why}). {_REMEDY}"
        ) from error


def _document(archive: zipfile.ZipFile, etrecord: Path, name: str) -> Any:
    if archive.getinfo(name).file_size > _LARGEST_DOCUMENT:
        raise ValueError(f"{name} has more than {_LARGEST_DOCUMENT >> 20} MiB")
    data = archive.read(name)
    return json_value(data, f"{etrecord}: {name}", remedy=_REMEDY, error=EtdumpError)


def _nodes(program: Any) -> Mapping[int, list[tuple[str, Origin]]]:
    """The operator and the origin of every node, by debug handle, in graph order."""
    found: dict[int, list[tuple[str, Origin]]] = {}
    varying = _inputs(program["graph_module"]["signature"])
    for node in program["graph_module"]["graph"]["nodes"]:
        metadata = node["metadata"]
        constant = varying.isdisjoint(_names([given["arg"] for given in node["inputs"]]))
        if not constant:
            varying |= _names(node["outputs"])
        if "debug_handle" in metadata and node["target"] != _NOT_AN_OPERATOR:
            name = str(node["target"]).removeprefix(_EDGE_OPERATORS)
            name = name.removeprefix(_TORCH_OPERATORS)
            found.setdefault(int(metadata["debug_handle"]), []).append(
                (name, _origin(name, metadata, constant))
            )
    return found


def _inputs(signature: Any) -> set[str]:
    """The values that differ from one inference to the next: inputs, and buffers if any changes."""
    changes = any("buffer_mutation" in output for output in signature["output_specs"])
    kinds = {"user_input", "buffer"} if changes else {"user_input"}
    return _names([given for given in signature["input_specs"] if not kinds.isdisjoint(given)])


def _names(value: Any) -> set[str]:
    """All tensors that a part of the document names."""
    found, left = set(), [value]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if isinstance(part.get("name"), str):
                found.add(part["name"])
            left += part.values()
        elif isinstance(part, list):
            left += part
    return found


def _origin(name: str, metadata: Mapping[str, Any], constant: bool) -> Origin:
    """Where a node was written; what decomposed it into several keeps its history."""
    module, module_type = _innermost_module(_text(metadata, "nn_module_stack"))
    # The history is nested, its oldest operator innermost and so last.
    _, found, oldest = _text(metadata, "from_node").rpartition(_TARGET)
    written = (oldest.partition('"')[0] if found else name).removeprefix(_TORCH_OPERATORS)
    frames = list(_frames(_text(metadata, "stack_trace")))
    (file, line, _), code = frames[-1] if frames else (Frame("", 0, ""), "")
    way = tuple(frame for frame, _ in frames if not frame.installed)[-_LONGEST_WAY:]
    plain = _plain(written)
    return Origin(plain, module, module_type, file, line, code, constant, way=way)


def _plain(operator: str) -> str:
    """``aten.silu`` of ``aten.silu_.default``."""
    return ".".join(operator.split(".")[:2]).rstrip("_")


def _frames(trace: str) -> Iterator[tuple[Frame, str]]:
    """The lines outside of torch, each with its code, the innermost last."""
    lines = trace.split("\n")
    for place, code in itertools.pairwise(lines):
        file, _, rest = place.strip().removeprefix('File "').partition('", line ')
        number, _, function = rest.partition(", in ")
        torch = file.startswith("<") or any(part in file for part in _TORCH_FILES)
        # A number with more digits is not that of a line, and slow to read.
        if file != place.strip() and number.isdecimal() and len(number) < 10 and not torch:
            yield Frame(file[:4096], int(number), function[:200]), code.strip()[:200]


def _text(metadata: Mapping[str, Any], name: str) -> str:
    return str(metadata.get(name, ""))


def _innermost_module(stack: str) -> tuple[str, str]:
    """Path and class of the last ``key,path,type``; brackets in it may hold commas of their own."""
    parts = [""]
    depth = 0
    for letter in stack.rpartition(";")[2]:
        depth += (letter in "[(") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    # The model itself has no path.
    return (parts[1].strip(), parts[2].rpartition(".")[2]) if len(parts) == 3 else ("", "")


def _attribution(handles: Any, nodes: Mapping[int, list[tuple[str, Origin]]]) -> Attribution:
    aten: dict[int, tuple[str, ...]] = {}
    modules: dict[int, tuple[str, ...]] = {}
    origins: dict[int, Origin] = {}
    graph: dict[int, tuple[tuple[str, Origin], ...]] = {}
    for instruction, its_handles in handles.items():
        wanted: Iterable[Any] = [its_handles] if isinstance(its_handles, int) else its_handles
        known = [nodes.get(int(handle), []) for handle in wanted]
        members = list(itertools.chain(*known))
        if not members:
            continue
        row = int(instruction)
        aten[row] = tuple(name for name, _ in members)
        modules[row] = tuple(dict.fromkeys(each.module for _, each in members if each.module))
        first = replace(members[0][1], constant=False)
        if all(replace(origin, constant=False) == first for _, origin in members):
            # One operator of the model became several, some of which may be constant.
            constant = all(origin.constant for _, origin in members)
            origins[row] = replace(first, constant=constant)
        # Nodes that were made from one share its handle, which is then listed for each of them.
        once = dict(zip(map(int, wanted), known, strict=True))
        graph[row] = tuple(itertools.chain(*once.values()))
    return Attribution(aten, modules, origins, graph)
