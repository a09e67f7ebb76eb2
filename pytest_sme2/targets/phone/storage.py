"""Our folder on a phone: files by content, pushed once, checked, and cleaned up.

A file in ``files/<hash>`` is complete: it is pushed to another name, checked by the phone's own
sha256sum, and renamed. Nothing outside ``ROOT`` is ever written or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.system.files import file_sha256
from pytest_sme2.targets.phone.adb import AdbDevice, quote

ROOT = "/data/local/tmp/pytest-sme2"
_FILES = f"{ROOT}/files"
_PARTIAL = f"{ROOT}/partial"
RUNS = f"{ROOT}/runs"
RUN_MARK = "PYTEST_SME2_RUN"
"""The environment variable that marks a run's processes on the phone."""
# A phone with completely full storage misbehaves.
_SPARE_BYTES = 4 << 20
_OLD_DAYS = 14
_BIG_BYTES = 8 << 20


class PhoneStorage:
    """Puts files on one phone and removes them."""

    def __init__(self, device: AdbDevice, *, progress: Callable[[str], None] | None = None) -> None:
        self.device = device
        self.progress = progress
        self.pushed_bytes = 0
        """How much this process pushed; a second run pushes nothing."""
        self._hashes: dict[tuple[Path, int, int], str] = {}
        self._known: dict[str, str] = {}

    def put(self, files: Mapping[str, Path]) -> str:
        """The folder on the phone with ``files`` under their given names."""
        hashes = {name: self._sha256(path) for name, path in sorted(files.items())}
        listing = "".join(f"{value} {name}\n" for name, value in hashes.items())
        key = hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        if key in self._known:
            return self._known[key]
        folder = f"{_FILES}/{key}"
        # Touched, so that files in use never count as old.
        there = quote([folder])
        present = self.device.shell(f"[ -d {there} ] && touch {there}").code == 0
        if not present:
            self._push(files, hashes, folder)
        self._known[key] = folder
        return folder

    def forget(self) -> None:
        """Forget what is on the phone: after a reconnect it may be another one."""
        self._known.clear()

    def _push(self, files: Mapping[str, Path], hashes: Mapping[str, str], folder: str) -> None:
        sizes = {name: path.stat().st_size for name, path in files.items()}
        self._check_space(sum(sizes.values()), files)
        partial = f"{_PARTIAL}/{uuid.uuid4().hex}"
        self.device.check(["mkdir", "-p", _FILES, partial])
        try:
            for name, path in files.items():
                executable = path.stat().st_mode & 0o111 != 0
                self.device.push(
                    path,
                    f"{partial}/{name}",
                    mode=0o755 if executable else 0o644,
                    progress=self._reporter(name, sizes[name]),
                )
                self.pushed_bytes += sizes[name]
            self._verify(partial, hashes)
            self.device.check(["mv", partial, folder])
        except TargetError:
            # Without a connection this fails too; then the next connection cleans up.
            with contextlib.suppress(TargetError):
                self.device.shell(["rm", "-rf", partial], timeout=10)
            raise

    def _verify(self, folder: str, hashes: Mapping[str, str]) -> None:
        # Through standard input, so that names are never part of the output.
        command = "; ".join(f"sha256sum < {quote([f'{folder}/{name}'])}" for name in hashes)
        found = self.device.check(command, timeout=300)
        for (name, wanted), line in zip(
            hashes.items(), [*found.splitlines(), *[""] * len(hashes)], strict=False
        ):
            if line[:64] != wanted:
                raise TargetError(
                    f"{name!r} arrived damaged on {self.device.serial}. Try again. If it happens "
                    "twice, change the cable."
                )

    def free_bytes(self) -> int:
        blocks, size = self.device.check("stat -f -c '%a %S' /data/local/tmp").split()
        return int(blocks) * int(size)

    def _check_space(self, needed: int, files: Mapping[str, Path]) -> None:
        free = self.free_bytes()
        if needed + _SPARE_BYTES > free:
            names = ", ".join(repr(name) for name in files)
            raise TargetError(
                f"Not enough space on {self.device.serial}: {names[:200]} needs "
                f"{_megabytes(needed)} and /data/local/tmp has {_megabytes(free)} free. Free some, "
                f"or remove the files of earlier runs: sme2 clean --device android "
                f"--serial {self.device.serial}"
            )

    def _reporter(self, name: str, size: int) -> Callable[[int], None] | None:
        if self.progress is None or size < _BIG_BYTES:
            return None
        report = self.progress
        done, last = 0, time.monotonic()

        def chunk(count: int) -> None:
            nonlocal done, last
            done += count
            if done == size or time.monotonic() - last > 0.5:
                last = time.monotonic()
                report(f"pushing {name!r}: {100 * done // size} % of {_megabytes(size)}")

        return chunk

    def _sha256(self, path: Path) -> str:
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in self._hashes:
            self._hashes[key] = file_sha256(path)
        return self._hashes[key]

    def tidy(self) -> None:
        """End and remove what an interrupted run left, and remove files not used for long."""
        self.device.check(
            f"mkdir -p {ROOT}; [ -d {RUNS} ] && {{ {_kill('')} }}; rm -rf {RUNS} {_PARTIAL}; "
            f"[ -d {_FILES} ] && find {_FILES} -mindepth 1 -maxdepth 1 -mtime +{_OLD_DAYS} "
            "-exec rm -rf {} +; true",
            timeout=120,
        )
        self._known.clear()

    def clean(self) -> None:
        """Remove all our files."""
        self.tidy()
        self.device.check(["rm", "-rf", ROOT], timeout=120)

    def kill_run(self, run: str) -> None:
        """End every process of one run."""
        self.device.check(_kill(run), timeout=30)


def _kill(run: str) -> str:
    # By a mark in their environment: a stored process id may belong to another process by now.
    mark = quote([f"{RUN_MARK}={run}"])
    return (
        f"for file in $(grep -l {mark} /proc/[0-9]*/environ 2>/dev/null); do "
        "file=${file%/environ}; kill -9 ${file#/proc/} 2>/dev/null; done; true;"
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
