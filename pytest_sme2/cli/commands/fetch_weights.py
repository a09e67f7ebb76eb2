"""``sme2 export fetch-weights``: a model's trained weights: their source, and a file, checked."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict

from pytest_sme2.cli.commands.models import registry_of
from pytest_sme2.cli.options import FOLDERS, MODEL, Arguments
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.export.weights import Upstream, fetch_weights, upstream_of
from pytest_sme2.report.text import printable
from pytest_sme2.system.terminal import say

EXAMPLE = "sme2 export fetch-weights mobilenet_v3_small --from mobilenet_v3_small-047dcff4.pth"
ARGUMENTS: Arguments = {
    **MODEL,
    **FOLDERS,
    "--sha256 HASH": ("the file's whole SHA-256, where the model's folder does not name it", ""),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="place",
        metavar="FILE|URL",
        help="the file to check and keep (default: download nothing)",
    )


def run(arguments: argparse.Namespace) -> int:
    entry = registry_of(arguments).get(arguments.model)
    upstream = upstream_of(entry)
    kept, digest = None, None
    if arguments.place is not None:
        kept, digest = fetch_weights(
            entry,
            arguments.place,
            sha256=arguments.sha256,
            say=say,
        )
    if arguments.json:
        document = {
            "model": entry.name,
            "upstream": None if upstream is None else asdict(upstream),
            "kept": None if kept is None else str(kept),
            "sha256": digest,
        }
        print(json.dumps(document, indent=2))
        return 0
    if upstream is None:
        print(f"Nothing is known of trained weights for {printable(entry.name)}: they are random.")
        print("A state dict of your own goes to --sme2-weights FILE; see docs/models.md.")
        return 0
    print("\n".join(_description(upstream)))
    if kept is None:
        print(f"Nothing was fetched. Name the file, or its address, to have it checked:\n"
              f"  sme2 export fetch-weights {shlex.quote(entry.name)} --from "
              f"{shlex.quote(upstream.url or 'FILE')}")  # fmt: skip
    else:
        print("\n".join(_use(entry, upstream, str(kept), str(digest))))
    return 0


def _description(upstream: Upstream) -> Iterator[str]:
    yield f"file     {printable(upstream.file)}"
    yield f"source   {printable(upstream.source)}"
    yield f"licence  {printable(upstream.licence)}"
    yield f"sha256   {printable(upstream.sha256) or 'not published'}"
    if upstream.note:
        yield f"note     {printable(upstream.note)}"


def _use(entry: ModelEntry, upstream: Upstream, kept: str, digest: str) -> Iterator[str]:
    checked = "as published" if upstream.sha256 == digest else "as given"
    yield f"kept     {kept} (sha256 {digest}, {checked})"
    yield "Use it with:"
    yield f"  sme2 export {shlex.quote(entry.name)} --weights {shlex.quote(kept)}"
    yield f"  pytest --sme2-models {shlex.quote(entry.name)} --sme2-weights {shlex.quote(kept)}"
