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
from pytest_sme2.results.profile import Cost, Executor, Finding, OperatorProfile, Profile, Topic
from pytest_sme2.results.run import Origin
from pytest_sme2.system.wording import count

# ExecuTorch's kernels that may rewrite a tensor in another memory layout.
LAYOUT_KERNELS = frozenset({"_clone_dim_order", "_to_dim_order_copy"})


def is_layout_change(profile: OperatorProfile) -> bool:
    operator = profile.operator
    return operator.kind == "transpose" or operator.operation in LAYOUT_KERNELS


NO_BETTER = "no better form is known"
CostOf = Callable[[Sequence[OperatorProfile]], Cost]

_PORTABLE = (
    "they split the delegate, so data moves in and out; express them with operators that XNNPACK "
    "takes, or do them outside of the model"
)
# By whether the model has it, where that is known.
_LAYOUTS: dict[bool | None, tuple[str, str]] = {
    True: ("the model's own permute and transpose", f"{NO_BETTER}: they stay in the delegate"),
    False: (
        "between channels first and channels last",
        f"{NO_BETTER}: images go in and come out with channels first, and ExecuTorch changes where "
        "convolutions meet operators that are not made for images; an input in channels_last is "
        "laid out anew all the same",
    ),
    None: (
        "inside the delegate",
        f"{NO_BETTER}: they are the model's own permute and transpose, or lie between channels "
        "first and channels last; an ETRecord tells",
    ),
}
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
        if _splits(member) or is_told(member):
            key, rewrite = _cause(member)
            groups.setdefault(key, _Group(rewrite)).members.append(member)
            key_of[member.index] = key
    whose: dict[bool | None, list[OperatorProfile]] = {}
    every = (None, *profile.operators, None)
    for is_chain, following in itertools.groupby(profile.operators, is_layout_change):
        chain = tuple(following)
        if not is_chain:
            continue
        inner = [member for member in chain if member.index not in key_of]
        beside = every[chain[0].index], *chain, every[chain[-1].index + 2]
        keys = [key_of[member.index] for member in beside if member and _splits(member)]
        if keys:
            groups[keys[0]].beside += inner
        elif inner:
            aten = chain[0].aten
            own = any(name.startswith(_PERMUTES) for name in aten) if aten else None
            whose.setdefault(own, []).extend(inner)
    for key, group in groups.items():
        yield _finding(key, group, cost_of)
    for own, members in whose.items():
        what, remedy = _LAYOUTS[own]
        yield Finding(
            Topic.LAYOUT, what, cost_of(members), remedy, place=place_text(members) * bool(own)
        )


def _splits(member: OperatorProfile) -> bool:
    """A layout change by the runtime splits as well; without its origin it stays one."""
    if member.operator.executor is not Executor.PORTABLE:
        return False
    return member.origin is not None or not is_layout_change(member)


def is_told(member: OperatorProfile) -> bool:
    """Whether something can be done about it, though the delegate takes it: no input goes in, or it
    lays data out anew around a one-dimensional convolution.
    """
    if member.origin is None or member.operator.executor is not Executor.DELEGATED:
        return False
    laid_out = is_layout_change(member) or member.operator.kind == "reshape"
    return member.origin.constant or (member.origin.written == _SEQUENCES and laid_out)


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
    inside = all(map(is_told, group.members))
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
