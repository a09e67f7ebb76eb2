"""``python -m tools.new_version VERSION|WHEEL``: what a new ExecuTorch changes, in one command.

Builds its runner, makes its kernel matrix and its table of names, runs the suite, and prints what
differs from the version before. A version that is not installed gets an environment of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from pytest_sme2.cli.main import exit_code
from pytest_sme2.cli.options import Arguments, add_arguments
from pytest_sme2.errors import UsageError
from pytest_sme2.profile.kernel_matrix import read_matrix, shipped_versions
from pytest_sme2.profile.known_names import KnownName, NameTable, read_table
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.terminal import say
from tools.matrix.comparing import change_lines
from tools.names import TABLES

ROOT = Path(__file__).parents[1]
MATRICES = TABLES.with_name("matrices")
# What only this version decides: the switch, the kernels' names, and what its own operators run on.
_DEVICE_TESTS = ("runner", "kernels", "sme1", "upstream")
ARGUMENTS: Arguments = {
    "release VERSION|WHEEL": "the version of ExecuTorch, or the file of its wheel",
    "--only PATTERN": ("only these cells of the matrix: 'linear-int8*'", "*"),
    "--models NAME": "only these models of the suite; without it all",
}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.new_version", description=__doc__)
    add_arguments(parser, ARGUMENTS)
    return exit_code(meet, parser.parse_args(words))


def meet(arguments: argparse.Namespace) -> int:
    version = version_of(arguments.release)
    here = importlib.metadata.version("executorch") == version
    before = [each for each in shipped_versions() if each != version][-1]
    wanted = steps(version, arguments) if here else _elsewhere(version, arguments)
    failed = [title for title, words in wanted if not _passed(title, words)]
    for line in differences(before, version) if here else ():
        say(line)
    for title in failed:
        say(f"failed: {title}. What it printed is above")
    return 1 if failed else 0


def version_of(release: str) -> str:
    """Of a version, or of the name of a wheel."""
    found = re.fullmatch(r"executorch-([^-]+)-.*\.whl", Path(release).name)
    try:
        return str(Version(found[1] if found else release))
    except InvalidVersion as error:
        message = f"{release!r} is no version of ExecuTorch, and no wheel of it. Write 1.6.0."
        raise UsageError(message) from error


def _elsewhere(version: str, arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """The same command in an environment that has the release, whatever our own bounds are."""
    folder, given = cache_folder() / "releases" / version, Path(arguments.release)
    python = str(folder / "bin" / "python")
    release = str(given.resolve()) if given.is_file() else f"executorch=={version}"
    models = ["--models", arguments.models] if arguments.models else []
    yield "an environment of its own", ["tox", "devenv", "-e", "tests", str(folder)]
    yield "the release in it", [python, "-m", "pip", "install", "--upgrade", release]
    same = [python, "-m", "tools.new_version", version, "--only", arguments.only, *models]
    yield f"all of it with ExecuTorch {version}", same


def steps(version: str, arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Each with what it shows, in the order in which one needs the other."""
    python, emulated = [sys.executable, "-m"], ["--device", "emulated"]
    sme2 = str(Path(sys.executable).with_name("sme2"))
    models = ["--sme2-models", arguments.models] if arguments.models else []
    tests = [f"tests/device/test_{name}.py" for name in _DEVICE_TESTS]
    matrix = str(MATRICES / f"executorch-{version}.json")
    yield "the runner builds, and its evidence is valid", [sme2, "run", "toy_cnn", *emulated]
    yield "the switch hides SME2, and kernels are told apart", [*python, "pytest", "-q", *tests]
    yield "the kernel matrix", [*python, "tools.matrix", "--out", matrix, "--only", arguments.only]
    yield "the table of names", [*python, "tools.names", version]
    yield "the suite", [*python, "pytest", *emulated, "-n", "auto", *models, "tests/performance"]


def _passed(title: str, words: Sequence[str]) -> bool:
    say(f"{title}: {' '.join(words)}")
    return subprocess.run(words, cwd=ROOT).returncode == 0


def differences(before: str, after: str) -> Iterator[str]:
    """Of the matrices and of the tables of names, as far as both versions have them."""
    old, new = (MATRICES / f"executorch-{each}.json" for each in (before, after))
    if new.is_file():
        yield from change_lines(read_matrix(old), read_matrix(new))
    tables = [TABLES / path.name for path in (old, new)]
    if all(path.is_file() for path in tables):
        yield from name_lines(*map(read_table, tables))


def name_lines(before: NameTable, after: NameTable) -> Iterator[str]:
    """Names that are new, gone, or that run on something else."""
    for name in sorted({*before.names, *after.names}):
        rows = (vars(table.names.get(name, KnownName())) for table in (before, after))
        was, now = (" and ".join(one for one in row if row[one]) or "not known" for row in rows)
        if was != now:
            yield f"name          {name}: {was} → {now}"


if __name__ == "__main__":
    sys.exit(main())
