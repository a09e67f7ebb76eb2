"""``sme2 advise``: what to change in a model, the most expensive first, and what that brings."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sme2.cli.commands.models import model_folders
from pytest_sme2.cli.options import (
    FOLDERS,
    MODEL_OR_PROGRAM,
    Arguments,
    chosen,
    opened,
    shared,
    show,
)
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.export.variant import COMPUTED, GENERAL, NAMES, parse_variant
from pytest_sme2.profile.cost import split
from pytest_sme2.profile.findings import by_data_type
from pytest_sme2.profile.splits import NO_BETTER
from pytest_sme2.report.findings import (
    Advice,
    advice,
    advice_text,
    amount_text,
    outputs_text,
    trial_text,
)
from pytest_sme2.report.text import bullet, clipped, printable
from pytest_sme2.results.profile import Topic
from pytest_sme2.results.run import Arm
from pytest_sme2.session.options import DEVICE
from pytest_sme2.session.settings import Settings
from pytest_sme2.session.trials import (
    LEAST_SAVING,
    Ran,
    Trial,
    judged,
    named_rewrites,
    run_once,
    shares_of,
    try_rewrites,
    try_together,
)

if TYPE_CHECKING:
    from pytest_sme2.session.session import Session

EXAMPLE = "sme2 advise toy_cnn --device emulated"
# Not the run directory: half a pair must not take the place of what a whole run left there.
OUT = Path("sme2-advice")
_ROW = "{:<20}{:>8}{:>14}{:>10}{:>9}  {}"
ARGUMENTS: Arguments = {
    "model MODEL": MODEL_OR_PROGRAM,
    **FOLDERS,
    "--run DIR": "use the results of an earlier run, and run nothing",
    "--try REWRITES?": (
        f"apply only these: {', '.join(NAMES)} (default: all that the advice names)"
    ),
    **shared(*DEVICE, "variants", "out", more=f" Here it is {OUT}."),
}
_Variants = Mapping[str, Ran]
_Trials = Mapping[str, Sequence[Trial]]


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where no variant could be run."""
    problems: dict[str, str] = {}
    if arguments.run_ is not None:
        if arguments.try_:
            raise UsageError("--try runs the model, and --run does not: give one of them.")
        variants, timed = _earlier(arguments.run_, arguments.model)
        trials: _Trials = {}
    else:
        settings = Settings(
            models=(arguments.model,),
            model_folders=model_folders(arguments),
            **chosen(arguments, out=OUT),
        )
        with opened(settings) as session:
            variants, trials = _now(session, arguments, problems)
            timed = session.bench.timed
    if timed:
        # Counts of unlike kernels put nothing in order.
        variants = dict(sorted(variants.items(), key=lambda item: item[1].amount or math.inf))
    # With --run nothing is run, so the command that runs takes its place.
    typed = ("advise", arguments.model) if arguments.run_ else arguments.typed
    again = "" if trials or arguments.try_ else shlex.join(["sme2", *typed])
    document = _document(arguments.model, variants, trials, timed)
    lines = _lines(arguments.model, again, variants, trials, problems, timed)
    show(arguments, {**document, "problems": problems}, lines)
    return 0 if variants else 1


def _earlier(folder: Path, model: str) -> tuple[dict[str, Ran], bool]:
    from pytest_sme2.session.run_directory import find_records, read_record

    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is not a run directory. Name one with --run.")
    every = [read_record(found).measured for found in find_records(folder)]
    measured = [entry for entry in every if entry.model == model and Arm.ON in entry.profiles]
    if not measured:
        held = ", ".join(sorted({entry.model for entry in every})) or "none"
        raise UsageError(
            f"{str(folder)!r} holds no run of {model!r} with SME2 on. It holds: {held}."
        )
    timed = not any(entry.emulated for entry in measured)
    variants = {
        entry.variant: judged(
            entry.variant,
            entry.profiles[Arm.ON],
            entry.costs.get(Arm.ON),
            timed=timed,
        )
        for entry in measured
    }
    return variants, timed


def _now(
    session: Session, arguments: argparse.Namespace, problems: dict[str, str]
) -> tuple[dict[str, Ran], dict[str, list[Trial]]]:
    """The variants, and their trials. A variant that fails takes no other with it."""
    asked = arguments.try_
    # A wrong name is an error of the variant that it would make, before anything is run.
    names = parse_variant(f"fp32+{asked.replace(',', '+')}").rewrites if asked else ()
    cases = session.cases()
    if not cases:
        raise UsageError(
            f"No variant of {session.settings.models[0]!r} is run on this device unless it is "
            "named: give --variants."
        )
    session.bench.require_sme2()
    # The methods of a program stand side by side as the variants of a model do.
    by_name = {case.method or case.variant_name: case for case in cases}
    variants: dict[str, Ran] = {}
    trials: dict[str, list[Trial]] = {}
    for name, case in by_name.items():
        try:
            variants[name] = run_once(session, case)
        except Sme2Error as error:
            problems[name] = str(error).splitlines()[0]
    # Counts of unlike kernels put nothing in order, so it is the first one that is tried then.
    order = sorted(variants, key=lambda name: variants[name].amount or math.inf)
    order = order if session.bench.timed else list(variants)
    for name in order if names else order[:1]:
        case, tried = by_name[name], names or named_rewrites(variants[name])
        if case.variant is not None and not case.variant.rewrites and tried:
            trials[name] = list(try_rewrites(session, case, variants[name], tried))
    # Which variant is best is known when the others are rewritten as well.
    for best in [] if names else [best for every in trials.values() if (best := _best(every))]:
        for name in order[1:]:
            trials[name] = [try_together(session, by_name[name], variants[name], best.rewrites)]
    return variants, trials


def _best(trials: Sequence[Trial]) -> Trial | None:
    helping = [trial for trial in trials if trial.helps]
    return max(helping, key=lambda trial: trial.saving, default=None)


def _shown(variants: _Variants, trials: _Trials) -> dict[str, Ran]:
    """All that was measured: the variants, and the best that was tried of each."""
    best = {f"{name} rewritten": _best(every) for name, every in trials.items()}
    return {**variants, **{name: one.after for name, one in best.items() if one and one.after}}


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


def _document(model: str, variants: _Variants, trials: _Trials, timed: bool) -> dict[str, Any]:
    return {
        "model": model,
        "timed": timed,
        "advice": [dataclasses.asdict(entry) for entry, _ in ranked(variants, trials)],
        "variants": [
            {
                "variant": variant,
                **_sizes(ran),
                "findings": [dataclasses.asdict(finding) for finding in ran.findings],
            }
            for variant, ran in variants.items()
        ],
        "tried": [
            {
                "variant": variant,
                "rewrites": trial.rewrites,
                "problem": trial.problem,
                "saving": None if trial.problem else trial.saving,
                "before": _sizes(trial.before),
                **({} if trial.after is None else _sizes(trial.after)),
            }
            for variant, tried in trials.items()
            for trial in tried
        ],
    }


def _lines(
    model: str,
    command: str,
    variants: _Variants,
    trials: _Trials,
    problems: Mapping[str, str],
    timed: bool,
) -> Iterator[str]:
    failed = [bullet(f"{name} could not be run: {problem}") for name, problem in problems.items()]
    if not variants:
        yield from failed
        return
    unit = "time" if timed else "instructions"
    yield _ROW.format("variant", "on SME2", unit, "outputs", "outside", "ran in")
    shown = _shown(variants, trials)
    for variant, ran in shown.items():
        coverage = ran.profile.coverage
        yield _ROW.format(
            clipped(variant, 19),
            f"{coverage.sme2_operators}/{coverage.matrix_operators}",
            amount_text(ran.amount, timed=timed),
            outputs_text(ran),
            ran.portable,
            by_data_type(ran.profile),
        ).rstrip()
    for variant in problems:
        yield f"{clipped(variant, 19):<20}{'failed':>8}"
    yield ""
    if not timed:
        yield bullet(
            "The CPU was emulated, so what an operator costs in time is not known: executed "
            "instructions give the order, or counts of operators where nothing was counted. Run it "
            "on a device to order by time."
        )
    if timed and len(shown) > 1:
        first = min(shown, key=lambda name: shown[name].amount or math.inf)
        share = shown[first].profile.coverage.operators
        covered = "" if share is None else f", with {share:.0%} of its matrix operators on SME2"
        yield bullet(f"Of these {first} is fastest{covered}.")
    if not timed:
        yield from map(bullet, _executed(shown))
        if len(variants) > 1:
            device = shlex.join(("sme2", "advise", model, "--device", "android"))
            yield bullet(
                "Which data type takes the least time counts cannot tell: the same outer product "
                f"takes 1 to 5 cycles, by type and chip. A device can: {device} (or mac, linux)"
            )
    found = ranked(variants, trials)
    if found:
        first = "first what saves most when it is changed" if trials else "the most expensive first"
        yield f"\nWhat costs, {first}:"
    for place, (entry, tried) in enumerate(found):
        yield bullet(advice_text(entry))
        # What costs for the same reason is rewritten in one go.
        if tried and [following for _, following in found[place + 1 : place + 2]] != [tried]:
            for name, trial in tried.items():
                share = shares_of(variants[name].findings).get(entry.rewrite, 0.0)
                yield bullet(f"{entry.rewrite} in {name}: {trial_text(trial, share)}", "  = ")
    told = {entry.rewrite for entry, _ in found}
    for name, tried_in in trials.items():
        for trial in tried_in:
            # Several at once, or one that no item names.
            if "+".join(trial.rewrites) not in told:
                yield bullet(f"{' and '.join(trial.rewrites)} in {name}: {trial_text(trial)}", "= ")
    named = [entry.rewrite for entry, _ in found if entry.rewrite]
    if named and command:
        yield f"\nTo see what a rewrite brings: {printable(command)} --try {named[0]}"
    yield from _notes(variants)
    yield from failed


def ranked(variants: _Variants, trials: _Trials) -> list[tuple[Advice, dict[str, Trial]]]:
    """First what saved most when it was tried, then work in vain and what nobody tried, last what
    has no remedy.
    """
    first = next(iter(trials), next(iter(variants)))
    tried: dict[str, dict[str, Trial]] = {}
    for name, trial in ((name, trial) for name, every in trials.items() for trial in every):
        if len(trial.rewrites) == 1:
            tried.setdefault(trial.rewrites[0], {})[name] = trial
    found = advice({name: ran.findings for name, ran in variants.items()})
    entries = []
    for entry in found:
        own = tried.get(entry.rewrite, {})
        if entry.rewrite == GENERAL and all(_stays(entry.what, one) for one in own.values()):
            own = {}
        saving = max((trial.saving for trial in own.values() if trial.helps), default=0.0)
        # What scales weights that depend on the input can still be moved.
        if entry.rewrite in tried and not saving and COMPUTED.remedy not in entry.remedy:
            entry = dataclasses.replace(entry, remedy=NO_BETTER)
        share = entry.costs[first].share if first in entry.costs else 0.0
        # What one rewrite is for stands together. What costs next to nothing leads nowhere.
        hopeful = is_open(entry) and entry.cost.share >= LEAST_SAVING
        worth = (2, saving, entry.rewrite, share) if saving else (hopeful, share, "", 0.0)
        entries.append((worth, entry, own))
    ran = [trial.after for every in trials.values() for trial in every if trial.after]
    for text in dict.fromkeys(text for one in ran for text in one.unused):
        what, _, remedy = text.partition("; ")
        vain = Advice(Topic.COSTLY, f"work in vain: {what}", remedy=remedy)
        entries.append(((True, 1.0, "", 0.0), vain, {}))
    entries.sort(key=lambda one: one[0], reverse=True)
    return [(entry, own) for _, entry, own in entries]


def is_open(entry: Advice) -> bool:
    """Whether there is something to do."""
    return not entry.remedy.startswith(NO_BETTER)


def _stays(what: str, trial: Trial) -> bool:
    """Whether the rewrite of many operators left most of this one as it is."""

    def spent(ran: Ran) -> float:
        found = advice({"": ran.findings})
        return sum(one.cost.share for one in found if one.what == what) * (ran.amount or 0.0)

    return trial.after is not None and spent(trial.after) > spent(trial.before) / 2


def _executed(shown: _Variants) -> Iterator[str]:
    """What each data type executes: none is recommended by counts of unlike instructions."""
    for name, ran in shown.items():
        if ran.cost is not None:
            parts = (f"{number:,} {kind}" for kind, number in split(ran.cost).items())
            yield f"{name}: {'; '.join(parts)}"


def _notes(variants: _Variants) -> Iterator[str]:
    notes: dict[str, list[str]] = {}
    for variant, ran in variants.items():
        found = (finding for finding in ran.findings if finding.topic is Topic.NOTE)
        told = [": ".join(filter(None, (finding.what, finding.remedy))) for finding in found]
        for text in filter(None, (*told, ran.outputs)):
            notes.setdefault(text, []).append(variant)
    if notes:
        yield ""
    for text, names in notes.items():
        yield bullet(f"{', '.join(names)}: {text}")
