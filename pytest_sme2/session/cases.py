"""Which cases a run has: the selected models times their variants times the thread counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import UsageError
from pytest_sme2.export.registry import ModelEntry, Registry
from pytest_sme2.export.store import META_FILE, load_artifact
from pytest_sme2.export.variant import Variant, parse_variant
from pytest_sme2.results import AS_EXPORTED, Artifact
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import file_sha256


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

    @property
    def id(self) -> str:
        if self.problem is not None:
            return f"{self.model}-broken"
        threads = f"-t{self.threads}" if self.sweep else ""
        variant = self.variant if self.program is None else self.program.variant
        return f"{self.model}-{variant}{threads}"


def program_case(pte: Path, threads: int = 1) -> Case:
    """The case of a ``.pte`` file: as it was exported, where its record is beside it."""
    pte = pte.expanduser().absolute()
    if not pte.is_file():
        raise UsageError(f"There is no program {str(pte)!r}. Make one with `sme2 export`.")
    artifact = Artifact(
        model=pte.stem,
        variant=AS_EXPORTED,
        folder=pte.parent,
        pte=pte,
        sha256=file_sha256(pte),
        inputs=(),
        outputs=(),
        weights="unknown",
    )
    if (pte.parent / META_FILE).is_file():
        recorded = load_artifact(pte.parent)
        if recorded.pte.absolute() == pte:
            artifact = recorded
    return Case(artifact.model, None, threads, program=artifact)


def select_cases(
    registry: Registry,
    settings: Settings,
    *,
    emulated: bool,
    models: Iterable[str] | None = None,
    variants: Iterable[str] | None = None,
) -> list[Case]:
    """All cases of a run.

    ``models`` and ``variants`` narrow the selection further, as a test's marker does. A name that
    no model has is a usage error; a broken model folder is a case of its own.
    """
    wanted = None if variants is None else {parse_variant(word) for word in variants}
    sweep = len(settings.threads) > 1
    cases = []
    for name in _chosen_models(registry, settings, models):
        entry = registry.get(name)
        for variant in _chosen_variants(entry, settings, emulated):
            if wanted is not None and not wanted & {variant, Variant(variant.precision)}:
                continue
            cases += [
                Case(name, variant, threads, entry, sweep=sweep) for threads in settings.threads
            ]
    if not settings.models and models is None:
        cases += [
            Case(problem.name, None, problem=f"{problem}\n{problem.traceback}".rstrip())
            for problem in registry.problems
        ]
    return cases


def _chosen_models(
    registry: Registry, settings: Settings, models: Iterable[str] | None
) -> list[str]:
    selected = list(settings.models or registry.names)
    if models is None:
        return selected
    named = [registry.get(name).name for name in models]
    return [name for name in named if not settings.models or name in selected]


def _chosen_variants(entry: ModelEntry, settings: Settings, emulated: bool) -> Iterable[Variant]:
    if not settings.variants:
        return entry.defaults(emulated=emulated)
    found = (entry.resolve(asked, emulated=emulated) for asked in settings.variants)
    return dict.fromkeys(itertools.chain.from_iterable(found))
