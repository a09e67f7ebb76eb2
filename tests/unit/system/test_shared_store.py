"""A store for all machines, served by nginx: what arrives is whole, or does not arrive."""

from __future__ import annotations

import json
import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import Sme2Warning, UsageError
from pytest_sme2.system import shared_store
from pytest_sme2.system.cache import mark_cache
from pytest_sme2.system.shared_store import fetch, offer
from tests.support.web_server import TOKEN, WebServer, web_server

Use = Callable[..., None]
NAME = "ab" * 16
CONTENT = {"result.json": b"{}", "outputs/0.bin": os.urandom(300_000), "runner": b"#!/bin/sh\n"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    with web_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Choose a store, which has not failed so far."""
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    # However busy this machine is.
    monkeypatch.setattr(shared_store, "ANSWER_SECONDS", 120.0)

    def choose(address: str, *, write: bool = False, **variables: str) -> None:
        shared_store._opened.cache_clear()
        monkeypatch.setenv("SME2_STORE", address)
        monkeypatch.setenv("SME2_STORE_WRITE", "1" if write else "0")
        for name in ("TOKEN", "KEY"):
            monkeypatch.setenv(f"SME2_STORE_{name}", variables.get(name.lower(), ""))

    yield choose
    shared_store._opened.cache_clear()


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return (tmp_path / "a store").as_uri()
    for path in request.getfixturevalue("server").files.rglob("*"):
        if path.is_file():
            path.unlink()
    return f"{request.getfixturevalue('server').address}/open/"


def made_here(cache: Path) -> Path:
    mark_cache(cache)
    folder = cache / "emulated" / NAME
    for name, content in CONTENT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "runner").chmod(0o755)
    return folder


def is_whole(folder: Path) -> bool:
    return {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT


def test_another_machine_finds_what_one_has_made(tmp_path: Path, address: str, use: Use) -> None:
    first, second = made_here(tmp_path / "first"), tmp_path / "at another path"
    use(address)
    offer("emulated", NAME, first, made=True)
    assert fetch("emulated", NAME, second) is None, "only a trusted job writes"
    use(address, write=True)
    offer("emulated", NAME, first, made=False)
    use(address)
    found = fetch("emulated", NAME, second)
    assert found == second / "emulated" / NAME
    assert is_whole(found)
    assert os.access(found / "runner", os.X_OK)
    assert not os.access(found / "result.json", os.X_OK)
    assert fetch("emulated", NAME[::-1], second) is None


def test_what_is_there_is_not_sent_again(tmp_path: Path, server: WebServer, use: Use) -> None:
    folder = made_here(tmp_path / "first")
    seen = []
    for _ in range(2):
        use(f"{server.address}/open", write=True)
        offer("emulated", NAME, folder, made=True)
        seen.append(server.state())
    changed = dict(seen[0] ^ seen[1])
    assert [name.parent.name for name in changed] == ["ac"], "the list alone"


def largest(store: Path) -> Path:
    return max((store / "cas").iterdir(), key=lambda path: path.stat().st_size)


def replace(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda store: largest(store).write_bytes(change(largest(store).read_bytes()))


def rewrite(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(store: Path) -> None:
        (path,) = (store / "ac").iterdir()
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return damage


def lead_out(entry: dict[str, Any]) -> None:
    entry["files"]["../../../planted"] = entry["files"].pop("result.json")


@pytest.mark.parametrize(
    "damage",
    [
        replace(lambda data: data[:-1]),
        replace(lambda data: data[::-1]),
        replace(lambda data: data + b"x"),
        lambda store: largest(store).unlink(),
        lambda store: next((store / "ac").iterdir()).write_bytes(b"\xff[" * 100_000),
        rewrite(lead_out),
        rewrite(lambda entry: entry.update(name="cd" * 16)),
        rewrite(lambda entry: entry.update(kind="runners")),
        rewrite(lambda entry: entry.update(folder=f"{NAME}/../../planted")),
        rewrite(lambda entry: entry["files"]["result.json"].update(sha256="../ac/x")),
        rewrite(lambda entry: entry["files"]["result.json"].update(bytes=-1)),
        rewrite(lambda entry: entry["files"]["result.json"].update(bytes=1 << 60)),
        rewrite(lambda entry: entry.pop("files")),
        rewrite(lambda entry: entry.update(signature="\u00e9\ud800")),
    ],
)
def test_what_was_damaged_or_made_up_is_not_used_and_can_be_replaced(
    tmp_path: Path, address: str, server: WebServer, use: Use, damage: Callable[[Path], None]
) -> None:
    folder = made_here(tmp_path / "first")
    use(address, write=True)
    offer("emulated", NAME, folder, made=True)
    damage(tmp_path / "a store" if address.startswith("file") else server.files)
    assert fetch("emulated", NAME, tmp_path / "second") is None
    assert [path for path in (tmp_path / "second").rglob("*") if path.is_file()] == []
    assert not list(tmp_path.rglob("planted"))
    offer("emulated", NAME, folder, made=True)
    assert is_whole(fetch("emulated", NAME, tmp_path / "third"))


def test_a_list_without_the_signature_is_not_used(tmp_path: Path, address: str, use: Use) -> None:
    folder = made_here(tmp_path / "first")
    for written, read, whole in (("", "k", False), ("k", "k", True), ("j", "k", False)):
        use(address, write=True, key=written)
        offer("emulated", NAME, folder, made=True)
        use(address, key=read)
        found = fetch("emulated", NAME, tmp_path / "second")
        assert (found is not None) is whole


def test_a_password_is_sent_and_not_told(tmp_path: Path, server: WebServer, use: Use) -> None:
    """As docs/ci/store.conf has it: who reads needs none."""
    folder = made_here(tmp_path / "first")
    password = TOKEN.partition(":")[2]
    use(f"{server.address}/store", write=True, token=f"{TOKEN}-wrong")
    with pytest.warns(Sme2Warning, match="401") as said:
        offer_often(folder)
    assert password not in str(said[0].message)
    use(f"{server.address}/store", write=True, token=TOKEN)
    offer("emulated", NAME, folder, made=True)
    assert password not in repr(shared_store._store())
    use(f"{server.address}/store")
    assert is_whole(fetch("emulated", NAME, tmp_path / "second"))


def test_a_token_is_sent(tmp_path: Path, server: WebServer, use: Use) -> None:
    use(f"{server.address}/open", write=True)
    offer("emulated", NAME, made_here(tmp_path / "first"), made=True)
    use(f"{server.address}/locked", token="a-token")
    assert is_whole(fetch("emulated", NAME, tmp_path / "second"))
    use(f"{server.address}/locked", token="another")
    assert fetch("emulated", NAME, tmp_path / "third") is None


def offer_often(folder: Path) -> None:
    for _ in range(5):
        offer("emulated", NAME, folder, made=True)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("broken", "500"),
        ("moved", "302"),
        ("slow", "more than"),
        ("hanging", "more than|timed out"),
        ("down", "refused"),
    ],
)
def test_a_store_that_fails_is_left_alone_after_one_line(
    tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    with web_server(tmp_path / "server") as server:
        use(f"{server.address}/open", write=True)
        offer("emulated", NAME, made_here(tmp_path / "first"), made=True)
        use(f"{server.address}/{fault if fault in ('broken', 'moved', 'slow') else 'open'}")
        if fault in ("slow", "hanging"):
            # The answer never comes in time, however fast this machine is.
            monkeypatch.setattr(shared_store, "ANSWER_SECONDS", 0.5)
        if fault == "hanging":
            server.process.send_signal(signal.SIGSTOP)
        if fault == "down":
            server.process.kill()
            server.process.wait()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(5):
                assert fetch("emulated", NAME, tmp_path / "third") is None
        assert [type(one.message) for one in said] == [Sme2Warning]
        assert re.search(f"is not asked any more in this run: .*({why})", str(said[0].message))


def test_a_full_store_is_still_read(tmp_path: Path, server: WebServer, use: Use) -> None:
    folder = made_here(tmp_path / "first")
    use(f"{server.address}/open", write=True)
    offer("emulated", NAME, folder, made=True)
    (folder / "new").write_bytes(b"more than the ten bytes that are left there")
    use(f"{server.address}/full", write=True)
    with pytest.warns(Sme2Warning, match="not written to any more") as said:
        offer_often(folder)
    assert len(said) == 1
    assert is_whole(fetch("emulated", NAME, tmp_path / "second"))


def test_many_machines_at_the_same_time(tmp_path: Path, address: str, use: Use) -> None:
    use(address, write=True)
    folder = made_here(tmp_path / "first")
    offer("emulated", NAME, folder, made=True)

    def work(number: int) -> Path | None:
        offer("emulated", NAME, folder, made=True)
        return fetch("emulated", NAME, tmp_path / str(number))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    assert all(path is not None and is_whole(path) for path in found)


@pytest.mark.parametrize(
    "address",
    ["http://store.example", "https://", "ftp://x/y", "/folder", "https://a/?b", "file://host/x"],
)
def test_an_address_that_cannot_be_used_is_refused(tmp_path: Path, use: Use, address: str) -> None:
    use(address)
    with pytest.raises(UsageError, match="is not the address of a store"):
        fetch("emulated", NAME, tmp_path)


def test_a_password_in_the_address_is_refused_and_not_told(tmp_path: Path, use: Use) -> None:
    use(f"https://{TOKEN}@store.example/x")
    with pytest.raises(UsageError, match="SME2_STORE_TOKEN") as refused:
        fetch("emulated", NAME, tmp_path)
    assert TOKEN.partition(":")[2] not in str(refused.value)
