"""Runs the files of a model as a separate package, and says where an error is."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from pytest_sme2.errors import ModelError, Sme2Error

_NOT_SOURCE = frozenset({"limits.toml"})


_NOT_SOURCE_SUFFIXES = frozenset({".pyc", ".pyo", ".md"})


def execute_model_file(file: Path) -> ModuleType:
    """Run a folder's ``model.py`` as a separate package.

    Both ``from .part import …`` and ``import part`` find the folder's other files. A ``part`` of
    another folder is another module.
    """
    digest = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:16]
    name = f"sme2_model_{digest}"
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(file.parent)]
    )
    if spec is None or spec.loader is None:
        raise ModelError(f"{file} cannot be loaded as a Python module.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _first_on_path(file.parent), _siblings_forgotten(file.parent, name):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def locate_module(module: str) -> Path | None:
    """The file of a module, found without importing any of its parents.

    importlib would import the parents, so this function walks the folders itself.
    """
    top, *parts = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    file = Path(spec.origin) if spec.origin is not None else None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    for part in parts:
        inside = [folder / part for folder in folders]
        packages = [folder for folder in inside if (folder / "__init__.py").is_file()]
        modules = [folder.with_suffix(".py") for folder in inside]
        file = next((found for found in modules if found.is_file()), None)
        if packages:
            file, folders = packages[0] / "__init__.py", packages[:1]
        else:
            folders = [folder for folder in inside if folder.is_dir()]
        if file is None and not folders:
            return None
    return file


def files_below(folder: Path) -> tuple[Path, ...]:
    """All files of a folder that may change the model, sorted; without caches, limits and text."""
    found: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        found.extend(
            Path(parent, name)
            for name in files
            if not name.startswith(".")
            and name not in _NOT_SOURCE
            and Path(name).suffix not in _NOT_SOURCE_SUFFIXES
        )
    return tuple(sorted(found))


def one_line(error: BaseException) -> str:
    """The type of the error and the first line of its message."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({Path(error.filename or '').name}, line {error.lineno})"
    text = str(error).strip().splitlines()
    if isinstance(error, Sme2Error):
        return text[0] if text else type(error).__name__
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def traceback_from(error: BaseException, folder: Path | None) -> str:
    """The traceback from the model's own code on."""
    frames = error.__traceback__
    start = frames
    while start is not None and folder is not None:
        if Path(start.tb_frame.f_code.co_filename).is_relative_to(folder):
            break
        start = start.tb_next
    shown = error.with_traceback(start if start is not None else frames)
    if folder is not None and start is None:
        return "".join(traceback.format_exception_only(type(shown), shown)).rstrip()
    return "".join(
        traceback.format_exception(type(shown), shown, shown.__traceback__, chain=False)
    ).rstrip()


@contextlib.contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


@contextlib.contextmanager
def _siblings_forgotten(folder: Path, package: str) -> Iterator[None]:
    """Forget modules imported from ``folder`` by a bare name; another folder may use the name."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            inside = file is not None and Path(file).is_relative_to(folder)
            if inside and name.partition(".")[0] != package:
                del sys.modules[name]
