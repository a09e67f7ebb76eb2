"""What is removed from the cache, and what stays."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import UsageError
from pytest_sme2.system.cache_limit import (
    DEFAULT_LIMIT,
    IN_USE_SECONDS,
    apply_limit,
    entries,
    limit_from,
    mark_used,
    parse_age,
    parse_size,
)

DAY = 86400


def put(cache: Path, name: str, size: int, days: float) -> Path:
    folder = cache / name
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(bytes(size))
    used = time.time() - days * DAY
    os.utime(folder, (used, used))
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    put(folder, "exports/old", 3000, 40)
    put(folder, "exports/new", 2000, 0)
    put(folder, "emulated/middle", 4000, 10)
    put(folder, "tools/qemu", 5000, 90)
    put(folder, "exports/.half.part", 100, 2)
    (folder / "exports" / "locks").mkdir()
    (folder / "exports" / "x.lock").touch()
    monkeypatch.setenv("SME2_CACHE_DIR", str(folder))
    monkeypatch.delenv("SME2_CACHE_LIMIT", raising=False)
    return folder


def names(cache: Path) -> set[str]:
    return {f"{entry.kind}/{entry.path.name}" for entry in entries(cache)}


ALL = {"exports/old", "exports/new", "emulated/middle", "tools/qemu", "exports/.half.part"}


def test_entries_are_sorted_by_use(cache: Path) -> None:
    assert [entry.path.name for entry in entries(cache)] == [
        "qemu", "old", "middle", ".half.part", "new",
    ]  # fmt: skip
    mark_used(cache / "exports" / "old")
    assert entries(cache)[-1].path.name == "old"
    mark_used(cache / "missing")


def test_below_the_limit_only_half_made_entries_are_removed(cache: Path) -> None:
    assert [entry.path.name for entry in apply_limit()] == [".half.part"]
    assert names(cache) == ALL - {"exports/.half.part"}


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        ("12 KB", {"exports/new", "emulated/middle", "tools/qemu"}),
        # What is in use stays, and so does what was fetched by hand.
        ("1 B", {"exports/new", "tools/qemu"}),
        ("none", ALL),
    ],
)
def test_above_the_limit_the_least_recently_used_is_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch, limit: str, left: set[str]
) -> None:
    if limit == "12 KB":
        put(cache, "weights/net", 3000, 0)
        left = left | {"weights/net"}
        limit = "14 KB"
        mark_used(cache / "tools" / "qemu")
    monkeypatch.setenv("SME2_CACHE_LIMIT", limit)
    apply_limit()
    assert names(cache) == left


def test_entries_in_use_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_CACHE_LIMIT", "0")
    put(cache, "runners/busy", 10, (IN_USE_SECONDS - 60) / DAY)
    apply_limit()
    assert "runners/busy" in names(cache)


def test_a_cache_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    assert apply_limit(tmp_path / "none") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "size"), [("2 GB", 2 * 10**9), ("500mb", 5 * 10**8), ("1.5 KB", 1500), ("7", 7)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == limit_from(text) == size


def test_wrong_sizes_and_ages() -> None:
    for text in ("much", "-1 GB", "1 PB", "9" * 99):
        with pytest.raises(UsageError, match="is not a size"):
            parse_size(text)
    with pytest.raises(UsageError, match="is not an age"):
        parse_age("a month")
    assert parse_age("2d") == 2 * DAY
    assert parse_age("12h") == DAY / 2
    assert limit_from(None) == limit_from(" ") == DEFAULT_LIMIT


def test_the_command_shows_and_removes(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean"]) == 0
    shown = capsys.readouterr().out
    assert "exports" in shown
    assert "oldest unused for 40 d, 1 left half made" in shown
    assert names(cache) == ALL
    assert main(["clean", "--kind", "exports", "--older-than", "30d"]) == 0
    assert "1 removed" in capsys.readouterr().out
    assert names(cache) == ALL - {"exports/old"}
    assert main(["clean", "--keep", "3 KB", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["kind"] for row in document["entries"] if row["removed"]} == {"tools", "emulated"}
    assert names(cache) == {"exports/new", "exports/.half.part"}
    assert main(["clean", "--older-than", "30d", "--device", "android"]) == 2
    assert "are about the cache" in capsys.readouterr().err


def test_it_looks_once_an_hour(cache: Path) -> None:
    apply_limit()
    half = cache / "exports" / ".half.part"
    half.mkdir(parents=True, exist_ok=True)
    os.utime(half, (0, 0))
    assert apply_limit() == []
    os.utime(cache / "cleaned", (0, 0))
    assert [entry.path.name for entry in apply_limit()] == [".half.part"]
