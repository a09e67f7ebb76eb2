"""Layout changes: chains of transposes, what they stand between, what they cost. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_sme2.results import Executor, OperatorProfile, Profile, TransposeChain, TransposeReport

# ExecuTorch's kernels that may rewrite a tensor in another memory layout.
LAYOUT_KERNELS = frozenset({"_clone_dim_order", "_to_dim_order_copy"})


def is_layout_change(profile: OperatorProfile) -> bool:
    operator = profile.operator
    return operator.kind == "transpose" or operator.operation in LAYOUT_KERNELS


def transposes(profile: Profile) -> TransposeReport:
    """Find the chains of layout changes, in the order of the program."""
    chains = tuple(_chains(profile.operators))
    return TransposeReport(
        chains=chains,
        operators=sum(len(chain.operators) for chain in chains),
        time_ns=sum(chain.time_ns for chain in chains),
        share=sum(chain.share for chain in chains),
        border_share=sum(chain.share for chain in chains if chain.border),
    )


def _chains(operators: Sequence[OperatorProfile]) -> Iterator[TransposeChain]:
    start = 0
    while start < len(operators):
        end = start
        while end < len(operators) and is_layout_change(operators[end]):
            end += 1
        if end > start:
            yield _chain(operators, start, end)
        start = max(end, start + 1)


def _chain(operators: Sequence[OperatorProfile], start: int, end: int) -> TransposeChain:
    members = tuple(operators[start:end])
    return TransposeChain(
        operators=members,
        before=operators[start - 1] if start else None,
        after=operators[end] if end < len(operators) else None,
        time_ns=sum(member.time_ns for member in members),
        share=sum(member.share for member in members),
        border=_border(operators, start, end),
    )


def _border(operators: Sequence[OperatorProfile], start: int, end: int) -> str:
    """Whether data enters or leaves a delegate call next to or within the chain.

    A conversion (quantizing on the way in, say) between the chain and the border is looked past.
    """
    while start and operators[start - 1].operator.kind == "convert":
        start -= 1
    while end < len(operators) and operators[end].operator.kind == "convert":
        end += 1
    enters = leaves = False
    for right in range(start, end + 1):
        before = operators[right - 1] if right else None
        after = operators[right] if right < len(operators) else None
        if before is not None and after is not None and before.call == after.call:
            continue
        enters |= after is not None and after.operator.executor is Executor.DELEGATED
        leaves |= before is not None and before.operator.executor is Executor.DELEGATED
    if enters and leaves:
        return "both"
    return "input" if enters else "output" if leaves else ""
