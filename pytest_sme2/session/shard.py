"""What one pytest run did with the tests that it found. The runs of many machines merge by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import UsageError
from pytest_sme2.system.files import decode, encode, write_json
from pytest_sme2.system.reading import read_json
from pytest_sme2.verdict.contract import Asked

TESTS = "tests.json"
SCHEMA = 2
_REMEDY = "Run this shard again."


@dataclass(frozen=True)
class RanTest:
    """One test that ran here."""

    outcome: str
    """``passed``, ``failed``, ``error`` or ``skipped``."""
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class Shard:
    """One run of pytest, alone or as a part of a larger one."""

    schema: int
    exit_code: int
    tests: Mapping[str, RanTest] = field(default_factory=dict)
    """By node id."""
    found: tuple[str, ...] = ()
    """All tests, also those that were left to other machines; empty where that is not known."""
    number: int | None = None
    """From 1; None where no plugin that shards is in use."""
    of: int | None = None
    asked: Asked | None = None
    """None of a run that compares nothing, such as an update of baselines."""
    cases: tuple[str, ...] = ()
    """The folders of its cases, inside of the run directory."""
    problems: tuple[str, ...] = ()
    """What else made it red, besides its tests and its checks."""


def write_shard(out: Path, shard: Shard) -> None:
    write_json(out / TESTS, encode(shard))


def read_shard(folder: Path) -> Shard:
    path = folder / TESTS
    if not path.is_file():
        raise UsageError(
            f"{str(folder)!r} is not the run directory of a pytest run: it has no {TESTS}. Give "
            "the folder that --sme2-out named."
        )
    shard: Shard = decode(read_json(path, remedy=_REMEDY, finite=True), Shard, path, remedy=_REMEDY)
    if shard.schema != SCHEMA:
        raise UsageError(
            f"{path} is of schema {shard.schema}, this version reads {SCHEMA}. {_REMEDY}"
        )
    return shard
