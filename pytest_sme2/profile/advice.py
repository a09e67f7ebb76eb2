"""What would bring more of a model onto SME2: its variants side by side, and what stands in the
way, the costliest first. Pure: profiles in, values out; how it is told is in the command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_sme2.profile.shapes import told_shapes
from pytest_sme2.profile.transposes import is_layout_change, transposes
from pytest_sme2.results import Executor, OperatorProfile, Profile, TransposeChain


@dataclass(frozen=True)
class Obstacle:
    """Operators of one kind that stand in the way, and what could be done about them."""

    what: str
    count: int
    share: float | None
    """Of end-to-end time; None where times mean nothing."""
    remedy: str
    shapes: str = ""
    """Of matrix operators, where they are known; the costliest first."""


@dataclass(frozen=True)
class VariantAdvice:
    """One variant with SME2 on."""

    variant: str
    matrix_operators: int
    sme2_operators: int
    unproven: int
    operators: int
    depthwise: Obstacle | None
    missed: tuple[Obstacle, ...]
    """The matrix operators that are not on SME2."""
    layout_changes: tuple[Obstacle, ...]
    portable: tuple[Obstacle, ...]
    """The operators that XNNPACK did not take."""

    @property
    def coverage(self) -> float | None:
        return self.sme2_operators / self.matrix_operators if self.matrix_operators else None


@dataclass(frozen=True)
class Advice:
    """All variants of a model, the best covered first."""

    model: str
    timed: bool
    """Whether costs are shares of time; else they are counts."""
    variants: tuple[VariantAdvice, ...]

    @property
    def best(self) -> tuple[VariantAdvice, ...]:
        """The variants with the greatest coverage; several where they are equal."""
        known = [entry for entry in self.variants if entry.coverage is not None]
        top = max((entry.coverage or 0.0 for entry in known), default=None)
        return tuple(entry for entry in known if entry.coverage == top)


def advise(model: str, profiles: Mapping[str, Profile], *, timed: bool) -> Advice:
    """``profiles`` are those of the on arm, by variant; ``timed``: whether their times count."""
    entries = [_variant(variant, profile, timed) for variant, profile in profiles.items()]
    entries.sort(key=lambda entry: -1.0 if entry.coverage is None else -entry.coverage)
    return Advice(model, timed, tuple(entries))


def _variant(variant: str, profile: Profile, timed: bool) -> VariantAdvice:
    coverage = profile.coverage
    depthwise = [member for member in profile.operators if member.operator.kind == "depthwise"]
    chains = transposes(profile).chains
    return VariantAdvice(
        variant=variant,
        matrix_operators=coverage.matrix_operators,
        sme2_operators=coverage.sme2_operators,
        unproven=len(coverage.unproven),
        operators=len(profile.operators),
        depthwise=_obstacle(
            "depthwise convolutions", depthwise, timed,
            "no SME2 kernel exists for them in any data type; a batch norm that follows an "
            "activation becomes one, and before the activation it would cost nothing",
        )
        if depthwise
        else None,
        missed=_grouped(
            (((member.operator.name, reason), member) for member, reason in coverage.missed),
            timed,
        ),
        layout_changes=_grouped(
            ((_chain_key(chain), member) for chain in chains for member in chain.operators),
            timed,
        ),
        portable=_grouped(
            (
                ((member.operator.name.removeprefix("native_call_"), _PORTABLE), member)
                for member in profile.operators
                if member.operator.executor is Executor.PORTABLE and not is_layout_change(member)
            ),
            timed,
        ),
    )  # fmt: skip


_PORTABLE = (
    "it splits the delegate and moves data in and out; express it with operators that XNNPACK "
    "takes, or do it outside of the model"
)
_BORDER = {
    "input": "at the input of a delegate call: give the model its input as channels_last, and "
    "keep operators that XNNPACK does not take out of its middle",
    "output": "at the output of a delegate call: let the consumer take channels_last, and keep "
    "operators that XNNPACK does not take out of the model's middle",
    "both": "between two delegate calls: what splits them costs this as well",
    "": "the model's own: permute and transpose in its code, where another order of dimensions "
    "or a fused attention may do without",
}


def _chain_key(chain: TransposeChain) -> tuple[str, str]:
    """Where layout changes stand: between which operations, and at which border.

    Neighbours in a trace need not feed one another, so nothing is said of a row as such.
    """
    before, after = (_operation(member) for member in (chain.before, chain.after))
    return f"between {before} and {after}", _BORDER[chain.border]


def _operation(member: OperatorProfile | None) -> str:
    return "the program's border" if member is None else member.operator.operation


def _grouped(
    members: Iterable[tuple[tuple[str, str], OperatorProfile]], timed: bool
) -> tuple[Obstacle, ...]:
    """Obstacles out of operators with their names and remedies; the costliest first."""
    groups: dict[tuple[str, str], list[OperatorProfile]] = {}
    for key, member in members:
        groups.setdefault(key, []).append(member)
    made = [_obstacle(what, found, timed, remedy) for (what, remedy), found in groups.items()]
    made.sort(key=lambda item: (-(item.share or 0.0), -item.count, item.what))
    return tuple(made)


def _obstacle(what: str, members: list[OperatorProfile], timed: bool, remedy: str) -> Obstacle:
    share = sum(member.share for member in members) if timed else None
    shapes = told_shapes(
        (member.shapes, member.share if timed else 1.0)
        for member in members
        if member.operator.matrix
    )
    return Obstacle(what, len(members), share, remedy, shapes)
