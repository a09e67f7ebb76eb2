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

from pytest_sme2.errors import MissingExtraError
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE

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
        package = (error.name or name).partition(".")[0]
        extra = EXTRA_OF_PACKAGE.get(package)
        if extra is None:
            raise
        raise MissingExtraError(package, extra, purpose) from error
