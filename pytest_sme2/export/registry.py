"""Which models there are: the contract, ``@register_model``, discovery. Exporting is elsewhere.

Discovery reads a model's decorator from its syntax tree, so it imports neither torch nor the
model. What is broken becomes a ``Problem`` beside the entries and never hides the others.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from pytest_sme2.errors import MissingExtraError, ModelError, Sme2Error, UsageError
from pytest_sme2.export.variant import Variant, parse_variant

DEFAULT_VARIANTS = ("fp32", "fp16", "int8")
ENTRY_POINT_GROUP = "pytest_sme2.models"
EXECUTORCH_PREFIX = "executorch:"
MODEL_FILE = "model.py"

# Which extra brings a package, so that a failed import can name the remedy.
EXTRA_OF_PACKAGE = {
    "torch": "export",
    "executorch": "export",
    "torchao": "export",
    "torchvision": "models",
    "timm": "models",
    "transformers": "models",
}

_REGISTRATIONS = "__sme2_registrations__"
_NOT_SOURCE = frozenset({"limits.toml"})
_NOT_SOURCE_SUFFIXES = frozenset({".pyc", ".pyo", ".md"})


class Model(Protocol):
    """What a registered class offers: ExecuTorch's ``EagerModelBase`` shape.

    ``__init__`` may take ``size`` where the model can be built for more than one input size, and
    ``get_example_kwarg_inputs()`` may add keyword inputs.
    """

    def get_eager_model(self) -> Any: ...

    def get_example_inputs(self) -> tuple[Any, ...]: ...


@dataclass(frozen=True)
class Registration:
    """What one ``@register_model`` says."""

    name: str
    variants: tuple[Variant, ...]
    class_name: str
    emulated: tuple[Variant, ...]


@dataclass(frozen=True)
class Problem:
    """A model that cannot be used, and why."""

    name: str
    """The folder's or entry point's own name, or the model's where that is what clashes."""
    source: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.name!r} ({self.source}): {self.message}"


@dataclass(frozen=True)
class ModelEntry:
    """One model that was found; nothing of it is imported until ``load``."""

    name: str
    variants: tuple[Variant, ...]
    kind: str
    """``folder``, ``entry-point`` or ``executorch``."""
    source: str
    """Where it comes from, for people."""
    class_name: str
    file: Path | None = None
    """A folder model's ``model.py``."""
    module: str | None = None
    """The importable module of any other model."""
    emulated: tuple[Variant, ...] | None = None
    """What an emulator runs unless asked for more; None means the same as a device."""

    def defaults(self, *, emulated: bool) -> tuple[Variant, ...]:
        """The variants that are run where the user names none."""
        return self.variants if self.emulated is None or not emulated else self.emulated

    def resolve(self, asked: Variant, *, emulated: bool) -> tuple[Variant, ...]:
        """What ``asked`` means for this model; empty where it has no such precision.

        A size is taken as it stands. A precision alone stands for the sizes it is run at by
        default, else for the size of the first default: ``fp16`` on an emulator is ``fp16@256``
        where ``fp32@256`` is what the emulator runs.
        """
        if asked.size is not None:
            return (asked,)
        defaults = self.defaults(emulated=emulated)
        same = tuple(variant for variant in defaults if variant.precision == asked.precision)
        registered = {variant.precision for variant in (*self.variants, *(self.emulated or ()))}
        if same or asked.precision not in registered:
            return same
        return (Variant(asked.precision, (defaults or self.variants)[0].size),)

    @property
    def folder(self) -> Path | None:
        """The model's own folder, where it may keep a ``limits.toml``."""
        return self.file.parent if self.file is not None else None

    def source_files(self) -> tuple[Path, ...]:
        """The files the model is made of, found without importing it."""
        if self.file is not None:
            return _files_below(self.file.parent)
        if self.module is None:
            raise ModelError(f"Model {self.name!r} ({self.source}) has no file and no module.")
        located = _locate_module(self.module)
        if located is None:
            raise ModelError(
                f"Model {self.name!r} ({self.source}): the module {self.module!r} was not found. "
                "Install the package that holds it, or correct its entry point."
            )
        # A module inside a package may use its neighbours; a top-level module stands alone.
        return _files_below(located.parent) if "." in self.module else (located,)

    def load(self) -> type[Model]:
        """The registered class. This imports the model, and with it most likely torch."""
        try:
            if self.file is not None:
                module = execute_model_file(self.file)
            else:
                module = importlib.import_module(self.module or "")
            found: Any = module
            for part in self.class_name.split("."):
                found = getattr(found, part)
        except Sme2Error:
            raise
        except (Exception, SystemExit) as error:
            raise _load_error(self, error) from error
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
        """An object of the registered class, for input size ``size`` where one is given."""
        model_class = self.load()
        if size is None:
            return model_class()
        if "size" not in inspect.signature(model_class).parameters:
            raise UsageError(
                f"Model {self.name!r} has one input size only, so '@{size}' does not fit it. "
                "Ask for the variant without a size, or give its __init__ a 'size' parameter."
            )
        return model_class(size=size)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Registry:
    """The models that were found, and the problems with those that were not."""

    entries: tuple[ModelEntry, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The models that are run unless others are asked for; ExecuTorch's own are not in it."""
        return tuple(entry.name for entry in self.entries)

    def get(self, name: str) -> ModelEntry:
        """The model called ``name``; ``executorch:NAME`` finds ExecuTorch's example models."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        if name.startswith(EXECUTORCH_PREFIX):
            return _executorch_entry(name)
        for problem in self.problems:
            if problem.name == name:
                raise ModelError(f"Model {problem}\n{problem.traceback}".rstrip())
        # A folder's name, unlike a model's, may hold anything.
        broken = ", ".join(repr(problem.name) for problem in self.problems)
        raise UsageError(
            f"{name!r} is not a model. Choose one of: {', '.join(self.names) or '(none found)'}; "
            f"or one of ExecuTorch's examples, as in {EXECUTORCH_PREFIX}mv2."
            + (f" Broken: {broken}." if broken else "")
        )


_Class = TypeVar("_Class", bound=type)


def register_model(
    name: str,
    variants: Sequence[str] = DEFAULT_VARIANTS,
    emulated: Sequence[str] | None = None,
) -> Callable[[_Class], _Class]:
    """Register the decorated class as the model ``name`` with these variants.

    ``emulated`` are the ones to run on an emulator, which is some hundred times slower than a
    device: smaller inputs, fewer data types, or ``()`` for none; by default the same. Whatever the
    user asks for by name is run anywhere.

    Give all as literals: then models are found without importing any of them.
    """
    checked = _checked_registration(name, variants, emulated, "")

    def mark(model_class: _Class) -> _Class:
        own = dataclasses.replace(checked, class_name=model_class.__qualname__)
        earlier = model_class.__dict__.get(_REGISTRATIONS, ())
        setattr(model_class, _REGISTRATIONS, (*earlier, own))
        return model_class

    return mark


def discover(folders: Iterable[Path], entry_points: bool = True) -> Registry:
    """All models of ``folders`` and of installed packages.

    A folder holds one folder a model, or is itself a model's folder. Names are unique: the first
    one found keeps it.
    """
    entries: dict[str, ModelEntry] = {}
    problems: list[Problem] = []
    candidates = [entry for file in _model_files(folders) for entry in _read_folder(file)]
    if entry_points:
        candidates.extend(_read_entry_points())
    for candidate in candidates:
        if isinstance(candidate, Problem):
            problems.append(candidate)
            continue
        # File names come from model names, and some file systems do not tell case apart.
        first = entries.setdefault(candidate.name.casefold(), candidate)
        if first is not candidate:
            problems.append(
                Problem(
                    candidate.name,
                    candidate.source,
                    f"the name is taken: {first.source} registers {first.name!r} already. "
                    "Rename one of them.",
                )
            )
    return Registry(tuple(entries.values()), tuple(problems))


def executorch_models() -> dict[str, tuple[str, str]]:
    """ExecuTorch's example models: name -> (module, class). Empty where it is not installed.

    The table's own module imports nothing but the standard library.
    """
    try:
        examples = importlib.import_module("executorch.examples.models")
    except ModuleNotFoundError:
        return {}
    return {
        name: (f"executorch.examples.models.{module}", class_name)
        for name, (module, class_name) in examples.MODEL_NAME_TO_MODEL.items()
        if _locate_module(f"executorch.examples.models.{module}") is not None
    }


def execute_model_file(file: Path) -> ModuleType:
    """Run a folder's ``model.py`` as a package of its own.

    Both ``from .part import …`` and ``import part`` find the folder's other files; a ``part`` of
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


# --- finding --------------------------------------------------------------------------------------


def _model_files(folders: Iterable[Path]) -> Iterator[Path]:
    seen = set()
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(
                f"The models folder {str(folder)!r} does not exist. "
                "Name a folder that holds one folder a model, each with a model.py."
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
    """The models one ``model.py`` registers, or the problem with it."""
    source = str(file.parent)
    try:
        registrations = read_registrations(file)
    except (Exception, SystemExit) as error:
        return [
            Problem(file.parent.name, source, _one_line(error), _traceback_from(error, file.parent))
        ]
    if not registrations:
        message = (
            f"{MODEL_FILE} registers no class. "
            "Put @register_model('name') above the class of the model."
        )
        return [Problem(file.parent.name, source, message)]
    return [
        ModelEntry(
            found.name,
            found.variants,
            "folder",
            source,
            found.class_name,
            file=file,
            emulated=found.emulated,
        )
        for found in registrations
    ]


def read_registrations(file: Path) -> tuple[Registration, ...]:
    """What a file registers: from its syntax tree, or by running it where that is not enough."""
    tree = ast.parse(file.read_bytes(), filename=str(file))
    from_tree = _registrations_in_tree(tree)
    if from_tree is not None:
        return from_tree
    module = execute_model_file(file)
    found = {
        registration.name: dataclasses.replace(registration, class_name=attribute)
        for attribute, value in vars(module).items()
        if isinstance(value, type)
        for registration in value.__dict__.get(_REGISTRATIONS, ())
    }
    return tuple(found.values())


def _registrations_in_tree(tree: ast.Module) -> tuple[Registration, ...] | None:
    """The registrations if all are literal decorators of top-level classes, else None."""
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == "register_model"
    }

    def is_register_model(node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in aliases
        return isinstance(node, ast.Attribute) and node.attr == "register_model"

    understood: list[Registration] = []
    understood_nodes = 0
    for statement in tree.body:
        if not isinstance(statement, ast.ClassDef):
            continue
        for decorator in reversed(statement.decorator_list):
            if isinstance(decorator, ast.Call) and is_register_model(decorator.func):
                try:
                    positional = [ast.literal_eval(argument) for argument in decorator.args]
                    named = {
                        str(word.arg): ast.literal_eval(word.value) for word in decorator.keywords
                    }
                except ValueError:
                    return None
                bound = inspect.signature(register_model).bind(*positional, **named)
                bound.apply_defaults()
                understood.append(
                    _checked_registration(**bound.arguments, class_name=statement.name)
                )
                understood_nodes += 1
    mentioned = sum(is_register_model(node) for node in ast.walk(tree))
    return tuple(understood) if mentioned == understood_nodes else None


def _checked_registration(
    name: object, variants: object, emulated: object, class_name: str
) -> Registration:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ModelError(
            f"{name!r} is not a model name. Give a printable, non-empty string to @register_model."
        )
    if name.startswith(EXECUTORCH_PREFIX):
        raise ModelError(
            f"{name!r} is not a model name: {EXECUTORCH_PREFIX!r} belongs to ExecuTorch's examples."
        )
    parsed = _checked_variants(name, variants, "variants")
    if not parsed:
        raise ModelError(f"Model {name!r} has no variants. Name one, as in variants=('fp32',).")
    if emulated is None:
        return Registration(name, parsed, class_name, parsed)
    return Registration(name, parsed, class_name, _checked_variants(name, emulated, "emulated"))


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


def _read_entry_points() -> list[ModelEntry | Problem]:
    from importlib.metadata import entry_points

    found: list[ModelEntry | Problem] = []
    for point in entry_points(group=ENTRY_POINT_GROUP):
        distribution = point.dist.name if point.dist is not None else "an unnamed package"
        source = f"{distribution} ({point.value})"
        try:
            found.append(_entry_point_entry(point.name, point.module, point.attr, source))
        except (Exception, SystemExit) as error:
            trace = "" if isinstance(error, Sme2Error) else _traceback_from(error, None)
            found.append(Problem(point.name, source, _one_line(error), trace))
    return found


def _entry_point_entry(name: str, module: str, attribute: str, source: str) -> ModelEntry:
    """An entry point's name is the model's name; its class may carry the decorator as well."""
    file = _locate_module(module)
    if file is None:
        raise ModelError(
            f"the module {module!r} was not found. Reinstall the package, or correct its entry "
            f"point in the group {ENTRY_POINT_GROUP!r}."
        )
    declared = _registrations_in_tree(ast.parse(file.read_bytes(), filename=str(file))) or ()
    if not attribute:
        if len(declared) != 1:
            raise ModelError(
                f"the entry point names the module {module!r} alone, which registers "
                f"{len(declared)} classes. Name the class, as in '{module}:MyModel'."
            )
        attribute = declared[0].class_name
    own = next((found for found in declared if found.class_name == attribute), None)
    checked = _checked_registration(name, DEFAULT_VARIANTS, None, attribute)
    return ModelEntry(
        name,
        own.variants if own else checked.variants,
        "entry-point",
        source,
        attribute,
        module=module,
        emulated=own.emulated if own else None,
    )


def _executorch_entry(name: str) -> ModelEntry:
    models = executorch_models()
    if not models:
        raise MissingExtraError("executorch", "export", f"The example model {name!r}")
    wanted = name[len(EXECUTORCH_PREFIX) :]
    if wanted not in models:
        raise UsageError(
            f"{wanted!r} is not an example model of the installed ExecuTorch. "
            f"Choose one of: {', '.join(sorted(models))}."
        )
    module, class_name = models[wanted]
    variants = tuple(parse_variant(variant) for variant in DEFAULT_VARIANTS)
    source = f"ExecuTorch's examples ({module}:{class_name})"
    return ModelEntry(name, variants, "executorch", source, class_name, module=module)


def _locate_module(module: str) -> Path | None:
    """The file of a module, found without importing any of its parents.

    Below the top level the folders are walked here: importlib's finders want the parent imported.
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


def _files_below(folder: Path) -> tuple[Path, ...]:
    """All files of a folder that may shape the model, sorted; caches, limits and prose are not."""
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


# --- failing --------------------------------------------------------------------------------------


def _load_error(entry: ModelEntry, error: BaseException) -> Sme2Error:
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package in EXTRA_OF_PACKAGE:
            return MissingExtraError(package, EXTRA_OF_PACKAGE[package], f"Model {entry.name!r}")
    file = entry.file or _locate_module(entry.module or "")
    trace = _traceback_from(error, file.parent if file is not None else None)
    return ModelError(
        f"Model {entry.name!r} ({entry.source}) cannot be loaded: {_one_line(error)}\n{trace}"
    )


def _one_line(error: BaseException) -> str:
    """The error's kind and the first line of what it says."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({Path(error.filename or '').name}, line {error.lineno})"
    text = str(error).strip().splitlines()
    if isinstance(error, Sme2Error):
        return text[0] if text else type(error).__name__
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _traceback_from(error: BaseException, folder: Path | None) -> str:
    """The traceback from the model's own code on, without the frames that led to it."""
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
    """Forget what was imported from ``folder`` by a bare name, which another folder may use too."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            inside = file is not None and Path(file).is_relative_to(folder)
            if inside and name.partition(".")[0] != package:
                del sys.modules[name]
