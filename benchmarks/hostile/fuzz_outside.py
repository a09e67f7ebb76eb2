"""More damaged files: those that come from other tools, other people, and devices."""

from __future__ import annotations

import functools
import json
import zipfile
from pathlib import Path
from random import Random

from benchmarks.hostile.damage import damaged_bytes, damaged_json
from benchmarks.hostile.fuzz import read_within_bounds
from benchmarks.hostile.trials import Subject, expect
from pytest_sme2.trace.etrecord import read_attribution

DATA = Path(__file__).parents[2] / "tests" / "data"
CODE = "__import__('pathlib').Path('/tmp/hostile-code-was-run').touch()"


@functools.cache
def _etrecord() -> dict[str, bytes]:
    with zipfile.ZipFile(DATA / "etrecords" / "toy.etrecord") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def etrecord(chance: Random, folder: Path) -> None:
    """The archive damaged as bytes, in one of its documents, or with code where text should be."""
    mark = Path("/tmp/hostile-code-was-run")
    path = folder / "toy.etrecord"
    entries = dict(_etrecord())
    name = chance.choice([name for name in entries if entries[name].startswith(b"{")])
    if chance.random() < 0.2:
        document = json.loads(entries[name])
        entries[name] = json.dumps(document).replace('"debug_handle": "', f'"x": "{CODE}').encode()
    else:
        entries[name] = damaged_json(chance, entries[name].decode())
    with zipfile.ZipFile(path, "w", chance.choice((0, zipfile.ZIP_DEFLATED))) as archive:
        for member, content in entries.items():
            archive.writestr(member, content)
    if chance.random() < 0.3:
        path.write_bytes(damaged_bytes(chance, path.read_bytes()))
    read_within_bounds(lambda: read_attribution(path), path.name)
    expect(not mark.exists(), "code from the file was run")


SUBJECTS = (Subject("fuzz-etrecord", "damaged and malicious ETRecords", 1000, 40, etrecord),)
