"""The process that has imported torch and ExecuTorch, and forks once per export.

It runs no model's code itself: a fork does, and ends with it. So a model that crashes, hangs or
eats memory takes nothing else down, and this process does not grow. server.py starts it.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from pytest_sme2.export.imports import import_tools, installed_packages
from pytest_sme2.export.lowering import main
from pytest_sme2.export.quicker import lower_quicker

_READY = b"ready"
# Warming up takes longer than it saves a single export, or one that fails at once.
_WARM_FROM = 2
_LARGEST_REQUEST = 1 << 16
# Standard input, standard output, standard error.
_STREAMS = 3


def serve(descriptor: int) -> None:
    """Answer requests until the other end of this socket closes, or no fork is possible.

    Before each request the other end asks whether this process is ready, so that it can say what
    it waits for.
    """
    control = socket.socket(fileno=descriptor)
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
        message, streams, _, _ = socket.recv_fds(control, _LARGEST_REQUEST, _STREAMS)
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
        control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _warm_up() -> None:
    """Lower the smallest network there is, and forget it.

    The first lowering of a process sets up tables that the later ones share. That takes ten times
    as long as to lower a small network, and every fork then has them.
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
