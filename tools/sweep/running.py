"""Runs random programs on every emulated CPU, with SME2 on and off, and says what differs.

Programs of one data type share a file, since starting the emulator takes longer than most of them.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pytest_sme2.errors import RunError
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.results import Agreement, Arm, Artifact, Run, RunRequest, Tolerance
from pytest_sme2.runners.base import Runner
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.trace.program import read_program
from pytest_sme2.verdict.limits import ON_OFF_TOLERANCES, TOLERANCES
from pytest_sme2.verdict.numerics import compare_arms, compare_reference, within
from tools.many_exports import ManyExports, read_record
from tools.sweep.programs import DATA_TYPES, PRECISIONS, RandomProgram, draw, shrink

BATCH = 8
_RUN_SECONDS = 300.0
# Inputs and weights are around one.
_FLAT = 0.02


@dataclass(frozen=True)
class Difference:
    """A program that does not do everywhere what eager PyTorch does."""

    program: RandomProgram
    kind: str
    """``crash``, ``not a number``, ``far from eager`` or ``on is not off``."""
    cpu: str
    arm: Arm
    text: str
    """What was seen, in one line."""

    @property
    def likeness(self) -> tuple[str, str, str]:
        """Differences that agree in this have probably the same cause."""
        return self.kind, self.cpu, self.program.data_type


@dataclass(frozen=True)
class BatchResult:
    """What came of some programs of one data type."""

    number: int
    data_type: str
    programs: int
    seconds: float
    matrix_operators: int = 0
    on_sme2: int = 0
    """As the names of operators show it; of dynamic int8 they do not."""
    not_exported: tuple[str, ...] = ()
    """Programs that ExecuTorch refused, and its reason."""
    differences: tuple[Difference, ...] = ()


@dataclass
class _Tally:
    matrix_operators: int = 0
    on_sme2: int = 0
    not_exported: list[str] = field(default_factory=list)


def batch_programs(seed: int, number: int) -> list[RandomProgram]:
    data_type = DATA_TYPES[number % len(DATA_TYPES)]
    return [draw(seed, number * BATCH + index, data_type) for index in range(BATCH)]


@dataclass
class Sweep:
    """Runs batches of programs. ``close`` ends the process that exports."""

    exports: ManyExports
    targets: Sequence[EmulatedTarget]
    """The CPUs, each with SME2 on and off."""
    runner: Runner

    def batch(self, seed: int, number: int) -> BatchResult:
        """The programs of one batch; data types take turns."""
        programs = batch_programs(seed, number)
        started = time.monotonic()
        tally = _Tally()
        found = tuple(self._differences(programs, tally))
        return BatchResult(
            number,
            programs[0].data_type,
            len(programs),
            round(time.monotonic() - started, 1),
            tally.matrix_operators,
            tally.on_sme2,
            tuple(tally.not_exported),
            found,
        )

    def shrunk(self, found: Difference) -> Difference:
        """The smallest program that was seen to differ in the same way."""
        targets = [target for target in self.targets if str(target.cpu) == found.cpu]
        quick = Sweep(self.exports, targets, self.runner)
        seen = {found.program: found}

        def first(candidates: list[RandomProgram]) -> RandomProgram | None:
            again = quick._differences(candidates, _Tally())
            better = next((entry for entry in again if entry.kind == found.kind), None)
            if better is None:
                return None
            seen[better.program] = better
            return better.program

        return seen[shrink(found.program, first)]

    def close(self) -> None:
        self.exports.close()

    def _differences(
        self, programs: Sequence[RandomProgram], tally: _Tally
    ) -> Iterator[Difference]:
        """In the order of the programs."""
        if not programs:
            return
        with tempfile.TemporaryDirectory(prefix="sme2-sweep-") as name:
            folder = Path(name)
            artifact, problem = self.exported(programs, folder / "program")
            found: list[Difference] | None = None
            if artifact is not None:
                found = self.compared(programs, artifact, folder / "runs", tally)
        if found is not None:
            yield from found
        elif len(programs) > 1:
            # One of them cannot be exported, or ends the run: which one shows on its own.
            for program in programs:
                yield from self._differences([program], tally)
        else:
            tally.not_exported.append(f"{programs[0]}: {problem}")

    def exported(
        self, programs: Sequence[RandomProgram], folder: Path
    ) -> tuple[Artifact | None, str]:
        """One program of all of them, or why there is none."""
        self.exports.export({"programs": [asdict(program) for program in programs]}, folder)
        record = read_record(folder)
        if record.problem:
            return None, record.problem
        return record.artifact(folder, "sweep", PRECISIONS[programs[0].data_type], {}), ""

    def compared(
        self,
        programs: Sequence[RandomProgram],
        artifact: Artifact,
        folder: Path,
        tally: _Tally | None = None,
    ) -> list[Difference] | None:
        """What differs, at most one for each program; None where a run of several ended early."""
        found: dict[int, Difference] = {}
        off: dict[str, Run] = {}
        for target in self.targets:
            runs = {}
            for arm in (Arm.OFF, Arm.ON):
                model = target.cpu.model(arm)
                try:
                    runs[arm] = off.get(model) or self._run(target, artifact, arm, folder)
                except RunError as error:
                    if len(programs) > 1:
                        return None
                    # The log is in a folder that is about to be removed.
                    text = str(error).strip().splitlines()[0].partition(" Its log is ")[0]
                    return [Difference(programs[0], "crash", str(target.cpu), arm, text)]
                if arm is Arm.OFF:
                    off[model] = runs[arm]
            if tally is not None and target is self.targets[0]:
                self._count(runs[Arm.ON], artifact, tally)
            for index, kind, arm, text in _judged(artifact, runs):
                seen = Difference(programs[index], kind, str(target.cpu), arm, text)
                found.setdefault(index, seen)
        shutil.rmtree(folder, ignore_errors=True)
        return [found[index] for index in sorted(found)]

    def _run(self, target: EmulatedTarget, artifact: Artifact, arm: Arm, folder: Path) -> Run:
        request = RunRequest(
            artifact,
            arm,
            warmup=0,
            runs=1,
            traced=target is self.targets[0] and arm is Arm.ON,
            keep_outputs=True,
            timeout_seconds=_RUN_SECONDS,
        )
        place = folder / target.cpu.model(arm).replace(",", "-").replace("=", "-")
        return target.run(self.runner, request, place)

    def _count(self, run: Run, artifact: Artifact, tally: _Tally) -> None:
        if run.etdump is None:
            return
        profile = build_profiles(read_etdump(run.etdump), shapes=read_program(artifact.pte))[0]
        tally.matrix_operators += profile.coverage.matrix_operators
        tally.on_sme2 += profile.coverage.sme2_operators


def _judged(artifact: Artifact, runs: dict[Arm, Run]) -> Iterator[tuple[int, str, Arm, str]]:
    """Output, kind, arm and text of all that differs on one CPU, the gravest first."""
    reference = {arm: compare_reference(artifact, run.outputs, arm) for arm, run in runs.items()}
    against_off = compare_arms(runs[Arm.ON].outputs, runs[Arm.OFF].outputs)
    for arm, agreements in reference.items():
        for entry in agreements:
            if entry.has_nan:
                yield entry.index, "not a number", arm, "the output holds NaN"
    tolerance = ON_OFF_TOLERANCES[artifact.variant]
    for entry in against_off:
        if not _close(entry, tolerance):
            yield entry.index, "on is not off", Arm.ON, _text(entry)
    tolerance = TOLERANCES[artifact.variant]
    for arm, agreements in reference.items():
        for entry in agreements:
            if not _close(entry, tolerance):
                yield entry.index, "far from eager", arm, _text(entry)


def _close(entry: Agreement, tolerance: Tolerance) -> bool:
    """Where all is zero or one constant there is no signal, so that errors count as they are."""
    flat = bool(entry.dead) and entry.max_abs < _FLAT and not entry.has_nan
    return flat or within(entry, tolerance)


def _text(entry: Agreement) -> str:
    noise = "" if entry.sqnr_db is None else f", signal over noise {entry.sqnr_db:.1f} dB"
    return f"largest error {entry.max_abs:.4g}, {entry.max_rel:.2%} of the largest value{noise}"
