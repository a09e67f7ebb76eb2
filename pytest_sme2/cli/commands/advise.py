"""``sme2 advise``: what to change in a model, the most expensive first, and what that brings."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sme2.cli.commands.models import model_folders
from pytest_sme2.cli.options import FOLDERS, MODEL_OR_PROGRAM, Arguments, add_options, chosen
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.export.rewrites import NAMES
from pytest_sme2.export.variant import parse_variant, precision_of
from pytest_sme2.profile.findings import by_data_type, find
from pytest_sme2.report.findings import advice, advice_text
from pytest_sme2.report.text import bullet, clipped, duration, printable
from pytest_sme2.results import Arm, Executor, Finding, InferenceCost, Profile, Topic
from pytest_sme2.session.options import DEVICE
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.terminal import clear_line, terminal_line
from pytest_sme2.system.wording import count

if TYPE_CHECKING:
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.session import Session

EXAMPLE = "sme2 advise toy_cnn --device emulated"
# Not the run directory: half a pair must not take the place of what a whole run left there.
OUT = Path("sme2-advice")
_ROW = "{:<22}{:>9}{:>10}{:>11}{:>10}{:>11}  {}"
ALL = "all"
ARGUMENTS: Arguments = {
    "model MODEL": MODEL_OR_PROGRAM,
    "--method NAME": "of a .pte file that has several (default: all of them, side by side)",
    **FOLDERS,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run",
        dest="earlier",
        type=Path,
        metavar="DIR",
        help="use the results of an earlier run, and run nothing",
    )
    parser.add_argument(
        "--try",
        dest="tried",
        nargs="?",
        const=ALL,
        metavar="REWRITES",
        help=f"apply rewrites, run again and compare: {', '.join(NAMES)} (default: all that the "
        "advice names)",
    )
    add_options(parser, *DEVICE, "variants", "out", more=f" Here it is {OUT}.")


@dataclass(frozen=True)
class Ran:
    """A variant's run with SME2 on, and what was found in it."""

    profile: Profile
    cost: InferenceCost | None
    findings: tuple[Finding, ...]
    outputs: str = ""
    """How close the outputs are to the eager model's, where they were compared."""

    @property
    def portable(self) -> int:
        return self.profile.executor_counts.get(Executor.PORTABLE, 0)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where no variant could be run."""
    problems: dict[str, str] = {}
    tried: dict[str, Ran] = {}
    if arguments.earlier is not None:
        if arguments.tried:
            raise UsageError("--try runs the model, and --run does not: give one of them.")
        variants, timed = _earlier(arguments.earlier, arguments.model)
    else:
        variants, tried, timed = _now(arguments, problems)
    order = sorted(variants, key=lambda name: -(variants[name].profile.coverage.operators or 0.0))
    variants = {name: variants[name] for name in order}
    if arguments.json:
        document = _document(arguments.model, variants, timed)
        trials = [
            {"variant": name, **_sizes(after), "before": _sizes(variants[_before(name)])}
            for name, after in tried.items()
        ]
        print(json.dumps({**document, "tried": trials, "problems": problems}, indent=2))
    else:
        # With --run nothing is run, so --try takes its place.
        typed = ("advise", arguments.model) if arguments.earlier else arguments.typed
        again = shlex.join(("sme2", *typed))
        print("\n".join(_lines(again, variants, timed, problems)))
        for name, after in tried.items():
            print(bullet(_trial(name, variants[_before(name)], after, timed)))
        for variant, problem in problems.items():
            print(bullet(f"{variant} could not be run: {problem}"))
    return 0 if variants else 1


def _ran(
    variant: str, profile: Profile, cost: InferenceCost | None, timed: bool, outputs: str = ""
) -> Ran:
    found = find(profile, timed=timed, counted=cost, precision=precision_of(variant))
    return Ran(profile, cost, found, outputs)


def _earlier(folder: Path, model: str) -> tuple[dict[str, Ran], bool]:
    from pytest_sme2.session.run_directory import find_records, read_record

    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is not a run directory. Name one with --run.")
    records = [read_record(found) for found in find_records(folder)]
    measured = [
        record.measured
        for record in records
        if record.measured.model == model and Arm.ON in record.measured.profiles
    ]
    if not measured:
        held = ", ".join(sorted({record.measured.model for record in records})) or "none"
        raise UsageError(
            f"{str(folder)!r} holds no run of {model!r} with SME2 on. It holds: {held}."
        )
    timed = not any(entry.emulated for entry in measured)
    variants = {
        entry.variant: _ran(entry.variant, entry.profiles[Arm.ON], entry.costs.get(Arm.ON), timed)
        for entry in measured
    }
    return variants, timed


def _now(
    arguments: argparse.Namespace, problems: dict[str, str]
) -> tuple[dict[str, Ran], dict[str, Ran], bool]:
    """The variants, those with rewrites, and whether times count.

    A variant that fails takes no other with it.
    """
    from pytest_sme2.session.cases import check_methods
    from pytest_sme2.session.session import Session

    session = Session(
        Settings(
            models=(arguments.model,),
            methods=(arguments.method,) if arguments.method else (),
            model_folders=model_folders(arguments),
            **chosen(arguments, out=OUT),
        ),
        terminal_line(sys.stderr),
    )
    variants: dict[str, Ran] = {}
    tried: dict[str, Ran] = {}
    try:
        check_methods(session.programs, session.settings)
        cases = session.cases()
        if not cases:
            raise UsageError(
                f"No variant of {arguments.model!r} is run on this device unless it is named: "
                "give --variants."
            )
        session.bench.require_sme2()
        for case in cases:
            _add(session, case, variants, problems)
        for case in cases if arguments.tried else ():
            name = case.variant_name
            rewrites = _rewrites(arguments.tried, variants.get(name))
            if name in variants and rewrites and case.variant is not None:
                changed = dataclasses.replace(case.variant, rewrites=rewrites)
                _add(session, dataclasses.replace(case, variant=changed), tried, problems)
        return variants, tried, session.bench.timed
    finally:
        clear_line(sys.stderr)
        session.close()


def _add(session: Session, case: Case, found: dict[str, Ran], problems: dict[str, str]) -> None:
    # The methods of a program stand side by side as the variants of a model do.
    name = case.variant_name if case.method is None else case.method
    try:
        cost = session.cost(case, Arm.ON)
        counted = None if isinstance(cost, str) else cost
        profile = session.profile(case, Arm.ON)
        found[name] = _ran(name, profile, counted, session.bench.timed, _outputs(session, case))
    except Sme2Error as error:
        problems[name] = str(error).splitlines()[0]


def _outputs(session: Session, case: Case) -> str:
    """How close the outputs are to what the model itself answers."""
    from pytest_sme2.verdict.numerics import agreement_text, compare_reference, tolerance_of

    run = session.traced(case, Arm.ON)
    found = compare_reference(session.artifact(case), run.outputs, Arm.ON)
    if not found:
        return ""
    worst = max(found, key=lambda entry: entry.max_rel)
    tolerance = tolerance_of(case.variant_name, session.limits(case), "reference")
    return f"outputs: {agreement_text(worst, tolerance)}"


def _rewrites(asked: str, ran: Ran | None) -> tuple[str, ...]:
    """Those that were asked for, or those that the advice on the variant names."""
    if asked != ALL:
        # A wrong name is an error of the variant that it would make.
        return parse_variant(f"fp32+{asked.replace(',', '+')}").rewrites
    named = {finding.rewrite for finding in (ran.findings if ran else ()) if finding.rewrite}
    return tuple(name for name in NAMES if name in named)


def _before(tried: str) -> str:
    """The variant without its rewrites."""
    return str(dataclasses.replace(parse_variant(tried), rewrites=()))


# --- what is printed ------------------------------------------------------------------------------


_Variants = Mapping[str, Ran]


def _sizes(ran: Ran) -> dict[str, Any]:
    return {
        "matrix_operators": ran.profile.coverage.matrix_operators,
        "sme2_operators": ran.profile.coverage.sme2_operators,
        "operators": len(ran.profile.operators),
        "portable_operators": ran.portable,
        "data_types": by_data_type(ran.profile),
        "instructions": None if ran.cost is None else ran.cost.total.instructions,
        "outputs": ran.outputs,
    }


def _document(model: str, variants: _Variants, timed: bool) -> dict[str, Any]:
    found = advice({name: ran.findings for name, ran in variants.items()})
    return {
        "model": model,
        "timed": timed,
        "advice": [dataclasses.asdict(entry) for entry in found],
        "variants": [
            {
                "variant": variant,
                **_sizes(ran),
                "findings": [dataclasses.asdict(finding) for finding in ran.findings],
            }
            for variant, ran in variants.items()
        ],
    }


def _lines(
    command: str, variants: _Variants, timed: bool, problems: Mapping[str, str]
) -> Iterator[str]:
    if not variants:
        return
    yield _ROW.format(
        "variant", "on SME2", "coverage", "transposes", "portable", "operators", "ran in"
    )
    for variant, ran in variants.items():
        coverage = ran.profile.coverage
        yield _ROW.format(
            clipped(variant, 21),
            f"{coverage.sme2_operators}/{coverage.matrix_operators}",
            "-" if coverage.operators is None else f"{coverage.operators:.0%}",
            sum(member.operator.kind == "transpose" for member in ran.profile.operators),
            ran.portable,
            len(ran.profile.operators),
            by_data_type(ran.profile),
        ).rstrip()
    for variant in problems:
        yield f"{clipped(variant, 21):<22}{'failed':>9}"
    yield ""
    if not timed:
        yield bullet(
            "The CPU was emulated, so what an operator costs in time is not known: executed "
            "instructions give the order, or counts of operators where nothing was counted. Run it "
            "on a device to order by time."
        )
    known = {
        variant: ran.profile.coverage.operators
        for variant, ran in variants.items()
        if ran.profile.coverage.operators is not None
    }
    if known:
        top = max(known.values())
        names = " and ".join(variant for variant, share in known.items() if share == top)
        doubt = any(
            finding.topic is Topic.SINGLE_ROW
            for variant, share in known.items()
            if share == top
            for finding in variants[variant].findings
        )
        # Coverage is not a gain in itself.
        measure = " Some of them multiply a single row: measure those." if doubt else ""
        yield bullet(f"{names}: best SME2 coverage ({top:.0%} of matrix operators).{measure}")
    found = advice({name: ran.findings for name, ran in variants.items()})
    if found:
        yield ""
        yield "What costs, the most expensive first:"
    for entry in found:
        yield bullet(advice_text(entry))
    rewrites = [entry.rewrite for entry in found if entry.rewrite]
    if rewrites:
        yield ""
        yield f"To see what a rewrite brings: {printable(command)} --try {rewrites[0]}"
    yield from _notes(variants)


def _notes(variants: _Variants) -> Iterator[str]:
    notes: dict[str, list[str]] = {}
    for variant, ran in variants.items():
        for finding in ran.findings:
            if finding.topic is Topic.NOTE:
                text = f"{finding.what}: {finding.remedy}" if finding.remedy else finding.what
                notes.setdefault(text, []).append(variant)
        if ran.outputs:
            notes.setdefault(ran.outputs, []).append(variant)
    if notes:
        yield ""
    for text, names in notes.items():
        yield bullet(f"{', '.join(names)}: {text}")


def _trial(name: str, before: Ran, after: Ran, timed: bool) -> str:
    parts = [f"{before.portable} to {count(after.portable, 'operator')} outside of the delegate"]
    if timed:
        old, new = (entry.profile.end_to_end.median for entry in (before, after))
        parts.insert(0, f"{duration(old)} to {duration(new)} in traced runs ({_change(old, new)})")
    if before.cost is not None and after.cost is not None:
        old, new = (entry.total.instructions for entry in (before.cost, after.cost))
        parts.insert(0, f"{old:,} to {new:,} instructions ({_change(old, new)})")
    parts += [after.outputs] if after.outputs else []
    return f"{_before(name)} to {name}: {'; '.join(parts)}"


def _change(old: float, new: float) -> str:
    return f"{(new - old) / old:+.1%}" if old else "new"
