"""``python -m tools.matrix --out FILE``: makes the kernel matrix of one version of ExecuTorch."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytest_sme2.cli.main import exit_code
from pytest_sme2.cli.options import Arguments, add_arguments
from pytest_sme2.errors import UsageError
from pytest_sme2.export.store import package_versions
from pytest_sme2.profile.kernel_matrix import read_matrix, shipped_matrix, shipped_versions
from pytest_sme2.results.evidence import CellAnswer
from pytest_sme2.runners.sdk import sdk_version
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.system.terminal import say
from pytest_sme2.system.wording import count
from pytest_sme2.targets.emulated import EmulatedTarget
from tools.matrix.cells import all_cells
from tools.matrix.comparing import change_lines, write_matrix
from tools.matrix.making import empty_matrix, make_matrix, merged
from tools.matrix.programs import Programs

ARGUMENTS: Arguments = {
    "--out FILE!": "where to write it; cells that it has already are kept",
    "--only PATTERN": ("only cells whose id fits: 'linear-int8*'", "*"),
}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.matrix", description=__doc__)
    add_arguments(parser, ARGUMENTS)
    return exit_code(make, parser.parse_args(words))


def make(arguments: argparse.Namespace) -> int:
    """Goes on where it was stopped."""
    cells = [cell for cell in all_cells() if fnmatch.fnmatchcase(cell.id, arguments.only)]
    if not cells:
        raise UsageError(f"No cell fits {arguments.only!r}. A cell's id: {all_cells()[0].id}")
    version = sdk_version(None)
    target = EmulatedTarget(find_qemu())
    runner = wheel_runner(target.platform, executorch=version, progress=say)
    programs = Programs(package_versions(), say)
    # As it is before anything is written: it may be written there.
    newest = shipped_matrix(shipped_versions()[-1])
    before = empty = empty_matrix(programs, target, runner)
    if arguments.out.is_file():
        before = merged(read_matrix(arguments.out), empty, all_cells())

    def keep(answers: Iterable[CellAnswer]) -> None:
        made = replace(empty, answers=tuple(answers))
        write_matrix(merged(before, made, all_cells()), arguments.out)

    make_matrix(programs, target, runner, cells, say, before.by_cell, keep)
    matrix = read_matrix(arguments.out)
    problems = sum(bool(answer.problem) for answer in matrix.answers)
    say(
        f"{arguments.out}: {count(len(matrix.answers), 'cell')}, {problems} of them without an "
        f"answer; missing: {len(matrix.missing)}"
    )
    for line in change_lines(newest, matrix):
        say(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
