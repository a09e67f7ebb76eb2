"""``sme2 run --kernels``: which kernels a model runs on, SME2 on and off side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_sme2.results import Artifact, Kernel, KernelCensus, KernelFamily

_TITLES = {
    "emulator": ("kernels that ran", "counted in blocks of code that the emulator translated"),
    "xnnpack-log": ("operators that ran", "counted in lines of XNNPACK's log"),
}


def table(artifact: Artifact, device: str, on: KernelCensus, off: KernelCensus) -> list[str]:
    """Both arms side by side, one row per kernel."""
    what, counted = _TITLES[on.source]
    lines = [f"{artifact.model} ({artifact.variant}) on {device}: {what}, {counted}", ""]
    if on.source == "emulator":
        lines += _rows("kernel", on.kernels, off.kernels)
        lines += ["", *(f"SME2 {census.arm}: {_summary(census.kernels)}" for census in (on, off))]
        if any(not kernel.named for kernel in (*on.kernels, *off.kernels)):
            lines += [
                "",
                "A name such as library.so+0x1234 is a place: the library hides that kernel's "
                "name,",
                "and its family was read off its instructions.",
            ]
    else:
        lines += _rows("operator", on.operators, off.operators)
        lines += ["", "Kernels that XNNPACK made ready; they may have run, or not:", ""]
        lines += _rows("candidate", on.candidates, off.candidates)
    return [line.rstrip() for line in lines]


def _rows(title: str, on: Sequence[Kernel], off: Sequence[Kernel]) -> list[str]:
    order = list(KernelFamily)
    counts = [{kernel.name: kernel for kernel in side} for side in (on, off)]
    kernels = {**counts[1], **counts[0]}
    names = sorted(
        kernels, key=lambda name: (order.index(kernels[name].family), not kernels[name].named, name)
    )
    if not names:
        return ["none was seen"]
    width = max(len(name) for name in (*names, title))
    lines = [f"{title:<{width}}  family {'on':>7} {'off':>7}"]
    for name in names:
        cells = [str(side[name].count) if name in side else "-" for side in counts]
        lines.append(
            f"{name:<{width}}  {kernels[name].family.value:<6} {cells[0]:>7} {cells[1]:>7}"
        )
    return lines


def _summary(kernels: Sequence[Kernel]) -> str:
    parts = []
    for family in KernelFamily:
        count = sum(kernel.family is family for kernel in kernels)
        if count:
            parts.append(f"{count} {family.value}")
    return ", ".join(parts) or "no kernel was seen"
