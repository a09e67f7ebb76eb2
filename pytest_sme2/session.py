"""One run's state: what was chosen, and each stage's result for each case, made when first asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import ModelError, UsageError
from pytest_sme2.registry import ModelEntry, Registry, discover, safe_name
from pytest_sme2.results import Artifact
from pytest_sme2.settings import Settings, Variant, parse_variant

if TYPE_CHECKING:
    from pytest_sme2.runners import Runner
    from pytest_sme2.targets.base import Target

Say = Callable[[str], None]


def _silent(line: str) -> None:
    """Nobody is watching."""


@dataclass(frozen=True)
class Case:
    """One model in one variant with one thread count: what a test is run for."""

    model: str
    variant: Variant | None
    threads: int = 1
    entry: ModelEntry | None = None
    problem: str | None = None
    """Why the model cannot be used; the other fields then only name it."""
    sweep: bool = False
    """Whether several thread counts are run, so that the id must tell them apart."""

    @property
    def id(self) -> str:
        if self.problem is not None:
            return f"{self.model}-broken"
        threads = f"-t{self.threads}" if self.sweep else ""
        return f"{self.model}-{self.variant}{threads}"

    @property
    def stem(self) -> str:
        """The id as a file name."""
        return safe_name(self.id)


class Session:
    """Holds what one run shares between its tests."""

    def __init__(self, settings: Settings, say: Say = _silent) -> None:
        self.settings = settings
        self.say = say
        self._artifacts: dict[Case, Artifact] = {}

    # --- what to run ---------------------------------------------------------------------------

    @functools.cached_property
    def registry(self) -> Registry:
        return discover(self.settings.model_folders)

    def cases(
        self,
        models: Iterable[str] | None = None,
        variants: Iterable[str] | None = None,
    ) -> list[Case]:
        """The selected models times their selected variants times the thread counts.

        ``models`` and ``variants`` narrow the selection further, as a test's marker does. A name
        that no model has is a usage error; a broken model folder is a case of its own.
        """
        chosen = self._chosen(models)
        wanted = None if variants is None else {parse_variant(word) for word in variants}
        sweep = len(self.settings.threads) > 1
        cases = []
        for name in chosen:
            entry = self.registry.get(name)
            for variant in entry.variants:
                if self.settings.variants and variant not in self.settings.variants:
                    continue
                if wanted is not None and variant not in wanted:
                    continue
                cases += [
                    Case(name, variant, threads, entry, sweep=sweep)
                    for threads in self.settings.threads
                ]
        if not self.settings.models and models is None:
            cases += [
                Case(problem.name, None, problem=problem.traceback)
                for problem in self.registry.problems
            ]
        return cases

    def _chosen(self, models: Iterable[str] | None) -> list[str]:
        selected = list(self.settings.models or self.registry.names)
        if models is None:
            return selected
        models = list(models)
        for name in models:
            self.registry.get(name)
        if not self.settings.models:
            return models
        return [name for name in models if name in selected]

    # --- the stages ----------------------------------------------------------------------------

    @functools.cached_property
    def target(self) -> Target:
        from pytest_sme2.targets import choose_target

        target = choose_target(self.settings)
        target.prepare()
        return target

    @functools.cached_property
    def runner(self) -> Runner:
        from pytest_sme2.runners import wheel_runner

        return wheel_runner(self.target.platform, progress=self.say)

    @functools.cached_property
    def out(self) -> Path:
        """The run directory."""
        return (self.settings.out or Path("sme2-out")).resolve()

    def artifact(self, case: Case) -> Artifact:
        if case.problem is not None or case.entry is None or case.variant is None:
            raise ModelError(case.problem or f"{case.model} is not a model")
        if case not in self._artifacts:
            from pytest_sme2.export import export_model

            self._artifacts[case] = export_model(
                case.entry, case.variant, weights=self.settings.weights, progress=self.say
            )
        return self._artifacts[case]

    def close(self) -> None:
        """Leave the device as it was found."""
        if "target" in self.__dict__:
            self.target.restore()
