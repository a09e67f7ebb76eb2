"""apt's source files, read in both of their formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2 import debian_packages
from pytest_sme2.debian_packages import Archive, parse_archive, system_archive, unpack_packages
from pytest_sme2.errors import TargetError

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


def test_a_failing_fetch_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        debian_packages, "system_archive", lambda: Archive(f"file://{tmp_path}/nowhere", None)
    )
    if debian_packages.shutil.which("apt-get") is None:
        pytest.skip("no apt here")
    with pytest.raises(TargetError, match=r"apt-get failed: .*Is the network up\?"):
        unpack_packages(["adbd"], ["stable"], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
