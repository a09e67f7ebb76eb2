"""``python -m tools.names VERSION``: makes the table of what operators' names mean on a device.

It takes what ran on the emulator already, with SME2 on and with all of SME off: the kernel matrix
of that version, and its baselines. A name that is the same on both sides proves nothing by itself.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_sme2.cli.main import exit_code
from pytest_sme2.errors import UsageError
from pytest_sme2.profile.categories import classify
from pytest_sme2.profile.kernel_matrix import shipped_matrix, shipped_versions
from pytest_sme2.profile.known_names import (
    KnownName,
    NameTable,
    seen_names,
    write_table,
)
from pytest_sme2.results.case import RUNTIME, Baseline
from pytest_sme2.results.evidence import CellAnswer
from pytest_sme2.results.profile import Operator
from pytest_sme2.results.run import Arm
from pytest_sme2.system.terminal import say
from pytest_sme2.system.wording import count
from pytest_sme2.verdict import baselines

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "pytest_sme2" / "profile" / "names"

_Runs = Mapping[Arm, Sequence[tuple[Operator, str]]]


def make_table(version: str, folder: Path = ROOT / "baselines" / "emulated") -> NameTable:
    """Of all programs of that version that ran with SME2 on and off."""
    matrix = shipped_matrix(version).answers if version in shipped_versions() else ()
    found = [_of_cell(answer) for answer in matrix if answer.off]
    stored = filter(None, map(baselines.read, sorted(folder.glob("*.json"))))
    found += (_of_baseline(each) for each in stored if each.versions.get(RUNTIME) == version)
    names: dict[str, KnownName] = _joined(map(seen_names, found))
    if not names:
        raise UsageError(f"Nothing of ExecuTorch {version} ran with SME2 on and off.")
    return NameTable(version, names)


def _joined(tables: Iterable[Mapping[str, KnownName]]) -> dict[str, KnownName]:
    """All that they know."""
    found: dict[str, KnownName] = {}
    for name, known in itertools.chain.from_iterable(table.items() for table in tables):
        parts = zip(vars(found.get(name, KnownName())).items(), vars(known).values(), strict=True)
        found[name] = KnownName(
            **{place: tuple(sorted({*old, *new})) for (place, old), new in parts}
        )
    return found


def _of_cell(answer: CellAnswer) -> _Runs:
    sides = (
        (Arm.ON, answer.operators, answer.family, answer.kernel),
        (Arm.SME1, answer.operators if answer.sme1 else (), answer.sme1, answer.sme1_kernel),
        (Arm.OFF, answer.off, "", answer.off_kernel),
    )
    return {
        arm: [(_operator(name, family), _named(kernel)) for name in names]
        for arm, names, family, kernel in sides
    }


def _operator(name: str, family: str) -> Operator:
    return replace(classify(name), sme2=family in ("sme2", "sme1"), sme1=family == "sme1")


def _named(kernel: str) -> str:
    """A place in a library moves with every build, and packing may be the same on both sides."""
    return "" if ".so" in kernel or "_pack" in kernel else kernel


def _of_baseline(baseline: Baseline) -> _Runs:
    return {arm: list(_of_arm(baseline, arm)) for arm in baseline.structures}


def _of_arm(baseline: Baseline, arm: Arm) -> Iterator[tuple[Operator, str]]:
    cost = baseline.costs.get(arm)
    kernels = {entry.name: entry.kernel for entry in cost.operators} if cost else {}
    for entry in baseline.structures[arm].operators:
        family = ("sme1" if entry.sme1 else "sme2") if entry.sme2 else ""
        name = entry.name.removesuffix(", depthwise")
        yield _operator(name, family), _named(kernels.get(name, ""))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.names", description=__doc__)
    parser.add_argument("version", nargs="?", default=shipped_versions()[-1])
    return exit_code(make, parser.parse_args(words))


def make(arguments: argparse.Namespace) -> int:
    table = make_table(arguments.version)
    path = TABLES / f"executorch-{arguments.version}.json"
    write_table(table, path)
    say(f"{path}: {count(len(table.names), 'name')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
