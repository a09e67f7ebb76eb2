"""A real Debian archive in a folder, small, for a real apt.

Served over HTTP: as root, apt reads as its own user, which cannot get into the folders of tests.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import subprocess
import tarfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# The users that fetched something, as numbers.
fetchers: set[int] = set()


def member(
    name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = kind, linkname, mode
    entry.size = 4 if kind == tarfile.REGTYPE else 0
    return entry


def content(path: Path, *members: tarfile.TarInfo) -> Path:
    """What a package unpacks: every plain file holds ``data``."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for entry in members:
            archive.addfile(entry, io.BytesIO(b"data") if entry.isreg() else None)
    return path


def package(path: Path, *members: tarfile.TarInfo, name: str = "a", version: str = "1") -> str:
    """Write a Debian package, an ar archive of three parts; its control text is returned."""
    text = (
        f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
        "Maintainer: a <a@b.c>\nDescription: a\n"
    )
    control = io.BytesIO()
    with tarfile.open(fileobj=control, mode="w:gz") as archive:
        entry = tarfile.TarInfo("./control")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
    data = content(path.with_suffix(".tar"), *members)
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for part_name, part in (
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", control.getvalue()),
            ("data.tar", data.read_bytes()),
        ):
            file.write(
                f"{part_name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(part):<10}`\n".encode()
            )
            file.write(part + b"\n" * (len(part) % 2))
    data.unlink()
    return text


def archive(
    folder: Path,
    suite: str,
    packages: Iterable[tuple[str, str, tuple[tarfile.TarInfo, ...]]],
    *,
    component: str = "main",
    trusted: bool = True,
    origin: str = "Debian",
) -> dict[str, str]:
    """An archive of (name, version, members); unsigned, and trusted unless told otherwise."""
    native = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    ).stdout.strip()
    index = ""
    folder.mkdir(parents=True, exist_ok=True)
    for name, version, members in packages:
        path = folder / f"{name}_{version}_all.deb"
        text = package(path, *members, name=name, version=version)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        index += f"{text}Filename: {path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n\n"
    binary = folder / "dists" / suite / component / f"binary-{native}"
    binary.mkdir(parents=True)
    compressed = gzip.compress(index.encode(), mtime=0)
    (binary / "Packages.gz").write_bytes(compressed)
    relative = f"{component}/binary-{native}/Packages"
    lines = "".join(
        f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n"
        for name, data in ((relative, index.encode()), (f"{relative}.gz", compressed))
    )
    (folder / "dists" / suite / "Release").write_text(
        f"Origin: {origin}\nSuite: {suite}\nCodename: {suite}\nComponents: {component}\n"
        f"Architectures: {native} all\nDate: Sat, 01 Jan 2000 00:00:00 UTC\nSHA256:\n{lines}",
        encoding="utf-8",
    )
    text = f"Types: deb\nURIs: http://127.0.0.1:{_serve(folder)}\nSuites: {suite}\n"
    text += f"Components: {component}\n" + "Trusted: yes\n" * trusted
    return {f"{folder.name}.sources": text}


class _Files(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if int(fields[1].partition(":")[2], 16) == self.client_address[1]:
                fetchers.add(int(fields[7]))
        super().do_GET()

    def log_message(self, *words: Any) -> None: ...


def _serve(folder: Path) -> int:
    files = functools.partial(_Files, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])
