"""What is known of trained weights, and which files pass for them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pytest_sme2.cli import main
from pytest_sme2.errors import EvidenceError, ModelError, Sme2Error, UsageError
from pytest_sme2.registry import ModelEntry, discover
from pytest_sme2.weights import Upstream, fetch_weights, select_state, upstream_of

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


def quiet(line: str) -> None:
    """Nobody is watching."""


def test_a_folder_that_says_nothing_has_no_upstream(tmp_path: Path) -> None:
    entry = model(tmp_path / "one", None)
    assert upstream_of(entry) is None
    with pytest.raises(UsageError, match=r"nothing to check a file against.*weights\.toml"):
        fetch_weights(entry, "file", cache=tmp_path, say=quiet)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file = ", "cannot be read"),
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
    entry = model(tmp_path / "one", described(DIGEST[:digits]))
    file = tmp_path / "my $(file).bin"
    file.write_bytes(CONTENT)
    kept, digest = fetch_weights(entry, str(file), cache=tmp_path / "cache", say=quiet)
    assert digest == DIGEST
    assert kept.read_bytes() == CONTENT
    assert kept.suffix == ".pt"
    assert list(kept.parent.iterdir()) == [kept]


def test_another_file_is_refused_and_not_kept(tmp_path: Path) -> None:
    entry = model(tmp_path / "one", described("0" * 8))
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    with pytest.raises(EvidenceError, match=rf"begins with {DIGEST[:8]}.*00000000") as caught:
        fetch_weights(entry, str(file), cache=tmp_path / "cache", say=quiet)
    assert caught.value.exit_code == 1
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_what_cannot_be_had_is_said(tmp_path: Path) -> None:
    entry = model(tmp_path / "one", described())
    with pytest.raises(UsageError, match="There is no file"):
        fetch_weights(entry, str(tmp_path / "missing"), cache=tmp_path, say=quiet)
    for address in ("http://127.0.0.1/x", f"file://{tmp_path}/one/model.py"):
        with pytest.raises(UsageError, match="not an https address"):
            fetch_weights(entry, address, cache=tmp_path, say=quiet)
    with pytest.raises(Sme2Error, match=r"cannot be fetched.*--from FILE"):
        fetch_weights(entry, "https://127.0.0.1:1/x", cache=tmp_path, say=quiet)


def test_the_exported_part_is_taken_out_of_the_whole() -> None:
    upstream = Upstream("f", "s", "l", state="model", prefix="encoder.", new_prefix="net.")
    whole = {"model": {"encoder.a": 1, "decoder.b": 2}, "epoch": 3}
    assert select_state(whole, upstream) == {"net.a": 1}
    # A state dict of the exported network itself is taken as it is.
    assert select_state({"net.a": 1}, upstream) == {"net.a": 1}
    assert select_state({"a": 1}, None) == {"a": 1}
    assert select_state([1], upstream) == [1]


def test_the_command_fetches_nothing_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    folder = str(tmp_path / "one")
    model(tmp_path / "one", described(DIGEST[:8]))
    arguments = ["fetch-weights", "net; x", "--models-folder", folder]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "licence  MIT" in told
    assert "sme2 fetch-weights 'net; x' --from FILE" in told
    assert not (tmp_path / "cache").exists()

    (tmp_path / "file").write_bytes(CONTENT)
    assert main([*arguments, "--from", str(tmp_path / "file"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sha256"] == DIGEST
    assert Path(document["kept"]).read_bytes() == CONTENT

    (tmp_path / "file").write_bytes(b"other")
    assert main([*arguments, "--from", str(tmp_path / "file")]) == 1
