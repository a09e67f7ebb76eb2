"""What a call of a program came from: ATen operators and modules, out of an ETRecord.

ExecuTorch's Inspector reads the ETRecord; it needs torch, takes seconds to import, and is imported
in ``read_attribution`` alone. XNNPACK's operators have no handles of their own, so they carry what
their whole delegate call came from.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_sme2.errors import EtdumpError, MissingExtraError
from pytest_sme2.results import Attribution


def read_attribution(etdump: Path, etrecord: Path) -> Attribution:
    """The ATen operators and module paths of every instruction of a program."""
    with warnings.catch_warnings():
        # They are about ExecuTorch's and torch's own code; nothing the user could change.
        warnings.simplefilter("ignore")
        try:
            from executorch.devtools import Inspector
        except ImportError as error:
            raise MissingExtraError(error.name or "executorch", "export", "An ETRecord") from error
        try:
            inspector = Inspector(etdump_path=str(etdump), etrecord=str(etrecord))
        except Exception as error:  # The Inspector raises whatever its parsers do.
            raise EtdumpError(
                f"ExecuTorch's Inspector cannot read {str(etrecord)!r} beside {str(etdump)!r}: "
                f"{type(error).__name__}: {error}. Use the ETRecord that was written when this "
                "program was exported, by the same version of ExecuTorch."
            ) from error
    return _attribution(event for block in inspector.event_blocks for event in block.events)


def _attribution(events: Iterable[Any]) -> Attribution:
    aten: dict[int, tuple[str, ...]] = {}
    modules: dict[int, tuple[str, ...]] = {}
    for event in events:
        # An operator's call and its kernel name the same nodes.
        if event.op_types and event._instruction_id not in aten:
            aten[event._instruction_id] = tuple(event.op_types)
            modules[event._instruction_id] = _module_paths(event.module_hierarchy)
    return Attribution(aten, modules)


def _module_paths(hierarchy: Mapping[str, Mapping[str, tuple[str, str]] | None]) -> tuple[str, ...]:
    """The innermost module of each node, once, in order; the model itself has no path."""
    stacks = (list(stack.values()) for stack in hierarchy.values() if stack)
    paths = (str(stack[-1][0]) for stack in stacks)
    return tuple(dict.fromkeys(path for path in paths if path))
