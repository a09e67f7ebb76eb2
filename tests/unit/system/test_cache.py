"""Whose files in a cache may be executed; what is removed from it, and what stays."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from pytest_sme2.errors import StorageError, UsageError
from pytest_sme2.system.cache import (
    DEFAULT_LIMIT,
    IN_USE_SECONDS,
    KINDS,
    TAG,
    apply_limit,
    cache_folder,
    contents_sha256,
    discard,
    entries,
    is_believed,
    is_ours,
    limit_from,
    mark_cache,
    parse_size,
    put_in_place,
    trusted,
    working_folder,
)
from pytest_sme2.system.locks import locked
from tests.support import Command


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    file = tmp_path / "cache" / "runners" / "x" / "sme2_runner"
    file.parent.mkdir(parents=True)
    file.touch()
    for path in (file, *file.parents[:3]):
        path.chmod(0o755)
    return file


def test_cache_of_this_user_is_accepted(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planted.parents[2]
    monkeypatch.setenv("SME2_CACHE_DIR", str(folder))
    own = cache_folder()
    assert own == folder / "pytest-sme2"
    tag = (own / "CACHEDIR.TAG").read_text()
    assert tag.startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert is_ours(own)
    assert own.stat().st_mode == folder.stat().st_mode
    assert {path.name for path in folder.iterdir()} == {"runners", own.name}
    # A cache of ours is used itself.
    monkeypatch.setenv("SME2_CACHE_DIR", str(own))
    assert cache_folder() == own
    assert trusted(planted, folder) == planted
    assert trusted(folder / "not yet", folder) == folder / "not yet"


def test_a_cache_that_everybody_can_write_to_is_refused(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = planted.parents[2]
    folder.chmod(0o1777)
    monkeypatch.setenv("SME2_CACHE_DIR", str(folder))
    with pytest.raises(StorageError, match=r"every user.*can write.*chmod o-w.*SME2_CACHE_DIR"):
        cache_folder()


@pytest.mark.parametrize("depth", [0, 1])
def test_a_place_inside_that_everybody_can_write_to_is_refused(planted: Path, depth: int) -> None:
    (planted, *planted.parents)[depth].chmod(0o777)
    with pytest.raises(StorageError, match="every user"):
        trusted(planted, planted.parents[2])


def test_file_of_another_user_is_refused(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planted.parents[2]
    owner = planted.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 12345)
    if owner == 0:
        # Files of root are trusted by everybody, so they are given away first.
        for path in (planted, *planted.parents[:3]):
            os.chown(path, 4242, 4242)
    with pytest.raises(StorageError, match="it belongs to"):
        trusted(planted, folder)


def modes(cache: Path) -> set[int]:
    """Who else may write to something; a lock file holds nothing that is believed."""
    found = (path for path in (cache, *cache.rglob("*")) if path.suffix != ".lock")
    return {path.stat().st_mode & 0o022 for path in found}


def test_whatever_the_umask_is_nobody_else_may_write_into_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "not there yet" / "chosen"))
    before = os.umask(0)
    try:
        entry = cache_folder() / "runners" / "new" / "x-0123456789ab"
        with locked(Path(f"{entry}.lock"), "testing"), working_folder(entry) as made:
            assert made.stat().st_mode & 0o777 == 0o700
            (made / "libraries").mkdir()
            for name in ("program", "libraries/libc.so"):
                (made / name).touch()
                (made / name).chmod(0o777)
            put_in_place(made, entry)
        assert modes(tmp_path / "not there yet") == {0}
        assert (entry / "program").stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(before)


def test_everything_in_an_entry_has_to_be_ours(planted: Path) -> None:
    entry = planted.parent
    inner = entry / "inner" / "library.so"
    inner.parent.mkdir()
    inner.touch()
    assert is_believed(entry)
    for step in (inner, inner.parent, entry):
        mode = step.stat().st_mode
        step.chmod(0o777)
        assert not is_believed(entry)
        step.chmod(mode)
    assert is_believed(entry)
    assert not is_believed(entry / "missing")


def test_a_cache_of_the_checkout_is_not_believed_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull request could bring it with it."""
    (tmp_path / "checkout" / ".git").mkdir(parents=True)
    committed = tmp_path / "checkout" / "a" / ".sme2-cache"
    mark_cache(committed)
    monkeypatch.setenv("SME2_CACHE_DIR", str(committed))
    monkeypatch.delenv("CI", raising=False)
    assert cache_folder() == committed
    monkeypatch.setenv("CI", "true")
    with pytest.raises(StorageError, match=r"is in the repository .*checkout: .*SME2_CACHE_DIR"):
        cache_folder()
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "outside"))
    assert cache_folder().is_dir()


def test_what_folders_contain_has_one_hash_wherever_they_are(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "__pycache__").mkdir(parents=True)
    (one / "__pycache__" / "a.pyc").touch()
    library = one / "a.so"
    library.write_bytes(b"first")
    first, times = contents_sha256(one), library.stat()
    # Built again in place, with the same size and time.
    library.write_bytes(b"other")
    os.utime(library, ns=(times.st_atime_ns, times.st_mtime_ns))
    other = contents_sha256(one)
    assert other != first
    shutil.copytree(one, two, ignore=shutil.ignore_patterns("__pycache__"))
    assert contents_sha256(two) == other
    (two / "b").touch()
    assert len({first, other, contents_sha256(two), contents_sha256(one, two)}) == 4


DAY = 86400


def put(cache: Path, name: str, size: int, days: float) -> Path:
    folder = cache / name
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(bytes(size))
    used = time.time() - days * DAY
    os.utime(folder, (used, used))
    return folder


OLD, NEW = (f"exports/{name}-{'0' * 24}-{'1' * 8}" for name in ("old", "new"))
MIDDLE, BUSY = f"emulated/{'a' * 32}", f"runners/busy-{'b' * 12}"
HALF = f"exports/.half.{'c' * 8}.part"
ALL = {OLD, NEW, MIDDLE, "tools/qemu", HALF}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "shared"))
    monkeypatch.delenv("SME2_CACHE_LIMIT", raising=False)
    folder = cache_folder()
    put(folder, OLD, 3000, 40)
    put(folder, NEW, 2000, 0)
    put(folder, MIDDLE, 4000, 10)
    put(folder, "tools/qemu", 5000, 90)
    put(folder, HALF, 100, 2)
    # None of these is an entry.
    (folder / "exports" / "locks").mkdir()
    (folder / "exports" / "x.lock").touch()
    (folder / "exports" / "link").symlink_to(tmp_path)
    put(folder, "names/mine", 10, 400)
    return folder


def names(cache: Path) -> set[str]:
    return {f"{entry.kind}/{entry.path.name}" for entry in entries(cache)}


def test_below_the_limit_nothing_is_removed_and_it_is_looked_at_once_an_hour(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert apply_limit() == []
    monkeypatch.setenv("SME2_CACHE_LIMIT", "9 KB")
    assert apply_limit() == []
    os.utime(cache / "cleaned", (0, 0))
    assert [entry.path for entry in apply_limit()] == [cache / OLD]


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        ("10 KB", {NEW, BUSY, MIDDLE, "tools/qemu", HALF}),
        # What is in use stays, and so does what was fetched by hand.
        ("1 B", {NEW, BUSY, "tools/qemu"}),
        ("none", {*ALL, BUSY}),
    ],
)
def test_above_the_limit_the_least_recently_used_is_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch, limit: str, left: set[str]
) -> None:
    put(cache, BUSY, 3000, (IN_USE_SECONDS - 60) / DAY)
    monkeypatch.setenv("SME2_CACHE_LIMIT", limit)
    apply_limit()
    assert names(cache) == left


def test_sizes() -> None:
    for text, size in (("2 GB", 2 * 10**9), ("500mb", 5 * 10**8), ("1.5 KB", 1500), ("7", 7)):
        assert parse_size(text) == limit_from(text) == size
    for text in ("much", "-1 GB", "1 PB", "9" * 99):
        with pytest.raises(UsageError, match="is not a size"):
            parse_size(text)
    assert limit_from(None) == limit_from(" ") == DEFAULT_LIMIT


def test_the_command_shows_and_removes(cache: Path, sme2: Command) -> None:
    shown = sme2("clean").out
    assert "exports" in shown
    assert "oldest unused for 40 d" in shown
    assert names(cache) == ALL
    assert "1 removed" in sme2("clean", "--keep", "10 KB").out
    assert names(cache) == ALL - {"tools/qemu"}
    document = json.loads(sme2("clean", "--keep", "3 KB", "--json").out)
    assert {row["kind"] for row in document["entries"] if row["removed"]} == {"exports", "emulated"}
    assert names(cache) == {NEW, HALF}
    told = sme2("clean", "--keep", "0", "--device", "android", code=2).err
    assert "is about the cache" in told


def test_what_others_keep_beside_it_is_never_touched(
    cache: Path, monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    others = [put(cache.parent, f"{kind}/mine", 10, 400) for kind in KINDS]
    monkeypatch.setenv("SME2_CACHE_LIMIT", "0")
    assert {entry.path for entry in apply_limit()} == {cache / OLD, cache / MIDDLE, cache / HALF}
    sme2("clean", "--keep", "0")
    assert names(cache) == set()
    assert all((folder / "file").is_file() for folder in (*others, cache / "names/mine"))


@pytest.mark.parametrize("tag", [None, "Signature: 8a477f597d28d172789f06886806bc55\n", "link"])
def test_nothing_is_deleted_without_our_tag(
    cache: Path, monkeypatch: pytest.MonkeyPatch, sme2: Command, tag: str | None
) -> None:
    (cache / TAG).rename(cache.parent / "copy")
    if tag == "link":
        (cache / TAG).symlink_to(cache.parent / "copy")
    elif tag is not None:
        (cache / TAG).write_text(tag)
    monkeypatch.setenv("SME2_CACHE_LIMIT", "0")
    assert apply_limit(cache) == []
    with pytest.raises(StorageError, match=f"{TAG}.* may not be ours. Move it away"):
        discard(cache / OLD)
    made = put(cache, "tools/made", 1, 0)
    with pytest.raises(StorageError, match="is not deleted"):
        put_in_place(made, cache / "tools" / "qemu")
    with working_folder(cache / "exports" / "half"):
        pass
    assert names(cache) == {*ALL, "tools/made"}
    assert f"no {TAG} of ours" in sme2("clean").out
    assert "nothing in it is deleted" in sme2("clean", "--keep", "0", code=3).err
    assert names(cache) == {*ALL, "tools/made"}
