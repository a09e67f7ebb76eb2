"""``sme2 clean``: shows and removes what is in the cache; on a phone, removes what runs left there,
and puts back what one changed that was broken off.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from typing import Any

from pytest_sme2.cli.options import Arguments, chosen, shared, show
from pytest_sme2.errors import Sme2Warning, StorageError, UsageError
from pytest_sme2.system import cache
from pytest_sme2.system.wording import one_of
from pytest_sme2.targets.phone.adb import AdbServer, choose_serials, open_server
from pytest_sme2.targets.phone.target import lease_phone

EXAMPLE = "sme2 clean --keep 2GB"
ARGUMENTS: Arguments = {
    "--keep SIZE": "remove the least recently used until this is left: 2GB; 0 is all",
    **shared("device", "serial", "phone", device="the cache; android is a phone"),
}


def run(arguments: argparse.Namespace) -> int:
    given = chosen(arguments)
    if not given:
        return _clean_cache(arguments)
    if arguments.keep is not None:
        raise UsageError("--keep is about the cache. Do not name a device with it.")
    one_of(given.get("device", "android"), ("android",), "a device that can be cleaned")
    server = open_server(given.get("adb_server"))
    serials = choose_serials(server, given.get("serials", ()))
    done = [_clean(server, serial) for serial in serials]
    lines = []
    for entry in done:
        settings = ", its settings are put back" if entry["restored"] else ""
        refused = "".join(f"; it {said}" for said in entry["refused"])
        lines.append(f"{entry['serial']}: cleaned{settings}{refused}")
    return show(arguments, done, lines)


def _clean(server: AdbServer, serial: str) -> dict[str, Any]:
    # Not under somebody who is measuring on it.
    target = lease_phone(server, [serial], timeout=1)
    try:
        with warnings.catch_warnings():
            # Printed below.
            warnings.simplefilter("ignore", Sme2Warning)
            restored = target.power.restore()
        target.storage.clean()
    finally:
        target.release()
    return {"serial": serial, "restored": restored, "refused": target.events}


def _clean_cache(arguments: argparse.Namespace) -> int:
    folder, now = cache.find_cache(), time.time()
    found, ours = cache.entries(folder), cache.is_ours(folder)
    removed = []
    if arguments.keep is not None:
        removed = cache.to_remove(found, cache.parse_size(arguments.keep))
    if removed and not ours:
        raise StorageError(
            f"{folder} has no {cache.TAG} of this version, so nothing in it is deleted. It may be "
            "of an earlier version. Look at it, and delete it yourself."
        )
    for entry in removed:
        cache.discard(entry.path)
    rows = [
        {
            "kind": entry.kind,
            "path": str(entry.path),
            "bytes": entry.bytes,
            "unused_seconds": round(now - entry.used),
            "removed": entry in removed,
        }
        for entry in found
    ]
    if arguments.keep is None:
        kinds = ([entry for entry in found if entry.kind == kind] for kind in cache.KINDS)
        lines = [str(folder), *(_summary(of_kind, now) for of_kind in kinds if of_kind)]
        how = "Remove what was not used for longest: --keep 2GB"
        lines.append(how if ours else f"It has no {cache.TAG} of ours, so nothing is deleted.")
    else:
        lines = [f"removed  {_size([entry]):>9}  {entry.path}" for entry in removed]
        left = _size([entry for entry in found if entry not in removed])
        lines.append(f"{len(removed)} removed, {_size(removed)}; {left} left.")
    return show(arguments, {"cache": str(folder), "entries": rows}, lines)


def _summary(found: list[cache.CacheEntry], now: float) -> str:
    oldest = (now - found[0].used) / 86400
    number = f"{len(found):>5} {_size(found):>9}"
    return f"  {found[0].kind:14} {number}  oldest unused for {oldest:.0f} d"


def _size(found: Sequence[cache.CacheEntry]) -> str:
    count = sum(entry.bytes for entry in found)
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
