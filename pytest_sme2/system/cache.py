"""The cache: where exports, runners and tools are kept."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import StorageError

if TYPE_CHECKING:
    pass


def cache_folder() -> Path:
    """Where exports, runners and tools are kept: ``SME2_CACHE_DIR``, else the platform's own."""
    chosen = os.environ.get("SME2_CACHE_DIR")
    try:
        folder = Path(chosen).expanduser().resolve() if chosen else _usual_cache_folder()
        # Nobody else's home: every later question about a file in there would fail.
        folder.exists()
    except (RuntimeError, OSError) as error:
        raise StorageError(
            f"{chosen or 'The usual cache folder'!r} cannot be used to keep exports and runners: "
            f"{error}. Name another folder for them in SME2_CACHE_DIR."
        ) from error
    return folder


def _usual_cache_folder() -> Path:
    import platformdirs

    try:
        folder = platformdirs.user_cache_path("pytest-sme2", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    # Without a home it is a name with a tilde, and would be made wherever we are.
    if not folder.is_absolute():
        raise StorageError(
            "There is no home folder to keep exports and runners in. "
            "Name a folder for them in SME2_CACHE_DIR."
        )
    return folder


@contextlib.contextmanager
def working_folder(final: Path) -> Iterator[Path]:
    """An empty folder beside ``final`` to prepare it in; gone afterwards. Hold ``final``'s lock."""
    folder = final.with_name(f".{final.name}.part")
    # What a killed process has left.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
