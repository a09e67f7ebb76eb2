"""``sme2 run --cpu all``: one model on every emulated CPU, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_sme2.errors import RunError
from pytest_sme2.profile.cost import tile_use
from pytest_sme2.report.cost import LIMITS_OF_COST, covered, fewer, instructions, millions
from pytest_sme2.report.text import bullet, percent
from pytest_sme2.results import Arm, CaseResult
from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import safe_name
from pytest_sme2.system.qemu import CPUS, DEFAULT_CPU, VECTOR_BITS, EmulatedCpu
from pytest_sme2.system.terminal import Say

_ROW = "{:<12} {:>6} {:>8} {:>10} {:>10} {:>7} {:>8}"


@dataclass(frozen=True)
class OnCpu:
    """What a model did on one CPU."""

    cpu: EmulatedCpu
    measured: CaseResult | None
    problem: str = ""


def every_cpu() -> list[EmulatedCpu]:
    """Each named CPU, and the default with shorter vectors."""
    shorter = [bits for bits in VECTOR_BITS if bits != DEFAULT_CPU.vector_bits]
    return [*CPUS, *(replace(DEFAULT_CPU, vector_bits=bits) for bits in reversed(shorter))]


def run_on_every_cpu(
    settings: Settings, say: Say, choose: Callable[[Session], Case]
) -> Iterator[OnCpu]:
    """One case on each CPU. A program that does not run on one of them is a result, too."""
    for cpu in every_cpu():
        out = settings.run_directory / safe_name(str(cpu))
        chosen = replace(settings, emulated_cpu=str(cpu), out=out)
        session = Session(chosen, say)
        try:
            case = choose(session)
            measured = session.measured(case, timed=False)
            session.keep(case, measured, ())
            yield OnCpu(cpu, measured)
        except RunError as error:
            yield OnCpu(cpu, None, str(error))
        finally:
            session.close()


def cpu_lines(results: Sequence[OnCpu]) -> Iterator[str]:
    """A table, and what went wrong."""
    yield _ROW.format("CPU", "bits", "SME2", "off Minst", "on Minst", "fewer", "tile use")
    for found in results:
        measured = found.measured
        if measured is None:
            yield f"{found.cpu!s:<12} {found.cpu.vector_bits:>6} did not run, see below"
            continue
        on = measured.costs.get(Arm.ON)
        use = None if on is None else tile_use(on)
        yield _ROW.format(
            str(found.cpu),
            found.cpu.vector_bits,
            covered(measured),
            millions(instructions(measured, Arm.OFF)),
            millions(instructions(measured, Arm.ON)),
            fewer(measured),
            "-" if use is None else percent(use),
        )
    for found in results:
        if found.problem:
            yield bullet(f"{found.cpu}: {found.problem}")
    yield bullet(f"Minst: a million instructions per inference; {LIMITS_OF_COST}")
