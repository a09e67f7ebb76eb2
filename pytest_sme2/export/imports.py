"""What an export imports: the tools that every one needs, and what counts as the model's."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_sme2.export.explain import causes
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE, missing_extra

# Beside torch: for any variant, so that a process that forks has them all.
_TOOLS = (
    "executorch.exir",
    "executorch.backends.xnnpack.partition.xnnpack_partitioner",
    "executorch.backends.xnnpack.quantizer.xnnpack_quantizer",
    "executorch.devtools.etrecord",
    "torchao.quantization.pt2e.quantize_pt2e",
)


@functools.cache
def import_tools() -> frozenset[str]:
    """Import what every export needs, and name the modules that torch alone does not bring.

    A model that imports one of them finds it there. So all of them count as the model's imports.
    """
    import_or_name_extra("torch", "Export")
    before = frozenset(sys.modules)
    for name in _TOOLS:
        import_or_name_extra(name, "Export")
    return frozenset(sys.modules) - before


@functools.cache
def installed_packages() -> Mapping[str, list[str]]:
    """The distributions that bring each top-level module; reading all of them takes a second."""
    return importlib.metadata.packages_distributions()


def dependencies(
    modules: list[ModuleType], own: tuple[Path, ...]
) -> tuple[list[str], dict[str, str]]:
    """The user's files and the installed packages that the model imported.

    They change the program as much as the model's own folder does, so the cache checks them.
    """
    standard = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
    owned = {file.resolve() for file in own}
    files: set[str] = set()
    packages: dict[str, str] = {}
    for module in modules:
        origin = getattr(module, "__file__", None)
        if not origin or not Path(origin).is_file():
            continue
        file = Path(origin).resolve()
        if {"site-packages", "dist-packages"} & set(file.parts):
            top = module.__name__.partition(".")[0]
            if top in EXTRA_OF_PACKAGE:
                continue
            for distribution in installed_packages().get(top, ()):
                if distribution not in packages:
                    packages[distribution] = importlib.metadata.version(distribution)
        elif file not in owned and not any(file.is_relative_to(folder) for folder in standard):
            files.add(str(file))
    return sorted(files), dict(sorted(packages.items()))


def import_or_name_extra(name: str, purpose: str) -> Any:
    """The module; if it is not installed, the error names the extra that brings it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        extra = missing_extra(error, purpose)
        if extra is None:
            raise
        raise extra from error


# Its binary fits only one build of torch. With another one (for example a CPU build) its operators
# are missing. Its Python code then fails on import, because it describes ``nms`` and ``qnms`` to
# torch, although no network needs them. Declaring the two is enough for ``torchvision.models``, and
# for timm and transformers.


def import_torchvision() -> Any:
    """The module ``torchvision``, fully imported, even if its compiled operators do not load."""
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


def misses_operators(error: BaseException) -> bool:
    """Whether an error, or its cause, is that torchvision's compiled operators are missing."""
    runtime = [str(link) for link in causes(error) if isinstance(link, RuntimeError)]
    return any("operator torchvision::" in text for text in runtime)


@functools.cache
def _declare_operators() -> Any:
    """The declarations live as long as what is returned, and so as long as the cache."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
