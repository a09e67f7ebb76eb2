"""Whose files in a cache may be executed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_sme2.errors import StorageError
from pytest_sme2.system.cache import cache_folder, is_ours, trusted


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
    assert (
        (own / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    )
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


def test_members_of_a_group_share_a_cache(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planted.parents[2]
    group = planted.stat().st_gid
    monkeypatch.setattr(os, "geteuid", lambda: planted.stat().st_uid + 12345)
    monkeypatch.setattr(os, "getgroups", lambda: [group])
    folder.chmod(0o2775)
    assert trusted(planted, folder) == planted
    if os.getuid() == 0:
        os.chown(planted, 4242, 4242)
        with pytest.raises(StorageError, match="it belongs to"):
            trusted(planted, folder)
