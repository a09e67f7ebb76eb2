"""A lab of fake phones, as a test uses it: started, stopped, and broken on purpose.

The adb server and every adbd run in a sandbox with a network and files of its own, as a user
without rights (``supervisor.py``). adbd, which listens on all interfaces, finds only a loopback
interface there. The only way in is the adb server's socket: a file of the sandbox, which only its
owner may open, and only the one who started the sandbox (or root) can look into. It ends with the
sandbox. USB, mDNS and emulator scanning are off, so the server never takes a real phone from the
user's own server.

The programs of a fake phone: found on the system, in the cache, or downloaded.

adb and adbd are the real ones. The shell and the tools are of Android's kind: mksh and toybox.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest_sme2
from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone.supervisor import ADBD, LIBRARIES, LINKER, SOCKET, STATE, Phone
from pytest_sme2.results.run import Arm
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.files import make_folders
from pytest_sme2.system.processes import run_process
from pytest_sme2.system.provision import system_sources, unpack_packages, with_suites
from pytest_sme2.system.qemu import DEFAULT_CPU
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer, make_ready
from pytest_sme2.targets.phone.target import FAKE_PROPERTY, LAUNCHER_PROPERTY, AndroidTarget

# adbd is in bookworm-backports, and in the main archive of later releases.
_SUITES = ("bookworm", "bookworm-backports")
_PACKAGES = (
    *("adb", "adbd", "android-libbase", "android-libboringssl"),
    *("android-libcutils", "android-liblog", "android-libziparchive"),
    *("mksh", "toybox", "patchelf"),
    *("libcrypt1", "libprotobuf32", "libusb-1.0-0", "libbrotli1", "liblz4-1"),
)
_PROGRAMS = ("adb", "adbd", "mksh", "toybox", "patchelf")


@dataclass(frozen=True)
class Parts:
    """The real programs, and the folders of their libraries."""

    adb: Path
    adbd: Path
    mksh: Path
    toybox: Path
    patchelf: Path
    """Runs on this machine, and tells the phone's programs where their loader is."""
    libraries: tuple[Path, ...] = field(kw_only=True)
    """Folders for ``LD_LIBRARY_PATH``; empty if the system's loader finds everything."""

    @property
    def environment(self) -> dict[str, str]:
        if not self.libraries:
            return {}
        return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, self.libraries))}


def find_parts(progress: Callable[[str], None] | None = None) -> Parts:
    """The parts; if the system does not have them, downloaded once into the cache."""
    if platform.system() != "Linux":
        raise TargetError(
            "A fake phone needs Linux: its adbd is a Linux program. "
            "Use a real phone here, or run this on a Linux machine or in a Linux container."
        )
    found = installed_parts()
    if found is not None:
        return found
    folder = cache_folder() / "fake-phone" / f"programs-{platform.machine()}"
    sources = with_suites(system_sources(), _SUITES)
    return unpacked_parts(unpack_packages(_PACKAGES, sources, folder, say=progress))


def installed_parts() -> Parts | None:
    """The parts from the system's own packages; None if one is missing."""
    tools = "/usr/lib/android-sdk/platform-tools"
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), tools))
    found = [Path(file) for name in _PROGRAMS if (file := shutil.which(name, path=path))]
    return Parts(*found, libraries=()) if len(found) == len(_PROGRAMS) else None


def unpacked_parts(folder: Path) -> Parts:
    triplets = sorted((folder / "usr/lib").glob("*-linux-gnu"))
    libraries = [path for triplet in triplets for path in (triplet / "android", triplet)]
    libraries += sorted((folder / "lib").glob("*-linux-gnu"))
    places = ("usr/lib/android-sdk/platform-tools", "usr/bin", "bin")
    found = []
    for name in _PROGRAMS:
        candidates = [folder / place / name for place in places]
        part = next((path for path in candidates if path.is_file()), None)
        if part is None:
            raise TargetError(f"{name} is missing in {folder}. Delete that folder and try again.")
        found.append(part)
    return Parts(*found, libraries=tuple(libraries))


def shared_libraries(program: Path, environment: dict[str, str]) -> tuple[Path, list[Path]]:
    """The loader of a program and every library that this loader would load."""
    given = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", **environment}
    done = run_process(["ldd", str(program)], timeout_seconds=60, environment=given)
    paths: list[Path] = []
    for line in done.stdout.splitlines():
        name, _, rest = line.strip().partition(" => ")
        if rest.startswith("not found"):
            raise TargetError(
                f"{program.name} needs the library {name}, which is not installed. "
                f"Install the packages {', '.join(_PROGRAMS)}."
            )
        paths.append(Path((rest or name).split(" (")[0].strip()))
    loaders = [path for path in paths if path.name.startswith("ld-linux")]
    if not loaders:
        raise TargetError(f"{program} is not a program that this machine can run.")
    return loaders[-1], [path for path in paths if path.is_absolute() and path not in loaders]


EMULATOR_ON_PHONE = "/vendor/bin/qemu-aarch64"


class FakePhone:
    """One device of a lab, and what a test can do to it without adb."""

    def __init__(self, lab: FakeLab, phone: Phone) -> None:
        self.lab, self.phone = lab, phone
        self.serial = f"127.0.0.1:{phone.port}"

    def _ask(self, verb: str, **rest: Any) -> Any:
        # In the sandbox, where a link on the phone leads to nothing of this machine.
        return self.lab.ask(verb, name=self.phone.name, **rest)

    def read(self, path: str) -> str:
        """A file of the phone, read without adb; ``path`` is relative to its root."""
        return str(self._ask("read", path=path)["text"])

    def write(self, path: str, text: str) -> None:
        self._ask("write", path=path, text=text)

    def files(self, path: str = "data/local/tmp") -> list[str]:
        return list(self._ask("files", path=path)["files"])

    def remove(self, path: str) -> None:
        """A file, or a folder with all that is in it."""
        self._ask("remove", path=path)

    def setting(self, name: str) -> str | None:
        """The current value of a global setting, or None."""
        if name not in self.files(f"{STATE}/settings/global"):
            return None
        return self.state(f"settings/global/{name}")

    def state(self, name: str) -> str:
        return self.read(f"{STATE}/{name}").strip()

    def processes(self) -> dict[int, list[str]]:
        """The processes on the phone without adbd: process id to command line."""
        found, root = {}, self.lab.root / self.phone.name
        for entry in Path("/proc").glob("[0-9]*"):
            # What belongs to others cannot be looked into.
            with contextlib.suppress(OSError):
                words = os.fsdecode((entry / "cmdline").read_bytes()).split("\0")[:-1]
                if words and words[-1] != ADBD and (entry / "root").samefile(root):
                    found[int(entry.name)] = words
        return found

    def kill_adbd(self) -> None:
        """Kill adbd; the processes that it started go on, as when a cable is pulled."""
        self._ask("kill_adbd")

    def start_adbd(self) -> None:
        self._ask("start_adbd")


def fake_target(phone: FakePhone, **options: Any) -> AndroidTarget:
    """A fake phone as a target."""
    return AndroidTarget(AdbDevice(phone.lab.server, phone.serial), **options)


def open_fake_phone(emulator: Path, **options: Any) -> AndroidTarget:
    """A fake phone in its own lab, which ends with this process.

    It always has an emulated CPU with SME2: without one, a run would pass without showing any.
    """
    lab = FakeLab(emulator=emulator, progress=options.get("progress"))
    atexit.register(lab.close)
    phone = lab.add()
    make_ready(lab.server, phone.serial)
    return fake_target(phone, **options)


class FakeLab:
    """A private adb server and its fake phones. Use as a context manager, or call ``close``."""

    def __init__(
        self, *, emulator: Path | None = None, progress: Callable[[str], None] | None = None
    ) -> None:
        # What may fail comes before what has to be closed.
        parts = find_parts(progress)
        sandbox, plan = sandbox_command(), json.dumps(_plan(parts, emulator))
        # All labs use one empty folder as mount point; each sees only its own mount.
        folder = cache_folder() / "fake-phone" / "mount"
        make_folders(folder)
        self.emulator = emulator
        self.phones: list[FakePhone] = []
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._control.settimeout(180)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs:
            program = [sys.executable, "-m", "pytest_sme2.fake_phone.supervisor"]
            self._process = subprocess.Popen(
                [*sandbox, *program, str(theirs.fileno()), str(folder), plan],
                env={
                    "PATH": os.environ.get("PATH", ""),
                    "PYTHONPATH": str(Path(pytest_sme2.__file__).resolve().parents[1]),
                },
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            self.root = Path(f"/proc/{self._receive()['sender']}/root")
            """All that is in the sandbox, as this process sees it."""
            self.server = AdbServer(str(self.root / SOCKET))
            self.start_server()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> FakeLab:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The address of the adb server, for ``--sme2-phone adb-server=``."""
        return str(self.server)

    def add(self, **likeness: Any) -> FakePhone:
        """Add a phone; ``likeness`` are fields of ``root.Phone``."""
        index = len(self.phones)
        # adb servers look for emulators on even ports from 5555 on; these are far away.
        phone = Phone(**{"name": f"phone{index}", "port": 15601 + 2 * index, **likeness})
        own = {FAKE_PROPERTY: "1"}
        if self.emulator is not None:
            # The same emulated CPU for both arms: the runner switches SME2 off, as on a phone.
            cpu = DEFAULT_CPU.model(Arm.ON if phone.sme2 else Arm.OFF)
            own[LAUNCHER_PROPERTY] = f"{EMULATOR_ON_PHONE} -cpu {cpu}"
        phone = dataclasses.replace(phone, properties={**own, **phone.properties})
        self.ask("add_phone", phone=dataclasses.asdict(phone))
        self.phones.append(FakePhone(self, phone))
        return self.phones[-1]

    def start_server(self) -> None:
        """Start the adb server; a second start uses the same address."""
        self.ask("start_server")
        try:
            self.server.version(timeout=30)
        except TargetError as error:
            lines = self.log().strip().splitlines()
            said = lines[-1] if lines else "it said nothing"
            raise TargetError(f"The fake phone's adb server did not start: {said}") from error

    def kill_server(self) -> None:
        self.ask("kill_server")

    def log(self, name: str = "server") -> str:
        return (self.root / f"{name}.log").read_text("utf-8", "replace")[-8000:]

    def ask(self, verb: str, **rest: Any) -> Any:
        message = json.dumps({"do": verb, **rest}).encode()
        # A test may call this from another thread than the measuring one.
        with self._lock:
            try:
                self._control.send(message)
            except OSError as error:
                raise TargetError(f"The fake phone's sandbox is gone: {error}.") from error
            return self._receive()

    def _receive(self) -> Any:
        """An answer, and the ``sender``: the sandbox's first process, by its number here."""
        try:
            message, credentials, _, _ = self._control.recvmsg(1 << 20, socket.CMSG_SPACE(12))
        except OSError as error:
            raise TargetError(f"The fake phone's sandbox does not answer: {error}.") from error
        if not message:
            raise TargetError(f"The fake phone could not start: {self._last_words()}")
        answer: Mapping[str, Any] = json.loads(message)
        if "error" in answer:
            raise TargetError(f"The fake phone's sandbox failed: {answer['error']}")
        return {**answer, "sender": struct.unpack("3i", credentials[0][2])[0]}

    def _last_words(self) -> str:
        text = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            text = self._process.communicate(timeout=10)[1].decode("utf-8", "replace").strip()
        return (
            f"{text.splitlines()[-1] if text else 'no message'}. It needs root, or a system that "
            "lets users create namespaces (kernel.unprivileged_userns_clone, or a container run "
            "with --privileged)."
        )

    def close(self) -> None:
        """End the sandbox with all its processes, mounts and ports."""
        self._control.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)
        if self._process.stderr is not None:
            self._process.stderr.close()


def sandbox_command() -> list[str]:
    """The command for separate namespaces; ``--kill-child`` ends them with their starter."""
    missing = [tool for tool in ("unshare", "ldd") if shutil.which(tool) is None]
    if missing:
        raise TargetError(
            f"A fake phone needs {' and '.join(missing)}. "
            "Debian has unshare and ldd in util-linux and libc-bin."
        )
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--ipc", "--mount", "--pid", "--fork", "--kill-child"]


def _plan(parts: Parts, emulator: Path | None) -> dict[str, Any]:
    programs = {}
    for place, program in (("adbd", parts.adbd), ("server/adb", parts.adb)):
        loader, libraries = shared_libraries(program, parts.environment)
        programs[place] = [str(program), str(loader), *map(str, libraries)]
    tools = {"system/bin/sh": parts.mksh, "system/bin/toybox": parts.toybox}
    files = {LINKER: loader, **tools}
    for program in tools.values():
        for library in shared_libraries(program, parts.environment)[1]:
            files[f"{LIBRARIES}/{library.name}"] = library
    if emulator is not None:
        files[EMULATOR_ON_PHONE.lstrip("/")] = emulator
    return {
        "environment": parts.environment,
        "programs": programs,
        "loader": loader.name,
        "patchelf": str(parts.patchelf),
        "toybox": str(parts.toybox),
        "with own loader": list(tools),
        "files": {place: str(file) for place, file in files.items()},
    }
