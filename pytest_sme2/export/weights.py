"""Trained weights: what a model's folder says of the upstream file, and whether a file is that one.

Nothing here is fetched unless a file or an address was named. Loading is the exporter's business.
"""

from __future__ import annotations

import http.client
import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from pytest_sme2.errors import EvidenceError, ModelError, Sme2Error, UsageError
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.files import file_sha256, safe_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "weights.toml"
TIMEOUT_SECONDS = 60.0
_BLOCK = 1 << 20
_LONGEST_NAME = 100
_LOST = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Upstream:
    """What a model's ``weights.toml`` says."""

    file: str
    """The file's name as it is published."""
    source: str
    """Where it is published, for people."""
    licence: str
    url: str = ""
    """The file itself, where it has an address."""
    sha256: str = ""
    """As many of its first digits as are published; empty where none are."""
    state: str = ""
    """The entry of the file that holds the state dict, where it is not the file itself."""
    prefix: str = ""
    """Only the weights whose names begin so; the rest belongs to parts that are not exported."""
    new_prefix: str = ""
    """What stands in its place."""
    note: str = ""


def upstream_of(entry: ModelEntry) -> Upstream | None:
    """What is known of the model's trained weights; None where its folder says nothing."""
    path = None if entry.folder is None else entry.folder / FILE_NAME
    if path is None or not path.is_file():
        return None
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}.") from error
    known = {field.name for field in fields(Upstream)}
    wrong = [
        name for name, value in document.items() if name not in known or type(value) is not str
    ]
    if wrong:
        raise ModelError(
            f"{path}: {', '.join(map(repr, wrong))} cannot be used. Every value is a string, and "
            f"the names are: {', '.join(sorted(known))}."
        )
    try:
        return Upstream(**document)
    except TypeError as error:
        raise ModelError(f"{path} is incomplete: give file, source and licence.") from error


def select_state(state: Any, upstream: Upstream | None) -> Any:
    """The exported part's weights out of the upstream file; any other state dict as it is."""
    if upstream is None or not isinstance(state, Mapping):
        return state
    if upstream.state and isinstance(state.get(upstream.state), Mapping):
        state = state[upstream.state]
    if upstream.prefix and any(str(name).startswith(upstream.prefix) for name in state):
        return {
            upstream.new_prefix + name[len(upstream.prefix) :]: value
            for name, value in state.items()
            if name.startswith(upstream.prefix)
        }
    return state


def misfit(wanted: Mapping[str, Any], given: Any) -> str:
    """What is wrong with the names and shapes of a state dict; empty where they fit."""
    if not isinstance(given, Mapping):
        return f"the file holds a {type(given).__name__}, not a state dict"
    missing = [name for name in wanted if name not in given]
    foreign = [str(name) for name in given if name not in wanted]
    other = [
        f"{name} is {_shape(given[name])} in place of {_shape(value)}"
        for name, value in wanted.items()
        if name in given and _shape(given[name]) != _shape(value)
    ]
    problems = []
    if missing:
        problems.append(f"{len(missing)} of {len(wanted)} weights are missing ({_few(missing)})")
    if foreign:
        problems.append(f"{len(foreign)} are not the model's ({_few(foreign)})")
    if other:
        problems.append(f"{len(other)} have another shape ({_few(other)})")
    return ", ".join(problems)


def _shape(value: Any) -> str:
    return "x".join(map(str, getattr(value, "shape", ()))) or "a scalar"


def _few(names: list[str], most: int = 2) -> str:
    shown = ", ".join(name[:_LONGEST_NAME] for name in names[:most])
    return f"{shown}, …" if len(names) > most else shown


def fetch_weights(
    entry: ModelEntry, place: str, *, cache: Path | None = None, say: Callable[[str], None]
) -> tuple[Path, str]:
    """A checked copy of the file at ``place`` (a path or an address) in the cache, and its hash."""
    upstream = upstream_of(entry)
    if upstream is None:
        raise UsageError(
            f"Nothing is known of trained weights for {entry.name!r}, so there is nothing to check "
            f"a file against. Give it to --weights as it is, or describe it in a {FILE_NAME} in "
            "the model's folder (see docs/models.md)."
        )
    folder = (cache or cache_folder()) / "weights" / safe_name(entry.name)
    partial = folder / ".partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if urllib.parse.urlsplit(place).scheme in ("http", "https", "file"):
            _download(place, partial, say)
        else:
            _copy(Path(place).expanduser(), partial)
        digest = file_sha256(partial)
        if not digest.startswith(upstream.sha256):
            raise EvidenceError(
                f"{place} is not {upstream.file}: its sha256 begins with "
                f"{digest[: len(upstream.sha256)]}, the published one with {upstream.sha256}. "
                f"Fetch it again from {upstream.source}."
            )
        # The name is the model's, not the address's: it ends up in a path.
        kept = folder / f"{digest[:12]}{Path(upstream.file).suffix}"
        partial.replace(kept)
    except OSError as error:
        raise Sme2Error(f"The weights cannot be kept in {folder}: {error}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return kept, digest


def _copy(file: Path, target: Path) -> None:
    if not file.is_file():
        raise UsageError(f"There is no file {str(file)!r}. Name the one that you fetched.")
    shutil.copyfile(file, target)


def _download(address: str, target: Path, say: Callable[[str], None]) -> None:
    parts = urllib.parse.urlsplit(address)
    # What this very machine serves crosses no network that could change it.
    local = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if parts.scheme != "https" and not local:
        raise UsageError(f"{address!r} is not an https address. Name one, or a file.")
    say(f"fetching {address}")
    try:
        answer = urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS)  # noqa: S310 - see above
        with answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file, _BLOCK)
            told, received = answer.headers.get("Content-Length"), file.tell()
        # A connection that ends early looks like the end of the file.
        if told is not None and told.isdigit() and int(told) != received:
            raise ConnectionError(f"{received} of {told} bytes came")
    except _LOST as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise Sme2Error(
            f"{address} cannot be fetched: {reason}. Fetch the file by other means and name "
            "it with --from FILE."
        ) from error
