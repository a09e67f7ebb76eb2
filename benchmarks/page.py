"""Writes the figures of docs/project.md and the claims of the README, from the kept results alone.

A test compares both with what these functions return, so nobody can change a number by hand.
Nothing is measured here.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.running import BENCHMARKS, Result, read_result

PAGE = Path("docs") / "project.md"
README = Path("README.md")
BEGIN = "<!-- claims: written by `python -m benchmarks table` -->"
TABLE = "<!-- figures: written by `python -m benchmarks table` -->"
END = "<!-- end of claims -->"

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
        "From an empty folder to the first insight about a MobileNet V2: {commands} commands and "
        "**{total}** of CPU time, if uv has the packages at hand.",
    ),
    (
        "detection",
        "False alarms: **{alarms}** of {verdicts} verdicts on equal programs. It caught {caught 5} "
        "of 5 % slowdowns and {caught 3} of 3 % slowdowns. On the same samples pytest-benchmark's "
        "`mean:5%` raised {alarms.peer} and caught {caught 5.peer} and {caught 3.peer}.",
    ),
    (
        "detection_gate",
        "The whole gate on a loaded machine: of {slower} verdicts on programs at least 5 % slower, "
        "**{green}** pass. Of {equal} on equal programs, {alarms} are red, whatever the "
        "verdict is called.",
    ),
    (
        "culprits",
        "A failure names the culprit in **{named} of {regressions}** real regressions. It names "
        "{innocent} innocent operators.",
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


# --- the table ------------------------------------------------------------------------------------


def figures(results: Mapping[str, Result]) -> list[str]:
    """One table of the claims that have a limit, then the machines and versions."""
    made = results.values()
    headings = ("what", "figure", "peer, same run", "limit")
    rows: list[tuple[str, ...]] = [headings, ("---",) * len(headings)]
    for result in made:
        claims = [claim for claim in result.claims if claim.told_limit()]
        if claims:
            day = result.finished.partition("T")[0]
            rows.append((f"**`{result.command}`**, {day}, `{result.commit}`", "", "", ""))
        for claim in claims:
            limit = claim.told_limit() + (" **missed**" if claim.met is False else "")
            rows.append((claim.what, claim.told_value(), claim.told_peer(), limit))
    made_on = [
        *(", ".join(one.machine[name] for name in ("cpu", "memory", "system")) for one in made),
        *(", ".join(f"{name} {version}" for name, version in one.versions.items()) for one in made),
    ]
    return [
        *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows),
        "",
        *(f"- {facts}" for facts in dict.fromkeys(made_on)),
    ]


# --- files ----------------------------------------------------------------------------------------


def with_claims(text: str, results: Mapping[str, Result]) -> str:
    """A page with what stands between its marks renewed; as it is where it has none."""
    for begin, made in ((BEGIN, headlines), (TABLE, figures)):
        before, found, rest = text.partition(begin)
        _, end, after = rest.partition(END)
        if found and end:
            text = "\n".join([f"{before}{begin}", "", *made(results), "", f"{END}{after}"])
    return text


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
    for path in (root / PAGE, root / README):
        path.write_text(with_claims(path.read_text("utf-8"), results), encoding="utf-8")
        written.append(path)
    return written
