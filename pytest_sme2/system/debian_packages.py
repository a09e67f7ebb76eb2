"""Programs from Debian's archive, unpacked into a folder of ours; the system is left as it is.

The archives' addresses, keys and preferences (pins) are those of the system's own apt, which checks
every signature, as its own user. Only archives by Debian and Ubuntu are used, unless
SME2_APT_ORIGINS names others. What a package holds decides neither where it lands nor what it may.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from pytest_sme2.errors import TargetError
from pytest_sme2.system.cache import put_in_place, working_folder
from pytest_sme2.system.files import unwritable
from pytest_sme2.system.processes import Finished, run_process

SYSTEM_SOURCES = Path("/etc/apt")
# The component that Debian and Ubuntu keep their own programs in.
MAIN = "main"

_NO = frozenset(("no", "false", "without", "off", "disable", "0"))
# One-line options whose deb822 field has another name. The names of all others are the same.
_FIELD_NAMES = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
# What an Archive says in fields of its own, and what is not about fetching.
_OWN_FIELDS = frozenset(("types", "uris", "suites", "components", "enabled", "description"))


@dataclass(frozen=True)
class Archive:
    """One entry of apt's sources: where packages come from, and who must have signed them."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()
    """deb822 fields such as Signed-By, as they stand in the file."""

    def stanza(self) -> str:
        fields = [
            ("Types", "deb"),
            ("URIs", self.uri),
            ("Suites", " ".join(self.suites)),
            *([("Components", " ".join(self.components))] if self.components else []),
            *self.options,
        ]
        return "".join(f"{name}: {value}\n" for name, value in fields)


def parse_deb822(text: str) -> Iterator[Archive]:
    """The entries of a ``.sources`` file that are enabled and hold programs."""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE)):
        found = re.findall(r"^([\w-]+):(.*(?:\n[ \t].*)*)", paragraph, re.MULTILINE)
        # By name in small letters: the name as it is written, and the value.
        fields = {
            name.lower(): (name, re.sub(r"\s*\n\s*", "\n ", value.strip())) for name, value in found
        }
        words = {name: tuple(value.split()) for name, (_, value) in fields.items()}
        enabled = fields.get("enabled", ("", ""))[1].lower() not in _NO
        if "deb" not in words.get("types", ()) or not enabled:
            continue
        options = tuple(
            fields[name] for name in fields if name not in _OWN_FIELDS and not name.startswith("x-")
        )
        for uri in words.get("uris", ()):
            yield Archive(uri, words.get("suites", ()), words.get("components", ()), options)


def parse_one_line(text: str) -> Iterator[Archive]:
    """The ``deb`` lines of a ``.list`` file."""
    for line in text.splitlines():
        kind, _, rest = line.partition("#")[0].strip().replace("\t", " ").partition(" ")
        options, rest = "", rest.strip()
        if rest.startswith("["):
            options, _, rest = rest[1:].partition("]")
        words = rest.split()
        if kind != "deb" or len(words) < 2 or words[0].startswith("cdrom:"):
            continue
        named = {}
        for option in options.split():
            name, equals, value = option.partition("=")
            name = name.rstrip("+-").lower()
            if equals and re.fullmatch(r"[\w-]+", name):
                named[name] = (_FIELD_NAMES.get(name, name), value.replace(",", " ").strip())
        yield Archive(words[0], (words[1],), tuple(words[2:]), tuple(named.values()))


def system_archives(folder: Path = SYSTEM_SOURCES) -> tuple[Archive, ...]:
    """Every enabled entry of the machine's sources; empty where this system has no apt."""
    parts = folder / "sources.list.d"
    files = [folder / "sources.list", *sorted([*parts.glob("*.sources"), *parts.glob("*.list")])]
    found: list[Archive] = []
    for file in files:
        with contextlib.suppress(OSError):
            text = file.read_text(encoding="utf-8", errors="replace")
            found += parse_deb822(text) if file.suffix == ".sources" else parse_one_line(text)
    return tuple(found)


def with_suites(
    archives: Iterable[Archive], suites: Sequence[str], components: Sequence[str] = (MAIN,)
) -> tuple[Archive, ...]:
    """The same archives, asked for other suites: apt finds out which of them have these.

    Only archives with a ``main`` component are asked: the distribution's own programs are there.
    """
    asked: dict[tuple[object, ...], Archive] = {}
    for archive in archives:
        if MAIN in archive.components:
            uri, options = archive.uri.rstrip("/"), archive.options
            together = tuple(dict.fromkeys((*components, *sorted(archive.components))))
            # One address often has several entries, for updates and backports.
            asked.setdefault((uri, options), Archive(uri, tuple(suites), together, options))
    return tuple(asked.values())


_LONGEST_SECONDS = 600
# As their Release files have it.
ORIGINS = ("Debian", "Debian Backports", "Ubuntu")
ORIGINS_VARIABLE = "SME2_APT_ORIGINS"

# What apt says, by the reason that it stands for. The first reason that fits is given.
_REASONS = {
    "the disk is full": r"No space left on device|enough free space",
    "a signature is missing or cannot be checked": (
        r"NO_PUBKEY|EXPKEYSIG|BADSIG|GPG error|is not signed|OpenPGP|couldn't be verified"
    ),
    "the archive's dates do not fit this machine's clock": r"is (?:expired|not valid yet)",
    "the network or the archive's host cannot be reached": (
        r"resolving|resolve|[Cc]ould not connect|[Cc]onnection|[Uu]nreachable|[Tt]imed? ?out|Proxy"
    ),
    "apt has no candidate: no archive of this machine has it, or a pin forbids it": (
        r"no candidate|no installation candidate|Can't select"
    ),
    "no archive of this machine has it": (
        r"Unable to locate|Couldn't find|was not found|Release file|404|Can't find a source"
    ),
}


@dataclass(frozen=True)
class OfferedPackage:
    file_name: str
    bytes: int

    @property
    def version(self) -> str:
        """Without the epoch: ``11.1.2+ds-1``."""
        words = unquote(self.file_name).split("_")
        return words[1].rpartition(":")[2] if len(words) > 1 else ""


def unpack_packages(
    packages: Sequence[str],
    archives: Sequence[Archive],
    folder: Path,
    approve: Callable[[Sequence[OfferedPackage]], None] = lambda offered: None,
    *,
    architecture: str | None = None,
    dependencies: bool = False,
) -> None:
    """Fetch ``packages`` from ``archives`` and unpack them into ``folder``, which is made whole.

    apt chooses among the archives: one that lacks a suite or a package does not matter where
    another has it. ``architecture`` is one of Debian's names; by default this machine's. With
    ``dependencies``, all that the packages need comes along. ``approve`` sees what would be fetched
    and raises if it is not wanted. Hold the lock of ``folder``.
    """
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    if not archives or missing:
        raise TargetError(
            f"Cannot fetch {', '.join(packages)}: this is not a Debian-like system "
            f"({'no ' + ' and no '.join(missing) if missing else 'no apt sources found'}). "
            "Install these programs by other means and put them on PATH."
        )
    with working_folder(folder) as work, _fetching_folder(work) as place:
        apt = ["apt-get", "-q", *_private_apt(place, archives, architecture)]
        take = ["install", "--yes", "--download-only"] if dependencies else ["download"]
        updated = _call([*apt, "update"], place)
        archives = _of_known_origin(packages, archives, apt, place)
        offered = _call([*apt, *take, "--print-uris", *packages], place)
        if offered.returncode != 0:
            raise TargetError(_why(packages, archives, updated.stderr + offered.stderr))
        _respect_pins(packages, archives, apt, place, _offered(offered.stdout))
        approve(_offered(offered.stdout))
        fetched = _call([*apt, *take, *packages], place / "fetched")
        if fetched.returncode != 0:
            raise TargetError(_why(packages, archives, fetched.stderr))
        unpacked = work / "unpacked"
        unpacked.mkdir()
        content = work / "content.tar"
        found = place / ("cache/archives" if dependencies else "fetched")
        for package in sorted(found.glob("*.deb")):
            with content.open("wb") as file:
                done = _call(["dpkg-deb", "--fsys-tarfile", str(package)], place, stdout=file)
            if done.returncode != 0:
                raise TargetError(_why([package.name], archives, done.stderr))
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


def _of_known_origin(
    packages: Sequence[str], archives: Sequence[Archive], apt: Sequence[str], place: Path
) -> list[Archive]:
    """The archives that Debian or Ubuntu made, by their signed Release files; apt has no other."""
    named = [name.strip() for name in os.environ.get(ORIGINS_VARIABLE, "").split(",")]
    wanted, others = {*ORIGINS, *filter(None, named)}, set()
    each = [replace(archive, suites=(suite,)) for archive in archives for suite in archive.suites]
    form = "$(REPO_URI)\t$(RELEASE)\t$(ORIGIN)"
    found = {}
    for line in _call([*apt, "indextargets", "--format", form], place).stdout.splitlines():
        uri, suite, origin = line.split("\t")
        found[_plain(uri), suite] = origin
        others |= {origin or "without a name"} - wanted
    kept = [
        archive
        for archive in each
        if found.get((_plain(archive.uri), archive.suites[0])) in (None, *wanted)
    ]
    if not kept:
        raise TargetError(
            f"Cannot fetch {', '.join(packages)}: the archives of this machine are by others than "
            f"Debian and Ubuntu: {', '.join(sorted(others))}. If you trust them, name them: "
            f"{ORIGINS_VARIABLE}='{','.join(sorted(others))}'."
        )
    _write_sources(place, kept)
    return kept


def _plain(uri: str) -> str:
    """An address as both of us write it: apt drops the slashes of ``file://`` and adds one."""
    return uri.rstrip("/").replace("file:///", "file:/")


def _respect_pins(
    packages: Sequence[str],
    archives: Sequence[Archive],
    apt: Sequence[str],
    place: Path,
    offered: Sequence[OfferedPackage],
) -> None:
    """Apt takes what is asked for as NAME/SUITE even where a pin forbids it; we do not."""
    for package in packages:
        name, slash, _ = package.partition("/")
        table = _call(["apt-cache", *apt[2:], "policy", name], place).stdout if slash else ""
        for version, priority in re.findall(r"^[ *]{5}(\S+) (-?\d+)$", table, re.MULTILINE):
            chosen = any(
                (unquote(found.file_name).partition("_")[0], found.version)
                == (name, version.rpartition(":")[2])
                for found in offered
            )
            if chosen and int(priority) < 0:
                raise TargetError(_why([package], archives, f"E: {package} has no candidate"))


def _offered(answer: str) -> tuple[OfferedPackage, ...]:
    """The lines of ``--print-uris``: address, file name, size and hash."""
    lines = re.findall(r"^'\S+' (\S+) (\d+)\b", answer, re.MULTILINE)
    return tuple(OfferedPackage(name, int(size)) for name, size in lines)


def reason_of(said: str) -> str:
    """Why apt or dpkg failed, in our words and in theirs."""
    problems = [line[3:] for line in said.splitlines() if line.startswith(("E: ", "W: "))]
    lines = problems or said.strip().splitlines()[-1:]
    for reason, pattern in _REASONS.items():
        for line in lines:
            if re.search(pattern, line):
                return f"{reason}: {line.strip()}"
    return f"apt or dpkg failed: {lines[-1].strip() if lines else 'no message'}"


def _why(packages: Sequence[str], archives: Sequence[Archive], said: str) -> str:
    asked = sorted({f"{archive.uri} ({' '.join(archive.suites)})" for archive in archives})
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


def _private_apt(work: Path, archives: Sequence[Archive], architecture: str | None) -> list[str]:
    """Options that keep apt in ``work``: its lists, its cache, and only these sources."""
    installed = work / "status"
    installed.touch()
    sources = _write_sources(work, archives)
    for part in ("lists/partial", "cache/archives/partial"):
        (work / part).mkdir(parents=True)
    values = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
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


def _write_sources(work: Path, archives: Sequence[Archive]) -> Path:
    sources = work / "private.sources"
    text = "\n".join(archive.stanza() for archive in archives)
    sources.write_text(text, encoding="utf-8")
    return sources


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
