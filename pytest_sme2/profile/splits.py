"""What splits the delegate, where the model has it, and the layout changes beside it. Pure.

Every operator that XNNPACK does not take ends one delegate call and begins another. Data leaves
XNNPACK's layout and comes back, so layout changes next to such an operator are part of its cost.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pytest_sme2.export.variant import GENERAL, Rewrite, rewrite_for
from pytest_sme2.profile.matching import short_file
from pytest_sme2.results import (
    Category,
    Cost,
    Executor,
    Finding,
    OperatorProfile,
    Origin,
    Profile,
    Topic,
)
from pytest_sme2.system.wording import count

# ExecuTorch's kernels that may rewrite a tensor in another memory layout.
LAYOUT_KERNELS = frozenset({"_clone_dim_order", "_to_dim_order_copy"})


def is_layout_change(profile: OperatorProfile) -> bool:
    operator = profile.operator
    return operator.kind == "transpose" or operator.operation in LAYOUT_KERNELS


@dataclass(frozen=True)
class Chain:
    """Layout changes that follow one another, and what stands around them."""

    operators: tuple[OperatorProfile, ...]
    before: OperatorProfile | None
    after: OperatorProfile | None


def transposes(profile: Profile) -> tuple[Chain, ...]:
    """The chains of layout changes, in the order of the program."""
    operators = (None, *profile.operators, None)
    chains = []
    for is_chain, group in itertools.groupby(profile.operators, is_layout_change):
        if is_chain:
            members = tuple(group)
            start, end = members[0].index, members[-1].index + 2
            chains.append(Chain(members, operators[start], operators[end]))
    return tuple(chains)


NO_BETTER = "no better form is known"
CostOf = Callable[[Sequence[OperatorProfile]], Cost]

_PORTABLE = (
    "they split the delegate, so data moves in and out; express them with operators that XNNPACK "
    "takes, or do them outside of the model"
)
_INSIDE = f"{NO_BETTER}: inside the delegate"
_OWN_PERMUTES = "the model's own permute and transpose are among them"
_LAYOUTS = (
    "the model has no permute here: ExecuTorch changes between channels first and channels last "
    "where convolutions meet operators that are not made for images"
)
_UNKNOWN_INSIDE = (
    "either the model's own permute and transpose, or changes between channels first and channels "
    "last; an ETRecord tells"
)
_INPUT = (
    f"{NO_BETTER}: images go into the program with channels first, and an input in channels_last "
    "is laid out anew all the same"
)
_OUTPUT = f"{NO_BETTER}: images leave the program with channels first"
_PERMUTES = ("aten.permute", "aten.transpose", "aten.t_copy", "aten.t.", "aten.movedim")
_MOST_MODULES = 2
_SEQUENCES = "aten.conv1d"


@dataclass
class _Group:
    """Portable operators with one cause."""

    rewrite: Rewrite | None
    members: list[OperatorProfile] = field(default_factory=list)
    beside: list[OperatorProfile] = field(default_factory=list)
    """Layout changes of the delegate next to them."""


def split_findings(profile: Profile, cost_of: CostOf) -> Iterator[Finding]:
    """Operators outside of the delegate by their cause, then the other layout changes."""
    groups: dict[str, _Group] = {}
    key_of: dict[int, str] = {}
    for member in profile.operators:
        if _splits(member) or is_constant(member):
            key, rewrite = _cause(member)
            groups.setdefault(key, _Group(rewrite)).members.append(member)
            key_of[member.index] = key
    rest = []
    around = _around_sequences(profile)
    for chain in transposes(profile):
        if around.issuperset(chain.operators):
            continue
        inner = [member for member in chain.operators if member.index not in key_of]
        around_it = filter(None, (chain.before, *chain.operators, chain.after))
        keys = [key_of[member.index] for member in around_it if _splits(member)]
        if keys:
            groups[keys[0]].beside += inner
        elif inner:
            rest.append(chain)
    for key, group in groups.items():
        yield _finding(key, group, cost_of)
    rewrite = rewrite_for(_SEQUENCES, constant=False)
    if around and rewrite is not None:
        found = sorted(around, key=lambda member: member.index)
        yield Finding(
            Topic.LAYOUT,
            rewrite.what,
            cost_of(found),
            f"{rewrite.why}; {rewrite.remedy}",
            f"{count(sum(map(is_layout_change, found)), 'transpose')}, and reshapes",
            place_text(found),
            rewrite.name,
        )
    yield from _layout(rest, len(profile.operators) - 1, cost_of)


def _around_sequences(profile: Profile) -> set[OperatorProfile]:
    """What lays data out anew around one-dimensional convolutions, inside of the delegate."""
    return {
        member
        for member in profile.operators
        if member.origin is not None
        and member.origin.written == _SEQUENCES
        and member.operator.executor is Executor.DELEGATED
        and (is_layout_change(member) or member.operator.kind == "reshape")
    }


def _splits(member: OperatorProfile) -> bool:
    """A layout change by the runtime splits as well; without its origin it stays one."""
    if member.operator.executor is not Executor.PORTABLE:
        return False
    return member.origin is not None or not is_layout_change(member)


def is_constant(member: OperatorProfile) -> bool:
    """Whether the delegate does it in every inference, though no input goes in."""
    inside = member.operator.executor is Executor.DELEGATED
    return inside and member.origin is not None and member.origin.constant


def _cause(member: OperatorProfile) -> tuple[str, Rewrite | None]:
    name = member.operator.name.removeprefix("native_call_")
    own = member.operator.operation.removesuffix("_copy")
    origin = member.origin or Origin(f"aten.{own}")
    rewrite = rewrite_for(origin.written, constant=origin.constant)
    # What was written may do more than one thing: a reshape of what is expanded copies it.
    rewrite = rewrite or rewrite_for(f"aten.{own}", constant=False)
    if rewrite is not None:
        return rewrite.what, rewrite
    written = origin.written.removeprefix("aten.")
    return (name if written == own else f"{name} of {written}"), None


def _finding(key: str, group: _Group, cost_of: CostOf) -> Finding:
    cost = cost_of([*group.members, *group.beside])
    rewrite = group.rewrite
    details = []
    if rewrite is not None:
        names = Counter(member.operator.operation for member in group.members)
        details += [f"{number} {name}" for name, number in names.most_common(4)]
    if group.beside:
        details.append(f"with {count(len(group.beside), 'transpose')} beside")
    inside = all(map(is_constant, group.members))
    return Finding(
        Topic.COSTLY if inside else Topic.PORTABLE,
        key,
        replace(cost, operators=len(group.members)),
        _PORTABLE if rewrite is None else f"{rewrite.why}; {rewrite.remedy}",
        ", ".join(details),
        place_text(group.members),
        GENERAL if rewrite is None else rewrite.name,
        is_cause=rewrite is not None,
    )


def place_text(members: Iterable[OperatorProfile]) -> str:
    """``features.0.2 (SiLU) and 48 more; net.py:12 `x = self.block(x)` ``; empty if not known."""
    origins = [member.origin for member in members if member.origin is not None]
    modules = Counter((origin.module, origin.module_type) for origin in origins if origin.module)
    named = [f"{path} ({kind})" if kind else path for path, kind in list(modules)[:_MOST_MODULES]]
    left = len(modules) - len(named)
    lines = Counter((origin.file, origin.line, origin.code) for origin in origins if origin.file)
    parts = []
    if named:
        parts.append(" and ".join(named) if not left else f"{', '.join(named)} and {left} more")
    if lines:
        (file, line, code), _ = lines.most_common(1)[0]
        parts.append(f"{short_file(file)}:{line}" + (f" `{code}`" if code else ""))
    return "; ".join(parts)


def _layout(chains: Sequence[Chain], last: int, cost_of: CostOf) -> Iterator[Finding]:
    """``last`` is the index of the program's last operator."""
    groups: dict[tuple[str, str], list[OperatorProfile]] = {}
    for chain in chains:
        groups.setdefault((_place(chain), _remedy(chain, last)), []).extend(chain.operators)
    for (place, remedy), members in groups.items():
        yield Finding(Topic.LAYOUT, place, cost_of(members), remedy)


def _place(chain: Chain) -> str:
    """Where layout changes are: neighbours in a trace need not feed one another."""
    before, after = (
        "the program's border" if member is None else member.operator.operation
        for member in (chain.before, chain.after)
    )
    return f"between {before} and {after}"


def _remedy(chain: Chain, last: int) -> str:
    # A quantized program converts its inputs first and its outputs last.
    begins = chain.before is None or (chain.before.index == 0 and _converts(chain.before))
    ends = chain.after is None or (chain.after.index == last and _converts(chain.after))
    if begins and chain.after is not None and _is_image(chain.after):
        return _INPUT
    if ends and chain.before is not None and _is_image(chain.before):
        return _OUTPUT
    aten = chain.operators[0].aten
    if not aten:
        return f"{_INSIDE}, {_UNKNOWN_INSIDE}"
    own = any(name.startswith(_PERMUTES) for name in aten)
    return f"{_INSIDE}, {_OWN_PERMUTES if own else _LAYOUTS}"


def _converts(member: OperatorProfile) -> bool:
    return member.operator.kind == "convert"


def _is_image(member: OperatorProfile) -> bool:
    """Whether it works on images, so that channels_last means something."""
    operator = member.operator
    return operator.category is Category.CONV or operator.kind in ("pooling", "resize")
