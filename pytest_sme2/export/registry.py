"""The contract of a model, ``@register_model``, and the registry of all models.

Discovery reads a model's decorator from its syntax tree, so it imports neither torch nor the
model. A broken model becomes a ``Problem`` and never hides the others.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from pytest_sme2.errors import MissingExtraError, ModelError, Sme2Error, UsageError
from pytest_sme2.export.variant import Variant, parse_variant

DEFAULT_VARIANTS = ("fp32", "fp16", "int8")
MODEL_FILE = "model.py"

# The extra of each package, so that a failed import can name the remedy.
EXTRA_OF_PACKAGE = {
    **dict.fromkeys(("torch", "executorch", "torchao"), "export"),
    **dict.fromkeys(("torchvision", "timm", "transformers"), "models"),
}

# Files of a model's folder that do not change the model.
_NOT_SOURCE = frozenset({"limits.toml"})
_NOT_SOURCE_SUFFIXES = frozenset({".pyc", ".pyo", ".md"})


class Model(Protocol):
    """What a registered class provides, like ExecuTorch's ``EagerModelBase``.

    ``__init__`` may take ``size`` if the model can be built for several input sizes, and
    ``get_example_kwarg_inputs()`` may add keyword inputs.
    """

    def get_eager_model(self) -> Any: ...

    def get_example_inputs(self) -> tuple[Any, ...]: ...


@dataclass(frozen=True)
class Problem:
    """A model that cannot be used, and why."""

    name: str
    """The name of the folder, or of the model if two models share it."""
    source: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.name!r} ({self.source}): {self.message}"


@dataclass(frozen=True)
class ModelEntry:
    """One model; nothing of it is imported until ``load``."""

    name: str
    variants: tuple[Variant, ...]
    source: str = ""
    """Where it comes from, for people."""
    class_name: str = ""
    file: Path | None = None
    """Its ``model.py``."""
    emulated: tuple[Variant, ...] | None = None
    """What an emulator runs by default; None means the same as a device."""

    def defaults(self, *, emulated: bool) -> tuple[Variant, ...]:
        return self.variants if self.emulated is None or not emulated else self.emulated

    def resolve(self, asked: Variant, *, emulated: bool) -> tuple[Variant, ...]:
        """What ``asked`` means for this model; empty if it has no such precision.

        A variant with a size means itself. A precision means its default sizes, else that of the
        first default: ``fp16`` is ``fp16@256`` on an emulator that runs ``fp32@256``.
        """
        if asked.size is not None:
            return (asked,)
        defaults = self.defaults(emulated=emulated)
        sizes = [variant.size for variant in defaults if variant.precision == asked.precision]
        registered = {variant.precision for variant in (*self.variants, *(self.emulated or ()))}
        if not sizes and asked.precision in registered:
            sizes = [(defaults or self.variants)[0].size]
        return tuple(replace(asked, size=size) for size in sizes)

    @property
    def folder(self) -> Path | None:
        """The model's own folder, where it may keep a ``limits.toml``."""
        return self.file.parent if self.file is not None else None

    def source_files(self) -> tuple[Path, ...]:
        """The files of the model, found without importing it."""
        return () if self.folder is None else files_below(self.folder)

    def load(self) -> type[Model]:
        """The registered class. This imports the model, and with it most likely torch."""
        file = self.file or Path(MODEL_FILE)
        try:
            found: Any = getattr(execute_model_file(file), self.class_name)
        except Sme2Error:
            raise
        except (Exception, SystemExit) as error:
            trace = traceback_from(error, file.parent)
            raise missing_extra(error, f"Model {self.name!r}") or ModelError(
                f"Model {self.name!r} ({self.source}) cannot be loaded: {one_line(error)}\n{trace}"
            ) from error
        missing = [
            method
            for method in ("get_eager_model", "get_example_inputs")
            if not callable(getattr(found, method, None))
        ]
        if missing:
            raise ModelError(
                f"Model {self.name!r} ({self.source}): {self.class_name} lacks "
                f"{' and '.join(f'{method}()' for method in missing)}. "
                "See docs/models.md for the contract."
            )
        return found  # type: ignore[no-any-return]

    def instantiate(self, size: int | None = None) -> Model:
        """An object of the registered class, for input size ``size`` if given."""
        model_class = self.load()
        if size is None:
            return model_class()
        if "size" not in inspect.signature(model_class).parameters:
            raise UsageError(
                f"Model {self.name!r} has only one input size, so '@{size}' is not possible. "
                "Use the variant without a size, or give its __init__ a 'size' parameter."
            )
        return model_class(size=size)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Registry:
    entries: tuple[ModelEntry, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)

    def get(self, name: str) -> ModelEntry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        for problem in self.problems:
            if problem.name == name:
                raise ModelError(f"Model {problem}\n{problem.traceback}".rstrip())
        # A folder's name, unlike a model's, may contain anything.
        broken = ", ".join(repr(problem.name) for problem in self.problems)
        close = difflib.get_close_matches(name, self.names)
        meant = f"Choose one of: {', '.join(self.names) or '(none found)'}."
        if close:
            meant = f"Did you mean {' or '.join(close)}? `sme2 models` lists all."
        told = f" Broken: {broken}." if broken else ""
        raise UsageError(f"{name!r} is not a model. {meant}{told}")


_Class = TypeVar("_Class", bound=type)


def register_model(
    name: str, variants: Sequence[str] = DEFAULT_VARIANTS, emulated: Sequence[str] | None = None
) -> Callable[[_Class], _Class]:
    """Register the decorated class as the model ``name`` with these variants.

    ``emulated`` are the variants for an emulator, which is some hundred times slower than a
    device: smaller inputs, fewer data types, or ``()`` for none. By default they are the same.
    Variants that the user names run on any device.

    Use literals for all arguments: models are found without importing them.
    """
    checked_entry(name, variants, emulated)
    return lambda model_class: model_class


def checked_entry(
    name: object, variants: object, emulated: object, class_name: str = ""
) -> ModelEntry:
    """What one ``@register_model`` says; where it is from is not known here."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ModelError(
            f"{name!r} is not a model name. Give a printable, non-empty string to @register_model."
        )
    parsed = _checked_variants(name, variants, "variants")
    if not parsed:
        raise ModelError(f"Model {name!r} has no variants. Name one, as in variants=('fp32',).")
    smaller = None if emulated is None else _checked_variants(name, emulated, "emulated")
    return ModelEntry(name, parsed, class_name=class_name, emulated=smaller)


def _checked_variants(name: str, variants: object, parameter: str) -> tuple[Variant, ...]:
    if isinstance(variants, str) or not isinstance(variants, Sequence):
        raise ModelError(
            f"The {parameter} of model {name!r} must be a sequence of strings, as in "
            f"{parameter}=('fp32', 'fp16'); not {variants!r}."
        )
    try:
        return tuple(dict.fromkeys(parse_variant(str(variant)) for variant in variants))
    except UsageError as error:
        raise ModelError(f"Model {name!r}: {error}") from error


def missing_extra(error: BaseException, purpose: str) -> MissingExtraError | None:
    """The error that names the extra with a module that was not found; None for other errors."""
    package = str(getattr(error, "name", None)).partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRA_OF_PACKAGE:
        return None
    return MissingExtraError(package, EXTRA_OF_PACKAGE[package], purpose)


def execute_model_file(file: Path) -> ModuleType:
    """Run a folder's ``model.py`` as a separate package: a ``part`` of another folder is another.

    Both ``from .part import …`` and ``import part`` find the folder's other files.
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
        with _siblings_alone(file.parent, name):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


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


def traceback_from(error: BaseException, folder: Path) -> str:
    """The traceback from the model's own code on; none where it has no part in the error."""
    start = error.__traceback__
    while start is not None:
        if Path(start.tb_frame.f_code.co_filename).is_relative_to(folder):
            break
        start = start.tb_next
    shown = traceback.format_exception(type(error), error, start, chain=False)
    return "".join(shown).rstrip()


@contextlib.contextmanager
def _siblings_alone(folder: Path, package: str) -> Iterator[None]:
    """Let ``import part`` find a file of ``folder``, and forget it: others may use the name."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            inside = file is not None and Path(file).is_relative_to(folder)
            if inside and name.partition(".")[0] != package:
                del sys.modules[name]


def discover(folders: Iterable[Path]) -> Registry:
    """All models of folders, of one model or with one for each.

    Names are unique: the first model with a name keeps it.
    """
    entries: dict[str, ModelEntry] = {}
    problems: list[Problem] = []
    candidates = [entry for file in _model_files(folders) for entry in _read_folder(file)]
    for candidate in candidates:
        if isinstance(candidate, Problem):
            problems.append(candidate)
            continue
        # File names come from model names, and some file systems ignore case.
        first = entries.setdefault(candidate.name.casefold(), candidate)
        if first is not candidate:
            message = f"{first.source} already registers the name {first.name!r}. Rename one."
            problems.append(Problem(candidate.name, candidate.source, message))
    return Registry(tuple(entries.values()), tuple(problems))


def _model_files(folders: Iterable[Path]) -> Iterator[Path]:
    seen = set()
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(
                f"The models folder {str(folder)!r} does not exist. "
                "Name a folder with one folder per model, each with a model.py."
            )
        inside = sorted(
            child / MODEL_FILE
            for child in folder.iterdir()
            if child.is_dir() and not child.name.startswith((".", "__"))
        )
        for file in (folder / MODEL_FILE, *inside):
            if file.is_file() and file.resolve() not in seen:
                seen.add(file.resolve())
                yield file.absolute()


def _read_folder(file: Path) -> list[ModelEntry | Problem]:
    """The models that one ``model.py`` registers, or the problem with it."""
    name, source = file.parent.name, str(file.parent)
    try:
        registrations = _registrations(file)
    except (Exception, SystemExit) as error:
        return [Problem(name, source, one_line(error), traceback_from(error, file.parent))]
    if not registrations:
        remedy = "Put @register_model('name') above the class of the model."
        return [Problem(name, source, f"{MODEL_FILE} registers no class. {remedy}")]
    return [replace(found, source=source, file=file) for found in registrations]


_LITERALS = (
    "Write it as a decorator of a class with literal arguments, as in @register_model('name', "
    "variants=('fp32',)): it is read without running the file."
)


def _registrations(file: Path) -> tuple[ModelEntry, ...]:
    """What the decorators of a file's classes say."""
    tree = ast.parse(file.read_bytes(), filename=str(file))
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == "register_model"
    }
    calls = {
        decorator: node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for decorator in reversed(node.decorator_list)
        if isinstance(decorator, ast.Call)
    }
    found: list[ModelEntry] = []
    known: dict[ast.AST, tuple[ast.Call, str]] = {
        call.func: (call, name) for call, name in calls.items()
    }
    for node in ast.walk(tree):
        name = node.id if isinstance(node, ast.Name) else ""
        if name not in aliases and getattr(node, "attr", "") != "register_model":
            continue
        try:
            call, class_name = known[node]
            words = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
            positional = [ast.literal_eval(argument) for argument in call.args]
        except (KeyError, ValueError):
            line = getattr(node, "lineno", 0)
            raise ModelError(f"line {line}: register_model cannot be read. {_LITERALS}") from None
        bound = inspect.signature(register_model).bind(*positional, **words)
        bound.apply_defaults()
        found.append(checked_entry(**bound.arguments, class_name=class_name))
    return tuple(found)
