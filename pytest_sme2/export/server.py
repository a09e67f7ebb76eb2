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

from pytest_sme2.export.store import package_versions
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
# The environment of an export: any other variable could change a model unnoticed.
_ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE",
)  # fmt: skip


def export_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # A fixed order of sets of strings, so that the output is always the same.
    # Without the last one, oneDNN leaves a perf-PID.map in the temporary folder of Arm machines.
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "ONEDNN_JIT_PROFILE": "0"}


@dataclass(frozen=True)
class ProcessEnvironment:
    """What a process is started with. A server serves only exports with its own."""

    environment: Mapping[str, str]
    sys_path: Sequence[str]
    versions: Mapping[str, str]
    """Of the packages that the server imports: one may be installed anew meanwhile."""

    @classmethod
    def of_this_process(cls) -> ProcessEnvironment:
        paths = [str(Path(name).absolute()) for name in sys.path]
        return cls(export_environment(), paths, package_versions())


class FreshProcess(subprocess.Popen[bytes]):
    """An export in a process of its own."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def __init__(
        self, request_file: Path, log: IO[bytes], circumstances: ProcessEnvironment
    ) -> None:
        super().__init__(
            [sys.executable, "-c", _FRESH, str(request_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=request_file.parent,
            env=dict(circumstances.environment),
            start_new_session=True,
        )

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises TimeoutError."""
        try:
            return super().wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error


class ForkedProcess:
    """An export in a fork of the server, which tells how it ended."""

    def __init__(
        self, pid: int, stdin: IO[bytes], stdout: IO[bytes], ended: Callable[[float | None], bytes]
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
                self._code = int(self._ended(timeout))
            self._over = True
        return self._code


class Server:
    """One server, for one process and its exports one after another."""

    def __init__(self, circumstances: ProcessEnvironment) -> None:
        self.circumstances = circumstances
        self.owner = os.getpid()
        self.busy = threading.Lock()
        self.closed = False
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

    def is_ready(self, timeout: float) -> bool:
        """Whether it can fork within this time; if not, ask again. EOFError if it has ended."""
        try:
            if not self._asked:
                self._control.send(_ASK)
                self._asked = True
            self._receive(timeout)
        except TimeoutError:
            return False
        except OSError as error:
            raise EOFError from error
        self._asked = False
        return True

    def fork(self, request_file: Path, log: IO[bytes]) -> ForkedProcess:
        """A process for this request. Raises EOFError if the server is gone."""
        their_input, our_input = os.pipe()
        our_output, their_output = os.pipe()
        stdin, stdout = os.fdopen(our_input, "wb"), os.fdopen(our_output, "rb")
        try:
            streams = [their_input, their_output, log.fileno()]
            socket.send_fds(self._control, [os.fsencode(request_file)], streams)
            pid = int(self._receive(_FORK_SECONDS))
        except (EOFError, OSError) as error:
            stdin.close()
            stdout.close()
            raise EOFError from error
        finally:
            os.close(their_input)
            os.close(their_output)
        return ForkedProcess(pid, stdin, stdout, self._receive)

    def close(self) -> None:
        """End it. A fork that is still at work ends by its own standard input."""
        self._control.close()
        if self.owner == os.getpid() and not self.closed:
            end_group(self._process.pid)
            self._process.wait()
            untie(self._process.pid)
        self.closed = True

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
    """The server of this process: started with its first export.

    Other circumstances take another one. One that has ended is not replaced: a new one would most
    likely end, too, and a process of its own serves each export as well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Server | None = None

    def get(self, circumstances: ProcessEnvironment) -> Server | None:
        """The server for these circumstances; None where there cannot be one."""
        if not sys.platform.startswith("linux"):
            return None
        with self._lock:
            server = self._current
            if server is None:
                atexit.register(self.close)
            elif server.owner == os.getpid():
                if server.circumstances == circumstances:
                    return None if server.closed else server
                if server.busy.locked():
                    return None
            if server is not None:
                server.close()
            self._current = Server(circumstances)
            return self._current

    def close(self) -> None:
        with self._lock:
            server, self._current = self._current, None
        if server is not None:
            server.close()


SERVERS = Servers()
