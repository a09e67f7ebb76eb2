"""Writes the page of claims and the claims of the README, from the kept results alone.

A test compares both with what these functions return, so nobody can change a number by hand.
Nothing is measured here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.running import BENCHMARKS, Result, read_result

PAGE = Path("docs") / "benchmarks.md"
README = Path("README.md")
BEGIN = "<!-- claims: written by `python -m benchmarks table` -->"
END = "<!-- end of claims -->"

INTRODUCTION = """\
# Claims and their numbers

`python -m benchmarks table` writes this page from the results in `benchmarks/results`. No number is
typed by hand. We set the limits before we measured. The top of each script in `benchmarks` says
what it compares, and why that is fair. Here are the claims with a limit or a peer. The JSON has the
others, and the details: every rule, regression, simulated machine and kind of damage.

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
        "first_run",
        "The main command takes **{total}** from nothing, {ours} of it after the installation, and "
        "{again} once more.",
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
    return "\n".join([*lines, *_claims(results), *_cases(results), *_circumstances(results)])


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(headings)} |",
        f"|{'|'.join('---' for _ in headings)}|",
        *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows),
        "",
    ]


def _claims(results: Mapping[str, Result]) -> Iterator[str]:
    """One table per benchmark, of the claims that have a limit or a peer."""
    for result in results.values():
        rows = [
            (
                claim.what,
                claim.told_value(),
                claim.told_peer(),
                claim.told_limit(),
                claim.told_met(),
            )
            for claim in result.claims
            if claim.told_limit() or claim.told_peer()
        ]
        if rows:
            yield from (f"## {result.name}", "", f"`{result.command}`", "")
            yield from table(("what", "figure", "peer, same run", "limit", "met"), rows)


def _cases(results: Mapping[str, Result]) -> Iterator[str]:
    if "first_run" not in results:
        return
    yield from ("## CPU seconds of each case of the suite", "")
    cases = results["first_run"].details["cases"].items()
    rows = [(f"`{case}`", *(f"{part:.1f}" for part in parts.values())) for case, parts in cases]
    yield from table(("case", "export", "SME2 on, counted", "SME2 off, counted"), rows)


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
