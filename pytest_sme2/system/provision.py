"""Finds or fetches the tools this platform needs; says what it did and what is missing.

Everything that can live in the cache folder goes there and needs no root. Only compilers are
installed system-wide, and only through the system's own package manager.

Programs from Debian's archive are unpacked into a folder of ours; the system is left as it is. The
archives' addresses, keys and preferences (pins) are those of the system's own apt, which checks
every signature, as its own user. Only archives by Debian and Ubuntu are used. What a package holds
decides neither where it lands nor what it may.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import platform
import pwd
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from packaging.version import Version

from pytest_sme2.errors import BuildError, Sme2Error, TargetError, install
from pytest_sme2.system.cache import cache_folder, made_once
from pytest_sme2.system.files import unwritable
from pytest_sme2.system.platforms import LINUX_AARCH64, MACOS_ARM64, host_platform
from pytest_sme2.system.processes import ANSWER_SECONDS, Finished, answer_of, run_process
from pytest_sme2.system.qemu import NOT_ON_MACOS, Qemu, find_qemu
from pytest_sme2.system.terminal import Say

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
    again: bool = False,
    say: Say | None = None,
) -> Path:
    """Fetch ``packages`` from ``sources`` and unpack them into ``folder`` of the cache, once, or
    ``again``.

    apt chooses among the archives: one that lacks a suite or a package does not matter where
    another has it. ``architecture`` is one of Debian's names; by default this machine's. With
    ``dependencies``, all that the packages need comes along.
    """

    def fetch(work: Path) -> Path:
        missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
        if not sources or missing:
            raise TargetError(
                f"Cannot fetch {', '.join(packages)}: this is not a Debian-like system "
                f"({'no ' + ' and no '.join(missing) if missing else 'no apt sources found'}). "
                "Install these programs by other means and put them on PATH."
            )
        with _fetching_folder(work) as place:
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
            return unpacked

    whole = (lambda _: False) if again else None
    return made_once(folder, f"fetching {', '.join(packages)}", fetch, whole=whole, say=say)


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


CROSS_COMPILER = "aarch64-linux-gnu-g++"
# Older versions write $ORIGIN wrongly into the binary's search path.
LEAST_CMAKE = Version("3.28")


@dataclass(frozen=True)
class Compiler:
    cxx: str
    version: str
    """The first line of its ``--version``."""
    cross: bool


def find_cmake() -> str:
    """A CMake that is new enough: from the Python package, else from PATH."""
    candidates = _from_package("cmake", "CMAKE_BIN_DIR", "cmake"), shutil.which("cmake")
    seen = []
    for candidate in filter(None, candidates):
        match = re.search(r"cmake version (\d+(?:\.\d+)+)", answer_of([candidate, "--version"]))
        if match and Version(match[1]) >= LEAST_CMAKE:
            return candidate
        seen.append(f"{candidate} is {match[1] if match else 'unknown'}")
    raise BuildError(
        f"Building the runner needs CMake {LEAST_CMAKE} or newer; "
        f"{'; '.join(seen) or 'none was found'}. Install it with: {install('build')}"
    )


def find_ninja() -> str:
    found = _from_package("ninja", "BIN_DIR", "ninja") or shutil.which("ninja")
    if found is None:
        raise BuildError(
            "Building the runner needs Ninja, which was not found. "
            f"Install it with: {install('build')}"
        )
    return found


def _from_package(package: str, attribute: str, program: str) -> str | None:
    try:
        module = importlib.import_module(package)
    except ImportError:
        return None
    # A folder of that name in the working directory can be imported too, but has no such folder.
    path = Path(getattr(module, attribute, None) or "") / program
    return str(path) if path.is_absolute() and path.is_file() else None


def find_compiler(wanted: str) -> Compiler:
    """The compiler that builds for this platform here, or an error that says what to install."""
    host = host_platform()
    cross = wanted != host
    if not cross:
        names = filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))
        cxx = next(filter(None, map(shutil.which, names)), None)
        remedy = "xcode-select --install" if host == MACOS_ARM64 else "apt-get install g++"
    elif wanted == LINUX_AARCH64 and host.startswith("linux-"):
        cxx = shutil.which(CROSS_COMPILER)
        remedy = "apt-get install g++-aarch64-linux-gnu"
    else:
        raise BuildError(
            f"A runner for {wanted} cannot be built from a wheel on this machine ({host})."
        )
    if not cxx:
        raise BuildError(
            f"Building the runner for {wanted} needs a C++17 compiler, but none "
            f"was found. Install one, for example with: {remedy}"
        )
    problem = compiler_problem(cxx)
    if problem:
        raise BuildError(f"Building the runner for {wanted} needs a C++17 compiler. {problem}")
    version = answer_of([cxx, "--version"]).partition("\n")[0]
    return Compiler(cxx=cxx, version=version, cross=cross)


def compiler_problem(cxx: str) -> str:
    """Why a compiler that is there does not work, in its own words, and what to do about that.

    On a Mac ``/usr/bin/c++`` is always there; without the command line tools, or before Xcode's
    licence was accepted, it only says so.
    """
    try:
        finished = run_process([cxx, "--version"], timeout_seconds=ANSWER_SECONDS)
    except OSError as error:
        said = str(error)
    else:
        if finished.returncode == 0 and finished.stdout.strip():
            return ""
        lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
        said = " ".join(lines[:3]) or f"it ended with exit code {finished.returncode}"
    remedy = "Reinstall it, or name another with CXX"
    if re.search("licen[cs]e", said, re.IGNORECASE):
        remedy = "Run: sudo xcodebuild -license accept"
    elif "xcode-select" in said or "xcrun" in said:
        remedy = "Run: xcode-select --install"
    return f"{cxx} is there but does not work. It says: {said.rstrip('.')}. {remedy}"


@dataclass(frozen=True)
class Provided:
    """One tool: where it is, or what its absence costs."""

    name: str
    found: str | None
    """A path and version; None where it is missing."""
    action: str = "found"
    """``found``, ``installed`` or ``missing``."""
    cost: str = ""
    """The features that are lost without it."""
    remedy: str = ""


COMPILER, CROSS, QEMU = "C++ compiler", "Arm C++ compiler", "QEMU"
# What Debian calls them.
_NAMES = {COMPILER: "g++", CROSS: "g++-aarch64-linux-gnu"}
_ON_A_MAC = {COMPILER: "Run: xcode-select --install", QEMU: NOT_ON_MACOS}


def install_hint(tool: str) -> str:
    """What to type on this system to get a tool; which tool, where the system is not known."""
    families = _families()
    if families == ["darwin"]:
        return _ON_A_MAC[tool]
    if "debian" in families and tool in _NAMES:
        return f"Run: sudo apt-get install {_NAMES[tool]}"
    return f"Install the {tool} with this system's package manager."


def _families() -> list[str]:
    """This system and those that it is like, the nearest first."""
    if platform.system() == "Darwin":
        return ["darwin"]
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return []
    return [release.get("ID", ""), *release.get("ID_LIKE", "").split()]


def _sudo() -> list[str] | None:
    """What to put before a command that needs root; None where root is not to be had."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    asked = run_process(["sudo", "-n", "true"], timeout_seconds=30)
    return ["sudo", "-n"] if asked.returncode == 0 else None


def apt_install(package: str, say: Say) -> None:
    """Install a package system-wide, or raise with the line the user can type."""
    line = f"apt-get install {package}"
    prefix = _sudo()
    if prefix is None:
        raise BuildError(f"Installing needs root. Run: sudo {line}")
    say(f"installing {package} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    # An archive of somebody else that cannot be reached does not matter if the packages come.
    said = ""
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", package]):
        done = run_process(
            [*prefix, "apt-get", *arguments], timeout_seconds=900, environment=environment
        )
        said += done.stderr or done.stdout
    if done.returncode != 0:
        raise BuildError(f"`{line}` failed: {reason_of(said)}")


def _program(tool: str, programs: tuple[str, ...], cost: str, say: Say, check: bool) -> Provided:
    """A program on PATH; installed by apt where it is missing and that is possible."""

    def path() -> str | None:
        return next(filter(None, map(shutil.which, programs)), None)

    if found := path():
        return Provided(tool, found)
    remedy = install_hint(tool)
    if not check and shutil.which("apt-get") is not None:
        try:
            apt_install(_NAMES[tool], say)
        except Sme2Error as error:
            remedy = str(error)
        if found := path():
            return Provided(tool, found, "installed")
    return Provided(tool, None, "missing", cost, remedy)


def compiler(say: Say, check: bool) -> Provided:
    cost = "no runner can be built: nothing can be run on this machine"
    found = _program(COMPILER, ("c++", "g++", "clang++"), cost, say, check)
    problem = compiler_problem(found.found) if found.found is not None else ""
    return Provided(found.name, None, "missing", cost, problem) if problem else found


def cross_compiler(say: Say, check: bool) -> Provided:
    """On Linux machines that are not Arm: what builds the runner the emulator executes."""
    cost = "no runner for the SME2 emulator: --device=emulated cannot be used"
    return _program(CROSS, (CROSS_COMPILER,), cost, say, check)


# The suites whose QEMU executes SME2, newest release first.
_QEMU_SUITES = {"ubuntu": ("resolute", "questing"), "debian": ("forky", "sid")}


def qemu(say: Say, check: bool) -> Provided:
    """A QEMU that executes SME2: on PATH, in the cache, or fetched into the cache."""
    name = "QEMU with SME2"
    cost = "no SME2 on a machine without it: --device=emulated cannot be used"
    try:
        return _described(name, find_qemu())
    except Sme2Error as error:
        problem = str(error)
    sources = system_sources()
    if not sources:
        problem = f"{problem} {install_hint(QEMU)}"
    if check or not sources:
        return Provided(name, None, "missing", cost, problem)
    suites = [suite for family in _families() for suite in _QEMU_SUITES.get(family, ())]
    asked = [(suite, with_suites(sources, [suite])) for suite in suites]
    for suite, wanted in (*asked, ("its own suite", sources)):
        say(f"fetching QEMU from this machine's archives: {suite}")
        try:
            kept = cache_folder() / "tools" / "qemu"
            unpack_packages(["qemu-user"], wanted, kept, again=True)
            return _described(name, find_qemu(), "installed")
        except TargetError as error:
            problem = str(error)
            say(problem)
    return Provided(name, None, "missing", cost, problem)


def _described(name: str, emulator: Qemu, action: str = "found") -> Provided:
    return Provided(name, f"{emulator.path} ({emulator.version})", action)


def build_tools(say: Say, check: bool) -> Provided:
    """CMake and Ninja, which come with this package from PyPI."""
    try:
        cmake, ninja = find_cmake(), find_ninja()
    except Sme2Error as error:
        return Provided("CMake and Ninja", None, "missing", "no runner can be built", str(error))
    return Provided("CMake and Ninja", f"{cmake}, {ninja}")


def provision(say: Say, *, check: bool = False) -> tuple[Provided, ...]:
    """Find or fetch everything this platform can use; with ``check`` nothing is changed."""
    parts = [build_tools, compiler]
    if platform.system() == "Linux":
        parts.append(qemu)
        if platform.machine() != "aarch64":
            parts.append(cross_compiler)
    return tuple(part(say, check) for part in parts)
