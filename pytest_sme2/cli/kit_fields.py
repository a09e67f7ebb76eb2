"""What the experiment files of Arm's profiling kit say in their own way. Pure.

The kit is https://github.com/ArmDeveloperEcosystem/sme-executorch-profiling; docs/runners.md names
the command here for each of its scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError

# Options of the kit's script, which it also takes from extra_args: True where a value follows.
_SCRIPT_OPTIONS = {
    "--verbose-runner": True,
    "--xtrace-template": True,
    "--xtrace-target-sec": True,
    "--xtrace-min-exec": True,
    "--xtrace-max-exec": True,
    "--xtrace-execs": True,
    "--output": False,
    "--no-output": False,
}


def beside(model: Path) -> Path:
    """Where the kit puts the results of a file that names no place."""
    folder = model.parent
    return (folder.parent if folder.name == "artifacts" else folder) / "results"


def compare_pairs(analysis: object, notes: list[str]) -> list[Any] | None:
    """The pairs of the field ``analysis``, as ``compare`` has them; None where it names none."""
    if not isinstance(analysis, dict):
        raise UsageError("analysis: must be an object in braces.")
    notes += [
        f"analysis.{name} is ignored: the analysis here has no such choice"
        for name in analysis
        if name != "compare_pairs"
    ]
    pairs = analysis.get("compare_pairs") or []
    if not isinstance(pairs, list):
        raise UsageError("analysis.compare_pairs: must be a list of pairs.")
    found = []
    for number, pair in enumerate(pairs):
        where = f"analysis.compare_pairs[{number}]"
        if not isinstance(pair, dict):
            raise UsageError(f"{where}: must be an object with baseline and candidate.")
        found.append(
            [_side(pair.get(side), f"{where}.{side}") for side in ("baseline", "candidate")]
        )
        if pair.get("label"):
            notes.append(f"{where}.label is ignored: pairs are named after their experiments")
    return found or None


def _side(value: object, where: str) -> tuple[str, int]:
    name = value.get("experiment") if isinstance(value, dict) else None
    threads = value.get("threads", 1) if isinstance(value, dict) else None
    if not isinstance(name, str) or not isinstance(threads, int) or isinstance(threads, bool):
        raise UsageError(f'{where}: must be as in {{"experiment": "mac_sme2_on", "threads": 1}}.')
    return name, threads


def runner_words(
    words: Sequence[str], where: str, notes: list[str]
) -> tuple[tuple[str, ...], Path | None]:
    """What of ``extra_args`` is for the runner, and the runner that logs kernels, if named."""
    kept: list[str] = []
    verbose: Path | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name not in _SCRIPT_OPTIONS:
            kept.append(word)
            continue
        if _SCRIPT_OPTIONS[name] and not equals:
            value = rest.pop(0) if rest else ""
        if name == "--verbose-runner" and value:
            verbose = Path(value)
            notes.append(f"{where}.extra_args: {value} is the runner of xnntrace experiments")
        else:
            notes.append(
                f"{where}.extra_args: {name} is ignored: it is an option of the kit's script"
            )
    return tuple(kept), verbose
