"""How many cycles each operator would need if nothing but its own instructions took time.

A model's cycles for each block of code, times how often the operator ran it. Caches, memory and
wrong guesses of branches are not in it, so it is a bound: never a time, and never judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_sme2.profile.categories import Rule
from pytest_sme2.profile.cost import operator_code
from pytest_sme2.results import Columns, CountedInference, InferenceCost, Profile
from pytest_sme2.system.llvm_mca import ModelledBlock


@dataclass(frozen=True)
class OperatorBound:
    """One operator."""

    label: str
    instructions: int
    cycles: float
    moved_bytes: int
    """Loaded and stored, as if all lanes of a predicated access were active."""

    @property
    def bytes_per_cycle(self) -> float:
        """What memory would have to deliver for the bound to be reached."""
        return self.moved_bytes / self.cycles if self.cycles else 0.0


@dataclass(frozen=True)
class Bound:
    """One inference."""

    operators: tuple[OperatorBound, ...]
    modelled: float
    """The share of the operators' instructions that the model knows."""

    @property
    def cycles(self) -> float:
        return sum(entry.cycles for entry in self.operators)


def build_bound(
    cost: InferenceCost,
    blocks: CountedInference,
    modelled: Mapping[str, ModelledBlock],
    columns: Columns,
    profile: Profile,
    rules: Sequence[Rule] = (),
) -> Bound:
    """The bound of each operator in ``cost``. Raises MismatchError.

    ``blocks`` is the same inference by blocks instead of kernels.
    """
    operators = []
    known = 0.0
    codes, _ = operator_code(blocks, columns, profile, rules)
    for entry, code in zip(cost.operators, codes, strict=True):
        times = [
            (modelled[number], int(row[0]))
            for number, row in code.rows.items()
            if number in modelled
        ]
        known += sum(block.instructions * count for block, count in times)
        operators.append(
            OperatorBound(
                label=entry.label,
                instructions=entry.counts.instructions,
                cycles=sum(block.cycles * count for block, count in times),
                moved_bytes=entry.counts.loaded_bytes + entry.counts.stored_bytes,
            )
        )
    executed = sum(entry.instructions for entry in operators)
    return Bound(tuple(operators), known / executed if executed else 0.0)
