"""Our folder on a phone: files by content, pushed once, checked, and cleaned up.

A file in ``files/<hash>`` is complete: it is pushed to another name, checked by the phone's own
sha256sum, and renamed. Nothing outside ``ROOT`` is ever written or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.system.files import file_sha256
from pytest_sme2.targets.phone.adb import AdbDevice, quote
from pytest_sme2.targets.phone.answers import parse_free_bytes, parse_lines

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
# Over a slow network. A push that takes longer has stopped.
_LEAST_BYTES_PER_SECOND = 100_000


class PhoneStorage:
    """Puts files on one phone and removes them."""

    def __init__(self, device: AdbDevice, *, progress: Callable[[str], None] | None = None) -> None:
        self.device, self.progress = device, progress
        self.pushed_bytes = 0
        """How much this process pushed; a second run pushes nothing."""
        self._hashes: dict[tuple[Path, int, int], str] = {}
        self._known: dict[str, tuple[str, ...]] = {}
        """Folders on the phone, and what is in them."""

    def put(self, files: Mapping[str, Path]) -> str:
        """The folder on the phone with ``files`` under their given names."""
        hashes = {name: self._sha256(path) for name, path in sorted(files.items())}
        listing = "".join(f"{value} {name}\n" for name, value in hashes.items())
        key = hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        folder = f"{_FILES}/{key}"
        if folder in self._known:
            return folder
        paths = [f"{folder}/{name}" for name in files]
        # Touched, so that files in use never count as old.
        present = self.device.shell(f"{quote(['ls', *paths])} && {quote(['touch', folder])}")
        if present.code != 0:
            self._push(files, hashes, folder)
        self._known[folder] = tuple(paths)
        return folder

    def lost(self) -> bool:
        """Whether files that were put are gone; if so, they are put again when they are needed."""
        paths = [path for known in self._known.values() for path in known]
        gone = bool(paths) and self.device.shell(["ls", *paths]).code != 0
        if gone:
            self.forget()
        return gone

    def forget(self) -> None:
        """Forget what is on the phone: after a reconnect it may be another one."""
        self._known.clear()

    def _push(self, files: Mapping[str, Path], hashes: Mapping[str, str], folder: str) -> None:
        partial = f"{_PARTIAL}/{folder.rpartition('/')[2]}"
        self._check_space(sum(path.stat().st_size for path in files.values()), files)
        self.device.check(["mkdir", "-p", _FILES, partial])
        try:
            for name, path in files.items():
                status = path.stat()
                self.device.push(
                    path,
                    f"{partial}/{name}",
                    mode=0o755 if status.st_mode & 0o111 else 0o644,
                    progress=self._reporter(path.name, status.st_size),
                    timeout=600 + status.st_size / _LEAST_BYTES_PER_SECOND,
                )
                self.pushed_bytes += status.st_size
            self._verify(partial, hashes)
            # A folder that has lost some of its files makes room.
            self.device.check(f"{quote(['rm', '-rf', folder])} && {quote(['mv', partial, folder])}")
        except TargetError:
            with contextlib.suppress(TargetError):
                self.device.shell(["rm", "-rf", partial], timeout=10)
            raise

    def _verify(self, folder: str, hashes: Mapping[str, str]) -> None:
        # Through standard input, so that names are never part of the output.
        command = "; ".join(f"sha256sum < {quote([f'{folder}/{name}'])}" for name in hashes)
        found = parse_lines(self.device.check(command, timeout=300), len(hashes))
        for (name, wanted), line in zip(hashes.items(), found, strict=True):
            if line[:64] != wanted:
                raise TargetError(
                    f"{name!r} arrived damaged on {self.device.serial}. Try again. If it happens "
                    "twice, change the cable."
                )

    def free_bytes(self) -> int:
        command = "stat -f -c '%a %S' /data/local/tmp"
        return parse_free_bytes(self.device.serial, command, self.device.check(command))

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
