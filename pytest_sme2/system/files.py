"""Files: read whatever others wrote, hashes, safe names, atomic replacement, values as JSON.

A file that others wrote may be anything: missing, a device, endless, not text, deeply nested. Any
damage becomes one error with the place and the remedy.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from pytest_sme2.errors import Sme2Error, StorageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Far above every document that this project writes: 200 cases take 5 MB.
DOCUMENT_BYTES = 64 << 20


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading; OSError for anything else, which may be endless or block."""
    # Without O_NONBLOCK a pipe without a writer would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    return os.fdopen(descriptor, "rb")


@contextlib.contextmanager
def _readable(where: object, what: str, remedy: str, error: type[Sme2Error]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RecursionError, MemoryError) as reason:
        raise error(f"{where} cannot be read: {what}{_in_short(reason)}. {remedy}") from reason


def read_bytes(
    path: Path, *, remedy: str, limit: int = DOCUMENT_BYTES, error: type[Sme2Error] = Sme2Error
) -> bytes:
    """The content of a plain file of at most ``limit`` bytes."""
    with _readable(path, "", remedy, error), open_plain(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise error(f"{path} cannot be read: it has more than {limit >> 20} MiB. {remedy}")
    return data


def read_text_if_there(
    path: Path, *, remedy: str, limit: int = DOCUMENT_BYTES, error: type[Sme2Error] = Sme2Error
) -> str | None:
    """The text of a plain file, or None where there is no such file."""
    try:
        data = read_bytes(path, remedy=remedy, limit=limit, error=error)
    except error as reason:
        if isinstance(reason.__cause__, FileNotFoundError):
            return None
        raise
    with _readable(path, "", remedy, error):
        return data.decode("utf-8-sig")


def read_json(
    path: Path, *, remedy: str, error: type[Sme2Error] = Sme2Error, strict: bool = False
) -> Any:
    data = read_bytes(path, remedy=remedy, error=error)
    return json_value(data, str(path), remedy=remedy, error=error, strict=strict)


def read_members(path: Path) -> Mapping[str, Any]:
    """The members of a JSON object; none where there is no such object to be read."""
    try:
        document = read_json(path, remedy="")
    except Sme2Error:
        return {}
    return document if isinstance(document, dict) else {}


def json_value(
    data: bytes | str,
    where: str,
    *,
    remedy: str,
    error: type[Sme2Error] = Sme2Error,
    strict: bool = False,
) -> Any:
    """The value of a JSON text; ``strict`` refuses infinities and NaN, which JSON does not have,
    and a name that a table has twice, of which a reader may see the other one.
    """
    with _readable(where, "it is not valid JSON: ", remedy, error):
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        if not strict:
            return json.loads(text)
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_table)


def read_toml(path: Path, *, remedy: str, error: type[Sme2Error] = Sme2Error) -> Mapping[str, Any]:
    data = read_bytes(path, remedy=remedy, error=error)
    return toml_value(data, str(path), remedy=remedy, error=error)


def toml_value(
    data: bytes | str, where: str, *, remedy: str, error: type[Sme2Error] = Sme2Error
) -> Mapping[str, Any]:
    with _readable(where, "it is not valid TOML: ", remedy, error):
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        table: Mapping[str, Any] = tomllib.loads(text)
        return table


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice!r} stands twice in one table")
    return table


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _in_short(reason: Exception) -> str:
    if isinstance(reason, RecursionError):
        return "it is nested too deeply"
    if isinstance(reason, MemoryError):
        return "it does not fit into memory"
    if isinstance(reason, UnicodeDecodeError):
        return f"byte {reason.start} is not UTF-8"
    return getattr(reason, "strerror", None) or str(reason)[:300]


_PIECE = 1 << 20
PROGRAM_SUFFIX = ".pte"


def from_here(path: Path) -> Path:
    """The path as one types it in the working folder; as it is where it lies outside."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def is_program(name: str) -> bool:
    return name.endswith(PROGRAM_SUFFIX)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a plain file, read in pieces to save memory."""
    digest = hashlib.sha256()
    with open_plain(path) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def file_state(path: Path) -> tuple[int, ...]:
    """What changes when a file does; nothing where there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def total_bytes(path: Path) -> int:
    """The size of a file, or of all files of a folder; what cannot be looked at has none."""
    if path.is_dir():
        files = (Path(place, name) for place, _, names in os.walk(path) for name in names)
        return sum(map(total_bytes, files))
    try:
        return path.lstat().st_size
    except OSError:
        return 0


@dataclass(frozen=True)
class FileFacts:
    """By which a file is known again elsewhere."""

    bytes: int
    sha256: str
    executable: bool = False


def file_facts(path: Path) -> FileFacts:
    status = path.stat()
    return FileFacts(status.st_size, file_sha256(path), bool(status.st_mode & stat.S_IXUSR))


_LONGEST_SAFE_NAME = 120


def safe_name(name: str) -> str:
    """``name`` as a part of a file name: unique, and safe in shells, URLs and globs.

    Letters, digits, ``_``, and inner ``-``, ``.`` and ``@`` stay; any other byte becomes ``=XX``.
    A long name is cut and ends in ``==`` and its hash, which a short one cannot.
    """
    escaped = "".join(
        chr(byte)
        if re.match(rb"[A-Za-z0-9_]", bytes([byte])) or (position and byte in b".-@")
        else f"={byte:02X}"
        for position, byte in enumerate(name.encode("utf-8", "surrogatepass"))
    )
    if len(escaped) <= _LONGEST_SAFE_NAME:
        return escaped
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{escaped[: _LONGEST_SAFE_NAME - 34]}=={digest[:32]}"


def write_text(path: Path, text: str) -> None:
    """Replace a file: a reader sees the old one or the new one, never half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            # A file name may contain bytes that are not text; a report must not fail on them.
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> StorageError:
    """The message for a file of the run directory, or a report, that cannot be written."""
    return StorageError(
        f"{path}: cannot be written: {error.strerror or error}. Free space in {path.parent}, or "
        "choose another folder: --sme2-out, --sme2-report (pytest), --out, --html (sme2)."
    )


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """A file to write; it replaces ``path``, whole, when the block ends without an error.

    With ``durable`` a reader sees the old file or the new one even after a power failure.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_unfinished(path), suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        # mkstemp makes files that only their owner may read.
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill; it becomes ``path``, which is missing or empty, if the block does not fail.

    A process that is killed meanwhile leaves nothing there that could be taken for the whole.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = _unfinished(path)
    with tempfile.TemporaryDirectory(".tmp", prefix, path.parent) as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        yield made
        made.replace(path)


def new_file(path: Path) -> IO[bytes]:
    """A file to write and read, in the place of a file or link that had its name.

    Neither a link nor a second name of the old file leads the writing elsewhere. A device stays.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            path.unlink()
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "w+b")


def inside(folder: Path, name: str) -> Path:
    """The file that a document in ``folder`` names; ValueError where it is anywhere else."""
    path = folder / name
    try:
        contained = path.resolve().is_relative_to(folder.resolve())
    # A link to itself is a RuntimeError before Python 3.13.
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{name!r} cannot be followed: {error}") from error
    if Path(name).is_absolute() or ".." in Path(name).parts or not contained:
        raise ValueError(f"{name!r} is outside of {folder}")
    return path


def remove_leftovers(path: Path) -> None:
    """Remove the files of a killed ``replacing(path)``. No other process may write ``path`` now."""
    for leftover in path.parent.iterdir():
        if leftover.name.startswith(_unfinished(path)) and leftover.name.endswith(".tmp"):
            leftover.unlink(missing_ok=True)


def _unfinished(path: Path) -> str:
    """The start of the name of a file that will replace ``path``."""
    return f".{safe_name(path.name)}."


def make_folders(path: Path) -> None:
    """Make a folder and those above it; whatever the umask is, nobody else may write there."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(0o755, exist_ok=True)


def close_to_others(made: Path) -> None:
    """Take the right to write from all but this user. It may have been written under any umask."""
    for place, _, names in os.walk(made):
        for path in (Path(place), *(Path(place, name) for name in names)):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if not path.is_symlink() and mode & 0o022:
                path.chmod(mode & 0o755)
    made.chmod(0o755 & ~umask())


def umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


_SEAL = "sealed"


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """A document with a hash over all that it says: no part of it can be exchanged alone."""
    plain = {name: value for name, value in document.items() if name != _SEAL}
    text = json.dumps(plain, sort_keys=True)
    return {**plain, _SEAL: hashlib.sha256(text.encode()).hexdigest()}


def is_sealed(document: Any) -> bool:
    return isinstance(document, dict) and sealed(document) == document


def encode(value: object) -> Any:
    """A value of ``results`` as JSON types."""
    import msgspec

    # A number that numpy computed has a type of its own.
    def other(value: Any) -> str | float:
        return os.fspath(value) if isinstance(value, Path) else float(value)

    return msgspec.to_builtins(value, str_keys=True, enc_hook=other)


def decode(
    document: Any,
    kind: Any,
    where: Path | str,
    *,
    remedy: str = "Run the case again.",
    error: type[Sme2Error] = Sme2Error,
) -> Any:
    """A value from JSON types, or an error that names the place."""
    try:
        return structured(document, kind)
    except ValueError as reason:
        raise error(f"{where} is damaged: {reason}. {remedy}") from reason


def structured(document: Any, kind: Any) -> Any:
    """A value from JSON types, none of which becomes another; ValueError that names the place."""
    try:
        return _convert(document, kind)
    except Exception as error:  # a text that is not Unicode, or nested too deeply, has its own
        raise ValueError(_place_first(document, kind, str(error))) from error


def _convert(document: Any, kind: Any) -> Any:
    # What reads no values starts without it.
    import msgspec

    # Paths are the only ones of a kind that it does not know.
    return msgspec.convert(document, kind, str_keys=True, dec_hook=lambda kind, each: kind(each))


def _place_first(document: Any, kind: Any, said: str) -> str:
    """``medians_ns.on[2]: Expected …``: msgspec says it last, with [...] for a name in a table."""
    named = re.sub(r"`key` in `(.*)`", r"`\1[...]`", said)
    problem, _, where = named.partition(" - at `$")
    place, part = "", document
    for step in re.findall(r"\.\w+|\[\d+\]|\[\.\.\.\]", where):
        if step == "[...]":
            step = f".{_first_wrong(part, document, kind, said)}"
        place, part = place + step, part[int(step[1:-1]) if step[0] == "[" else step[1:]]
    # A word of a damaged file may be as long as the file.
    return (f"{place.lstrip('.')}: {problem}" if place else problem)[:300]


def _first_wrong(table: dict[str, Any], document: Any, kind: Any, said: str) -> str:
    """The name of the first entry of a table, inside of a document, for which this was said."""
    entries = [*table.items()]

    def with_first(count: int) -> bool:
        table.clear()
        table.update(entries[:count])
        try:
            _convert(document, kind)
        except Exception as error:
            return str(error) == said
        return False

    first = bisect.bisect_left(range(len(entries)), True, key=with_first)
    table.update(entries)
    return entries[first - 1][0]
