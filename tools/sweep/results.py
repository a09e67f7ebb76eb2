"""What a sweep found so far, kept in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_sme2.errors import UsageError
from pytest_sme2.system.files import decode, encode, write_json
from pytest_sme2.system.reading import read_json
from pytest_sme2.system.wording import count
from tools.sweep.running import BatchResult, Difference

SCHEMA = 1
SWEEP = "sweep.json"
_REMEDY = "Give another folder with --out, or remove this one."


@dataclass(frozen=True)
class SweepResults:
    seed: int
    executorch: str
    qemu: str
    cpus: tuple[str, ...]
    batches: tuple[BatchResult, ...] = ()

    @property
    def programs(self) -> int:
        return sum(batch.programs for batch in self.batches)

    @property
    def differences(self) -> tuple[Difference, ...]:
        return tuple(entry for batch in self.batches for entry in batch.differences)

    def lines(self, folder: Path) -> Iterator[str]:
        seconds = sum(batch.seconds for batch in self.batches)
        refused = sum(len(batch.not_exported) for batch in self.batches)
        matrix = sum(batch.matrix_operators for batch in self.batches)
        on_sme2 = sum(batch.on_sme2 for batch in self.batches)
        pace = f"{self.programs / seconds * 3600:,.0f} an hour" if seconds else "none was run"
        yield (
            f"{count(self.programs, 'program')} on {', '.join(self.cpus)} with SME2 on and off, "
            f"in {seconds / 60:.0f} min ({pace})"
        )
        yield f"{refused} of them could not be exported"
        yield f"{on_sme2} of {count(matrix, 'matrix operator')} on SME2 by their names"
        kinds = Counter(entry.kind for entry in self.differences)
        found = ", ".join(f"{kind}: {number}" for kind, number in kinds.items()) or "none"
        yield f"differences: {found}"
        alike = Counter(entry.likeness for entry in self.differences)
        for batch in self.batches:
            for index, entry in enumerate(batch.differences):
                # Popped: the first of a kind has the script, and the others are like it.
                others = alike.pop(entry.likeness, 0) - 1
                if others >= 0:
                    path = folder / f"{script_name(batch.number, index)}.py"
                    more = f"; {others} more like it" if others else ""
                    place = f"{entry.cpu}, SME2 {entry.arm}"
                    yield f"{path}: {entry.kind} on {place}: {entry.program}{more}"


def script_name(batch: int, index: int) -> str:
    return f"difference_{batch}_{index}"


def read_results(folder: Path, wanted: SweepResults) -> SweepResults:
    """What is in the folder; results of another sweep are not continued."""
    path = folder / SWEEP
    if not path.is_file():
        return wanted
    document = read_json(path, remedy=_REMEDY, error=UsageError)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{path} is not of this version. {_REMEDY}")
    found: SweepResults = decode(
        document.get("sweep"), SweepResults, path, remedy=_REMEDY, error=UsageError
    )
    for name in ("seed", "executorch", "qemu", "cpus"):
        old, new = getattr(found, name), getattr(wanted, name)
        if old != new:
            raise UsageError(
                f"{path} is from a sweep with another {name}: {old} there, {new} now. {_REMEDY}"
            )
    return replace(wanted, batches=found.batches)


def write_results(results: SweepResults, folder: Path) -> None:
    write_json(folder / SWEEP, {"schema": SCHEMA, "sweep": encode(results)})
