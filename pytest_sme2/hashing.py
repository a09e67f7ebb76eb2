"""The hash that names and checks files everywhere in this package."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PIECE = 1 << 20


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, read in pieces so that a large one costs no memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
