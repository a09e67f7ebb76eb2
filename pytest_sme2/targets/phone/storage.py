"""Our folder on a phone: files by content, pushed once, checked, and cleaned up.

A file in ``files/<hash>`` is complete: it is pushed to another name, checked by the phone's own
sha256sum, and renamed. An interrupted push resumes where it stopped. Nothing outside
``ROOT`` is ever written or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_sme2.errors import ConnectionLostError, TargetError
from pytest_sme2.system.files import file_sha256
from pytest_sme2.targets.phone.adb import AdbDevice, quote
from pytest_sme2.targets.phone.answers import parse_free_bytes, parse_lines, parse_sizes

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
# adbd removes a file whose push was interrupted, so a large one arrives in pieces.
_PIECE_BYTES = 16 << 20
# For find; with +0, toybox finds what is a second old.
_ANY_AGE, _A_DAY_OLD = "", "-mtime +1"


class PhoneStorage:
    """Puts files on one phone and removes them."""

    def __init__(self, device: AdbDevice, *, progress: Callable[[str], None] | None = None) -> None:
        self.device = device
        self.progress = progress
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
        sizes = {name: path.stat().st_size for name, path in files.items()}
        partial = f"{_PARTIAL}/{folder.rpartition('/')[2]}"
        arrived = self._arrived(partial, sizes)
        self._check_space(sum(sizes.values()) - sum(arrived.values()), files)
        self.device.check(["mkdir", "-p", _FILES, partial])
        try:
            for name, path in files.items():
                self._push_file(path, f"{partial}/{name}", sizes[name], arrived[name])
            self._verify(partial, hashes)
            # A folder that has lost some of its files makes room.
            self.device.check(f"{quote(['rm', '-rf', folder])} && {quote(['mv', partial, folder])}")
        except ConnectionLostError:
            # The next connection goes on from here.
            raise
        except TargetError:
            with contextlib.suppress(TargetError):
                self.device.shell(["rm", "-rf", partial], timeout=10)
            raise

    def _arrived(self, partial: str, sizes: Mapping[str, int]) -> dict[str, int]:
        """How many bytes of each file an interrupted push has left in whole pieces."""
        command = "; ".join(
            f"stat -c %s {quote([f'{partial}/{name}'])} 2>/dev/null || echo 0" for name in sizes
        )
        found = parse_sizes(self.device.serial, self.device.check(command), len(sizes))
        return {
            name: size if there == size else min(there, size) // _PIECE_BYTES * _PIECE_BYTES
            for (name, size), there in zip(sizes.items(), found, strict=True)
        }

    def _push_file(self, path: Path, remote: str, size: int, arrived: int) -> None:
        mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
        report = self._reporter(path.name, size, arrived)
        if size <= _PIECE_BYTES:
            if arrived < size or size == 0:
                self.device.push(path, remote, mode=mode, progress=report)
                self.pushed_bytes += size
            return
        piece = quote([f"{remote}.piece"])
        whole = quote([remote])
        self.device.check(["touch", remote])
        self.device.check(["truncate", "-s", str(arrived), remote])
        with path.open("rb") as file:
            file.seek(arrived)
            while content := file.read(_PIECE_BYTES):
                self.device.push(content, f"{remote}.piece", progress=report)
                self.device.check(f"cat {piece} >> {whole} && rm {piece}", timeout=300)
                self.pushed_bytes += len(content)
        self.device.check(["chmod", f"{mode:o}", remote])

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

    def _reporter(self, name: str, size: int, done: int) -> Callable[[int], None] | None:
        if self.progress is None or size < _BIG_BYTES:
            return None
        report = self.progress
        last = time.monotonic()

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

    def tidy(self, *, pushes: bool = True) -> None:
        """End and remove what an interrupted run left, and remove files not used for long.

        Without ``pushes``, what was half pushed within a day stays, to go on from there.
        """
        age = _A_DAY_OLD
        if pushes:
            age = _ANY_AGE
        self.device.check(
            f"mkdir -p {ROOT}; [ -d {RUNS} ] && {{ {_kill('')} }}; rm -rf {RUNS}; "
            f"[ -d {_PARTIAL} ] && find {_PARTIAL} -mindepth 1 -maxdepth 1 {age} "
            "-exec rm -rf {} +; "
            f"rmdir {_PARTIAL} 2>/dev/null; [ -d {_FILES} ] && "
            f"find {_FILES} -mindepth 1 -maxdepth 1 -mtime +{_OLD_DAYS} "
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
