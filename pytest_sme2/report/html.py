"""The HTML pages: the report of a run, and below it that of a history.

The report is one file that holds its data, its style, its script and its charting library. It asks
the network for nothing, and its content security policy lets it ask for nothing: only the two
scripts that are in the file run, known by their hashes. All names stand in the data and are put on
the page as text.

Operators are stored by columns with their names in a table, so that many models stay small. Of an
emulated case no time is stored at all: so nothing in the file can be mistaken for latency.

The history has one chart of each case, with its changes and their commits; nothing in it is run.
All colours come from its style, so that charts follow light and dark.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from pytest_sme2 import __version__
from pytest_sme2.report.case_summary import (
    TITLES,
    case_notes,
    cells,
    cost_rows,
    engine_names,
    engine_shares,
    engines_of,
    facts,
    frontier_notes,
    frontier_rows,
    kernel_operators,
    latency_rows,
    notes,
)
from pytest_sme2.report.findings import (
    case_sentences,
    cost_text,
    next_step,
    remedy_text,
    run_findings,
)
from pytest_sme2.report.history import FigureHistory, Series
from pytest_sme2.report.text import NOTHING, as_sentence
from pytest_sme2.report.versus_baseline import (
    change_text,
    count_cases,
    deciding,
    failed_cases,
    headline,
    interval_text,
    limit_text,
    outcome_of,
    worst_first,
)
from pytest_sme2.report.writing import measured_commit
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.evidence import InferenceCost
from pytest_sme2.results.profile import Category, Executor
from pytest_sme2.results.run import SHOWN, Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import CaseRecord, reproduce_command
from pytest_sme2.system.files import encode, write_text
from pytest_sme2.system.wording import count
from pytest_sme2.timing.stats import centre_interval
from pytest_sme2.verdict.times import load_text

Case = tuple[Path, CaseRecord]
"""With its folder."""


def write_html(path: Path, cases: Sequence[Case]) -> None:
    write_text(path, page(report_document(cases)))


def page(document: Mapping[str, Any]) -> str:
    charts, script = page_part("plotly-basic.min.js"), page_part("report.js")
    policy = page_policy(charts, script, images="img-src data: blob:; ")
    return filled(
        "report.html",
        policy=[policy],
        style=[page_part("report.css")],
        data=_data(document),
        charts=[charts],
        script=[script],
    )


def filled(template: str, **parts: Iterable[str]) -> str:
    """Piece by piece: what was filled in is never searched for another mark."""
    first, *marked = re.split(r"{{(\w+)}}", page_part(template))
    found = [first]
    for mark, after in zip(marked[::2], marked[1::2], strict=True):
        found += [*parts[mark], after]
    return "".join(found)


def page_part(name: str) -> str:
    folder = importlib.resources.files("pytest_sme2.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


def page_policy(*scripts: str, images: str = "") -> str:
    """Only these scripts may run. Charts are styled as they are drawn."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; {images}"
        "base-uri 'none'; form-action 'none'"
    )


def _data(document: Mapping[str, Any]) -> Iterator[str]:
    """The document as JSON, in pieces. A large run's cases fill the memory, so each is one."""
    others = {name: value for name, value in document.items() if name != "cases"}
    yield embedded_json(others).removesuffix("}") + ',"cases":['
    for number, case in enumerate(document["cases"]):
        yield f"{',' if number else ''}{embedded_json(case)}"
    yield "]}"


def embedded_json(document: object) -> str:
    """JSON that can stand in a script element: no name in it can end the element.

    It has no infinity, which the error of an output with a NaN is: null stands for it.
    """
    text = msgspec.json.encode(document).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def report_document(cases: Sequence[Case]) -> dict[str, Any]:
    """What the page shows. The cases are an iterator, since all of them can be large."""
    records = worst_first([record for _, record in cases])
    rows = list(map(_row, records))
    known = {title for row in rows for title in row}
    return {
        "version": __version__,
        "headline": _headline(cases),
        "next": next_step(failed_cases(records) or records),
        "engines": list(engine_names([record.measured for record in records])),
        "categories": [str(category) for category in Category],
        "titles": {title: text for title, text in TITLES.items() if title in known},
        "notes": list(map(as_sentence, notes(records))),
        "insights": [
            {"model": model, "text": cost_text(e), "remedy": remedy_text(e), "share": e.cost.share}
            for model, e in run_findings(records)
        ],
        "cases": map(_case, records, rows),
    }


def _headline(cases: Sequence[Case]) -> dict[str, Any]:
    """What the whole run comes to, and what it was made with."""
    records = [record for _, record in cases]
    versions = {
        name: dict.fromkeys(filter(None, (each.measured.versions.get(name) for each in records)))
        for name in ("executorch", "torch")
    }
    commits = dict.fromkeys(filter(None, (measured_commit(folder) for folder, _ in cases)))
    return {
        "counts": count_cases(records),
        "recorded": max((record.measured.recorded for record in records), default=""),
        "commit": ", ".join(commits),
        "devices": list(dict.fromkeys(map(_device, records))),
        "versions": [[name, ", ".join(known)] for name, known in versions.items() if known],
    }


def _device(record: CaseRecord) -> str:
    """``emulated (max,sme512=on)``, ``linux (Neoverse-V3)``."""
    found = record.measured.fingerprint
    cpu = dict(found.facts).get("cpu") or dict(found.facts).get("soc") or ""
    return f"{found.target} ({cpu})" if cpu else found.target


def _row(record: CaseRecord) -> dict[str, str]:
    """What is known of it."""
    row = cells(record.measured, record.checks)
    return {title: text for title, text in row.items() if text != NOTHING}


def _case(record: CaseRecord, row: Mapping[str, str]) -> dict[str, Any]:
    measured, speedup = record.measured, record.measured.speedup
    outcome = outcome_of(record.checks)
    effect, where = headline(record.checks)
    reason, shares = deciding(record.checks), engine_shares(measured)
    news = reason is not None and outcome is not Outcome.PASS
    return {
        "id": record.id,
        "device": measured.device,
        "emulated": measured.emulated,
        "arm": str(measured.arm),
        "verdict": None if outcome is None else str(outcome),
        "reason": (effect or None) if news else None,
        "where": (where or None) if news else None,
        "row": row,
        "engines": None if shares is None else {"of": shares[0], "shares": shares[1]},
        "evidence": None if measured.evidence is None else measured.evidence.message,
        "valid": measured.evidence is None or measured.evidence.valid,
        "latency": {
            str(arm): _latency(values)
            for arm, values in (measured.medians_ns or {}).items()
            if values
        },
        "speedup": None
        if speedup is None
        else [speedup.value, speedup.low, speedup.high, speedup.confidence, speedup.pairs],
        "frontier": _frontier(measured),
        "sustained": _sustained(measured),
        "figures": [latency_rows(measured), cost_rows(measured)],
        "arms": {str(arm): _arm(measured, arm) for arm in SHOWN if arm in measured.profiles},
        "kernels": _kernels(measured),
        "findings": case_sentences(measured),
        "notes": case_notes(record),
        "checks": [
            {
                **encode(check),
                "change": change_text(check),
                "interval": interval_text(check),
                "limit": limit_text(check),
            }
            for check in record.checks
        ],
        "environment": facts(record),
        "reproduce": reproduce_command(record),
    }


def _latency(medians: Sequence[float]) -> dict[str, Any]:
    """In milliseconds: the centre, its interval where there are enough processes, all of them."""
    bounds = centre_interval(medians)
    low, high = (None, None) if bounds is None else (round(end / 1e6, 6) for end in bounds)
    return {
        "median": round(statistics.median(medians) / 1e6, 6),
        "low": low,
        "high": high,
        "processes": [round(value / 1e6, 6) for value in medians],
    }


def _frontier(measured: CaseResult) -> dict[str, Any] | None:
    found = measured.frontier
    if found is None:
        return None
    return {"rows": frontier_rows(measured, found), "notes": [*frontier_notes(measured, found)]}


def _sustained(measured: CaseResult) -> dict[str, Any] | None:
    """What an inference takes in the course of a load, and what heat did meanwhile."""
    found = measured.sustained
    if found is None:
        return None
    moments = found.moments
    panels: dict[str, list[float | None]] = {
        "milliseconds": [each.mean_ns / 1e6 for each in moments],
        "GHz": [each.clock_ghz for each in moments],
        "GHz at most": [each.cap_ghz for each in moments],
        "\N{DEGREE SIGN}C": [each.celsius for each in moments],
    }
    return {
        "told": load_text(found),
        "minutes": [each.seconds / 60 for each in moments],
        "panels": {name: values for name, values in panels.items() if any(values)},
    }


def _numbers(names: dict[str, int], found: Iterable[str]) -> list[int]:
    """Each name is stored once; elsewhere its number stands for it."""
    return [names.setdefault(name, len(names)) for name in found]


def _arm(measured: CaseResult, arm: Arm) -> dict[str, Any]:
    profile = measured.profiles[arm]
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    operators = profile.operators
    shown: dict[str, Any] = {
        "counts": [profile.category_counts[category] for category in Category],
        "label": _numbers(names, (member.label for member in operators)),
        "category": [[*Category].index(member.operator.category) for member in operators],
        "kind": _numbers(kinds, (member.operator.kind for member in operators)),
        "portable": [int(member.operator.executor is Executor.PORTABLE) for member in operators],
        "sme2": [
            _PROOFS[member.operator.proof] if member.operator.matrix else 0 for member in operators
        ],
        "engine": engines_of(measured, arm),
        "module": _numbers(names, (member.module for member in operators)),
        "shapes": _numbers(names, (str(member.shapes or "") for member in operators)),
        "call": [member.call for member in operators],
    }
    cost = measured.costs.get(arm)
    if cost is not None:
        shown["cost"] = _cost(cost)
    if not measured.emulated:
        shown |= {
            "end_to_end": round(profile.end_to_end.median / 1e6, 6),
            "times": [round(profile.category_ns[category] / 1e6, 6) for category in Category],
            "overhead": round(profile.overhead_ns / 1e6, 6),
            "time": [round(member.time_ns / 1e3, 3) for member in operators],
            "share": [round(member.share, 6) for member in operators],
        }
    return {**shown, "names": list(names), "kinds": list(kinds)}


def _cost(cost: InferenceCost) -> dict[str, Any]:
    """Instructions by category, operator by operator, and outside of operators."""
    found = cost.by_category()
    return {
        "total": cost.total.instructions,
        "runtime": cost.runtime.instructions,
        "categories": [
            found[category].instructions if category in found else 0 for category in Category
        ],
        "instructions": [entry.counts.instructions for entry in cost.operators],
        "kernel": [entry.kernels[0][0] if entry.kernels else "" for entry in cost.operators],
    }


# 0: no matrix operator.
_PROOFS = {True: 1, "sme1": 1, False: 2, "unproven": 3}


def _kernels(measured: CaseResult) -> dict[str, Any] | None:
    """Every kernel that ran on either arm, or what XNNPACK's log has instead."""
    censuses = measured.kernels
    if not censuses:
        return None
    operators = kernel_operators(measured)
    rows: dict[str, dict[str, Any]] = {}
    for arm, census in censuses.items():
        for kernel in census.kernels or census.operators:
            name, family = kernel.name, str(kernel.family)
            row = {"name": name, "family": family, "operator": operators.get(name, "")}
            rows.setdefault(name, row)[str(arm)] = kernel.count
    return {
        "source": next(iter(censuses.values())).source,
        "rows": sorted(rows.values(), key=lambda row: (row["family"] != "sme2", row["name"])),
    }


# As wide as a phone shows it, so that its letters are never smaller than the page's.
_WIDTH, _HEIGHT = 420, 196
_LEFT, _TOP, _BOTTOM = 80, 10, 24
_STRETCHED = 0.04
"""A figure that moves by less fills less than the chart."""


def history_page(series: Sequence[Series]) -> str:
    """What changed most comes first."""
    order = sorted(series, key=lambda each: -max((one.effect for one in each.changes), default=-1))
    return filled(
        "history.html",
        policy=[escape(page_policy())],
        style=[page_part("report.css"), page_part("history.css")],
        cases=map(_section, order),
    )


def _section(series: Series) -> str:
    """Drawn is the latency on hardware, else the first figure with SME2 that there is."""
    track = max(series.tracks, key=lambda track: track.figure.name.endswith("(on)"))
    rows = "".join(
        f'<li><b class="{change.tone}">{escape(change.format())}</b> '
        f"{escape(change.figure.name)}: <code>{escape(change.where())}</code></li>"
        for change in series.changes
    )
    return (
        f"<section><h2>{escape(series.title)}</h2>{_chart(track)}"
        f"<ul>{rows or '<li>Nothing changed.</li>'}</ul></section>\n"
    )


def _chart(track: FigureHistory) -> str:
    """A figure element: the runs, what a noisy figure is without its noise, and every change."""
    values = [point.value for point in track.points]
    least, most = min(values), max(values)
    room = max(0.0, (abs(most) * _STRETCHED or 1) - (most - least)) / 2
    low, high = least - room, most + room

    def path(kind: str, places: Iterable[tuple[float, float]]) -> str:
        x = (_WIDTH - _LEFT - 8) / len(values)
        y = (_HEIGHT - _TOP - _BOTTOM) / (high - low)
        found = ((_LEFT + x * (at + 0.5), _TOP + y * (high - value)) for at, value in places)
        return f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in found)}"/>'

    def text(at: float, height: float, words: str, anchor: str = "end") -> str:
        return f'<text x="{at}" y="{height}" text-anchor="{anchor}">{escape(words)}</text>'

    days = [track.points[end].run.recorded[:10] for end in (0, -1)]
    parts = [
        text(_LEFT - 5, _TOP + 12, track.figure.format(high)),
        text(_LEFT - 5, _HEIGHT - _BOTTOM, track.figure.format(low)),
        text(_LEFT, _HEIGHT - 4, days[0], "start"),
        *[text(_WIDTH - 8, _HEIGHT - 4, days[1])] * (days[0] != days[1]),
    ]
    for change in track.changes:
        first, last = ([(at, low), (at, high)] for at in (change.first, change.last))
        old, new = map(track.figure.format, (change.old, change.new))
        title = escape(f"{change.format()}: {old} → {new}, {change.where()}")
        area = path("", [*first, *last[::-1], first[0]])
        parts.append(f'<g class="change {change.tone}"><title>{title}</title>{area}</g>')
    arm = "off" if track.figure.name.endswith("(off)") else "on"
    parts.append(path(f"line {arm}", enumerate(values)))
    if track.model is not None:
        parts.append(path("level", enumerate(track.model.levels())))
    name = escape(track.figure.name)
    told = f"{name}, {count(len(values), 'run')}, {count(len(track.changes), 'change')}"
    return (
        f"<figure><figcaption>{name}: {escape(track.summary)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{told}">'
        f"{''.join(parts)}</svg></figure>"
    )
