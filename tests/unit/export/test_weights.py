"""What a model says about trained weights, and which files are accepted."""

from __future__ import annotations

import hashlib
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import ExportError, ModelError, Sme2Error, UsageError
from pytest_sme2.export.registry import ModelEntry, discover
from pytest_sme2.export.weights import Upstream, fetch_weights, select_state, upstream_of
from tests.support import Command

MODEL = "from pytest_sme2 import register_model\n@register_model('net; x')\nclass M: pass\n"
CONTENT = b"weights"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
DESCRIBED = 'file = "net.pt"\nsource = "a place"\nlicence = "MIT"\n'


def model(folder: Path, text: str | None) -> ModelEntry:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    if text is not None:
        (folder / "weights.toml").write_text(text, encoding="utf-8")
    return discover([folder]).get("net; x")


def fetch(folder: Path, url: str, digest: str = DIGEST) -> Path:
    """The file at this address for a model that publishes this hash."""
    text = f'{DESCRIBED}url = "{url}"\nsha256 = "{digest}"\n'
    return fetch_weights(model(folder / "one", text), lambda line: None)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))


def kept_files(folder: Path) -> list[str]:
    found = (folder / "cache" / "pytest-sme2" / "weights").rglob("*")
    return [path.name for path in found if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file = ", "is not valid TOML"),
        ("a." * 5000 + "a = 1", "cannot be used|nested"),
        ("a = [" * 5000, "is not valid TOML"),
        ('file = "f"\n', "give file, source and licence"),
        (DESCRIBED + 'colour = "red"\n', "'colour' cannot be used"),
        (DESCRIBED + "note = 3\n", "'note' cannot be used"),
    ],
)
def test_a_wrong_description_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        upstream_of(model(tmp_path / "one", text))


def test_without_an_address_and_a_whole_hash_nothing_is_fetched(tmp_path: Path) -> None:
    assert upstream_of(model(tmp_path / "one", None)) is None
    told = r"No weights\.toml of 'net; x' names a url and a whole sha256"
    with pytest.raises(UsageError, match=rf"{told}\. Name your file with --weights FILE"):
        fetch_weights(model(tmp_path / "one", None), print)
    for url, digest in (("", DIGEST), ("https://127.0.0.1:1/x", DIGEST[:63])):
        with pytest.raises(UsageError, match=rf"{told}\. Download net\.pt from a place\."):
            fetch(tmp_path, url, digest)
    for address in ("http://example.invalid/x", f"file://{tmp_path}/one/model.py"):
        with pytest.raises(UsageError, match="not an https address"):
            fetch(tmp_path, address)
    with pytest.raises(Sme2Error, match=r"cannot be downloaded.*--weights FILE"):
        fetch(tmp_path, "https://127.0.0.1:1/x")


class Served(http.server.BaseHTTPRequestHandler):
    """Serves the weights as they are, cut off, or not at all."""

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
        elif self.path == "/nonsense":
            self.wfile.write(b"what?\r\n\r\n")
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:3] if self.path == "/cut" else CONTENT)

    def log_message(self, *arguments: object) -> None:
        """Discard progress."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served) as served:
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def test_a_served_file_is_kept_and_checked_whenever_it_is_used(tmp_path: Path, server: str) -> None:
    for _ in range(2):
        kept = fetch(tmp_path, f"{server}/net.pt")
        assert (kept.suffix, kept.read_bytes()) == (".pt", CONTENT)
        assert list(kept.parent.iterdir()) == [kept]
        kept.write_bytes(b"other")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("cut", "is not net.pt: its sha256 is "),
        ("missing", "cannot be downloaded: Not Found"),
        ("nonsense", "what?"),
    ],
)
def test_what_is_not_the_published_file_is_not_kept(
    tmp_path: Path, server: str, path: str, reason: str
) -> None:
    with pytest.raises(Sme2Error, match=re.escape(reason)):
        fetch(tmp_path, f"{server}/{path}")
    assert kept_files(tmp_path) == []


def test_exported_part_is_selected_by_prefix() -> None:
    upstream = Upstream("f", "s", "l", state="model", prefix="encoder.", new_prefix="net.")
    whole = {"model": {"encoder.a": 1, "decoder.b": 2}, "epoch": 3}
    assert select_state(whole, upstream) == {"net.a": 1}
    # A state dict of the exported network itself is taken as it is.
    assert select_state({"net.a": 1}, upstream) == {"net.a": 1}
    assert select_state({"a": 1}, None) == {"a": 1}
    assert select_state([1], upstream) == [1]


def test_the_command_exports_with_what_it_fetched(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    model(tmp_path / "one", f'{DESCRIBED}url = "{server}/net.pt"\nsha256 = "{DIGEST}"\n')
    used: list[bytes] = []

    def stop(*_: object, weights: Path, **__: object) -> None:
        used.append(weights.read_bytes())
        raise ExportError("as far as this test goes")

    monkeypatch.setattr("pytest_sme2.cli.commands.export.export_model", stop)
    words = ("export", "net; x", "--models-folder", tmp_path / "one", "--fetch-weights")
    sme2(*words, code=ExportError.exit_code)
    sme2(*words, "--weights", tmp_path / "file", code=2)
    assert used == [CONTENT]
