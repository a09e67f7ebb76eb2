"""The HTML report: one file that holds its data, its style, its script and its charting library.

It asks the network for nothing, and its content security policy lets it ask for nothing: only the
two scripts that are in the file run, known by their hashes. All names stand in the data and are put
on the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.profile.categories import Rule
from pytest_sme2.report.html_data import report_document
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.files import write_text

_PAGE = "report.html"
_STYLE = "report.css"
_SCRIPT = "report.js"
_CHARTS = "plotly-basic.min.js"


def write_html(
    path: Path,
    records: Sequence[tuple[Path, CaseRecord]],
    rules: Sequence[Rule] = (),
) -> None:
    """Write the report of these cases, each with its folder, over ``path``."""
    write_text(path, page(report_document(records, rules=rules)))


def page(document: Mapping[str, Any]) -> str:
    """The whole page."""
    charts, script = page_part(_CHARTS), page_part(_SCRIPT)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {script_hash(charts)} {script_hash(script)}",
            # The charting library styles what it draws.
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts: dict[str, Iterable[str]] = {
        "{{policy}}": [html.escape(policy, quote=False).replace('"', "&quot;")],
        "{{style}}": [page_part(_STYLE)],
        "{{data}}": _data(document),
        "{{charts}}": [charts],
        "{{script}}": [script],
    }
    # Piece by piece: what was filled in is never searched for another mark.
    text = page_part(_PAGE)
    filled = []
    for mark, pieces in parts.items():
        before, found, text = text.partition(mark)
        if not found:
            raise AssertionError(f"the page has no {mark}, or not in this order")
        filled += [before, *pieces]
    return "".join([*filled, text])


def page_part(name: str) -> str:
    folder = importlib.resources.files("pytest_sme2.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


def script_hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _data(document: Mapping[str, Any]) -> Iterator[str]:
    """The document as JSON, in pieces. A large run's cases fill the memory, so each is one."""
    before = "{"
    for name, value in document.items():
        yield f"{before}{embedded_json(name)}:"
        before = ","
        if isinstance(value, Iterator):
            yield "["
            for number, entry in enumerate(value):
                yield "," if number else ""
                yield embedded_json(entry)
            yield "]"
        else:
            yield embedded_json(value)
    yield "}"


def embedded_json(document: object) -> str:
    """JSON that can stand in a script element: no name in it can end the element."""
    text = json.dumps(_finite(document), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """JSON has no infinity, which the error of an output with a NaN is: nothing stands for it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list) else value
