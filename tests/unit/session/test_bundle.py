"""Bundles: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import BundleError, StorageError, UsageError
from pytest_sme2.results.run import Artifact
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session import bundle as bundles
from pytest_sme2.session.bundle import check_name, open_bundle, write_bundle
from pytest_sme2.system.cache import mark_cache
from tests.support.artifacts import make_artifact

Edit = Callable[[dict[str, bytes], dict[str, Any]], None]
FILES = {"sme2_runner", "libexecutorch.so"}


@pytest.fixture
def runner(tmp_path: Path) -> Sme2Runner:
    folder = tmp_path / "runner"
    folder.mkdir()
    (folder / "sme2_runner").write_bytes(b"#!/bin/sh\n")
    (folder / "sme2_runner").chmod(0o755)
    (folder / "libexecutorch.so").write_bytes(random.Random(1).randbytes(100_000))
    (folder / "runner.json").write_text("{}")
    return Sme2Runner("wheel", "linux-aarch64", "1.5.1", folder)


@pytest.fixture
def artifacts(tmp_path: Path) -> list[Artifact]:
    named = (
        ("a", "toy_cnn", "fp32"),
        ("b", "toy_cnn", "fp16@256"),
        ("c", "../evil <script>", "fp32"),
    )
    return [make_artifact(tmp_path / name, model, variant) for name, model, variant in named]


@pytest.fixture
def bundle(tmp_path: Path, runner: Sme2Runner, artifacts: list[Artifact]) -> Path:
    return write_bundle(tmp_path / "out" / "b.tar.gz", runner, artifacts)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    mark_cache(tmp_path / "cache")
    return tmp_path / "cache"


def rewrite(path: Path, edit: Edit) -> None:
    """The archive with its files and manifest changed; hashes are as ``edit`` leaves them."""
    with tarfile.open(path) as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive}
    manifest = json.loads(files.pop("manifest.json"))
    edit(files, manifest)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {"manifest.json": json.dumps(manifest).encode(), **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def test_what_goes_in_comes_out(bundle: Path, cache: Path, artifacts: list[Artifact]) -> None:
    opened = open_bundle(bundle, cache=cache)
    assert isinstance(opened.runner, Sme2Runner)
    facts = opened.runner.kind, opened.runner.platform, opened.runner.executorch
    assert facts == ("wheel", "linux-aarch64", "1.5.1")
    program = opened.runner.folder / "sme2_runner"
    assert program.stat().st_mode & 0o111
    assert not (opened.runner.folder / "libexecutorch.so").stat().st_mode & 0o111
    assert {path.name for path in opened.runner.folder.iterdir()} == FILES
    assert set(opened.artifacts) == {(a.model, a.variant) for a in artifacts}
    for artifact in artifacts:
        found = opened.artifacts[(artifact.model, artifact.variant)]
        assert found.pte.read_bytes() == artifact.pte.read_bytes()
        assert found.sha256 == artifact.sha256
        assert found.folder.is_relative_to(cache)
    # Opening it again does not unpack it again.
    inode = opened.runner.folder.stat().st_ino
    second = open_bundle(bundle, cache=cache)
    assert second == opened
    assert second.runner.folder.stat().st_ino == inode


def test_equal_content_is_equal_bytes(
    tmp_path: Path, bundle: Path, runner: Sme2Runner, artifacts: list[Artifact]
) -> None:
    (runner.folder / "sme2_runner").touch()
    again = write_bundle(tmp_path / "again.tgz", runner, artifacts)
    assert again.read_bytes() == bundle.read_bytes()
    assert [p.name for p in bundle.parent.iterdir()] == [bundle.name]


def test_what_cannot_be_written_says_why(
    tmp_path: Path, runner: Sme2Runner, artifacts: list[Artifact]
) -> None:
    with pytest.raises(UsageError, match=r"ends in \.tar\.gz"):
        check_name(tmp_path / "folder")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        write_bundle(tmp_path / "file" / "b.tar.gz", runner, artifacts)


def refused(bundle: Path, cache: Path, message: str) -> None:
    with pytest.raises(BundleError, match=message) as caught:
        open_bundle(bundle, cache=cache)
    assert str(bundle) in str(caught.value)
    kept = list((cache / "bundles").glob("*")) if cache.exists() else []
    assert not [path for path in kept if path.is_dir()]


def put(name: str, data: bytes) -> Edit:
    return lambda files, manifest: files.__setitem__(name, data)


def listed(name: str, data: bytes) -> Edit:
    """The file, and its line in the manifest."""

    def edit(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
        files[name] = data
        facts = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest["files"][name] = {**manifest["files"].get(name, {}), **facts}

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("runner/sme2_runner", b"#!/bin/ps\n"), "'runner/sme2_runner' is not what was put in"),
        (put("runner/extra", b"x"), "'runner/extra' is not in its manifest"),
        (
            lambda files, manifest: files.pop("runner/libexecutorch.so"),
            "'runner/libexecutorch.so' is missing",
        ),
        (
            lambda files, manifest: manifest.update(schema=1),
            "its schema is 1, this version reads 2",
        ),
    ],
)
def test_what_is_not_as_the_manifest_says(
    bundle: Path, cache: Path, edit: Edit, message: str
) -> None:
    rewrite(bundle, edit)
    refused(bundle, cache, message)


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "runner/../../evil",
        "/etc/evil",
        "runner//evil",
        "runner/evil\0",
        "manifest.json",
        "",
    ],
)
def test_no_file_leaves_the_folder(tmp_path: Path, bundle: Path, cache: Path, name: str) -> None:
    def edit(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
        listed(name, b"evil")(files, manifest)
        if "\0" in name or name in ("", "manifest.json"):
            del files[name]  # no archive has it

    rewrite(bundle, edit)
    refused(bundle, cache, "is not a bundle")
    assert not list(tmp_path.rglob("*evil"))
    assert not Path("/etc/evil").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE]
)
def test_only_plain_files(tmp_path: Path, bundle: Path, cache: Path, kind: bytes) -> None:
    with tarfile.open(bundle) as archive:
        manifest = archive.extractfile("manifest.json").read()
    with tarfile.open(bundle, "w:gz") as archive:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(manifest)
        archive.addfile(member, io.BytesIO(manifest))
        link = tarfile.TarInfo("runner/sme2_runner")
        link.type, link.linkname = kind, str(tmp_path)
        archive.addfile(link)
    refused(bundle, cache, "is not a bundle")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PK\x03\x04", id="zip"),
        pytest.param(b"\x1f\x8b", id="gzip cut short"),
        pytest.param(gzip.compress(b"no tar"), id="gzip of text"),
        pytest.param(gzip.compress(b""), id="gzip of nothing"),
    ],
)
def test_a_file_that_is_not_an_archive(bundle: Path, cache: Path, content: bytes) -> None:
    bundle.write_bytes(content)
    refused(bundle, cache, "is not a bundle")


def test_no_file_at_all(tmp_path: Path, cache: Path) -> None:
    for path in (tmp_path / "none.tar.gz", tmp_path):
        with pytest.raises(UsageError, match=r"There is no bundle .*sme2 bundle"):
            open_bundle(path, cache=cache)


@pytest.mark.parametrize("change", ["edit", "add", "remove", "link"])
def test_what_was_changed_after_unpacking_is_unpacked_again(
    tmp_path: Path, bundle: Path, cache: Path, change: str
) -> None:
    folder = open_bundle(bundle, cache=cache).runner.folder
    program = folder / "sme2_runner"
    if change == "edit":
        program.write_bytes(b"#!/bin/ps\n")
    elif change == "add":
        (folder / "libevil.so").write_bytes(b"evil")
    else:
        program.unlink()
        if change == "link":
            (tmp_path / "same").write_bytes(b"#!/bin/sh\n")
            program.symlink_to(tmp_path / "same")
    again = open_bundle(bundle, cache=cache)
    assert program.read_bytes() == b"#!/bin/sh\n"
    assert not program.is_symlink()
    assert {path.name for path in again.runner.folder.iterdir()} == FILES


def test_a_full_disk_is_not_taken_for_a_damaged_bundle(
    bundle: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*words: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pytest_sme2.session.bundle._unpack", full)
        with pytest.raises(StorageError, match=r"b\.tar\.gz.*No space left.*SME2_CACHE_DIR"):
            open_bundle(bundle, cache=cache)
    assert open_bundle(bundle, cache=cache).artifacts


def test_what_a_killed_unpacking_left_is_removed(bundle: Path, cache: Path) -> None:
    folder = open_bundle(bundle, cache=cache).runner.folder.parent
    left_over = folder.with_name(f".{folder.name}.0123abcd.part")
    folder.rename(left_over)
    open_bundle(bundle, cache=cache)
    assert folder.is_dir()
    assert not left_over.exists()


def test_a_small_bundle_that_would_fill_the_disk_is_refused(
    bundle: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "ALWAYS_ALLOWED", 0)
    rewrite(bundle, listed("runner/libexecutorch.so", bytes(10_000_000)))
    refused(bundle, cache, r"it unpacks to \d+ MiB, and \d+ MiB is the most")
    assert not list(cache.rglob("libexecutorch.so"))
