"""One store for all machines: exports, runners and counted runs, found by what they are made from.

It is asked in the HTTP protocol of Bazel's clients, so servers for it exist: ``ac/<hash of the
name>`` is a list of files, and ``cas/<sha256>`` is a file. It only saves time: what does not arrive
whole is made here.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import functools
import hashlib
import hmac
import http.client
import io
import json
import os
import re
import threading
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar
from urllib.parse import unquote, urlsplit

from pytest_sme2.errors import Sme2Error, Sme2Warning, UsageError, plain
from pytest_sme2.system.cache import KINDS, put_in_place, working_folder
from pytest_sme2.system.files import (
    FileFacts,
    decode,
    encode,
    file_facts,
    file_sha256,
    inside,
    replacing,
)
from pytest_sme2.system.reading import json_value, open_plain

ADDRESS, WRITE = "SME2_STORE", "SME2_STORE_WRITE"
TOKEN, KEY = "SME2_STORE_TOKEN", "SME2_STORE_KEY"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# For one file: so long, and so many more bytes a second. A slower store is not worth waiting for.
ANSWER_SECONDS = 5.0
_BYTES_PER_SECOND = 5e6
_MOST_FAILURES = 3
_LONGEST_LIST = 1 << 20
_LARGEST = 16 << 30
_PIECE = 1 << 16
_TROUBLE = (OSError, http.client.HTTPException, ValueError, Sme2Error)
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class _List:
    """What an ``ac`` holds: the files of one folder of the cache."""

    kind: str
    name: str
    """By which it is looked up; of an export this is the start of the folder's name."""
    folder: str
    files: dict[str, FileFacts]
    signature: str = ""
    """Of all the rest, by the key."""


def fetch(kind: str, name: str, cache: Path) -> Path | None:
    """What the store has under this name, in its folder of the cache. Hold the lock of the name."""
    store = _store()
    return None if store is None else store.attempt("GET", lambda: store.fetch(kind, name, cache))


def offer(kind: str, name: str, folder: Path, *, made: bool) -> None:
    """Put a folder of the cache into the store, if this job may write there.

    What was not ``made`` just now is offered only where the store has nothing of this name.
    """
    store = _store()
    if store is not None and store.writes:
        store.attempt("PUT", lambda: store.offer(kind, name, folder, made))


def _store() -> Store | None:
    address, write, token, key = (os.environ.get(name, "") for name in (ADDRESS, WRITE, TOKEN, KEY))
    return _opened(address, token, key, write == "1") if address else None


@functools.cache
def _opened(address: str, token: str, key: str, writes: bool) -> Store:
    parts = urlsplit(address)
    # The address is in messages, and what crosses a network unprotected can be changed there.
    if parts.password is not None or parts.username is not None:
        raise UsageError(f"{ADDRESS} contains a password. Give USER:PASSWORD as {TOKEN}.")
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Store(address, writes, key, folder=Path(unquote(parts.path)))
    here = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not (parts.hostname and (parts.scheme == "https" or here)) or parts.query or parts.fragment:
        raise UsageError(
            f"{ADDRESS}={address!r} is not the address of a store. Give https://HOST/PATH, "
            "http://127.0.0.1:PORT/PATH for a server or tunnel of this machine, or file:///FOLDER."
        )
    basic = f"Basic {base64.b64encode(token.encode()).decode()}"
    login = basic if ":" in token else f"Bearer {token}"
    return Store(address.rstrip("/"), writes, key, login=login if token else "", here=here)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another server would be given the token."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


@dataclass(eq=False)
class Store:
    """A store, and how often it has failed in this process."""

    address: str
    writes: bool
    key: str = field(repr=False)
    """Signs lists, so that the store cannot make one up."""
    login: str = field(default="", repr=False)
    folder: Path | None = None
    here: bool = False
    """Whether it is on this machine, to which no proxy leads."""
    failures: dict[str, int] = field(default_factory=lambda: {"GET": 0, "PUT": 0})
    damaged: set[str] = field(default_factory=set)
    """Files that did not arrive whole: they are written again."""
    offered: set[str] = field(default_factory=set)

    def attempt(self, method: str, work: Callable[[], _Value]) -> _Value | None:
        """What ``work`` gives; None where the store fails, which is then left alone before long."""
        if self.failures[method] >= _MOST_FAILURES:
            return None
        try:
            found = work()
        except _TROUBLE as error:
            self.failures[method] += 1
            if self.failures[method] == _MOST_FAILURES:
                doing = "asked" if method == "GET" else "written to"
                text = f"The store {self.address} is not {doing} any more in this run: {error}"
                warnings.warn(Sme2Warning(plain(text)), stacklevel=5)
            return None
        self.failures[method] = 0
        return found

    def fetch(self, kind: str, name: str, cache: Path) -> Path | None:
        text = io.BytesIO()
        listed = f"ac/{_digest(kind, name)}"
        if not _within(ANSWER_SECONDS, lambda: self._read(listed, text, _LONGEST_LIST)):
            return None
        entry = self._checked(text.getvalue(), kind, name)
        final = cache / kind / entry.folder
        final.parent.mkdir(parents=True, exist_ok=True)
        with working_folder(final) as work:
            for relative, file in entry.files.items():
                path = inside(work, relative)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._fetch_file(file, path)
                path.chmod(0o755 if file.executable else 0o644)
            put_in_place(work, final)
        return final

    def _checked(self, text: bytes, kind: str, name: str) -> _List:
        where = f"{self.address}, {kind} {name}"
        found: _List = decode(json_value(text, where, remedy=""), _List, where, remedy="")
        right = self._signed(found).signature
        if not hmac.compare_digest(right.encode(), found.signature.encode()):
            raise ValueError(f"a list has another signature; {KEY} says which is right")
        # By its pattern alone it could still lead out of the cache.
        ours = re.fullmatch(KINDS[kind], found.folder) and Path(found.folder).name == found.folder
        same = (found.kind, found.name) == (kind, name) and found.folder.startswith(name)
        if not same or not ours:
            raise ValueError("a list belongs to something else")
        if sum(max(file.bytes, 0) for file in found.files.values()) > _LARGEST:
            raise ValueError("a list has too much to fetch")
        return found

    def _signed(self, entry: _List) -> _List:
        text = json.dumps(encode(replace(entry, signature="")), sort_keys=True).encode()
        made = hmac.new(self.key.encode(), text, "sha256").hexdigest() if self.key else ""
        return replace(entry, signature=made)

    def _fetch_file(self, file: FileFacts, path: Path) -> None:
        if not re.fullmatch("[0-9a-f]{64}", file.sha256):
            raise ValueError(f"{file.sha256!r} is not a SHA-256")

        def read() -> bool:
            with path.open("xb") as out:
                return self._read(f"cas/{file.sha256}", out, file.bytes)

        self.damaged.add(file.sha256)
        found = _within(_patience(file.bytes), read)
        if not found or path.stat().st_size != file.bytes or file_sha256(path) != file.sha256:
            raise ValueError(f"the file {file.sha256} is {'damaged' if found else 'missing'} there")
        self.damaged.discard(file.sha256)

    def offer(self, kind: str, name: str, folder: Path, made: bool) -> None:
        listed = f"ac/{_digest(kind, name)}"
        if not made and (listed in self.offered or self._has(listed)):
            self.offered.add(listed)
            return
        files = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                file = file_facts(path)
                files[path.relative_to(folder).as_posix()] = file
                self._offer_file(file, path)
        signed = self._signed(_List(kind, name, folder.name, files))
        text = json.dumps(encode(signed)).encode()
        # Last: whoever finds the list finds the files.
        _within(ANSWER_SECONDS, lambda: self._write(listed, io.BytesIO(text), len(text)))

    def _offer_file(self, file: FileFacts, path: Path) -> None:
        name = f"cas/{file.sha256}"

        def write() -> None:
            with path.open("rb") as content:
                self._write(name, content, file.bytes)

        if file.sha256 in self.damaged or not self._has(name):
            _within(_patience(file.bytes), write)

    def _read(self, name: str, out: IO[bytes], limit: int) -> bool:
        """Copy a file of the store; False where it has none."""
        with contextlib.ExitStack() as stack:
            try:
                if self.folder is not None:
                    answer: Any = stack.enter_context(open_plain(self.folder / name))
                else:
                    answer = stack.enter_context(self._ask("GET", name))
            except (FileNotFoundError, NotADirectoryError):
                return False
            copied = 0
            while piece := answer.read1(_PIECE):
                copied += len(piece)
                if copied > limit:
                    raise ValueError(f"{name} has more than {limit} bytes there")
                out.write(piece)
        return True

    def _has(self, name: str) -> bool:
        def look() -> bool:
            try:
                if self.folder is not None:
                    return (self.folder / name).is_file()
                with self._ask("HEAD", name):
                    return True
            except FileNotFoundError:
                return False

        return _within(ANSWER_SECONDS, look)

    def _write(self, name: str, content: BinaryIO, size: int) -> None:
        if self.folder is not None:
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as file:
                while piece := content.read(_PIECE):
                    file.write(piece)
            return
        with self._ask("PUT", name, content, size):
            pass

    @contextlib.contextmanager
    def _ask(
        self, method: str, name: str, content: BinaryIO | None = None, size: int = 0
    ) -> Iterator[http.client.HTTPResponse]:
        headers = {"Authorization": self.login} if self.login else {}
        if content is not None:
            headers |= {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            f"{self.address}/{name}", content, headers, method=method
        )
        try:
            proxies = urllib.request.ProxyHandler({} if self.here else None)
            opener = urllib.request.build_opener(_NoRedirects, proxies)
            with opener.open(request, timeout=ANSWER_SECONDS) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.NOT_FOUND:
                raise FileNotFoundError(name) from None
            raise OSError(f"it answers {error.code} {error.reason} to {method} {name}") from None


def _digest(kind: str, name: str) -> str:
    return hashlib.sha256(f"pytest-sme2\0{kind}\0{name}".encode()).hexdigest()


def _patience(size: int) -> float:
    return ANSWER_SECONDS + size / _BYTES_PER_SECOND


def _within(seconds: float, work: Callable[[], _Value]) -> _Value:
    """What ``work`` gives, within this time: a socket's own limit holds for each of its bytes."""
    done: concurrent.futures.Future[_Value] = concurrent.futures.Future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # raised again below
            done.set_exception(error)

    # Not one of a pool: at its end, the process would wait for it.
    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(seconds)
    except concurrent.futures.TimeoutError:
        raise TimeoutError(f"it takes more than {seconds:.0f} s") from None
