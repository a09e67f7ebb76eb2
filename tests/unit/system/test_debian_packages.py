"""Packages from archives that a real apt reads, and what a package may write where."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.system.debian_packages import (
    Archive,
    OfferedPackage,
    parse_deb822,
    parse_one_line,
    reason_of,
    system_archives,
    unpack_content,
    unpack_packages,
    with_suites,
)
from tests.support.apt_archive import archive, content, fetchers
from tests.support.apt_archive import member as entry

needs_apt = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "dpkg-deb", "dpkg"))), reason="no apt here"
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_other_systems_get_a_hint(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"Cannot fetch adbd: this is not a Debian-like system"):
        unpack_packages(["adbd"], [], tmp_path / "out")


TOOL = (entry("./", tarfile.DIRTYPE), entry("./usr/bin/tool", mode=0o755))


@needs_apt
def test_archive_without_the_suite_is_skipped(tmp_path: Path) -> None:
    """A browser's archive stands first in the machine's sources, as it often does."""
    browser = archive(tmp_path / "browser", "stable", [("browser", "1", TOOL)])
    debian = archive(tmp_path / "debian", "sid", [("tool", "1:11.1-1", TOOL)])
    offers: list[Sequence[OfferedPackage]] = []
    asked = with_suites([browser, debian], ["sid"])
    unpack_packages(["tool"], asked, tmp_path / "out/tools", offers.append)
    assert (tmp_path / "out/tools/usr/bin/tool").read_bytes() == b"data"
    assert names(tmp_path / "out") == ["tools"]
    ((offered,),) = offers
    assert offered.version == "11.1-1"
    assert offered.bytes == (tmp_path / "debian/tool_1:11.1-1_all.deb").stat().st_size


@needs_apt
@pytest.mark.parametrize(
    ("package", "trusted", "reason"),
    [
        ("nothing", True, "no archive of this machine has it: Unable to locate package nothing"),
        ("tool", False, "a signature is missing or cannot be checked: .*is not signed"),
    ],
)
def test_the_reason_is_the_real_one(
    tmp_path: Path, package: str, trusted: bool, reason: str
) -> None:
    found = archive(tmp_path / "debian", "sid", [("tool", "1", TOOL)], trusted=trusted)
    with pytest.raises(TargetError, match=rf"Cannot fetch {package}: {reason}.*Asked: http:"):
        unpack_packages([package], [found], tmp_path / "out/tools")
    assert names(tmp_path / "out") == []


@needs_apt
def test_a_hostile_package_leaves_nothing(tmp_path: Path) -> None:
    hostile = archive(tmp_path / "x", "sid", [("a", "1", (entry("./good"), entry("../../out2")))])
    with pytest.raises(TargetError, match=r"a_1_all\.deb is damaged or unsafe .*out2"):
        unpack_packages(["a"], [hostile], tmp_path / "out" / "tools")
    assert names(tmp_path / "out") == []
    assert not (tmp_path / "out2").exists()


@needs_apt
@pytest.mark.parametrize("asked", ["tool", "tool/sid"])
@pytest.mark.parametrize(
    "pin", ["Pin: origin 127.0.0.1", "Pin: release n=sid", "Pin: release o=Debian"]
)
def test_pins_of_the_machine_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, pin: str
) -> None:
    (tmp_path / "preferences").write_text(f"Package: *\n{pin}\nPin-Priority: -1\n")
    (tmp_path / "bin").mkdir()
    set_up = f"-o Dir::Etc::preferences={tmp_path}/preferences"
    for name in ("apt-get", "apt-cache"):
        machine = tmp_path / "bin" / name
        machine.write_text(f'#!/bin/sh\nexec {shutil.which(name)} {set_up} "$@"\n')
        machine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    found = archive(tmp_path / "debian", "sid", [("tool", "1", TOOL)])
    with pytest.raises(TargetError, match="or a pin forbids it"):
        unpack_packages([asked], [found], tmp_path / "out/tools")
    assert names(tmp_path / "out") == []
    (tmp_path / "preferences").unlink()
    unpack_packages([asked], [found], tmp_path / "out/tools")
    assert names(tmp_path / "out") == ["tools"]


@needs_apt
def test_only_debian_and_ubuntu_are_asked_unless_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive of somebody else has the newer version."""
    other = archive(tmp_path / "other", "sid", [("tool", "9", TOOL)], origin="Some Corp")
    with pytest.raises(TargetError, match=r"Some Corp.*name them: SME2_APT_ORIGINS='Some Corp'"):
        unpack_packages(["tool"], [other], tmp_path / "out/tools")
    debian = archive(tmp_path / "debian", "sid", [("tool", "1", TOOL)])
    offers: list[Sequence[OfferedPackage]] = []
    for named in ("", "Else, Some Corp"):
        monkeypatch.setenv("SME2_APT_ORIGINS", named)
        folder = tmp_path / f"out{len(named)}/tools"
        unpack_packages(["tool"], [other, debian], folder, offers.append)
    assert [offered.version for (offered,) in offers] == ["1", "9"]


@needs_apt
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_fetches_as_the_user_of_apt(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    fetchers.clear()
    found = archive(tmp_path / "debian", "sid", [("tool", "1", TOOL)])
    unpack_packages(["tool"], [found], tmp_path / "out/tools")
    assert fetchers == {pwd.getpwnam("_apt").pw_uid}
    assert (tmp_path / "out/tools/usr/bin/tool").stat().st_uid == 0


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("E: Could not resolve 'archive.example'", "the network"),
        ("W: Failed to fetch http://a/InRelease  Temporary failure resolving 'a'", "the network"),
        ("W: GPG error: http://a sid InRelease: NO_PUBKEY 12", "a signature"),
        ("E: Release file for http://a/InRelease is not valid yet", "the archive's dates"),
        ("E: Write error - write (28: No space left on device)", "the disk is full"),
        ("E: The repository 'http://a sid Release' does not have a Release file.", "no archive"),
        ("E: Package 'q' has no installation candidate", "apt has no candidate"),
        ("E: Unable to locate package q\nW: GPG error: x", "a signature"),
        ("", "apt or dpkg failed: no message"),
        ("dpkg-deb: error: not a Debian format archive", "apt or dpkg failed: dpkg-deb: error"),
    ],
)
def test_reasons(said: str, reason: str) -> None:
    assert reason_of(said).startswith(reason)


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
        entry("./usr/bin/same", SAME, "./usr/bin/tool", mode=0o755),
        entry("./usr/share/doc"),
        entry("./lib", LINK, "usr/lib"),
        entry("./usr/lib/", FOLDER),
        entry("./lib/through"),
        entry("./usr/lib/later.so", LINK, "not-there.so.1"),
        entry("./usr/bin/as-root", mode=0o6777),
    )
    unpack_content(archive, folder, "a.deb")
    for name in ("bin/tool", "sbin/up", "bin/same", "lib/through"):
        assert (folder / "usr" / name).read_bytes() == b"data"
    assert (folder / "usr/bin/again").resolve() == (folder / "usr/bin/tool").resolve()
    for name, mode in (("bin/tool", 0o755), ("share/doc", 0o644), ("bin/as-root", 0o755)):
        assert stat.S_IMODE((folder / "usr" / name).stat().st_mode) == mode


@pytest.mark.parametrize(
    "members",
    [
        [entry("../escaped")],
        [entry("usr/../../escaped")],
        [entry("../", FOLDER)],
        [entry("out", LINK, ".."), entry("out/escaped")],
        [entry("out", LINK, "/../escaped")],
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
        # What the disk refuses: too long, below a file, over a folder, links to nothing or itself.
        [entry("a" * 300)],
        [entry("a"), entry("a/b")],
        [entry("a/b"), entry("a")],
        [entry("a", SAME, "b")],
        [entry("a", LINK, "a"), entry("a/b")],
    ],
    ids=lambda members: " ".join(f"{entry.name[:20]}>{entry.linkname}" for entry in members),
)
def test_names_that_lead_outside_or_cannot_be_are_refused(
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
        assert Path(os.path.realpath(path)).is_relative_to(folder)
        assert path.is_dir() or path.is_file() or path.is_symlink()
        assert not path.is_file() or path.read_bytes() == b"data"


def test_an_absolute_link_starts_at_the_folder(tmp_path: Path, folder: Path) -> None:
    members = (entry("usr/lib/a"), entry("usr/bin/b", LINK, "/usr/lib/a"), entry("c", LINK, "/tmp"))
    unpack_content(content(tmp_path / "c.tar", *members), folder, "a.deb")
    assert (folder / "usr/bin/b").readlink() == Path("../lib/a")
    assert (folder / "usr/bin/b").read_bytes() == b"data"
    assert (folder / "c").readlink() == Path("tmp")


def test_a_damaged_content(tmp_path: Path, folder: Path) -> None:
    archive = content(tmp_path / "c.tar", entry("a"))
    archive.write_bytes(b"\xff" * 600)
    with pytest.raises(TargetError, match="is damaged or unsafe"):
        unpack_content(archive, folder, "a.deb")


DEB822 = """\
Types: deb deb-src
# a comment
URIs: mirror://archive/debian
Suites: bookworm bookworm-updates
Components: contrib main
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: mirror://archive/security
Suites: bookworm-security
Components: main
"""
DEBIAN = Archive(
    "mirror://archive/debian",
    ("bookworm", "bookworm-updates"),
    ("contrib", "main"),
    (("Signed-By", "/usr/share/keyrings/k.gpg"),),
)
SECURITY = Archive("mirror://archive/security", ("bookworm-security",), ("main",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEB822, [DEBIAN, SECURITY]),
        (DEB822.replace("# a comment", "Enabled: no"), [SECURITY]),
        (DEB822.replace("# a comment", "enabled: False"), [SECURITY]),
        (DEB822.replace("deb deb-src", "deb-src"), [SECURITY]),
        (DEB822.replace("\nTypes", "\n#Types"), [DEBIAN]),
        (
            "Types: deb\nURIs: a: b:\nSuites: /\n",
            [Archive("a:", ("/",), ()), Archive("b:", ("/",), ())],
        ),
        ("", []),
        ("no field at all\n\n: x\n", []),
    ],
)
def test_deb822(text: str, expected: list[Archive]) -> None:
    assert list(parse_deb822(text)) == expected


def test_a_key_inside_the_file_is_kept() -> None:
    key = "-----BEGIN PGP\n .\n mQ==\n -----END PGP"
    text = f"Types: deb\nURIs: u:\nSuites: s\nComponents: main\nSigned-By:\n {key}\n"
    (found,) = parse_deb822(text)
    assert list(parse_deb822(found.stanza())) == [found]
    assert found.options == (("Signed-By", key),)


SIGNED = ("signed-by", "/k.gpg")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("deb u:a bookworm contrib main # x", Archive("u:a", ("bookworm",), ("contrib", "main"))),
        (
            "deb [ arch=amd64,arm64 signed-by=/k.gpg ] u:b sid main",
            Archive("u:b", ("sid",), ("main",), (("Architectures", "amd64 arm64"), SIGNED)),
        ),
        ("# deb x y main", None),
        ("deb-src mirror://a sid main", None),
        ("deb cdrom:[Debian GNU/Linux 12]/ bookworm main", None),
        ("deb", None),
    ],
)
def test_one_line(line: str, expected: Archive | None) -> None:
    assert list(parse_one_line(f"{line}\n")) == ([expected] if expected else [])


def test_every_file_of_the_system_is_read(tmp_path: Path) -> None:
    assert system_archives(tmp_path) == ()
    (tmp_path / "sources.list").write_text("deb mirror://old bookworm main\n", encoding="utf-8")
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(DEB822, encoding="utf-8")
    (parts / "google-chrome.list").write_text("deb mirror://chrome stable main\n", encoding="utf-8")
    (parts / "x.list").mkdir()
    assert [archive.uri for archive in system_archives(tmp_path)] == [
        "mirror://old",
        "mirror://archive/debian",
        "mirror://archive/security",
        "mirror://chrome",
    ]


def test_other_suites_of_the_same_archives() -> None:
    updates = Archive("mirror://a/", ("noble-updates",), ("main", "restricted"))
    noble = Archive("mirror://a", ("noble",), ("restricted", "main"))
    other = Archive("x:", ("s",), ("stable",))
    asked = with_suites([noble, updates, other], ["resolute"], ["universe"])
    assert asked == (Archive("mirror://a", ("resolute",), ("universe", "main", "restricted")),)
