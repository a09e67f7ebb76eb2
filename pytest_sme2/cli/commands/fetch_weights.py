"""``sme2 export fetch-weights``: a model's trained weights: their source, and a file, checked."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pytest_sme2.cli.commands.models import registry_of
from pytest_sme2.cli.options import FOLDERS, MODEL, Arguments, show
from pytest_sme2.export.weights import Upstream, fetch_weights, upstream_of
from pytest_sme2.report.text import printable
from pytest_sme2.system.terminal import say

EXAMPLE = "sme2 export fetch-weights mobilenet_v3_small --from mobilenet_v3_small-047dcff4.pth"
ARGUMENTS: Arguments = {
    **MODEL,
    **FOLDERS,
    "--sha256 HASH": ("the file's whole SHA-256, where the model's folder does not name it", ""),
    "--from ADDRESS": "the file to check and keep, or its URL (default: download nothing)",
}


def run(arguments: argparse.Namespace) -> int:
    entry = registry_of(arguments).get(arguments.model)
    upstream = upstream_of(entry)
    kept, digest = None, None
    if arguments.from_ is not None:
        kept, digest = fetch_weights(entry, arguments.from_, sha256=arguments.sha256, say=say)
    document = {
        "model": entry.name,
        "upstream": None if upstream is None else asdict(upstream),
        "kept": None if kept is None else str(kept),
        "sha256": digest,
    }
    return show(arguments, document, _lines(entry.name, upstream, kept, digest))


def _lines(
    name: str, upstream: Upstream | None, kept: Path | None, digest: str | None
) -> Iterator[str]:
    if upstream is None:
        yield f"Nothing is known of trained weights for {printable(name)}: they are random."
        yield "A state dict of your own goes to --sme2-weights FILE; see docs/models.md."
        return
    yield f"file     {printable(upstream.file)}"
    yield f"source   {printable(upstream.source)}"
    yield f"licence  {printable(upstream.licence)}"
    yield f"sha256   {printable(upstream.sha256) or 'not published'}"
    if upstream.note:
        yield f"note     {printable(upstream.note)}"
    model = shlex.quote(name)
    if kept is None:
        yield "Nothing was fetched. Name the file, or its address, to have it checked:"
        yield f"  sme2 export fetch-weights {model} --from {shlex.quote(upstream.url or 'FILE')}"
        return
    file = shlex.quote(str(kept))
    checked = "as published" if upstream.sha256 == digest else "as given"
    yield f"kept     {kept} (sha256 {digest}, {checked})"
    yield "Use it with:"
    yield f"  sme2 export {model} --weights {file}"
    yield f"  pytest --sme2-models {model} --sme2-weights {file}"
