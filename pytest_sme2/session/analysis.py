"""From ETDump files and run directories to profiles: finding, reading, pairing. Prints nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import EtdumpError, Sme2Error, UsageError
from pytest_sme2.profile.beside import kept_origins, kept_shapes
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.results.evidence import KernelCensus, KernelFamily
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import Columns
from pytest_sme2.session.run_directory import METRICS
from pytest_sme2.system.files import read_members
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.trace.etrecord import read_attribution
from pytest_sme2.trace.program import read_program

SUFFIX = ".etdump"
# As a folder or file of the emulator is named.
_EMULATED = re.compile(r"^emulated$|(?:^|_)emulated_sme2_(?:on|off)")


@dataclass(frozen=True, eq=False)
class Analysis:
    """One ETDump, read and understood."""

    path: Path
    name: str
    """The path below the run directory, without the suffix."""
    columns: Columns
    profile: Profile
    others: tuple[Profile, ...]
    """The profiles of runs that executed other operators: further methods."""
    timed: bool = True
    """Whether its times are those of a CPU; an emulator's say nothing about hardware."""


def analyze_file(
    path: Path,
    *,
    name: str | None = None,
    census: KernelCensus | None = None,
    executed: Sequence[KernelFamily] | None = None,
    executorch: str = "",
    etrecord: Path | None = None,
    program: Path | None = None,
) -> Analysis:
    """Read one ETDump; ``etrecord`` adds ATen operators and modules.

    ``program`` adds shapes; without it those that were kept beside the ETDump are taken.
    """
    columns = read_etdump(path)
    attribution = kept_origins(path) if etrecord is None else read_attribution(etrecord)
    shapes = kept_shapes(path) if program is None else read_program(program)
    profile, *others = build_profiles(
        columns,
        census=census,
        attribution=attribution,
        shapes=shapes,
        executed=executed,
        executorch=executorch,
    )
    return Analysis(
        path=path,
        name=name or path.name.removesuffix(SUFFIX),
        columns=columns,
        profile=profile,
        others=tuple(others),
        timed=not was_emulated(path),
    )


def was_emulated(path: Path) -> bool:
    """Whether the run directory that holds an ETDump says so; an ETDump itself does not.

    Where no case was recorded, the names of the folders tell, which are those of devices.
    """
    if any(_EMULATED.search(name) for name in (path.stem, *path.absolute().parts[-4:-1])):
        return True
    for folder in list(path.absolute().parents)[:2]:
        record = folder / METRICS
        if record.is_file():
            measured = read_members(record).get("measured")
            return isinstance(measured, dict) and measured.get("emulated") is True
    return False


def etdumps_in(folder: Path) -> list[Path]:
    """The ETDumps of a run directory, in every experiment's folder, in order."""
    found = sorted(path for path in folder.rglob(f"*{SUFFIX}") if path.is_file())
    if not found:
        raise UsageError(
            f"There is no *{SUFFIX} file in {str(folder)!r}. Give a run directory, or an ETDump."
        )
    return found


def the_etdump(path: Path) -> Path:
    """``path`` itself, or the only ETDump in it."""
    if not path.exists():
        raise UsageError(f"{str(path)!r} does not exist. Give an ETDump or a run directory.")
    if not path.is_dir():
        return path
    found = etdumps_in(path)
    if len(found) > 1:
        names = ", ".join(str(item.relative_to(path)) for item in found)
        raise UsageError(f"{str(path)!r} holds several ETDumps. Give one of: {names}.")
    return found[0]


def analyze_folder(folder: Path, problems: list[str]) -> list[Analysis]:
    """Read every ETDump of a run directory.

    One that cannot be read is a line of ``problems``, and stops none of the others; where none can
    be read, it is an error.
    """
    analyses: list[Analysis] = []
    for path in etdumps_in(folder):
        name = path.relative_to(folder).as_posix().removesuffix(SUFFIX)
        try:
            analyses.append(analyze_file(path, name=name))
        except Sme2Error as error:
            problems.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    if not analyses:
        raise EtdumpError("\n".join(problems))
    return analyses


def on_off_pairs(analyses: Sequence[Analysis]) -> list[tuple[Analysis, Analysis]]:
    """The (on, off) pairs whose names differ in nothing but ``sme2_on`` and ``sme2_off``."""
    by_name = {analysis.name: analysis for analysis in analyses}
    pairs = []
    for name, analysis in by_name.items():
        partner = by_name.get(name.replace("sme2_on", "sme2_off"))
        if partner is not None and partner is not analysis:
            pairs.append((analysis, partner))
    return pairs
