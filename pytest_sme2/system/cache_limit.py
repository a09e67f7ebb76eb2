"""What is in the cache, and removing it: by kind, by age, or until the rest is small enough."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BusyError, StorageError, UsageError
from pytest_sme2.system.cache import LEFT_OVER, discard, find_cache, is_ours
from pytest_sme2.system.locks import locked

LIMIT_VARIABLE = "SME2_CACHE_LIMIT"
DEFAULT_LIMIT = 10 * 10**9
# Each kind is a folder of the cache, with the names that we give. What has another is not ours.
KINDS = {
    "exports": r".+-[0-9a-f]{24}-[0-9a-f]{8}",
    "runners": r".+-[0-9a-f]{12}",
    "emulated": r"[0-9a-f]{32}",
    "bundles": r"[0-9a-f]{32}",
    "sdk": r"executorch-.+",
    "packages": r".+-cp\d+-.+",
    "source-builds": r"[0-9a-f]{12}",
    "tools": r"qemu|llvm|vm-.+|(guest|block_counter)-[0-9a-f]+",
    "weights": r"[^.].*",
    "fake-phone": r"programs-.+",
}
# Fetched from elsewhere, perhaps by hand: only removed when somebody asks for it.
_KEPT = ("tools", "weights", "fake-phone")
# A run that began earlier than this ago may still use what it found then.
IN_USE_SECONDS = 6 * 3600.0
# Looking at every file takes a second in a large cache, and every run ends with it.
LOOK_SECONDS = 3600.0
_LOOKED = "cleaned"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class CacheEntry:
    """One thing in the cache."""

    kind: str
    path: Path
    bytes: int
    used: float
    """When it was last used, in seconds since the epoch."""

    @property
    def left_over(self) -> bool:
        """Whether it is what a killed process left half made."""
        return self.path.name.startswith(".")


def mark_used(folder: Path) -> None:
    """Remember that an entry was used just now; a read-only cache cannot, and that is all right."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def entries(cache: Path, kinds: Iterable[str] = KINDS) -> list[CacheEntry]:
    """What the cache holds, the least recently used first."""
    found = []
    for kind in kinds:
        with contextlib.suppress(OSError):
            for path in (cache / kind).iterdir():
                known = re.fullmatch(f"{KINDS[kind]}|{LEFT_OVER}", path.name)
                if known and path.is_dir() and not path.is_symlink():
                    found.append(CacheEntry(kind, path, _bytes(path), path.stat().st_mtime))
    return sorted(found, key=lambda entry: (entry.used, entry.path))


def _bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).lstat().st_size
    return total


def chosen(
    found: Iterable[CacheEntry],
    *,
    now: float,
    older_than: float | None = None,
    keep: int | None = None,
) -> list[CacheEntry]:
    """The entries to remove: those not used for so long, then the oldest until the rest fits."""
    found = list(found)
    removed = [
        entry for entry in found if older_than is not None and now - entry.used >= older_than
    ]
    if keep is not None:
        left = [entry for entry in found if entry not in removed]
        total = sum(entry.bytes for entry in left)
        for entry in left:
            if total <= keep:
                break
            removed.append(entry)
            total -= entry.bytes
    return removed


def remove(removed: Iterable[CacheEntry], why: str) -> None:
    for entry in removed:
        discard(entry.path, "left by a killed process" if entry.left_over else why)


def apply_limit(cache: Path | None = None) -> list[CacheEntry]:
    """Remove what killed processes left and, above the limit, what was not used for longest.

    What may be in use stays, so the limit is one for what is kept from run to run. Once an hour is
    enough. A folder without our mark is left alone.
    """
    limit = limit_from(os.environ.get(LIMIT_VARIABLE))
    root = cache or find_cache()
    if limit is None or not is_ours(root):
        return []
    now = time.time()
    looked = root / _LOOKED
    with contextlib.suppress(OSError):
        if 0 <= now - looked.stat().st_mtime < LOOK_SECONDS:
            return []
    try:
        with locked(root / "cleaning.lock", "cleaning the cache", timeout_seconds=0):
            looked.touch()
            found = entries(root)
            idle = [entry for entry in found if now - entry.used >= IN_USE_SECONDS]
            removed = [entry for entry in idle if entry.left_over]
            rest = [entry for entry in found if entry not in removed]
            over = chosen(rest, now=now, keep=limit)
            removed += [entry for entry in over if entry in idle and entry.kind not in _KEPT]
            remove(removed, "the cache is above its limit")
    except (BusyError, StorageError, OSError):
        # Another process is at it, or the cache is read-only.
        return []
    return removed


def limit_from(text: str | None) -> int | None:
    """Bytes; None where there is no limit."""
    if text is None or not text.strip():
        return DEFAULT_LIMIT
    if text.strip().lower() == "none":
        return None
    return parse_size(text)


def parse_size(text: str) -> int:
    """``2 GB`` in bytes."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*([KMGT]?B?)\s*", text.upper())
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"{text!r} is not a size. Write it as 500 MB or 2 GB.")
    return int(float(match[1]) * _UNITS[match[2]])


def parse_age(text: str) -> float:
    """``30d`` or ``12h`` in seconds."""
    match = re.fullmatch(r"\s*(\d{1,6})\s*([dh])\s*", text.lower())
    if match is None:
        raise UsageError(f"{text!r} is not an age. Write it as 30d or 12h.")
    return int(match[1]) * (86400.0 if match[2] == "d" else 3600.0)
