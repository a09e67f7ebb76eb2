"""``sme2 report trace``: a run directory or an ETDump for Perfetto and chrome://tracing."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import UsageError
from pytest_sme2.report.perfetto import Track, trace_document
from pytest_sme2.report.writing import record_tracks
from pytest_sme2.session.analysis import etdumps_in
from pytest_sme2.session.run_directory import find_records, read_record
from pytest_sme2.system.files import write_text
from pytest_sme2.system.wording import count
from pytest_sme2.trace.etdump import read_etdump

EXAMPLE = "sme2 report trace sme2-out --out trace.json"
DEFAULT = Path("trace.json")
ARGUMENTS: Arguments = {
    "path RUN_DIR|FILE.etdump": "a run directory or an ETDump",
    "--out FILE": (f"the trace (default: {DEFAULT})", DEFAULT),
}


def run(arguments: argparse.Namespace) -> int:
    tracks = read_tracks(arguments.path)
    document = trace_document(tracks)
    write_text(arguments.out, json.dumps(document, separators=(",", ":")))
    names, events = [track.name for track in tracks], len(document["traceEvents"])
    held = f"{count(events, 'event')} in {count(len(names), 'track')}"
    line = f"{arguments.out}: {held}. Open it in Perfetto or chrome://tracing."
    made = {"file": str(arguments.out), "events": events, "tracks": names}
    return show(arguments, made, [line])


def read_tracks(path: Path) -> list[Track]:
    """A track for each ETDump of ``path``; where there are records, they name it."""
    if path.is_file():
        return [Track(path.stem, read_etdump(path))]
    if not path.is_dir():
        raise UsageError(f"{str(path)!r} does not exist. Give an ETDump or a run directory.")
    folders = list(find_records(path))
    if folders:
        return [track for folder in folders for track in record_tracks(folder, read_record(folder))]
    return [
        Track(dump.relative_to(path).with_suffix("").as_posix(), read_etdump(dump))
        for dump in etdumps_in(path)
    ]
