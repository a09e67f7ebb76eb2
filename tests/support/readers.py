"""What a confined process is told to do, as readers of hostile files would; and such a file."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

from pytest_sme2.errors import BundleError


def say(*words: str) -> str:
    return " ".join(words)


def take_long() -> None:
    while True:
        pass


def take_memory() -> str:
    return str(len([bytes(1 << 30) for _ in range(64)]))


def refuse(path: str) -> None:
    raise BundleError(f"{path} is not a bundle.")


def end_early() -> None:
    raise SystemExit("out of luck")


def connect(port: str) -> str:
    """Whether a listener of this machine can be reached."""
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
    except OSError:
        return ""
    return "reached"


def folder() -> str:
    Path("left behind").write_text("", encoding="utf-8")
    assert Path.cwd() == Path(tempfile.gettempdir())
    return str(Path.cwd())
