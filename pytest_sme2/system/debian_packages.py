"""Programs from Debian's archive, unpacked into a folder of ours; the system is left as it is.

The archives' addresses, keys and preferences (pins) are those of the system's own apt, which checks
every signature, as its own user. Only archives by Debian and Ubuntu are used. What a package holds
decides neither where it lands nor what it may.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from pytest_sme2.errors import TargetError
from pytest_sme2.system.cache import put_in_place, working_folder
from pytest_sme2.system.files import unwritable
from pytest_sme2.system.processes import Finished, run_process

SYSTEM = Path("/etc/apt")
Sources = Mapping[str, str]
"""What each file of apt's sources says, by its name."""
# What is written into a file of apt's preferences after those of the machine, which come first.
_OURS_ALONE = "\n".join(
    f"Package: *\nPin: release {release}\nPin-Priority: {priority}\n"
    for release, priority in (
        ("o=Debian Backports", 990),
        ("o=Debian", 500),
        ("o=Ubuntu", 500),
        ("a=*", -1),
    )
)


def system_sources(folder: Path = SYSTEM) -> Sources:
    """The machine's own; empty where this system has no apt."""
    parts = folder / "sources.list.d"
    files = [folder / "sources.list", *parts.glob("*.sources"), *parts.glob("*.list")]
    return _texts(files)


def _texts(files: Sequence[Path]) -> dict[str, str]:
    return {file.name: file.read_text("utf-8", "replace") for file in files if file.is_file()}


def with_suites(sources: Sources, suites: Sequence[str]) -> Sources:
    """The same archives, asked for other suites: apt finds out which of them have these.

    Only archives with a ``main`` component are asked: the distribution's own programs are there.
    """
    return {
        name: _stanzas(text, suites) if name.endswith(".sources") else _lines(text, suites)
        for name, text in sources.items()
    }


def _stanzas(text: str, suites: Sequence[str]) -> str:
    paragraphs = re.split(r"\n\s*\n", re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE))
    kept = (
        one
        for one in paragraphs
        if re.search(r"(?im)^components:.*\bmain\b", one)
        and not re.search(r"(?im)^types:[ \t]*deb-src[ \t]*$", one)
    )
    fields = {"Types": "deb", "Suites": " ".join(suites)}
    changed = []
    for stanza in kept:
        for name, value in fields.items():
            stanza = re.sub(rf"(?im)^{name}:.*(?:\n[ \t].*)*", f"{name}: {value}", stanza)
        changed.append(stanza)
    return "\n\n".join(changed) + "\n"


_OPTIONS_AND_PLACE = r"((?:\[[^]\n]*\][ \t]+)?(?!cdrom:)\S+)"
_LINE = rf"(?m)^[ \t]*deb[ \t]+{_OPTIONS_AND_PLACE}[ \t]+\S+[ \t]+([^#\n]*\bmain\b[^#\n]*)"


def _lines(text: str, suites: Sequence[str]) -> str:
    found = re.findall(_LINE, text)
    lines = (f"deb {where} {suite} {parts}\n" for where, parts in found for suite in suites)
    return "".join(lines)


_LONGEST_SECONDS = 600


def unpack_packages(
    packages: Sequence[str],
    sources: Sources,
    folder: Path,
    *,
    architecture: str | None = None,
    dependencies: bool = False,
) -> None:
    """Fetch ``packages`` from ``sources`` and unpack them into ``folder``, which is made whole.

    apt chooses among the archives: one that lacks a suite or a package does not matter where
    another has it. ``architecture`` is one of Debian's names; by default this machine's. With
    ``dependencies``, all that the packages need comes along. Hold the lock of ``folder``.
    """
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    if not sources or missing:
        raise TargetError(
            f"Cannot fetch {', '.join(packages)}: this is not a Debian-like system "
            f"({'no ' + ' and no '.join(missing) if missing else 'no apt sources found'}). "
            "Install these programs by other means and put them on PATH."
        )
    with working_folder(folder) as work, _fetching_folder(work) as place:
        apt = ["apt-get", "-q", *_private_apt(place, sources, architecture)]
        take = ["install", "--yes", "--download-only"] if dependencies else ["download"]
        updated = _call([*apt, "update"], place)
        fetched = _call([*apt, *take, *packages], place / "fetched")
        if fetched.returncode != 0:
            raise TargetError(_why(packages, sources, updated.stderr + fetched.stderr))
        unpacked = work / "unpacked"
        unpacked.mkdir()
        content = work / "content.tar"
        found = place / ("cache/archives" if dependencies else "fetched")
        for package in sorted(found.glob("*.deb")):
            with content.open("wb") as file:
                done = _call(["dpkg-deb", "--fsys-tarfile", str(package)], place, stdout=file)
            if done.returncode != 0:
                raise TargetError(_why([package.name], sources, done.stderr))
            unpack_content(content, unpacked, package.name)
        put_in_place(unpacked, folder)


@contextlib.contextmanager
def _fetching_folder(work: Path) -> Iterator[Path]:
    """Where apt works: in ``work``, or as root in a folder that apt's own user can reach.

    Root's apt drops to that user to fetch what strangers wrote, unless the folder is a private one.
    """
    with tempfile.TemporaryDirectory(
        prefix="sme2-apt-", dir=_reachable_folder() if os.geteuid() == 0 else work
    ) as name:
        place = Path(name)
        place.chmod(0o755)
        (place / "fetched").mkdir(0o700)
        with contextlib.suppress(KeyError, PermissionError):
            os.chown(place / "fetched", pwd.getpwnam("_apt").pw_uid, -1)
        yield place


def _reachable_folder() -> str | None:
    for name in (tempfile.gettempdir(), "/var/tmp", "/tmp"):  # noqa: S108
        steps = [Path(name).resolve(), *Path(name).resolve().parents]
        if all(step.is_dir() and step.stat().st_mode & stat.S_IXOTH for step in steps):
            return name
    return None


def reason_of(said: str) -> str:
    """Why apt or dpkg failed, in their words."""
    problems = [line[3:].strip() for line in said.splitlines() if line.startswith(("E: ", "W: "))]
    lines = problems[-3:] or said.strip().splitlines()[-1:] or ["nothing"]
    return f"apt said: {'; '.join(dict.fromkeys(lines))}"


def _why(packages: Sequence[str], sources: Sources, said: str) -> str:
    asked = sorted({*re.findall(r"\w+://[^\s\]]+", "\n".join(sources.values()))})
    return f"Cannot fetch {', '.join(packages)}: {reason_of(said)} Asked: {', '.join(asked)}."


def unpack_content(content: Path, folder: Path, package: str) -> None:
    """Unpack a package's files into ``folder`` and nowhere else, as plain files of this user."""
    try:
        with tarfile.open(content, "r:", errorlevel=2) as archive:
            archive.extractall(folder, filter=_within)  # noqa: S202 - by the filter, nowhere else
    # A name inside may be anything: too long for the disk, in two roles, or a link to itself.
    except (tarfile.TarError, ValueError, KeyError, OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise unwritable(folder, error) from error
        raise TargetError(
            f"The package {package} is damaged or unsafe ({error}). Check the system's apt sources."
        ) from error


def _within(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """As Python's own filter has it; an absolute link starts at the folder."""
    if member.issym() and member.linkname.startswith("/"):
        place = os.path.relpath(member.linkname.lstrip("/"), Path(member.name).parent)
        member = member.replace(linkname=place, deep=False)
    return tarfile.data_filter(member, folder)


def _private_apt(work: Path, sources: Sources, architecture: str | None) -> list[str]:
    """Options that keep apt in ``work``: its lists, its cache, and only these sources."""
    installed = work / "status"
    installed.touch()
    for part in ("lists/partial", "cache/archives/partial", "sources"):
        (work / part).mkdir(parents=True)
    for name, text in sources.items():
        (work / "sources" / name).write_text(text, encoding="utf-8")
    pins = _texts([SYSTEM / "preferences", *sorted((SYSTEM / "preferences.d").glob("*"))])
    preferences = work / "preferences"
    preferences.write_text("\n\n".join([*pins.values(), _OURS_ALONE]), encoding="utf-8")
    values = {
        "Dir::Etc::sourcelist": "-",
        "Dir::Etc::sourceparts": work / "sources",
        "Dir::Etc::preferences": preferences,
        "Dir::Etc::preferencesparts": "-",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work / "cache",
        # What is installed on this machine is of no use in the folder.
        "Dir::State::status": installed,
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
        # It names a suite that may not be among these, which would be an error.
        "APT::Default-Release": "",
        "Acquire::Languages": "none",
        # Do not wait long for an archive that is not needed here.
        "Acquire::http::Timeout": "20",
        "Acquire::https::Timeout": "20",
    }
    if architecture is not None:
        values |= {"APT::Architecture": architecture, "APT::Architectures": architecture}
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


def _call(command: Sequence[str], work: Path, *, stdout: IO[bytes] | None = None) -> Finished:
    kept = ("PATH", "http_proxy", "https_proxy", "no_proxy")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    done = run_process(
        command,
        timeout_seconds=_LONGEST_SECONDS,
        environment={**environment, "LC_ALL": "C"},
        folder=work,
        stdout=stdout,
    )
    if done.timed_out:
        raise TargetError(
            f"{command[0]} did not finish in {_LONGEST_SECONDS} s. Is the network up?"
        )
    return done
