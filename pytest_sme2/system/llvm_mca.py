"""Finds an llvm-mca that models SME, and asks it how many cycles blocks of code take.

llvm-mca knows how many instructions of each kind a core can start per cycle, and how long each
takes. It knows no caches, no memory and no branches, so its cycles are a bound and never a time.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.system.cache import cache_folder, trusted
from pytest_sme2.system.processes import ANSWER_SECONDS, run_process

# The first version that models SME, and the only core that it models it for.
LEAST_VERSION = 23
CORE = "c1-ultra"
REMEDY = (
    f"Run `sme2 provision --for bound`, or install LLVM {LEAST_VERSION} or newer "
    f"(Debian: llvm-{LEAST_VERSION} from sid)."
)
FOLDER = "llvm"

_MODEL_SECONDS = 1800.0
# Enough for the first and the last round of a loop not to matter.
_ITERATIONS = 100
# An undefined instruction with a number in it stands between blocks, and says which one follows.
_MOST_BLOCKS = 1 << 16
_MARK = re.compile(r"\s*udf\s+#(\d+)\s*$")


@dataclass(frozen=True)
class ModelledBlock:
    """One round of a block that runs over and over."""

    cycles: float
    instructions: float
    """As many of the block's own as the model knows."""


@dataclass(frozen=True)
class LlvmMca:
    """llvm-mca and the disassembler that came with it."""

    command: tuple[str, ...]
    disassembler: tuple[str, ...]
    version: str

    def model(self, blocks: Mapping[str, Sequence[int]]) -> dict[str, ModelledBlock]:
        """What the model says of each block; one of which it knows no instruction is left out."""
        names = list(blocks)
        found: dict[str, ModelledBlock] = {}
        for first in range(0, len(names), _MOST_BLOCKS):
            part = names[first : first + _MOST_BLOCKS]
            listings = self._disassembled([blocks[name] for name in part])
            for place, block in self._modelled(listings).items():
                found[part[place]] = block
        return found

    def _disassembled(self, blocks: Sequence[Sequence[int]]) -> dict[int, list[str]]:
        words = (word for place, block in enumerate(blocks) for word in (place, *block))
        text = "\n".join(" ".join(f"0x{byte:02x}" for byte in word.to_bytes(4, "little"))
                         for word in words)  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="sme2-bound-") as folder:
            file = Path(folder) / "words"
            file.write_text(text, encoding="ascii")
            options = ("--disassemble", "-triple=aarch64", "-mattr=+all", str(file))
            answer = _answer([*self.disassembler, *options])
        listings: dict[int, list[str]] = {}
        lines: list[str] = []
        for line in answer.splitlines():
            mark = _MARK.match(line)
            if mark:
                lines = listings.setdefault(int(mark[1]), [])
            elif line.strip() and not line.strip().startswith("."):
                lines.append(line.partition("//")[0].strip())
        return listings

    def _modelled(self, listings: Mapping[int, Sequence[str]]) -> dict[int, ModelledBlock]:
        assembly = "".join(
            f"# LLVM-MCA-BEGIN {place}\n" + "\n".join(lines) + f"\n# LLVM-MCA-END {place}\n"
            for place, lines in listings.items()
            if lines
        )
        with tempfile.TemporaryDirectory(prefix="sme2-bound-") as folder:
            file = Path(folder) / "blocks.s"
            file.write_text(assembly, encoding="ascii")
            options = (
                "-mtriple=aarch64",
                f"-mcpu={CORE}",
                "-mattr=+all",
                f"-iterations={_ITERATIONS}",
                "-skip-unsupported-instructions=any",
                "-instruction-info=0",
                "-resource-pressure=0",
                "-json",
                str(file),
            )
            answer = _answer([*self.command, *options])
        try:
            regions = json.loads(answer)["CodeRegions"]
            return {
                int(region["Name"]): ModelledBlock(
                    region["SummaryView"]["TotalCycles"] / _ITERATIONS,
                    region["SummaryView"]["Instructions"] / _ITERATIONS,
                )
                for region in regions
            }
        except (ValueError, KeyError, TypeError) as error:
            raise TargetError(
                f"llvm-mca {self.version} gave an answer that cannot be read: {error!r}. {REMEDY}"
            ) from error


def find_llvm_mca(cache: Path | None = None) -> LlvmMca:
    """The one in the cache, else one on PATH. Raises TargetError where there is none."""
    problems = []
    for command in _candidates(cache or cache_folder()):
        try:
            return _checked(command)
        except TargetError as error:
            problems.append(str(error))
    raise TargetError(problems[0] if problems else f"No llvm-mca was found. {REMEDY}")


def _candidates(cache: Path) -> Iterator[tuple[str, ...]]:
    root = cache / "tools" / FOLDER
    for program in sorted(root.glob("usr/lib/llvm-*/bin/llvm-mca")):
        # It comes with its own C library, which may be newer than this machine's.
        libraries = next(root.glob("usr/lib/*-linux-gnu"))
        loader = next(libraries.glob("ld-linux-*"))
        yield (str(trusted(loader, cache)), "--library-path", str(libraries), str(program))
    for name in (
        "llvm-mca",
        *(f"llvm-mca-{number}" for number in range(40, LEAST_VERSION - 1, -1)),
    ):
        found = shutil.which(name)
        if found:
            yield (found,)


def _checked(command: tuple[str, ...]) -> LlvmMca:
    program = Path(command[-1])
    answer = _answer([*command, "--version"], ANSWER_SECONDS)
    match = re.search(r"LLVM version (\d+)\S*", answer)
    if match is None:
        raise TargetError(f"{program} is not llvm-mca. {REMEDY}")
    if int(match[1]) < LEAST_VERSION:
        raise TargetError(
            f"{program} is of LLVM {match[1]}, which models no core with SME. {REMEDY}"
        )
    beside = program.with_name(program.name.replace("llvm-mca", "llvm-mc"))
    if not beside.exists():
        raise TargetError(f"{beside}, which reads machine code for llvm-mca, is missing. {REMEDY}")
    return LlvmMca(command, (*command[:-1], str(beside)), match[0].removeprefix("LLVM version "))


def _answer(arguments: Sequence[str], seconds: float = _MODEL_SECONDS) -> str:
    try:
        finished = run_process(arguments, timeout_seconds=seconds)
    except OSError as error:
        raise TargetError(
            f"{arguments[0]} cannot be started: {error.strerror}. {REMEDY}"
        ) from error
    if finished.timed_out or finished.returncode != 0:
        said = finished.stderr.strip().splitlines()
        why = "it took too long" if finished.timed_out else (said or ["it said nothing"])[-1]
        raise TargetError(f"{Path(arguments[0]).name} failed: {why}. {REMEDY}")
    return finished.stdout
