"""Programs from Debian's archive, unpacked into a folder of ours; the system is left as it is.

The archive's address and keyring are those the system's own apt already uses, so nothing here
names a host and every package's signature is checked by apt itself. What is in a package decides
neither where it lands nor what it may do there: see unpack_content.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from pytest_sme2.errors import TargetError
from pytest_sme2.system.cache import working_folder

_SYSTEM_SOURCES = Path("/etc/apt")


@dataclass(frozen=True)
class Archive:
    """Where the system's apt fetches Debian's main archive from."""

    uri: str
    signed_by: str | None


def parse_archive(text: str) -> Archive | None:
    """The first ``main`` archive in a sources file, in either of apt's two formats."""
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(
            re.findall(r"^(URIs|Components|Signed-By|Enabled):[ \t]*(\S+)", paragraph, re.MULTILINE)
        )
        usable = fields.get("Enabled", "yes") != "no" and fields.get("Components") == "main"
        if usable and "URIs" in fields:
            return Archive(fields["URIs"], fields.get("Signed-By"))
    for line in re.finditer(r"^deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+\S+\s+main\b", text, re.MULTILINE):
        signed_by = re.search(r"signed-by=(\S+)", line[1] or "")
        return Archive(line[2], signed_by[1] if signed_by else None)
    return None


def system_archive(folder: Path = _SYSTEM_SOURCES) -> Archive | None:
    """The archive of the system's own sources; None where this is not a Debian-like system."""
    parts = folder / "sources.list.d"
    files = sorted([*parts.glob("*.sources"), *parts.glob("*.list")])
    for file in (*files, folder / "sources.list"):
        if file.is_file():
            archive = parse_archive(file.read_text(encoding="utf-8", errors="replace"))
            if archive is not None:
                return archive
    return None


def unpack_packages(packages: Sequence[str], suites: Sequence[str], folder: Path) -> None:
    """Fetch ``packages`` from ``suites`` and unpack them into ``folder``, which is made whole.

    ``folder`` appears only when everything in it is there. Hold its lock.
    """
    archive = system_archive()
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    if archive is None or missing:
        raise TargetError(
            f"Cannot fetch {', '.join(packages)}: this is not a Debian-like system "
            f"({'no ' + ' and no '.join(missing) if missing else 'no apt sources found'}). "
            "Install these programs by other means and put them on PATH."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with working_folder(folder) as work:
        options = _private_apt(work, archive, suites)
        _apt(work, [*options, "update"])
        _apt(work, [*options, "download", *packages])
        unpacked = work / "unpacked"
        unpacked.mkdir()
        content = work / "content.tar"
        for package in sorted(work.glob("*.deb")):
            with content.open("wb") as file:
                _call(["dpkg-deb", "--fsys-tarfile", str(package)], work, stdout=file)
            unpack_content(content, unpacked, package.name)
        if folder.exists():
            shutil.rmtree(folder)
        unpacked.rename(folder)


def unpack_content(content: Path, folder: Path, package: str) -> None:
    """Unpack a package's files into ``folder`` and nowhere else, as plain files of this user.

    Read and written by the same code, so that no two readers of one archive can differ over it.
    """
    root = folder.resolve()
    try:
        with tarfile.open(content, "r:") as archive:
            for member in archive:
                _unpack_member(archive, member, root)
    except (tarfile.TarError, ValueError) as error:
        raise TargetError(
            f"The package {package} is damaged or unsafe ({error}). Check the system's apt sources."
        ) from error


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    target = _inside(root, member.name)
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if member.issym():
        _check_link(root, target, member.linkname)
        target.symlink_to(member.linkname)
        return
    content = archive.extractfile(member) if member.isreg() else None
    if member.islnk():
        content = _inside(root, member.linkname).open("rb")
    if content is None:
        raise ValueError(f"{member.name!r} is neither a file, a folder nor a link")
    with content, target.open("xb") as file:
        shutil.copyfileobj(content, file)
    # No other bits: nothing here is to run as somebody else.
    target.chmod(0o755 if member.mode & 0o111 else 0o644)


def _inside(root: Path, name: str) -> Path:
    """The place of a name below ``root``; the links on the way there are followed first."""
    parts = PurePosixPath(name).parts
    place = root.joinpath(*parts)
    around = place.parent.resolve() if parts else root
    if ".." in parts or "/" in parts or not around.is_relative_to(root):
        raise ValueError(f"{name!r} leads out of its folder")
    return place


def _check_link(root: Path, target: Path, leads_to: str) -> None:
    parts = PurePosixPath(leads_to).parts
    upwards = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    end = Path(os.path.normpath(target.parent.resolve().joinpath(*parts)))
    # Upwards only at its start: after the name of another link it would start from elsewhere.
    if ".." in parts[upwards:] or not end.is_relative_to(root):
        raise ValueError(f"the link {target.name!r} leads out of its folder, to {leads_to!r}")


def _private_apt(work: Path, archive: Archive, suites: Sequence[str]) -> list[str]:
    signed_by = f" [signed-by={archive.signed_by}]" if archive.signed_by else ""
    sources = work / "private.list"
    sources.write_text(
        "".join(f"deb{signed_by} {archive.uri} {suite} main\n" for suite in suites),
        encoding="utf-8",
    )
    for part in ("lists/partial", "cache/archives/partial"):
        (work / part).mkdir(parents=True)
    values = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work / "cache",
        # apt's own sandbox user may not read a private cache folder.
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


def _apt(work: Path, arguments: Sequence[str]) -> None:
    _call(["apt-get", "-q", *arguments], work)


def _call(command: Sequence[str], work: Path, *, stdout: IO[bytes] | None = None) -> None:
    kept = ("PATH", "http_proxy", "https_proxy", "no_proxy")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    try:
        done = subprocess.run(
            command,
            cwd=work,
            env={**environment, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TargetError(f"{command[0]} did not finish in 300 s. Is the network up?") from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout or "").strip().splitlines()
        raise TargetError(
            f"{command[0]} failed: {last[-1] if last else 'no message'}. Is the network up?"
        )
