"""One case as every report shows it, with its cost: formatted once, and laid out by each. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from pytest_sme2.profile.compare import largest_category
from pytest_sme2.profile.cost import (
    packing_share,
    rest,
    split,
    tile_use,
    work_coverage,
)
from pytest_sme2.report.text import (
    NOTHING,
    PROOFS,
    TOP,
    as_sentence,
    duration,
    percent,
    times,
)
from pytest_sme2.report.versus_baseline import outcome_of
from pytest_sme2.results.case import CaseResult, Check
from pytest_sme2.results.evidence import InferenceCost
from pytest_sme2.results.profile import Category, Comparison, Executor, OperatorChange, Profile
from pytest_sme2.results.run import PAIR, SHOWN, Arm
from pytest_sme2.results.timing import Frontier, FrontierCell, Ship
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.wording import count, fewer
from pytest_sme2.timing.stats import centre_interval
from pytest_sme2.verdict.generation import figure_lines, sentence
from pytest_sme2.verdict.judging import estimate_text, mean_clock
from pytest_sme2.verdict.times import load_text

ENGINES = ("SME2", "NEON", "portable", "SME1")
SME2, NEON, PORTABLE, SME1 = range(4)


def engine_names(results: Sequence[CaseResult]) -> tuple[str, ...]:
    """ENGINES, the last only where it ran; where a CPU is not an Arm, nothing is called NEON."""
    foreign = any("x86" in dict(each.fingerprint.facts).get("platform", "") for each in results)
    if any(found.sme1 for measured in results for found in measured.structures.values()):
        return ENGINES
    return ("SME2", "XNNPACK", "portable") if foreign else ENGINES[:SME1]


def engines_of(measured: CaseResult, arm: Arm) -> list[int]:
    """For each operator of an arm its place in ENGINES."""
    return [
        PORTABLE
        if member.operator.executor is Executor.PORTABLE
        else (SME1 if member.operator.sme1 else SME2)
        if member.operator.matrix and member.operator.sme2
        else NEON
        for member in measured.profiles[arm].operators
    ]


def engine_shares(measured: CaseResult) -> tuple[str, list[float]] | None:
    """What the shares are of, and that of each of ENGINES, the last only where it ran."""
    arm = measured.arm
    profile = measured.profiles.get(arm)
    if profile is None or not profile.operators:
        return None
    cost = measured.costs.get(arm)
    if not measured.emulated:
        unit, weights = "time", [member.time_ns for member in profile.operators]
    elif cost is not None and len(cost.operators) == len(profile.operators):
        unit, weights = "instructions", [entry.counts.instructions for entry in cost.operators]
    else:
        unit, weights = "operators", [1.0] * len(profile.operators)
    sums = [0.0] * len(ENGINES)
    for engine, weight in zip(engines_of(measured, arm), weights, strict=True):
        sums[engine] += weight
    whole = sum(sums)
    sums = sums if sums[SME1] else sums[:SME1]
    return (unit, [value / whole for value in sums]) if whole else None


def kernel_operators(measured: CaseResult) -> Mapping[str, str]:
    """By kernel the name of the operator that executed most of it; only where cost was counted."""
    most: dict[str, Counter[str]] = {}
    for cost in measured.costs.values():
        for entry in cost.operators:
            for kernel, instructions in entry.kernels:
                most.setdefault(kernel, Counter())[entry.name] += instructions
    return {kernel: sums.most_common(1)[0][0] for kernel, sums in most.items()}


LIMITS_OF_COST = (
    "cost is the number of executed instructions (Minst: a million), not time: where phones were "
    "measured, SME2 cut the time 1.8 to 3.9 times, and the instructions of the same work 4.5 to "
    "38.9 times (docs/measuring.md)"
)


def millions(count: int | None) -> str:
    """``0.742``, ``6.215``, ``123.4``: millions, with four digits at most."""
    if count is None:
        return "-"
    value = count / 1e6
    places = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 10 else 3
    return f"{value:.{places}f}"


WORDS = {
    Category.DATA_MOVEMENT: "data movement",
    Category.ELEMENTWISE: "elementwise operators",
    Category.OTHER: "other operators",
    # What else is of this category is matrix work.
    Category.CONV: "depthwise convolutions",
}


def rest_text(measured: CaseResult) -> str:
    """What is left when SME2 has done its part; empty where nothing was counted."""
    cost = measured.costs.get(measured.arm)
    found = None if cost is None else rest(cost)
    if found is None:
        return ""
    left, category, most = found
    return (
        f"{percent(left)} of the instructions that are left are no matrix work, and SME2 cannot "
        f"help with them: {percent(most)} of these are {WORDS.get(category, str(category))}"
    )


def cost_rows(measured: CaseResult) -> list[list[str]]:
    """What was counted, the first row its titles."""
    arms = [arm for arm in SHOWN if arm in measured.costs]
    columns = [_figures(measured.costs[arm]) for arm in arms]
    # SME2 on has all of them.
    names = dict.fromkeys(name for column in reversed(columns) for name in column)
    titles = ["per inference", *(f"SME2 {measured.arm_name(arm)}" for arm in arms)]
    return [titles, *([name, *(each.get(name, "0") for each in columns)] for name in names)]


def _figures(cost: InferenceCost) -> dict[str, str]:
    total = cost.total
    numbers = {
        **split(cost),
        "all instructions": total.instructions,
    }
    parts = {
        "multiply-accumulates on SME2": work_coverage(cost),
        "tile use": tile_use(cost),
        "packing and layout": packing_share(cost),
    }
    return {name: f"{number:,}" for name, number in numbers.items()} | {
        name: "-" if part is None else percent(part) for name, part in parts.items()
    }


def cost_summary(cost: InferenceCost) -> dict[str, object]:
    """The figures of one arm for programs."""
    return {
        "cpu": cost.cpu,
        "vector_bits": cost.vector_bits,
        **asdict(cost.total),
        "split": split(cost),
        "categories": {str(key): found.instructions for key, found in cost.by_category().items()},
        "coverage_by_work": work_coverage(cost),
        "tile_use": tile_use(cost),
        "packing_and_layout_share": packing_share(cost),
    }


def instructions_per_token(measured: CaseResult) -> str:
    """``instructions per token: SME2 off 23,456, SME2 on 12,345``; empty if nothing was counted."""
    tokens, costs = measured.tokens or 0, measured.costs if measured.tokens else {}
    each = {arm: f"{cost.total.instructions / tokens:,.0f}" for arm, cost in costs.items()}
    return _by_arm("instructions per token", each)


def tokens_per_second(measured: CaseResult) -> str:
    """By the median process; empty where times say nothing, as on an emulator."""
    tokens, times = measured.tokens or 0, (measured.medians_ns or {}) if measured.tokens else {}
    each = {arm: f"{tokens * 1e9 / statistics.median(t):,.1f}" for arm, t in times.items() if t}
    return _by_arm("tokens per second", each)


def _by_arm(what: str, told: Mapping[Arm, str]) -> str:
    parts = ", ".join(f"SME2 {arm} {told[arm]}" for arm in SHOWN if arm in told)
    return f"{what}: {parts}" if parts else ""


def noise_of(record: CaseRecord) -> tuple[float, float | None] | None:
    """The relative spread of process medians within an arm, and the smallest difference between the
    arms that would be seen 4 times of 5; None where nothing was timed, or too little to tell.
    """
    pairs = None if record.measured.emulated else record.measurement
    if pairs is None or pairs.noise_floor is None:
        return None
    return pairs.noise_floor, pairs.detectable


def noise_text(records: Sequence[CaseRecord]) -> str:
    """That of the noisiest case; empty where none was timed."""
    found = {record.id: noise for record in records if (noise := noise_of(record))}
    if not found:
        return ""
    name = max(found, key=lambda each: found[each][0])
    floor, detectable = found[name]
    text = f"noise floor {percent(floor)}"
    if detectable is not None:
        text += f", smallest detectable difference {percent(detectable)}"
    return text + (f", of {name}, the noisiest case" if len(found) > 1 else "")


def case_notes(record: CaseRecord) -> list[str]:
    """What the figures of a case are made of, in sentences."""
    measured, found = record.measured, record.measured.generation
    told = [noise_text([record]), tokens_per_second(measured), instructions_per_token(measured)]
    told += [] if found is None else [*figure_lines(found), sentence(found)]
    return [*map(as_sentence, filter(None, told)), *_made_of(record)]


def _made_of(record: CaseRecord) -> list[str]:
    """Cycles, clock and energy; and what was noted."""
    measured, lines, parts = record.measured, [], []
    clocks = {arm: mean_clock(measured.conditions, arm) for arm in PAIR}
    for arm, clock in clocks.items():
        if clock is not None and (values := (measured.medians_ns or {}).get(arm)):
            cycles = millions(round(clock * statistics.median(values)))
            parts.append(f"{cycles} million cycles at {clock:.2f} GHz with SME2 {arm}")
    if len(parts) == len(PAIR):
        change = (clocks[Arm.ON] or 0.0) / (clocks[Arm.OFF] or 1.0) - 1
        parts[-1] += f"; SME2's clock is {abs(change):.1%} {'higher' if change > 0 else 'lower'}"
    if parts:
        lines.append(f"An inference takes {', '.join(parts)}.")
    elif "cycles" in measured.conditions:
        lines.append(f"Cycles: {measured.conditions['cycles']}.")
    if measured.sustained is not None:
        lines.append(load_text(measured.sustained))
    found = record.measurement
    if found is not None and found.blocks:
        doubt = ": one arm changes the other, so the speedup is uncertain"
        lines.append(
            f"SME2 makes it {1 / statistics.median(found.blocks):.2f}x as fast in blocks of a "
            f"second, and {found.speedup:.2f}x in short turns"
            f"{'' if found.carried_over is None else doubt}."
        )
    pairs = found.pairs if found is not None else ()
    used = [pair.energy_nj for pair in pairs if pair.energy_nj is not None]
    if used:
        off, on = zip(*used, strict=True)
        told = (f"{_joules(on)} with SME2 on", f"{_joules(off)} with SME2 off")
        lines.append(f"Energy of an inference, as the system estimates it: {', '.join(told)}.")
    return [*lines, *(() if found is None else found.notes)]


def _joules(energies_nj: Sequence[float]) -> str:
    bounds = centre_interval(energies_nj)
    middle = statistics.median(energies_nj) / 1e6
    if bounds is None:
        return f"{middle:.3g} mJ ({count(len(energies_nj), 'pair')})"
    return f"{middle:.3g} mJ [{bounds[0] / 1e6:.3g}, {bounds[1] / 1e6:.3g}]"


def notes(records: Sequence[CaseRecord]) -> list[str]:
    """What limits the figures of a run, once for all of them."""
    results = [record.measured for record in records]
    known = {
        "the chip has SME and no SME2: on is SME1, and what is said of SME2 kernels is of its SME1 "
        "kernels": any(measured.fingerprint.sme1 for measured in results),
        "the CPU was emulated: operators, kernels and outputs are exact, and no time is shown, "
        "since emulated time says nothing about hardware": any(
            measured.emulated for measured in results
        ),
        LIMITS_OF_COST: any(measured.costs for measured in results),
        "weights are random: structure and latency do not depend on them, accuracy does": any(
            measured.weights.startswith("random") for measured in results
        ),
    }
    return [text for text, true in known.items() if true]


def facts(record: CaseRecord) -> list[tuple[str, str]]:
    """What was measured, on what and with what: names and values."""
    measured = record.measured
    known = {
        "model": measured.model,
        "variant": measured.variant,
        "device": measured.device,
        **{f"device: {name}": value for name, value in measured.fingerprint.facts},
        "runner": measured.runner,
        "threads": str(measured.threads),
        "cores": measured.conditions.get("cores"),
        "weights": measured.weights,
        "program": f"{measured.pte_bytes} bytes, sha256 {measured.pte_sha256}",
        "session": measured.session,
        "recorded": measured.recorded,
        "what happened in this run": record.state.get("events"),
        **{f"version: {name}": value for name, value in measured.versions.items()},
    }
    return [(name, value) for name, value in known.items() if value is not None]


TITLES = {
    "on SME2": "matrix operators on SME2",
    "work": "of their multiply-accumulates on SME2",
    "on SME1": "matrix operators on SME1",
    "SME2 off": "latency with SME2 off",
    "SME2 on": "latency with SME2 on",
    "speedup": "speedup by SME2",
    "most time": "of the time goes to",
    "memory": "peak memory of a process",
    "Minst off": "million instructions with SME2 off",
    "Minst sme1": "million instructions on SME1",
    "Minst on": "million instructions with SME2 on",
    "instructions": "instructions: cost, not time",
    "the rest": "of the instructions are no matrix work, which SME2 cannot help with; most is",
}
"""What the titles of a case's row mean, where there is room for it."""


def cells(measured: CaseResult, checks: Sequence[Check] = ()) -> dict[str, str]:
    """A case's row of a table, by title; a dash stands for what is not known."""
    counted = {arm: cost.total.instructions for arm, cost in measured.costs.items()}
    off, on = counted.get(Arm.OFF), counted.get(Arm.ON)
    work = work_coverage(measured.costs[Arm.ON]) if Arm.ON in measured.costs else None
    peak, cost = ((measured.peak_bytes or {}).get(measured.arm), measured.costs.get(measured.arm))
    left, outcome = None if cost is None else rest(cost), outcome_of(checks)
    return {
        "on SME2": _covered(measured, Arm.ON),
        "work": NOTHING if work is None else f"{work:.0%}",
        "on SME1": _covered(measured, Arm.SME1),
        **{f"SME2 {arm}": _median(measured, arm) for arm in (Arm.OFF, Arm.ON)},
        "speedup": NOTHING if measured.speedup is None else estimate_text(measured.speedup),
        "most time": _largest(measured),
        "memory": NOTHING if peak is None else f"{peak / 1e6:.0f} MB",
        "Minst off": millions(off),
        "Minst sme1": millions(counted.get(Arm.SME1)),
        "Minst on": millions(on),
        "instructions": fewer(off / on if off and on else None),
        "the rest": NOTHING if left is None else f"{left[0]:.0%} {left[1]}",
        "verdict": NOTHING if outcome is None else str(outcome),
    }


def _median(measured: CaseResult, arm: Arm) -> str:
    values = (measured.medians_ns or {}).get(arm)
    return duration(statistics.median(values)) if values else NOTHING


def _covered(measured: CaseResult, arm: Arm) -> str:
    """``6 of 6``: matrix operators on SME2 kernels, of all; of the arm sme1, on SME1 kernels."""
    profile = measured.profiles.get(arm)
    if profile is None:
        return NOTHING
    return f"{profile.coverage.sme2_operators} of {profile.coverage.matrix_operators}"


def _largest(measured: CaseResult) -> str:
    """Nothing where time means nothing."""
    profile = measured.profiles.get(measured.arm)
    category = None if profile is None or measured.emulated else largest_category(profile)
    if profile is None or category is None:
        return NOTHING
    return f"{category} {profile.share(profile.category_ns[category]):.0%}"


Rows = list[list[str]]
"""A table in plain text, the first row its titles: each report lays it out in its own way."""


def breakdown(profile: Profile) -> Iterator[tuple[str, str, int, float]]:
    """Category, kind, number of operators, time: each category before its kinds, then the sum."""
    for category, ns in profile.category_ns.items():
        yield str(category), "", profile.category_counts[category], ns
        for (place, kind), kind_ns in profile.kind_ns.items():
            if place is category:
                yield str(category), kind, profile.kind_counts[place, kind], kind_ns
    yield "overhead", "", 0, profile.overhead_ns
    yield "total", "", len(profile.operators), profile.end_to_end.median


def latency_rows(measured: CaseResult) -> Rows:
    rows = [["arm", "processes", "median", "fastest", "slowest"]]
    for arm, values in (measured.medians_ns or {}).items():
        if values:
            ends = statistics.median(values), min(values), max(values)
            name = f"SME2 {measured.arm_name(arm)}"
            rows.append([name, str(len(values)), *map(duration, ends)])
    return rows


def breakdown_rows(profiles: Mapping[str, Profile], *, timed: bool) -> Rows:
    """Categories and their kinds: how many operators, time and share in each profile, and how
    many times faster the last is than the first.
    """
    found: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}
    for name, profile in profiles.items():
        for category, kind, number, ns in breakdown(profile):
            if number or (timed and category == "overhead"):
                found.setdefault((category, kind), {})[name] = number, ns
    order = [*map(str, Category), "overhead", "total"]
    both = timed and len(profiles) > 1
    rows = [["category", "operators", *[*profiles] * timed, *["faster"] * both]]
    for category, kind in sorted(found, key=lambda place: order.index(place[0])):
        sides, whole = (
            [found[category, name].get(each, (0, 0.0)) for each in profiles] for name in (kind, "")
        )
        if kind and sides == whole:
            continue  # the only kind of its category
        numbers = dict.fromkeys(str(number) for number, _ in sides)
        row = [f"- {kind}" if kind else category]
        row.append(" / ".join(numbers) if category != "overhead" else "")
        if timed:
            pairs = zip(profiles.values(), sides, strict=True)
            row += [f"{duration(ns)}, {percent(each.share(ns))}" for each, (_, ns) in pairs]
        if both:
            before, *_, after = (ns for _, ns in sides)
            row.append(times(before / after if before and after else None))
        rows.append(row)
    return rows


def operator_rows(profile: Profile, cost: InferenceCost | None = None) -> Rows:
    """The costliest, in time or in executed instructions."""
    spent = [(member.time_ns, duration(member.time_ns)) for member in profile.operators]
    whole, unit = profile.end_to_end.median, "time"
    if cost is not None:
        counts = [entry.counts.instructions for entry in cost.operators]
        spent, unit = [(count, f"{count:,}") for count in counts], "instructions"
        whole = cost.total.instructions
    ranked = sorted(zip(spent, profile.operators, strict=True), key=lambda one: -one[0][0])
    rows = [["operator", "ran", "SME2", unit, "share"]]
    for (amount, text), member in ranked[:TOP]:
        proof = PROOFS[member.operator.proof] if member.operator.matrix else ""
        share = percent(amount / whole) if whole else NOTHING
        rows.append([member.label, str(member.operator.executor), proof, text, share])
    left = len(ranked) - TOP
    return [*rows, [f"and {left} more", *[""] * 4]] if left > 0 else rows


def changed_rows(comparison: Comparison, names: Sequence[str], *, timed: bool) -> Rows:
    """Operators of one name before and after, together, and whether these were on SME2.

    Those that changed most; without ``timed`` those that have another name.
    """
    groups: dict[tuple[str, str], list[OperatorChange]] = {}
    for change in comparison.operators:
        sides = [side.operator for side in (change.before, change.after) if side]
        name = " → ".join(dict.fromkeys(each.name for each in sides))
        if len(sides) == 1:
            name = f"{'+' if change.after else '-'} {name}"
        elif not timed and sides[0].name == sides[1].name:
            continue
        proofs = dict.fromkeys(PROOFS[each.proof] for each in sides if each.matrix)
        groups.setdefault((name, " → ".join(proofs)), []).append(change)
    rows = [["operator", "number", "SME2", *[*names, "faster"] * timed]]
    ranked = sorted(groups.items(), key=lambda one: -abs(sum(each.delta_ns for each in one[1])))
    for (name, proof), members in ranked[:TOP]:
        row = [name, str(len(members)), proof]
        if timed:
            before = sum(each.before.time_ns for each in members if each.before)
            after = sum(each.after.time_ns for each in members if each.after)
            ratio = times(before / after if before and after else None)
            row += [duration(before), duration(after), ratio]
        rows.append(row)
    return rows


CHOSEN = "*"


def _arm_word(arm: Arm, sme1: bool) -> str:
    return "NEON" if arm is Arm.OFF else "SME1" if sme1 else "SME2"


def _cell_name(cell: FrontierCell, found: Frontier, sme1: bool) -> str:
    threads = count(cell.threads, "thread")
    return threads if found.alone else f"{_arm_word(cell.arm, sme1)} with {threads}"


def decision_text(found: Frontier, sme1: bool = False) -> str:
    """The decision in one sentence."""
    best, other = found.cells[found.candidate], found.cells[found.reference]
    text = estimate_text(found.speedup)
    name, rival = (_cell_name(cell, found, sme1) for cell in (best, other))
    of = f"the next best ({rival})"
    if not found.alone:
        of = f"your best {_arm_word(other.arm, sme1)} ({count(other.threads, 'thread')})"
    if found.ship is Ship.CANDIDATE:
        return f"Ship {name}: {text} of {of}."
    if found.ship is Ship.REFERENCE:
        return f"{rival} is better: {name} is {text} of it."
    head = "No difference that matters" if found.ship is Ship.EITHER else "Too close to tell"
    return f"{head}: {name} is {text} of {of}."


def frontier_rows(measured: CaseResult, found: Frontier) -> Rows:
    """With the best of each arm marked."""
    arms = list(dict.fromkeys(cell.arm for cell in found.cells))
    sme1 = measured.fingerprint.sme1
    names = ["time" if found.alone else _arm_word(arm, sme1) for arm in arms]
    rows = [["threads", *names, "cores"]]
    for threads in dict.fromkeys(cell.threads for cell in found.cells):
        members = {
            cell.arm: (index, cell)
            for index, cell in enumerate(found.cells)
            if cell.threads == threads
        }
        cores = dict.fromkeys(_cores(cell) for _, cell in members.values())
        taken = [_time(*members[arm], found.best) for arm in arms]
        rows.append([str(threads), *taken, " / ".join(cores)])
    return rows


def _time(index: int, cell: FrontierCell, best: frozenset[int]) -> str:
    bounds = centre_interval(cell.medians_ns)
    text = duration(cell.median_ns)
    if bounds is not None:
        low, high = (duration(bound).split()[0] for bound in bounds)
        text += f" [{low}, {high}]"
    return f"{text} {CHOSEN}" if index in best else text


def _cores(cell: FrontierCell) -> str:
    slow = cell.efficiency_share
    return cell.cores if slow is None else f"{cell.cores} ({percent(slow)} on slow ones)".lstrip()


def frontier_notes(measured: CaseResult, found: Frontier) -> Iterator[str]:
    sme1 = measured.fingerprint.sme1
    yield decision_text(found, sme1)
    yield (
        f"{CHOSEN} is the best of its arm, chosen on one half of {count(found.rounds, 'round')}, "
        f"judged on the other; {found.speedup.confidence:.1%} confidence; {found.stopped_because}"
    )
    if found.unsure:
        names = ", ".join(_cell_name(found.cells[index], found, sme1) for index in found.unsure)
        yield f"not told apart from the best of its arm: {names}; measure longer (--budget)"
    hot = found.throttled
    if hot:
        yield f"the device slowed itself down in {count(hot, 'round')} that counts"
    yield from found.notes
