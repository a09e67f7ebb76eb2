"""Starts the process of an export: a fork of one that has imported torch, or a fresh one.

Importing torch and ExecuTorch takes most of a small export. On Linux one process does it for all
exports of this one, and each export is a fork of it (see forking.py). Elsewhere, and where a fork
is not possible, each export is a process of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pytest_sme2.system.processes import end_group, tie, untie

# The path is set before our first import, so that the child finds the same modules.
_FRESH = (
    "import json, sys; request = json.load(open(sys.argv[1], encoding='utf-8')); "
    "sys.path[:] = request['sys_path']; "
    "from pytest_sme2.export.lowering import main; main(sys.argv[1])"
)
_SERVER = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from pytest_sme2.export.forking import serve; serve(int(sys.argv[1]))"
)
_ASK = b"ready?"
# A fork takes milliseconds, also on a busy machine; this is for one that never answers.
_FORK_SECONDS = 60.0
_END_SECONDS = 5.0


@dataclass(frozen=True)
class ProcessEnvironment:
    """What a process is started with. A server serves only exports with its own."""

    environment: Mapping[str, str]
    sys_path: Sequence[str]
    versions: Mapping[str, str]
    """Of the packages that the server imports: one may be installed anew meanwhile."""


class FreshProcess:
    """An export in a process of its own."""

    def __init__(
        self, request_file: Path, log: IO[bytes], folder: Path, circumstances: ProcessEnvironment
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FRESH, str(request_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env=dict(circumstances.environment),
            start_new_session=True,
        )
        self.pid = self._process.pid
        assert self._process.stdin is not None  # noqa: S101 - asked for with PIPE
        assert self._process.stdout is not None  # noqa: S101 - asked for with PIPE
        self.stdin: IO[bytes] = self._process.stdin
        self.stdout: IO[bytes] = self._process.stdout

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, negative for a signal. Raises TimeoutError."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error


class ForkedProcess:
    """An export in a fork of the server, which tells how it ended."""

    def __init__(
        self, pid: int, stdin: IO[bytes], stdout: IO[bytes], ended: Callable[[float | None], int]
    ) -> None:
        self.pid = pid
        self.stdin, self.stdout = stdin, stdout
        self._ended = ended
        self._over = False
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code; None if the server ended first, so that it is unknown."""
        if not self._over:
            with contextlib.suppress(EOFError):
                self._code = self._ended(timeout)
            self._over = True
        return self._code


class Server:
    """One server, for one process and its exports one after another."""

    def __init__(self, circumstances: ProcessEnvironment) -> None:
        self.circumstances = circumstances
        self.owner = os.getpid()
        self.busy = threading.Lock()
        self._asked = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _SERVER, str(theirs.fileno())),
                    json.dumps(list(circumstances.sys_path)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A fresh process repeats into its log what goes wrong here.
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=dict(circumstances.environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        tie(self._process.pid)

    def wait_until_ready(self, timeout: float) -> None:
        """Return when it can fork. Raises TimeoutError, and EOFError if it has ended.

        After a TimeoutError this can be called again, also for another export.
        """
        if not self._asked:
            try:
                self._control.send(_ASK)
            except OSError as error:
                raise EOFError from error
            self._asked = True
        self._receive(timeout)
        self._asked = False

    def gave_up(self) -> bool:
        """Of a server that has hung up: whether by itself, so that another one would, too."""
        try:
            return self._process.wait(_END_SECONDS) >= 0
        except subprocess.TimeoutExpired:
            # Threads that keep it from forking can also keep it from ending.
            return True

    def fork(self, request_file: Path, log: IO[bytes], folder: Path) -> ForkedProcess:
        """A process for this request. Raises EOFError or TimeoutError if the server is gone."""
        their_input, our_input = os.pipe()
        our_output, their_output = os.pipe()
        stdin, stdout = os.fdopen(our_input, "wb"), os.fdopen(our_output, "rb")
        message = json.dumps({"file": str(request_file), "folder": str(folder)}).encode()
        try:
            streams = [their_input, their_output, log.fileno()]
            socket.send_fds(self._control, [message], streams)
            pid = int(self._receive(_FORK_SECONDS))
        except BaseException as error:
            stdin.close()
            stdout.close()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise EOFError from error
            raise
        finally:
            os.close(their_input)
            os.close(their_output)
        return ForkedProcess(pid, stdin, stdout, lambda timeout: int(self._receive(timeout)))

    def close(self) -> None:
        """End it. A fork that is still at work ends by its own standard input."""
        self._control.close()
        if self.owner == os.getpid():
            end_group(self._process.pid)
            self._process.wait()
            untie(self._process.pid)

    def _receive(self, timeout: float | None) -> bytes:
        self._control.settimeout(timeout)
        try:
            message = self._control.recv(64)
        except ConnectionError as error:
            raise EOFError from error
        if not message:
            raise EOFError
        return message


class Servers:
    """The server of this process: started with its first export, and replaced when that must be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Server | None = None
        self._hopeless: list[ProcessEnvironment] = []

    def get(self, circumstances: ProcessEnvironment) -> Server | None:
        """The server for these circumstances; None where there cannot be one."""
        if not sys.platform.startswith("linux"):
            return None
        with self._lock:
            if circumstances in self._hopeless:
                return None
            server = self._current
            if server is not None:
                if server.circumstances == circumstances and server.owner == os.getpid():
                    return server
                if server.busy.locked() and server.owner == os.getpid():
                    return None
                server.close()
            else:
                atexit.register(self.close)
            self._current = Server(circumstances)
            return self._current

    def drop(self, server: Server, *, hopeless: bool) -> None:
        """Give up a server; a hopeless one would fail again, so none replaces it."""
        with self._lock:
            if hopeless:
                self._hopeless.append(server.circumstances)
            if self._current is server:
                self._current = None
                atexit.unregister(self.close)
        server.close()

    def close(self) -> None:
        with self._lock:
            server, self._current = self._current, None
        if server is not None:
            server.close()


SERVERS = Servers()
