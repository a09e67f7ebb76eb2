"""Finds models in folders, in installed packages and among ExecuTorch's examples."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pytest_sme2.errors import ModelError, Sme2Error, UsageError
from pytest_sme2.export.registry import (
    DEFAULT_VARIANTS,
    ENTRY_POINT_GROUP,
    MODEL_FILE,
    REGISTRATIONS,
    ModelEntry,
    Problem,
    Registry,
    checked_entry,
    execute_model_file,
    locate_module,
    one_line,
    register_model,
    traceback_from,
)


def discover(folders: Iterable[Path], entry_points: bool = True) -> Registry:
    """All models of folders (of one model or with one for each) and of installed packages.

    Names are unique: the first model with a name keeps it.
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
        registrations = read_registrations(file)
    except (Exception, SystemExit) as error:
        return [Problem(name, source, one_line(error), traceback_from(error, file.parent))]
    if not registrations:
        remedy = "Put @register_model('name') above the class of the model."
        return [Problem(name, source, f"{MODEL_FILE} registers no class. {remedy}")]
    return [replace(found, kind="folder", source=source, file=file) for found in registrations]


def read_registrations(file: Path) -> tuple[ModelEntry, ...]:
    """What a file registers: from its syntax tree, or by running it if that is not enough."""
    declared = declared_registrations(file)
    if declared is not None:
        return declared
    found = {
        registration.name: replace(registration, class_name=attribute)
        for attribute, value in vars(execute_model_file(file)).items()
        if isinstance(value, type)
        for registration in value.__dict__.get(REGISTRATIONS, ())
    }
    return tuple(found.values())


def declared_registrations(file: Path) -> tuple[ModelEntry, ...] | None:
    """The registrations if all are literal decorators of top-level classes, else None."""
    tree = ast.parse(file.read_bytes(), filename=str(file))
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

    understood: list[ModelEntry] = []
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
                understood.append(checked_entry(**bound.arguments, class_name=statement.name))
    mentioned = sum(is_register_model(node) for node in ast.walk(tree))
    return tuple(understood) if mentioned == len(understood) else None


def _read_entry_points() -> list[ModelEntry | Problem]:
    from importlib.metadata import entry_points

    found: list[ModelEntry | Problem] = []
    for point in entry_points(group=ENTRY_POINT_GROUP):
        distribution = point.dist.name if point.dist is not None else "an unnamed package"
        source = f"{distribution} ({point.value})"
        try:
            found.append(_entry_point_entry(point.name, point.module, point.attr, source))
        except (Exception, SystemExit) as error:
            trace = "" if isinstance(error, Sme2Error) else traceback_from(error, None)
            found.append(Problem(point.name, source, one_line(error), trace))
    return found


def _entry_point_entry(name: str, module: str, attribute: str, source: str) -> ModelEntry:
    """An entry point's name is the model's name; its class may also have the decorator."""
    file = locate_module(module)
    if file is None:
        raise ModelError(
            f"the module {module!r} was not found. Reinstall the package, or correct its entry "
            f"point in the group {ENTRY_POINT_GROUP!r}."
        )
    declared = declared_registrations(file) or ()
    if not attribute:
        if len(declared) != 1:
            raise ModelError(
                f"the entry point names only the module {module!r}, which registers "
                f"{len(declared)} classes. Name the class, as in '{module}:MyModel'."
            )
        attribute = declared[0].class_name
    checked = checked_entry(name, DEFAULT_VARIANTS, None, attribute)
    own = next((found for found in declared if found.class_name == attribute), checked)
    return replace(own, name=name, kind="entry-point", source=source, module=module)
