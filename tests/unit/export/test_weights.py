"""What a model says about trained weights, and which files are accepted."""

from __future__ import annotations

import hashlib
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import EvidenceError, ExportError, ModelError, Sme2Error, UsageError
from pytest_sme2.export import weights
from pytest_sme2.export.registry import ModelEntry, discover
from pytest_sme2.export.weights import Upstream, fetch_weights, misfit, select_state, upstream_of

MODEL = "from pytest_sme2 import register_model\n@register_model('net; x')\nclass M: pass\n"
CONTENT = b"weights"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def model(folder: Path, text: str | None) -> ModelEntry:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    if text is not None:
        (folder / "weights.toml").write_text(text, encoding="utf-8")
    return discover([folder], entry_points=False).get("net; x")


def described(digest: str = "") -> str:
    return f'file = "net.pt"\nsource = "a place"\nlicence = "MIT"\nsha256 = "{digest}"\n'


def fetch(folder: Path, place: object, digest: str | None = "", **options: Any) -> tuple[Path, str]:
    """The file at ``place`` for a model that publishes these digits, or describes no file."""
    entry = model(folder / "one", None if digest is None else described(digest))
    return fetch_weights(entry, str(place), **{"say": lambda line: None, **options})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))


def kept_files(folder: Path) -> list[str]:
    found = (folder / "cache" / "pytest-sme2" / "weights").rglob("*")
    return [path.name for path in found if path.is_file() and path.suffix != ".lock"]


def test_folder_without_description_has_no_upstream(tmp_path: Path) -> None:
    assert upstream_of(model(tmp_path / "one", None)) is None
    with pytest.raises(UsageError, match=r"a file cannot be checked.*weights\.toml"):
        fetch(tmp_path, "file", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file = ", "is not valid TOML"),
        ("a." * 5000 + "a = 1", "cannot be used|nested"),
        ("a = [" * 5000, "is not valid TOML"),
        ('file = "f"\n', "give file, source and licence"),
        (described() + 'colour = "red"\n', "'colour' cannot be used"),
        (described() + "note = 3\n", "'note' cannot be used"),
    ],
)
def test_a_wrong_description_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        upstream_of(model(tmp_path / "one", text))


@pytest.mark.parametrize("digits", [0, 8, 64])
def test_the_published_file_is_kept(tmp_path: Path, digits: int) -> None:
    file = tmp_path / "my $(file).bin"
    file.write_bytes(CONTENT)
    given = "" if digits == 64 else DIGEST.upper()
    kept, digest = fetch(tmp_path, file, DIGEST[:digits], sha256=given)
    assert digest == DIGEST
    assert kept.read_bytes() == CONTENT
    assert kept.suffix == ".pt"
    assert list(kept.parent.iterdir()) == [kept]


@pytest.mark.parametrize("digits", [0, 8, 63])
def test_a_part_of_the_hash_is_not_enough(tmp_path: Path, digits: int) -> None:
    file, known = tmp_path / "file", DIGEST[:digits]
    file.write_bytes(CONTENT)
    with pytest.raises(EvidenceError, match=rf"{digits} of the 64 digits.*--sha256 {DIGEST}"):
        fetch(tmp_path, file, known)
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        fetch(tmp_path, file, known, sha256=DIGEST[:8])
    with pytest.raises(EvidenceError, match="the given one with 000"):
        fetch(tmp_path, file, known, sha256="0" * 64)
    with pytest.raises(EvidenceError, match=rf"begins with {DIGEST[:8]}.*00000000") as caught:
        fetch(tmp_path, file, "0" * 8)
    assert caught.value.exit_code == 1
    assert kept_files(tmp_path) == []


def test_unavailable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        fetch(tmp_path, tmp_path / "missing")
    for address in ("http://example.invalid/x", f"file://{tmp_path}/one/model.py"):
        with pytest.raises(UsageError, match="not an https address"):
            fetch(tmp_path, address)
    with pytest.raises(Sme2Error, match=r"cannot be downloaded.*--fetch-weights FILE"):
        fetch(tmp_path, "https://127.0.0.1:1/x")


class Served(http.server.BaseHTTPRequestHandler):
    """Serves the weights as they are, cut off, or not at all."""

    def do_GET(self) -> None:
        elsewhere = {"/elsewhere": "http://example.invalid/net.pt", "/again": "/net.pt"}
        if self.path == "/missing":
            self.send_error(404)
        elif self.path == "/nonsense":
            self.wfile.write(b"what?\r\n\r\n")
        elif self.path in elsewhere:
            self.send_response(302)
            self.send_header("Location", elsewhere[self.path])
            self.end_headers()
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


# A redirect on this machine is followed.
@pytest.mark.parametrize("name", ["net.pt", "again"])
def test_a_served_file_is_kept_and_one_with_another_hash_takes_nothing_away(
    tmp_path: Path, server: str, name: str
) -> None:
    said: list[str] = []
    kept, digest = fetch(tmp_path, f"{server}/{name}", DIGEST, say=said.append)
    assert digest == DIGEST
    assert said == [f"fetching {server}/{name}"]
    with pytest.raises(EvidenceError, match=r"is not net\.pt: its sha256 begins with"):
        fetch(tmp_path, f"{server}/net.pt", "0" * 8)
    assert list(kept.parent.iterdir()) == [kept]
    assert kept.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("cut", "only 3 of 7 bytes arrived"),
        ("missing", "Not Found"),
        ("nonsense", "what?"),
        ("elsewhere", "redirects to 'http://example.invalid/net.pt', which is not https"),
        ("endless", "it has more than"),
    ],
)
def test_incomplete_download_is_not_kept(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch, path: str, reason: str
) -> None:
    if path == "endless":
        monkeypatch.setattr(weights, "LARGEST_BYTES", 3)
    # Nothing is published to check it against: only the length tells.
    with pytest.raises(Sme2Error, match=f"cannot be downloaded.*{re.escape(reason)}"):
        fetch(tmp_path, f"{server}/{path}")
    assert kept_files(tmp_path) == []


def test_a_second_process_does_not_touch_the_file_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both start at once; the second brings another file while the first checks its own."""
    (tmp_path / "good").write_bytes(CONTENT)
    (tmp_path / "bad").write_bytes(b"other")
    refused: list[str] = []

    def second() -> None:
        try:
            fetch(tmp_path, tmp_path / "bad", DIGEST)
        except EvidenceError as error:
            refused.append(str(error))

    other = threading.Thread(target=second)
    check = weights._check

    def slow_check(*arguments: str) -> None:
        check(*arguments)  # type: ignore[arg-type]
        if not refused and other.ident is None:
            other.start()
            other.join(0.3)

    monkeypatch.setattr(weights, "_check", slow_check)
    kept, _ = fetch(tmp_path, tmp_path / "good", DIGEST)
    other.join(60)
    assert kept.read_bytes() == CONTENT
    assert len(refused) == 1


class Tensor(NamedTuple):
    shape: tuple[int, ...]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"a": Tensor((2, 3)), "b": Tensor(())}, ""),
        ({"net.a": Tensor((2, 3)), "net.b": Tensor(())},
         "2 of 2 weights missing (a, b), 2 do not belong to the model (net.a, net.b)"),
        ({"a": Tensor((3, 2)), "b": Tensor(())},
         "1 have another shape (a is 3x2 instead of 2x3)"),
        ({"a": Tensor((2, 3)), "b": Tensor(()), **{f"x{n}": 0 for n in range(4)}},
         "4 do not belong to the model (x0, x1, …)"),
        ([1], "the file contains a list, not a state dict"),
    ],
)  # fmt: skip
def test_misfitting_weights_are_counted_and_named(given: object, problem: str) -> None:
    assert misfit({"a": Tensor((2, 3)), "b": Tensor(())}, given) == problem


def test_exported_part_is_selected_by_prefix() -> None:
    upstream = Upstream("f", "s", "l", state="model", prefix="encoder.", new_prefix="net.")
    whole = {"model": {"encoder.a": 1, "decoder.b": 2}, "epoch": 3}
    assert select_state(whole, upstream) == {"net.a": 1}
    # A state dict of the exported network itself is taken as it is.
    assert select_state({"net.a": 1}, upstream) == {"net.a": 1}
    assert select_state({"a": 1}, None) == {"a": 1}
    assert select_state([1], upstream) == [1]


def test_the_command_fetches_nothing_unasked_and_exports_with_what_it_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model(tmp_path / "one", described(DIGEST))
    arguments = ["export", "net; x", "--models-folder", str(tmp_path / "one"), "--fetch-weights"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "licence  MIT" in told
    assert "sme2 export 'net; x' --fetch-weights FILE" in told
    assert not (tmp_path / "cache").exists()

    used: list[bytes] = []

    def stop(*_: object, weights: Path, **__: object) -> None:
        used.append(weights.read_bytes())
        raise ExportError("as far as this test goes")

    monkeypatch.setattr("pytest_sme2.cli.commands.export.export_model", stop)
    file = tmp_path / "file"
    for content, code in ((CONTENT, ExportError.exit_code), (b"other", 1)):
        file.write_bytes(content)
        assert main([*arguments, str(file)]) == code
    assert main([*arguments, str(file), "--weights", str(file)]) == 2
    assert used == [CONTENT]
