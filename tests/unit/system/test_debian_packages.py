"""Packages from archives that a real apt reads, and what a package may write where."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import tarfile
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.system import provision
from pytest_sme2.system.provision import (
    reason_of,
    system_sources,
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
    """What is there, without locks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_other_systems_get_a_hint(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"Cannot fetch adbd: this is not a Debian-like system"):
        unpack_packages(["adbd"], {}, tmp_path / "out")


FOLDER, LINK, SAME = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
TOOL = (entry("./", FOLDER), entry("./usr/bin/tool", mode=0o755))


@needs_apt
def test_archive_without_the_suite_is_skipped(tmp_path: Path) -> None:
    """A browser's archive stands first in the machine's sources, as it often does."""
    browser = archive(tmp_path / "browser", "stable", [("browser", "1", TOOL)])
    debian = archive(tmp_path / "debian", "sid", [("tool", "1:11.1-1", TOOL)])
    asked = with_suites({**browser, **debian}, ["sid"])
    unpack_packages(["tool"], asked, tmp_path / "out/tools")
    assert (tmp_path / "out/tools/usr/bin/tool").read_bytes() == b"data"
    assert names(tmp_path / "out") == ["tools"]


@needs_apt
@pytest.mark.parametrize(
    ("package", "trusted", "reason"),
    [
        ("nothing", True, "apt said: .*Unable to locate package nothing"),
        ("tool", False, "apt said: .*is not signed"),
    ],
)
def test_the_reason_is_the_real_one(
    tmp_path: Path, package: str, trusted: bool, reason: str
) -> None:
    found = archive(tmp_path / "debian", "sid", [("tool", "1", TOOL)], trusted=trusted)
    with pytest.raises(TargetError, match=rf"Cannot fetch {package}: {reason}.*Asked: http:"):
        unpack_packages([package], found, tmp_path / "out/tools")
    assert names(tmp_path / "out") == []


@needs_apt
def test_a_hostile_package_leaves_nothing(tmp_path: Path) -> None:
    hostile = archive(tmp_path / "x", "sid", [("a", "1", (entry("./good"), entry("../../out2")))])
    with pytest.raises(TargetError, match=r"a_1_all\.deb is damaged or unsafe .*out2"):
        unpack_packages(["a"], hostile, tmp_path / "out" / "tools")
    assert names(tmp_path / "out") == []
    assert not (tmp_path / "out2").exists()


@needs_apt
@pytest.mark.parametrize("place", ["preferences", "preferences.d/mine"])
@pytest.mark.parametrize(
    "pin", ["Pin: origin 127.0.0.1", "Pin: release n=sid", "Pin: release o=Debian"]
)
def test_pins_of_the_machine_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pin: str, place: str
) -> None:
    monkeypatch.setattr(provision, "SYSTEM", tmp_path / "etc")
    file = tmp_path / "etc" / place
    file.parent.mkdir(parents=True)
    file.write_text(f"Package: *\n{pin}\nPin-Priority: -1\n")
    found = archive(tmp_path / "debian", "sid", [("tool", "1", TOOL)])
    with pytest.raises(TargetError, match=r"no (installation )?candidate"):
        unpack_packages(["tool"], found, tmp_path / "out/tools")
    assert names(tmp_path / "out") == []
    file.unlink()
    unpack_packages(["tool"], found, tmp_path / "out/tools")
    assert names(tmp_path / "out") == ["tools"]


@needs_apt
def test_only_debian_and_ubuntu_are_asked(tmp_path: Path) -> None:
    """The archive of somebody else has the newer version."""
    other = archive(tmp_path / "other", "sid", [("tool", "9", TOOL)], origin="Some Corp")
    with pytest.raises(TargetError, match=r"no (installation )?candidate"):
        unpack_packages(["tool"], other, tmp_path / "out/tools")
    one, two = ((entry("./", FOLDER), entry(f"./{name}")) for name in ("one", "two"))
    debian = archive(tmp_path / "debian", "sid", [("tool", "1", one)])
    backports = archive(
        tmp_path / "backports", "back", [("tool", "2", two)], origin="Debian Backports"
    )
    for name, sources in (("one", other | debian), ("two", other | debian | backports)):
        unpack_packages(["tool"], sources, tmp_path / name / "tools")
        assert names(tmp_path / name / "tools") == [name]


@needs_apt
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_fetches_as_the_user_of_apt(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    fetchers.clear()
    found = archive(tmp_path / "debian", "sid", [("tool", "1", TOOL)])
    unpack_packages(["tool"], found, tmp_path / "out/tools")
    assert fetchers == {pwd.getpwnam("_apt").pw_uid}
    assert (tmp_path / "out/tools/usr/bin/tool").stat().st_uid == 0


def test_what_apt_said_is_told() -> None:
    assert reason_of("E: Unable to locate q\nW: GPG error: x\nE: Unable to locate q") == (
        "apt said: Unable to locate q; GPG error: x"
    )
    assert reason_of("at last\ndpkg-deb: error: x\n") == "apt said: dpkg-deb: error: x"
    assert reason_of("") == "apt said: nothing"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "inside" / "unpacked"
    folder.mkdir(parents=True)
    return folder


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
        [entry("out", LINK, ".."), entry("out/escaped")],
        [entry("out", LINK, "/../escaped")],
        # A link to a folder further up, and one that leaves through it.
        [entry("a/b/up", LINK, "../.."), entry("a/b/up/out", LINK, "../..")],
        [entry("same", SAME, "../outside")],
        [entry("same", SAME, "/etc/passwd")],
        [entry("device", tarfile.CHRTYPE)],
        [entry("pipe", tarfile.FIFOTYPE)],
        # What the disk refuses: too long, below a file, over a folder, links to nothing or itself.
        [entry("a" * 300)],
        [entry("a"), entry("a/b")],
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


DEB822 = """\
Types: deb deb-src
# a comment
URIs: mirror://archive/debian
Suites: bookworm
 bookworm-updates
Components: contrib main
Signed-By:
 -----BEGIN PGP
 .
 mQ==

Types: deb
URIs: x:
Suites: /

suites: stable
components: main
"""
CHANGED = """\
Types: deb
URIs: mirror://archive/debian
Suites: forky sid
Components: contrib main
Signed-By:
 -----BEGIN PGP
 .
 mQ==

Suites: forky sid
components: main

"""


def test_a_file_of_stanzas_is_asked_for_other_suites() -> None:
    assert with_suites({"a.sources": DEB822}, ["forky", "sid"]) == {"a.sources": CHANGED}
    sources_alone = re.sub("(?m)^Types: .*", "Types: deb-src", DEB822)
    assert with_suites({"a.sources": sources_alone}, ["sid"]) == {
        # What lacks Types is for apt to refuse.
        "a.sources": "Suites: sid\ncomponents: main\n\n"
    }


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("deb u:a bookworm contrib main # x", "deb u:a sid contrib main \n"),
        (
            "deb [ arch=amd64,arm64 signed-by=/k.gpg ] u:b sid main",
            "deb [ arch=amd64,arm64 signed-by=/k.gpg ] u:b sid main\n",
        ),
        ("# deb x y main", ""),
        ("deb u:c s stable", ""),
        ("deb-src mirror://a sid main", ""),
        ("deb cdrom:[Debian GNU/Linux 12]/ bookworm main", ""),
        ("deb", ""),
    ],
)
def test_lines_are_asked_for_other_suites(line: str, asked: str) -> None:
    assert with_suites({"a.list": f"{line}\n"}, ["sid"]) == {"a.list": asked}


def test_every_file_of_the_system_is_read(tmp_path: Path) -> None:
    assert system_sources(tmp_path) == {}
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "x.list").mkdir()
    files = (tmp_path / "sources.list", parts / "debian.sources", parts / "chrome.list")
    for file in files:
        file.write_text(file.name, encoding="utf-8")
    assert system_sources(tmp_path) == {file.name: file.name for file in files}
