"""apt's source files in both of their formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.system.debian_packages import (
    Archive,
    parse_deb822,
    parse_one_line,
    system_archives,
    with_suites,
)

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
    (found,) = parse_deb822(
        f"Types: deb\nURIs: u:\nSuites: s\nComponents: main\nSigned-By:\n {key}\n"
    )
    assert list(parse_deb822(found.stanza())) == [found]
    assert found.options == (("Signed-By", key),)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "deb mirror://a/debian bookworm contrib main # x",
            Archive("mirror://a/debian", ("bookworm",), ("contrib", "main")),
        ),
        (
            "deb [ arch=amd64,arm64 signed-by=/k.gpg ] mirror://b sid main",
            Archive(
                "mirror://b",
                ("sid",),
                ("main",),
                (("Architectures", "amd64 arm64"), ("signed-by", "/k.gpg")),
            ),
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
    asked = with_suites(
        [
            Archive("mirror://a", ("noble",), ("restricted", "main")),
            updates,
            Archive("x:", ("s",), ("stable",)),
        ],
        ["resolute"],
        ["universe"],
    )
    assert asked == (Archive("mirror://a", ("resolute",), ("universe", "main", "restricted")),)
