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
        # The home of another user: every later access to a file in there would fail.
        folder.exists()
    except (RuntimeError, OSError) as error:
        raise StorageError(
            f"{chosen or 'The default cache folder'!r} cannot be used for exports and runners: "
            f"{error}. Set SME2_CACHE_DIR to another folder."
        ) from error
    return folder


def _usual_cache_folder() -> Path:
    import platformdirs

    try:
        folder = platformdirs.user_cache_path("pytest-sme2", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    # Without a home folder the name starts with a tilde, and would be made in any folder.
    if not folder.is_absolute():
        raise StorageError(
            "This user has no home folder for exports and runners. "
            "Set SME2_CACHE_DIR to a folder for them."
        )
    return folder


@contextlib.contextmanager
def working_folder(final: Path) -> Iterator[Path]:
    """An empty folder beside ``final``, removed afterwards. Hold the lock of ``final``."""
    folder = final.with_name(f".{final.name}.part")
    # Files that a killed process left.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
