"""apt's source files in both of their formats, and what a package may write where."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.system import debian_packages
from pytest_sme2.system.debian_packages import (
    Archive,
    parse_archive,
    system_archive,
    unpack_content,
    unpack_packages,
)

DEB822 = """\
Types: deb
# a comment
URIs: mirror://archive/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: mirror://archive/security
Components: main
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEB822, Archive("mirror://archive/debian", "/usr/share/keyrings/k.gpg")),
        (
            DEB822.replace("Types: deb\n#", "Enabled: no\n#"),
            Archive("mirror://archive/security", None),
        ),
        ("deb mirror://a/debian bookworm main contrib\n", Archive("mirror://a/debian", None)),
        (
            "# deb x y main\ndeb [arch=amd64 signed-by=/k.gpg] mirror://b sid main\n",
            Archive("mirror://b", "/k.gpg"),
        ),
        ("deb mirror://a/other stable nightly\n", None),
        ("", None),
    ],
)
def test_the_first_main_archive(text: str, expected: Archive | None) -> None:
    assert parse_archive(text) == expected


def test_the_systems_files_are_looked_through(tmp_path: Path) -> None:
    assert system_archive(tmp_path) is None
    (tmp_path / "sources.list").write_text("deb mirror://old bookworm main\n", encoding="utf-8")
    assert system_archive(tmp_path) == Archive("mirror://old", None)
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEB822, encoding="utf-8")
    found = system_archive(tmp_path)
    assert found is not None
    assert found.uri == "mirror://archive/debian"


def test_another_system_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian_packages, "system_archive", lambda: None)
    with pytest.raises(TargetError, match=r"Cannot fetch adbd: this is not a Debian-like system"):
        unpack_packages(["adbd"], ["stable"], tmp_path / "out")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failing_fetch_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        debian_packages, "system_archive", lambda: Archive(f"file://{tmp_path}/nowhere", None)
    )
    if debian_packages.shutil.which("apt-get") is None:
        pytest.skip("no apt here")
    with pytest.raises(TargetError, match=r"apt-get failed: .*Is the network up\?"):
        unpack_packages(["adbd"], ["stable"], tmp_path / "out")
    assert names(tmp_path) == []


# --- what a package holds -------------------------------------------------------------------------


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, linkname, mode
    member.size = 4 if kind == tarfile.REGTYPE else 0
    return member


def content(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"data") if member.isreg() else None)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "inside" / "unpacked"
    folder.mkdir(parents=True)
    return folder


FOLDER, LINK, SAME = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def test_a_package_as_they_are(tmp_path: Path, folder: Path) -> None:
    archive = content(
        tmp_path / "c.tar",
        entry("./", FOLDER),
        entry("./usr/", FOLDER),
        entry("./usr/bin/tool", mode=0o755),
        entry("./usr/bin/again", LINK, "tool"),
        entry("./usr/sbin/up", LINK, "../bin/tool"),
        entry("./usr/bin/same", SAME, "./usr/bin/tool"),
        entry("./usr/share/doc"),
        entry("./lib", LINK, "usr/lib"),
        entry("./usr/lib/", FOLDER),
        entry("./lib/through"),
        entry("./usr/lib/later.so", LINK, "not-there.so.1"),
    )
    unpack_content(archive, folder, "a.deb")
    assert (folder / "usr/bin/tool").read_bytes() == b"data"
    assert (folder / "usr/bin/again").resolve() == (folder / "usr/bin/tool").resolve()
    assert (folder / "usr/sbin/up").read_bytes() == b"data"
    assert (folder / "usr/bin/same").read_bytes() == b"data"
    assert (folder / "usr/lib/through").read_bytes() == b"data"
    assert stat.S_IMODE((folder / "usr/bin/tool").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "usr/share/doc").stat().st_mode) == 0o644


def test_no_bits_to_run_as_somebody_else(tmp_path: Path, folder: Path) -> None:
    unpack_content(content(tmp_path / "c.tar", entry("x", mode=0o6777)), folder, "a.deb")
    assert stat.S_IMODE((folder / "x").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "members",
    [
        [entry("../escaped")],
        [entry("usr/../../escaped")],
        [entry("/escaped")],
        [entry("../", FOLDER)],
        [entry("out", LINK, ".."), entry("out/escaped")],
        [entry("out", LINK, "/tmp")],
        [entry("out", LINK, "../escaped")],
        [entry("a/b/out", LINK, "../../../escaped")],
        # A link to a folder further up, and one that leaves through it.
        [entry("a/b/up", LINK, "../.."), entry("a/b/up/out", LINK, "../..")],
        [entry("a/up", LINK, ".."), entry("a/out", LINK, "up/.."), entry("a/out/escaped")],
        [entry("same", SAME, "../outside")],
        [entry("same", SAME, "/etc/passwd")],
        [entry("device", tarfile.CHRTYPE)],
        [entry("device", tarfile.BLKTYPE)],
        [entry("pipe", tarfile.FIFOTYPE)],
    ],
    ids=lambda members: " ".join(f"{entry.name}>{entry.linkname}" for entry in members),
)
def test_what_would_leave_the_folder(
    tmp_path: Path, folder: Path, members: list[tarfile.TarInfo]
) -> None:
    (folder.parent / "outside").write_text("secret", encoding="utf-8")
    before = sorted(path.name for path in folder.parent.iterdir())
    with pytest.raises(TargetError, match=r"The package a\.deb is damaged or unsafe"):
        unpack_content(content(tmp_path / "c.tar", *members), folder, "a.deb")
    assert sorted(path.name for path in folder.parent.iterdir()) == before
    assert not list(tmp_path.rglob("*escaped*"))
    assert not Path("/escaped").exists()
    for path in folder.rglob("*"):
        assert path.resolve().is_relative_to(folder)
        assert path.is_dir() or path.is_file() or path.is_symlink()
        assert not path.is_file() or path.read_bytes() == b"data"


def test_a_second_file_of_a_name_replaces_a_link(tmp_path: Path, folder: Path) -> None:
    archive = content(tmp_path / "c.tar", entry("a"), entry("b", LINK, "a"), entry("b"))
    unpack_content(archive, folder, "a.deb")
    assert not (folder / "b").is_symlink()


def test_a_damaged_content(tmp_path: Path, folder: Path) -> None:
    archive = content(tmp_path / "c.tar", entry("a"))
    archive.write_bytes(b"\xff" * 600)
    with pytest.raises(TargetError, match="is damaged or unsafe"):
        unpack_content(archive, folder, "a.deb")


@pytest.fixture
def local_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """apt is pretended to have fetched what lies in this folder; dpkg-deb is the real one."""
    if debian_packages.shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb here")
    packages = tmp_path / "packages"
    packages.mkdir()

    def fetch(work: Path, arguments: Sequence[str]) -> None:
        if "download" in arguments:
            for path in packages.iterdir():
                (work / path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(debian_packages, "_apt", fetch)
    monkeypatch.setattr(debian_packages, "system_archive", lambda: Archive("file:///x", None))
    return packages


def package(path: Path, *members: tarfile.TarInfo) -> None:
    """A Debian package: an ar archive of a version, a control archive and the content."""
    control = path.with_suffix(".control")
    text = b"Package: a\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: a\n"
    with tarfile.open(control, "w:gz") as archive:
        member = tarfile.TarInfo("./control")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    data = content(path.with_suffix(".tar"), *members)
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, part in (
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", control.read_bytes()),
            ("data.tar", data.read_bytes()),
        ):
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(part):<10}`\n".encode())
            file.write(part + b"\n" * (len(part) % 2))
    control.unlink()
    data.unlink()


def test_a_real_package_is_unpacked(tmp_path: Path, local_archive: Path) -> None:
    package(local_archive / "a.deb", entry("./", FOLDER), entry("./usr/bin/tool", mode=0o755))
    unpack_packages(["a"], ["stable"], tmp_path / "out" / "tools")
    assert (tmp_path / "out/tools/usr/bin/tool").read_bytes() == b"data"
    assert names(tmp_path / "out") == ["tools"]


def test_a_hostile_package_leaves_nothing(tmp_path: Path, local_archive: Path) -> None:
    package(local_archive / "a.deb", entry("./good"), entry("../../escaped"))
    with pytest.raises(TargetError, match=r"a\.deb is damaged or unsafe .*escaped"):
        unpack_packages(["a"], ["stable"], tmp_path / "out" / "tools")
    assert names(tmp_path / "out") == []
    assert not list(tmp_path.rglob("*escaped*"))
