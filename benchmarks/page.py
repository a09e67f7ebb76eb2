"""Writes the page of claims and the claims of the README, from the kept results alone.

A test compares both with what these functions return, so nobody can change a number by hand.
Nothing is measured here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.catalogue import BENCHMARKS
from benchmarks.claims import number
from benchmarks.running import Result, read_result

PAGE = Path("docs") / "benchmarks.md"
README = Path("README.md")
BEGIN = "<!-- claims: written by `python -m benchmarks table` -->"
END = "<!-- end of claims -->"

INTRODUCTION = """\
# Claims and their numbers

`python -m benchmarks table` writes this page from the results in `benchmarks/results`. No number is
typed by hand. We set the limits before we measured. The top of each script in `benchmarks` says
what it compares, and why that is fair.

| command | |
|---|---|
| `tox run -e bench -- --quick` | a few minutes: does everything work? |
| `tox run -e bench` | the figures: 8 minutes on an idle machine |
| `tox run -e bench -- --all` | also the long ones: detection, faults and hostile input |

An interrupted run continues with what is missing. Exit code 1 means that a limit was missed.
"""

# The README's selection; the page has all claims.
HEADLINES: tuple[tuple[str, str], ...] = (
    (
        "startup",
        "Installed but not used, the plugin adds **{cost}** to the start of pytest. "
        "pytest-benchmark adds {cost.peer}.",
    ),
    (
        "first_verdict",
        "From nothing to the first verdict takes **{total}**, with downloads of torch and an "
        "emulator.",
    ),
    (
        "first_insight",
        "From an empty folder to the first insight about an EfficientNet takes **{total}**, if uv "
        "has the packages at hand.",
    ),
    (
        "detection",
        "False alarms: **{alarms}** of {verdicts} verdicts on equal programs. It caught {caught 5} "
        "of 5 % slowdowns and {caught 3} of 3 % slowdowns. On the same samples pytest-benchmark's "
        "`mean:5%` raised {alarms.peer} and caught {caught 5.peer} and {caught 3.peer}.",
    ),
    (
        "detection_gate",
        "The whole gate on real programs, on a loaded machine: of {slower} verdicts on programs "
        "at least 5 % slower, **{green}** pass. Of {equal} verdicts on equal programs, these are "
        "red: {alarms} REGRESSED, {suspected} SUSPECTED, {invalid} INVALID (too noisy).",
    ),
    (
        "culprits",
        "A failure names the culprit in **{named} of {regressions}** real regressions. It names "
        "{innocent} innocent operators.",
    ),
    (
        "simulated_gate",
        "In a simulation of slow models, noisy machines and stored sessions: of {slower} verdicts "
        "on programs at least 5 % slower, **{green}** pass. Of {equal} verdicts on equal programs, "
        "these are red: {alarms} REGRESSED, {suspected} SUSPECTED, {invalid} INVALID (too noisy).",
    ),
    (
        "etdump",
        "It reads ETDumps **{speedup}** as fast as ExecuTorch's Inspector, in {memory} instead of "
        "{memory.peer}.",
    ),
    (
        "faults",
        "Faults of a phone during a measurement (a fake phone behind a real adbd): **{clean} of "
        "{trials}** trials ended cleanly.",
    ),
    (
        "hostile",
        "Kills, full disks, damaged files and hostile names: **{clean} of {trials}** trials ended "
        "cleanly.",
    ),
)


def load(folder: Path) -> dict[str, Result]:
    """The kept results, in the catalogue's order."""
    found = {
        benchmark.name: read_result(folder / f"{benchmark.name}.json") for benchmark in BENCHMARKS
    }
    return {name: result for name, result in found.items() if result is not None}


def filled(template: str, result: Result) -> str:
    """``{key}`` is a claim's figure, ``{key.peer}`` its peer's."""
    for claim in result.claims:
        peer = claim.told_peer().removeprefix(f"{claim.peer}: ")
        template = template.replace(f"{{{claim.key}}}", claim.told_value())
        template = template.replace(f"{{{claim.key}.peer}}", peer)
    return template


def headlines(results: Mapping[str, Result]) -> list[str]:
    """One line per claim, each with the command that makes its numbers."""
    return [
        f"- {filled(template, results[name])} `{results[name].command}`"
        for name, template in HEADLINES
        if name in results
    ]


# --- the page -------------------------------------------------------------------------------------


def page(results: Mapping[str, Result]) -> str:
    lines = [INTRODUCTION]
    if not results:
        return "\n".join([*lines, "No result is kept yet.", ""])
    lines += [*_claims(results), *_detection(results), *_real_gate(results)]
    lines += [*_culprits(results), *_simulated(results), *_faults(results)]
    return "\n".join([*lines, *_circumstances(results)])


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(headings)} |",
        f"|{'|'.join('---' for _ in headings)}|",
        *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows),
        "",
    ]


def _claims(results: Mapping[str, Result]) -> Iterator[str]:
    yield from ("## Claims", "")
    rows = [
        (
            claim.what,
            claim.told_value(),
            claim.told_peer(),
            claim.told_ratio(),
            claim.told_limit(),
            claim.told_met(),
            f"`{result.command}`",
        )
        for result in results.values()
        for claim in result.claims
    ]
    headings = ("what", "figure", "peer, same run", "ratio", "limit", "met", "command")
    yield from table(headings, rows)
    if "first_verdict" in results:
        done = results["first_verdict"].details["provision"]
        there = [name for name, action in done.items() if action == "found"]
        if there:
            yield from (f"Before the first verdict the machine had: {', '.join(there)}.", "")


def _detection(results: Mapping[str, Result]) -> Iterator[str]:
    if "detection" not in results:
        return
    yield from (
        "## Detection, against other rules",
        "",
        "Real processes of programs with 100, 103 and 105 equal layers. All rules decide on the",
        "same samples. A rule that compares two single processes gets every pair as a trial. The",
        "exact 95 % interval is in brackets.",
        "",
    )
    for condition, scenarios in results["detection"].details.items():
        if not any(scenario["verdicts"] for scenario in scenarios.values()):
            continue
        beside = "beside a busy neighbour" if condition == "busy" else "with nothing else running"
        yield from (f"### {beside.capitalize()}", "")
        rules = scenarios["0"]["alarms"]
        rows = [
            (rule, *(_rate(scenario["alarms"][rule]) for scenario in scenarios.values()))
            for rule in rules
        ]
        yield from table(("rule", "false alarms", "+3 % caught", "+5 % caught"), rows)
        took = [scenario for scenario in scenarios.values() if scenario["pairs"] is not None]
        pairs = ", ".join(number(round(scenario["pairs"], 1)) for scenario in took)
        seconds = ", ".join(number(round(scenario["seconds"], 1)) for scenario in took)
        yield from (f"Ours took {pairs} pairs and {seconds} s per verdict.", "")


def _real_gate(results: Mapping[str, Result]) -> Iterator[str]:
    if "detection_gate" not in results:
        return
    yield from (
        "## The whole gate on real programs",
        "",
        "Real processes on a real machine, beside other work: the load is in the table. Each",
        "verdict is the whole gate's at the default budget: a session, three stored sessions, and",
        "pairs where these leave a doubt. The true slowdown is known by construction.",
        "",
    )
    rows = [
        (
            setting,
            "equal" if factor == "1" else f"{factor} times as slow",
            _counts(facts["verdicts"]),
            str(facts["paired"]),
            f"{facts['inference_ns'] / 1e6:.3g} ms",
            f"{facts['load']:.0f}",
            f"{facts['seconds']:.0f} s",
        )
        for setting, by_factor in results["detection_gate"].details.items()
        for factor, facts in by_factor.items()
    ]
    headings = (
        "setting", "program", "verdicts", "decided by pairs", "one inference", "load", "a verdict",
    )  # fmt: skip
    yield from table(headings, rows)


def _culprits(results: Mapping[str, Result]) -> Iterator[str]:
    if "culprits" not in results:
        return
    yield from (
        "## Naming the culprit",
        "",
        "Small networks before and after a change, exported and traced for real, beside other",
        "work. Equal programs have no culprit: whatever is named there is innocent.",
        "",
    )
    rows = [
        (
            change,
            "; ".join(line for lines in facts["named"].values() for line in lines) or "nothing",
            "" if facts["equal"] else "yes" if facts["right"] else "**no**",
            ", ".join(facts["innocent"]) or "none",
        )
        for change, facts in results["culprits"].details.items()
    ]
    yield from table(("change", "named", "culprit named", "innocent ones named"), rows)


def _simulated(results: Mapping[str, Result]) -> Iterator[str]:
    if "simulated_gate" not in results:
        return
    yield from (
        "## The gate in a simulation",
        "",
        "No machine was timed for this. Programs of known speed ran on a pretended device with a",
        "virtual clock and the spreads of real machines; all else is the product's own. Where one",
        "inference is longer than the neighbour's spells, processes that take turns cannot avoid",
        "them: such pairs are often too noisy for a verdict. The first run missed the limits; the",
        "script says what was changed since.",
        "",
    )
    rows = [
        (
            scenario,
            "equal" if factor == "1" else f"{factor} times as slow",
            _counts(counts),
        )
        for scenario, by_factor in results["simulated_gate"].details["verdicts"].items()
        for factor, counts in by_factor.items()
    ]
    yield from table(("machine and model", "program", "verdicts"), rows)
    yield from (
        "Pairs alone, where 30 fit into the budget. Noise is the spread of process medians, or of",
        "the ratio where processes take turns. It is normal here, in 4,000 series each.",
        "",
    )
    rates = [
        (f"{float(noise):.2%}", *(_shares(found) for found in by_slowdown.values()))
        for noise, by_slowdown in results["simulated_gate"].details["pairs"].items()
    ]
    words = "REGRESSED / SUSPECTED / INCONCLUSIVE"
    yield from table(("noise", f"equal: {words}", "+3 %: the same", "+5 %: the same"), rates)
    yield from _simulated_sessions(results["simulated_gate"].details["sessions"])


def _simulated_sessions(by_spread: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "Stored times alone, where the old program is gone and no pairs can decide. Processes vary",
        "by 0.4 %, sessions by the spread; 200 verdicts each. With each session there are more",
        "answers. Where sessions differ by more than the limit, stored times alone rarely answer.",
        "",
    )
    rows = [
        (f"{float(spread):.1%}", count, *(_counts(counts) for counts in by_slowdown.values()))
        for spread, by_count in by_spread.items()
        for count, by_slowdown in by_count.items()
    ]
    yield from table(("spread between sessions", "sessions", "equal", "+5 %"), rows)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))


def _shares(rates: Mapping[str, float]) -> str:
    return " / ".join(f"{100 * rate:.1f} %" for rate in rates.values())


def _rate(rate: Mapping[str, Any]) -> str:
    count, trials = rate["count"], rate["trials"]
    if not trials:
        return ""
    low, high = rate["interval"]
    return f"{100 * count / trials:.1f} % of {trials:,} [{100 * low:.1f}, {100 * high:.1f}]"


def _faults(results: Mapping[str, Result]) -> Iterator[str]:
    counted = [name for name in ("faults", "fuzz_etdump", "hostile") if name in results]
    if not counted:
        return
    yield from (
        "## Faults and hostile input",
        "",
        "A trial is clean when it ends with a result or one clear error. No file is half written,",
        "and all settings are restored. A seed repeats each trial.",
        "",
    )
    rows = [
        (
            f"{name}: {row['name']}",
            row.get("what", ""),
            f"{row['trials']:,}",
            f"{row['clean']:,}",
            row.get("not_possible", ""),
        )
        for name in counted
        for row in results[name].details["rows"]
    ]
    yield from table(("fault", "what happens", "trials", "clean", "not possible here"), rows)


def _circumstances(results: Mapping[str, Result]) -> Iterator[str]:
    yield from ("## Machine, versions, dates", "")
    # Equal circumstances are listed once.
    groups: dict[str, list[Result]] = {}
    for result in results.values():
        facts = result.machine
        machine = (
            f"{facts['cpu']}, {facts['cores']} cores, {facts['memory']}, {facts['system']}; "
            + ", ".join(f"{name} {version}" for name, version in result.versions.items())
        )
        groups.setdefault(machine, []).append(result)
    for machine, members in groups.items():
        yield from (f"{machine}:", "")
        rows = [
            (
                result.name,
                result.finished.replace("T", " ").removesuffix("Z"),
                f"{result.seconds:,.0f} s",
                f"`{result.commit}`",
            )
            for result in members
        ]
        yield from table(("benchmark", "finished (UTC)", "took", "commit"), rows)


# --- files ----------------------------------------------------------------------------------------


def with_claims(readme: str, results: Mapping[str, Result]) -> str:
    """The README with its claims renewed; as it is where it has no place for them."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return readme
    return "\n".join([f"{before}{BEGIN}", "", *headlines(results), "", f"{END}{after}"])


def write_pages(kept: Path, root: Path, *, take: Path | None = None) -> list[Path]:
    """Renew the page and the README; ``take`` first keeps the results of a run."""
    written = []
    if take is not None:
        kept.mkdir(parents=True, exist_ok=True)
        for benchmark in BENCHMARKS:
            source = take / f"{benchmark.name}.json"
            if read_result(source) is not None:
                written.append(Path(shutil.copy(source, kept)))
    results = load(kept)
    (root / PAGE).write_text(page(results), encoding="utf-8")
    readme = (root / README).read_text(encoding="utf-8")
    (root / README).write_text(with_claims(readme, results), encoding="utf-8")
    return [*written, root / PAGE, root / README]
