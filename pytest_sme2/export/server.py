"""Starts the processes of exports: a server that has imported torch forks for each of them.

Importing torch and ExecuTorch takes most of a small export. A server runs no model's code: a fork
of it does and ends with it, so that a model that crashes, hangs or eats memory takes nothing else
down. Where no fork is possible, a server makes one export itself, and ends. The forkserver of
``multiprocessing`` would not do: it takes no environment, one serves the whole process, tests of
users included, and its children are not ended with what they started.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import queue
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

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

# The path is set before our first import, so that the server finds the same modules.
_SERVER = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from pytest_sme2.export import server; server.serve()"
)
# Warming up takes longer than it saves a single export, or one that fails at once.
_WARM_FROM = 2
# One that closed its output ends at once, unless its code goes on.
_END_SECONDS = 5.0
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


class _Piped(subprocess.Popen[bytes]):
    stdin: IO[bytes]
    stdout: IO[bytes]


class Server:
    """One server, for exports one after another; what it says is a line of JSON each."""

    def __init__(self, circumstances: ProcessEnvironment, log: IO[bytes]) -> None:
        self.circumstances = circumstances
        self.owner = os.getpid()
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._process = _Piped(
            [sys.executable, "-c", _SERVER, json.dumps(list(circumstances.sys_path))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            env=dict(circumstances.environment),
            start_new_session=True,
        )
        end_with_this_process(self._process.pid)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(b"")

    def ask(self, request_file: Path, log: Path) -> None:
        """Begin an export. What goes wrong with that, ``hear`` says."""
        line = json.dumps([str(request_file), str(log)]) + "\n"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()

    def hear(self, timeout: float) -> dict[str, Any]:
        """The next message, ``ended`` the last one of an export. Raises TimeoutError."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None
        if line:
            return _message(line)
        self._lines.put(line)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        return {"ended": self._process.returncode}

    def serves(self, circumstances: ProcessEnvironment) -> bool:
        # The last that it says is that it has ended.
        here = self.owner == os.getpid() and self._lines.empty()
        return here and self.circumstances == circumstances

    def close(self) -> None:
        """End it, and all that it started; not where a fork of this process has it, too."""
        if self.owner != os.getpid():
            return
        end_descendants(self._process.pid)
        end_group(self._process.pid)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        has_ended(self._process.pid)


class Servers:
    """The server of this process, kept from one export to the next in the same circumstances."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: Server | None = None

    @contextlib.contextmanager
    def borrowed(self, circumstances: ProcessEnvironment, log: IO[bytes]) -> Iterator[Server]:
        """A server for one export: that of this process, or another if a thread has it."""
        with self._lock:
            server, self._idle = self._idle, None
        if server is not None and not server.serves(circumstances):
            server.close()
            server = None
        server = server or Server(circumstances, log)
        try:
            yield server
        except BaseException:
            server.close()
            raise
        with self._lock:
            if self._idle is None and server.serves(circumstances):
                self._idle = server
        if self._idle is not server:
            server.close()

    def close(self) -> None:
        with self._lock:
            server, self._idle = self._idle, None
        if server is not None:
            server.close()


SERVERS = Servers()
atexit.register(SERVERS.close)


def _message(line: bytes) -> dict[str, Any]:
    """A message of a server or its fork; empty for a line that something else printed."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def serve() -> None:
    """Make an export for each line of standard input, in a fork, else the first one and end."""
    adopt_orphans()
    with open(0, "rb", buffering=0, closefd=False) as requests:
        for number, line in enumerate(iter(requests.readline, b""), 1):
            request_file, log = json.loads(line)
            with Path(log).open("ab") as file:
                os.dup2(file.fileno(), 2)
            # What fails here fails in the export, too, which says why.
            with contextlib.suppress(Exception):
                if number == 1:
                    _say(progress="importing torch")
                    import_tools()
                elif number == _WARM_FROM:
                    _warm_up()
            if number <= _WARM_FROM:
                # What lives now lives in every fork: the collector would only copy its pages.
                gc.collect()
                gc.freeze()
            child = os.fork() if _can_fork() else 0
            if child == 0:
                if number >= _WARM_FROM and (torch := sys.modules.get("torch")):
                    # Torch replaces its pool of threads in a fork at the next use; two threads that
                    # do so at once end the process ("Invalid thread pool", seen once).
                    torch.set_num_threads(torch.get_num_threads())
                _export(request_file)
            _, status = os.waitpid(child, 0)
            # What the model started and left is this process's now, in whatever session.
            end_descendants(os.getpid())
            _say(ended=os.waitstatus_to_exitcode(status))


def _say(**message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


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
    if not sys.platform.startswith("linux"):
        return False
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return len(list(Path("/proc/self/task").iterdir())) == 1


def _export(request_file: str) -> NoReturn:
    """Make this export and end, whatever happens."""
    code = 1
    try:
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
