"""Starts the process of an export: a fork of one that has imported torch, or a fresh one.

Importing torch and ExecuTorch takes most of a small export. On Linux one process, the server, does
it for all exports of this one. It runs no model's code: a fork of it does and ends with it, so that
a model that crashes, hangs or eats memory takes nothing else down. Elsewhere, and where a fork is
not possible, each export is a process of its own. The forkserver of ``multiprocessing`` would not
do: it takes no environment, one serves the whole process, tests of users included, and its children
are not ended with what they started.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from pytest_sme2.export.imports import import_tools, installed_packages
from pytest_sme2.export.lowering import main
from pytest_sme2.export.quicker import lower_quicker
from pytest_sme2.export.store import package_versions
from pytest_sme2.system.processes import (
    adopt_orphans,
    end_descendants,
    end_group,
    end_with_this_process,
    has_ended,
    whitelisted_environment,
)

# The path is set before our first import, so that the child finds the same modules.
_FRESH = (
    "import json, sys; request = json.load(open(sys.argv[1], encoding='utf-8')); "
    "sys.path[:] = request['sys_path']; "
    "from pytest_sme2.export.lowering import main; main(sys.argv[1])"
)
_SERVER = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from pytest_sme2.export.server import serve; serve(int(sys.argv[1]))"
)
_ASK, _READY = b"ready?", b"ready"
_LARGEST_REQUEST = 1 << 16
# Warming up takes longer than it saves a single export, or one that fails at once.
_WARM_FROM = 2
# A fork takes milliseconds, also on a busy machine; this is for one that never answers.
_FORK_SECONDS = 60.0
# What an export gets beside the basic variables: any other could change a model unnoticed.
_ENVIRONMENT = (
    "USER", "LOGNAME", "LC_CTYPE", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HF_HOME",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE",
)  # fmt: skip


def export_environment() -> dict[str, str]:
    kept = whitelisted_environment(_ENVIRONMENT)
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


@dataclass
class ForkedProcess:
    """An export in a fork of the server, which tells how it ended."""

    pid: int
    stdin: IO[bytes]
    stdout: IO[bytes]
    ended: Callable[[float | None], bytes]
    over: bool = False
    code: int | None = None

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code; None if the server ended first, so that it is unknown."""
        if not self.over:
            with contextlib.suppress(EOFError):
                self.code = int(self.ended(timeout))
            self.over = True
        return self.code


class Server:
    """One server, for one process and its exports one after another."""

    def __init__(self, circumstances: ProcessEnvironment) -> None:
        self.circumstances = circumstances
        self.owner = os.getpid()
        self.busy = threading.Lock()
        self.closed = False
        self._asked = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = json.dumps(list(circumstances.sys_path))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(theirs.fileno()), paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A fresh process repeats into its log what goes wrong here.
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=dict(circumstances.environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        end_with_this_process(self._process.pid)

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
            has_ended(self._process.pid)
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
    """The server of this process: started with its first export, another for other circumstances.

    One that has ended is not replaced: a new one would most likely end, too.
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


def serve(descriptor: int) -> None:
    """Answer requests until the other end of this socket closes, or no fork is possible.

    Before each, the other end asks whether this process is ready, to say what it waits for.
    """
    control = socket.socket(fileno=descriptor)
    adopt_orphans()
    import_tools()
    for number in itertools.count(1):
        if not control.recv(_LARGEST_REQUEST):
            return
        if number == _WARM_FROM:
            _warm_up()
        if number in (1, _WARM_FROM):
            if not _can_fork():
                return
            # What lives now lives in every fork: the collector would only copy its pages.
            gc.collect()
            gc.freeze()
        control.send(_READY)
        message, streams, _, _ = socket.recv_fds(control, _LARGEST_REQUEST, 3)
        if not message:
            return
        child = os.fork()
        if child == 0:
            control.close()
            _export(os.fsdecode(message), streams)
        for stream in streams:
            os.close(stream)
        control.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        # What the model started and left is this process's now, in whatever session.
        end_descendants(os.getpid())
        control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _warm_up() -> None:
    """Lower the smallest network there is, and forget it.

    The first lowering sets up tables, which takes ten times as long; every fork then has them.
    """
    torch = sys.modules["torch"]
    lower_quicker()
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    # Threads do not survive a fork: neither those of tqdm, which watch a bar, nor those of OpenMP.
    importlib.import_module("tqdm").tqdm.monitor_interval = 0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    program = torch.export.export(torch.nn.ReLU(), (torch.zeros(1),))
    to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    torch.set_num_threads(threads)
    installed_packages()


def _can_fork() -> bool:
    """Whether a fork is a whole process: only the thread that forks goes on in it.

    A trial fork shows it. OpenBLAS, which NumPy brings, ends its threads before a fork and starts
    them again when it needs them. Threads that are left know nothing of forks.
    """
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return len(list(Path("/proc/self/task").iterdir())) == 1


def _export(request_file: str, streams: list[int]) -> NoReturn:
    """Be the process that a fresh start would have made; end with it, whatever happens."""
    code = 1
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(Path(request_file).parent)
        sys.argv[:] = ["-c", request_file]
        # Files may have come since this path was first read.
        importlib.invalidate_caches()
        main(request_file)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
