"""Starts programs: argument lists, a whitelisted environment, a time limit, no orphans.

Confines this process where it reads files that others made: no network, and little time, memory and
disk. The readers have limits of their own; this holds where one was forgotten: commands that only
read confine themselves. Only the standard library is needed here: the first process of a fake
phone's sandbox uses it, too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from pytest_sme2.errors import RunError, Sme2Error, TargetError, UsageError
from pytest_sme2.system.files import total_bytes

# Enough for any program to find its tools and a place for temporary files, and nothing that
# changes how it runs (LD_PRELOAD, OMP_NUM_THREADS, …).
BASIC_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL")
# For a program that only prints its version. It needs far less, but on a busy machine it may wait
# long, and an installed compiler must not be reported as missing.
ANSWER_SECONDS = 180.0


@dataclass(frozen=True)
class Finished:
    returncode: int
    """Negative: the number of the signal that ended it."""
    stdout: str
    """Empty if it went to a file."""
    stderr: str
    timed_out: bool


def whitelisted_environment(
    names: Iterable[str] = (), prefixes: tuple[str, ...] = ()
) -> dict[str, str]:
    """The environment variables that a child gets: the basic ones and those named."""
    wanted = {*BASIC_ENVIRONMENT, *names}
    return {
        name: value
        for name, value in os.environ.items()
        if name in wanted or (prefixes and name.startswith(prefixes))
    }


def run_process(
    arguments: Sequence[str],
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdout: IO[bytes] | None = None,
    cpus: Sequence[int] = (),
) -> Finished:
    """Run a program to its end, or until the time is up; its whole process group ends with it.

    Raises OSError if it cannot be started. ``cpus`` pins it to these cores (Linux).
    """
    with pinned(cpus):
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            env=dict(whitelisted_environment() if environment is None else environment),
            cwd=folder,
            start_new_session=True,
        )
    timed_out = False
    end_with_this_process(process.pid)
    try:
        # communicate() wakes as soon as the pipes close; wait(timeout) would poll.
        try:
            out, err = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            end_group(process.pid)
            out, err = process.communicate()
    except BaseException:
        # For example Ctrl-C: a separate session does not get the terminal's signals.
        end_group(process.pid)
        process.communicate()
        raise
    finally:
        has_ended(process.pid)
    return Finished(
        returncode=process.returncode,
        stdout=(out or b"").decode(errors="replace"),
        stderr=err.decode(errors="replace"),
        timed_out=timed_out,
    )


def answer_of(arguments: Sequence[str]) -> str:
    """What a program prints; empty if it fails or cannot be started."""
    with contextlib.suppress(OSError):
        finished = run_process(arguments, timeout_seconds=ANSWER_SECONDS)
        return finished.stdout if finished.returncode == 0 else ""
    return ""


@contextlib.contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Pin this thread for a moment, so that a child is pinned from its first instruction."""
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    missing = sorted({*cpus} - before)
    if missing:
        cores = ", ".join(map(str, sorted(before)))
        raise TargetError(f"This process may not use core {missing[0]}. Choose from: {cores}.")
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def end_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
# What was killed ends at once, unless the kernel is at work for it.
_TRIES, _PAUSE_SECONDS = 500, 0.01


def adopt_orphans() -> None:
    """Become the parent of what this process's children leave behind (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def end_descendants(ancestor: int) -> None:
    """End all that a process started, whatever its group and session (Linux).

    Whoever called ``adopt_orphans`` gets the children of one that ends: they are looked for again.
    """
    for _ in range(_TRIES):
        found = descendants(ancestor)
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)
        with contextlib.suppress(ChildProcessError):
            while ancestor == os.getpid() and os.waitpid(-1, os.WNOHANG)[0]:
                pass


def descendants(ancestor: int) -> list[int]:
    """Those that run; one that waits to be reaped has nothing more to end."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_bytes().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(path.parent.name))
    found = [*children.get(ancestor, ())]
    for pid in found:
        found += children.get(pid, ())
    return found


# Reads "+ GROUP" and "- GROUP" until the writer is gone, then ends the remaining groups. It is a
# shell script, because it must outlive this process, start fast, and work on every system.
_SHELL = """
while read -r sign group; do
  if [ "$sign" = + ]; then
    set -- "$@" "$group"
  else
    for each; do shift; [ "$each" = "$group" ] || set -- "$@" "$each"; done
  fi
done
for each; do kill -9 "-$each"; done
"""


class _Watcher:
    """One shell for all programs of this process, started with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._groups: set[int] = set()

    def end_with_this_process(self, group: int) -> None:
        """End this process group when this process ends, for whatever reason."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+ {group}\n")

    def has_ended(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            # At the end of this process the shell may be gone first.
            if self._shell is not None:
                self._tell(f"- {group}\n")

    def _tell(self, line: str) -> None:
        if self._shell is not None and self._owner == os.getpid():
            with contextlib.suppress(BrokenPipeError):
                self._write(line)
                return
            # Someone ended the shell; a new one takes over.
            self._let_go()
        # Without a shell, programs may outlive this process.
        with contextlib.suppress(OSError):
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
            self._owner = os.getpid()
            atexit.register(self._let_go)
            self._write("".join(f"+ {group}\n" for group in self._groups))

    def _write(self, text: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            os.write(self._shell.stdin.fileno(), text.encode())

    def _let_go(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None and self._owner == os.getpid():
            with contextlib.suppress(OSError):
                shell.communicate()
        atexit.unregister(self._let_go)


_watcher = _Watcher()
end_with_this_process, has_ended = _watcher.end_with_this_process, _watcher.has_ended


_SECONDS = 120.0
# A hook of the user's repository is not for us.
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")


def git(
    folder: Path,
    *words: str,
    seconds: float = _SECONDS,
    variables: Mapping[str, str] | None = None,
) -> str:
    """What git printed; an error with its own words where it failed."""
    try:
        done = run_process(
            ["git", *_NO_HOOKS, *words],
            timeout_seconds=seconds,
            folder=folder,
            environment={**whitelisted_environment(), **(variables or {})},
        )
    except OSError as error:
        raise RunError(f"git cannot be run: {error.strerror or error}. Install git.") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise RunError(f"`git {words[0]}` failed: {said[-1] if said else 'it said nothing'}")
    return done.stdout


# GitHub Actions, GitLab CI.
_COMMIT_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")
COMMIT_DIGITS = 12
# A report does not wait for long.
_COMMIT_SECONDS = 10.0


@functools.cache
def project_commit() -> str | None:
    """Its first digits, with a ``+`` where files are changed; None where there is no commit.

    Only for what measures: git runs programs that the configuration of its folder names, and a
    folder that is merely read may be somebody else's.
    """
    for name in _COMMIT_VARIABLES:
        value = os.environ.get(name, "")
        if re.fullmatch("[0-9a-f]{40,64}", value):
            return value[:COMMIT_DIGITS]
    commit = _answer("rev-parse", "HEAD")
    if commit is None or not re.fullmatch("[0-9a-f]{40,64}", commit):
        return None
    changed = _answer("status", "--porcelain", "--untracked-files=no")
    return commit[:COMMIT_DIGITS] + ("+" if changed else "")


def _answer(*words: str) -> str | None:
    try:
        return git(Path(), *words, seconds=_COMMIT_SECONDS).strip()
    except RunError:
        return None


SECONDS_VARIABLE = "SME2_READ_SECONDS"
# A run of 300 cases, 83 MB, takes 35 s to merge.
_SECONDS, _SECONDS_PER_MEGABYTE = 60.0, 2.0
_MEMORY_BYTES = 8 << 30
_FILE_BYTES = 16 << 30
TOO_MUCH_MEMORY = (
    f"Reading took more than {_MEMORY_BYTES >> 30} GiB of memory: a file is damaged, or made to "
    "take much."
)
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


def confine(files: Iterable[Path]) -> bool:
    """Confine this process, which reads these files; whether it also lost the network."""
    megabytes = sum(map(total_bytes, files)) / 1e6
    seconds = _given_seconds() or _SECONDS + _SECONDS_PER_MEGABYTE * megabytes

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise Sme2Error(
            f"Reading took more than {seconds:.0f} s of CPU time: a file is damaged, or made to "
            f"take long. If you trust it, allow more with {SECONDS_VARIABLE}."
        )

    signal.signal(signal.SIGXCPU, give_up)
    limit_process(int(seconds) + 1)
    return _leave_network()


def limit_process(seconds: int | None = None) -> None:
    limits = {"RLIMIT_AS": _MEMORY_BYTES, "RLIMIT_FSIZE": _FILE_BYTES, "RLIMIT_CORE": 0}
    for name, most in limits.items():
        _lower(getattr(resource, name), most, most)
    if seconds is not None:
        # The second limit ends what does not come to handle the signal of the first.
        _lower(resource.RLIMIT_CPU, seconds, seconds + 10)


def _lower(kind: int, soft: int, hard: int) -> None:
    """Never raise a limit that somebody else set."""
    soft, hard = (
        wanted if there == resource.RLIM_INFINITY else min(wanted, there)
        for wanted, there in zip((soft, hard), resource.getrlimit(kind), strict=True)
    )
    # macOS refuses a limit of memory.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (min(soft, hard), hard))


def _leave_network() -> bool:
    """Move to a network without interfaces; False where the system does not allow it."""
    if not sys.platform.startswith("linux"):
        return False
    user, group = os.geteuid(), os.getegid()
    if user and not os.access("/proc/self/uid_map", os.W_OK):
        return False
    kind = _CLONE_NEWNET | (_CLONE_NEWUSER if user else 0)
    if ctypes.CDLL(None, use_errno=True).unshare(kind):
        return False
    if user:
        # Files keep their owners' numbers.
        maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"))
        for name, text in (*maps, ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="utf-8")
    return True


def _given_seconds() -> float:
    value = os.environ.get(SECONDS_VARIABLE, "")
    if not value:
        return 0.0
    if not value.isdecimal() or not 0 < int(value) < 10**6:
        raise UsageError(f"{SECONDS_VARIABLE}={value!r} is not a number of seconds.")
    return float(value)
