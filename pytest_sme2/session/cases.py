"""Which cases a run has: the selected models times their variants times the thread counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import UsageError
from pytest_sme2.export.registry import ModelEntry, Registry
from pytest_sme2.export.variant import Variant, parse_variant
from pytest_sme2.results import AS_EXPORTED, Artifact
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import is_program

_BROKEN = "broken"


@dataclass(frozen=True)
class Case:
    """One model in one variant with one thread count: what a test is run for."""

    model: str
    variant: Variant | None
    threads: int = 1
    entry: ModelEntry | None = None
    problem: str | None = None
    """Why the model cannot be used; the other fields then only name it."""
    program: Artifact | None = field(default=None, hash=False)
    """A program that is run as it is, in place of one that is exported from a model."""
    sweep: bool = False
    """Whether several thread counts are run, so that the id must tell them apart."""
    method: str | None = None
    """Which of several methods of a program; None where ``forward`` is the only one."""
    unusable: Path | None = None
    """The file of a program that has a problem, so that one can be told how to look at it again."""
    label: str = ""
    """What tells several cases of one program apart."""

    @property
    def id(self) -> str:
        if self.problem is not None:
            return f"{self.model}-{_BROKEN}"
        threads = f"-t{self.threads}" if self.sweep else ""
        label = self.label and f"-{self.label}"
        return f"{self.model}-{self.variant_name}{threads}{label}"

    @property
    def names(self) -> frozenset[str]:
        """By which it is chosen: its own, and that of its program, which means all methods."""
        return frozenset((self.model, self.model.removesuffix(f":{self.method}")))

    @property
    def variant_name(self) -> str:
        """The variant as results and baselines have it."""
        if self.program is not None:
            return self.program.variant
        if self.unusable is not None:
            return AS_EXPORTED
        return _BROKEN if self.variant is None else str(self.variant)


def check_names(registry: Registry, programs: Sequence[Case], settings: Settings) -> None:
    """Raises UsageError for a chosen name that neither a model nor a program has."""
    known = {name for case in programs for name in case.names}
    for name in settings.models:
        if not is_program(name) and name not in known:
            registry.get(name)


def check_weights(registry: Registry, programs: Sequence[Case], settings: Settings) -> None:
    """Raises UsageError where one file of weights would be given to several networks.

    Models of one folder may share a network. Whether the file fits is seen by the first export.
    """
    if settings.weights is None:
        return
    named = {name for case in programs for name in case.names}
    names = _chosen_models(registry, settings, None, named)
    sources = {entry.file or entry.source for entry in map(registry.get, names)}
    if len(sources) > 1:
        raise UsageError(
            f"{settings.weights} holds the weights of one network, and {len(names)} models are "
            f"chosen ({', '.join(names[:3])}…). Name one with --sme2-models."
        )


def select_cases(
    registry: Registry,
    programs: Sequence[Case],
    settings: Settings,
    *,
    emulated: bool,
    models: Iterable[str] | None = None,
    variants: Iterable[str] | None = None,
) -> list[Case]:
    """All cases of a run.

    ``models`` and ``variants`` narrow the selection further, as a test's marker does. A name that
    no model has is a usage error; a broken model folder is a case of its own. ``programs`` are
    the cases of files, which have no variants: a run that names variants leaves them out.
    """
    models = None if models is None else tuple(models)
    wanted = None if variants is None else {parse_variant(word) for word in variants}
    named = {name for case in programs for name in case.names}
    sweep = len(settings.threads) > 1
    cases = []
    for name in _chosen_models(registry, settings, models, named):
        entry = registry.get(name)
        for variant in _chosen_variants(entry, settings, emulated):
            if wanted is not None and not wanted & {variant, Variant(variant.precision)}:
                continue
            cases += [
                Case(name, variant, threads, entry, sweep=sweep) for threads in settings.threads
            ]
    if wanted is None and not settings.variants:
        asked = None if models is None else {*models}
        cases += [case for case in programs if asked is None or not case.names.isdisjoint(asked)]
    if not settings.models and models is None:
        cases += [
            Case(problem.name, None, problem=f"{problem}\n{problem.traceback}".rstrip())
            for problem in registry.problems
        ]
    return cases


def _chosen_models(
    registry: Registry, settings: Settings, models: Iterable[str] | None, programs: set[str]
) -> list[str]:
    """Those of the registry; ``programs`` are the names that are not its."""
    asked = [name for name in settings.models if not is_program(name) and name not in programs]
    selected = list(asked if settings.models else registry.names)
    if models is None:
        return selected
    named = [registry.get(name).name for name in models if name not in programs]
    return [name for name in named if not settings.models or name in selected]


def _chosen_variants(entry: ModelEntry, settings: Settings, emulated: bool) -> Iterable[Variant]:
    if not settings.variants:
        return entry.defaults(emulated=emulated)
    found = (entry.resolve(asked, emulated=emulated) for asked in settings.variants)
    return dict.fromkeys(itertools.chain.from_iterable(found))
