"""The first process of a fake phone lab's sandbox: starts and stops its adb server and devices.

``lab.py`` starts it in separate namespaces (processes, mounts, network), with the standard library
only. It leaves this machine's files before it starts anything: what runs in the sandbox can change
nothing outside, whoever asks for it. The adb server and every adbd have no rights and a root of
their own even in there.

It ends when the other end of its control socket closes, for whatever reason. As the first
process of the sandbox it ends all its processes, mounts and ports, so nothing is left.

It makes the files of each fake phone. Their root has mksh as its shell, toybox for the tools, and
replacements for Android's own programs, which keep their state in files. A program that is pushed
finds no C library and no loader: those of the tools are where only they look.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_sme2.system.processes import limit_process

# Android's numbers: the user of a shell, and the group that may see all processes.
SHELL = 2000
READ_PROCESSES = 3009
SHELL_GROUPS = (1004, 1007, 1011, 1015, 1028, 3001, 3002, 3003, 3006, READ_PROCESSES, 3011)
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_MS_BIND = 0x1000
_MNT_DETACH = 2
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_AF_VSOCK = 40
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
# Machine -> (audit architecture, number of the socket system call).
_SYSTEM_CALLS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_libc = ctypes.CDLL(None, use_errno=True)


def _check(doing: str, status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"a fake phone cannot {doing}: {os.strerror(number)}")


def bring_up_loopback() -> None:
    """Start the loopback interface, the only one of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", request)[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def mount(kind: str, place: Path, options: str = "") -> None:
    words = (kind.encode(), os.fsencode(place), kind.encode(), 0, options.encode())
    # In a new process, because /proc shows the processes of the one that mounts it.
    child = os.fork()
    if child == 0:
        os._exit(ctypes.get_errno() if _libc.mount(*words) else 0)
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number:
        raise OSError(number, f"a fake phone cannot mount {kind}: {os.strerror(number)}")


def bind(source: Path, place: Path) -> None:
    """Show a file or folder at a second place."""
    words = (os.fsencode(source), os.fsencode(place), None, _MS_BIND, None)
    _check(f"show {source} at {place}", _libc.mount(*words))


def leave_machine(root: Path) -> None:
    """Make ``root``, a mount, the whole file system. No path leads to this machine's files then."""
    os.chdir(root)
    # Mounted over each other at one place, and the upper one, the old root, taken away.
    _check("change its root", _libc.pivot_root(b".", b"."))
    _check("leave this machine's files", _libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")


def becoming_shell(root: Path, shell: int) -> Callable[[], None]:
    """What a new process does before its program: go to a phone's root, as its shell's user."""

    def become() -> None:
        if shell:
            os.chroot(root)
            os.setgroups(SHELL_GROUPS)
            os.setgid(shell)
            os.setuid(shell)
        else:
            # There is one user in the sandbox. In there it gets the number.
            _check("have a user of its own", _libc.unshare(_CLONE_NEWUSER))
            for name, text in (("setgroups", "deny"), ("gid_map", "MAP"), ("uid_map", "MAP")):
                Path("/proc/self", name).write_text(text.replace("MAP", f"{SHELL} 0 1"), "utf-8")
            os.chroot(root)
        os.chdir("/")

    return become


class ProcessTree:
    """As a context manager: processes started inside the block belong to the tree.

    A phone sees, and can kill, only its own: a phone that cleans up must not end others' runs.
    Its first process only waits. It is not the phone's adbd, so killing adbd does not end the rest
    of the phone. It also adopts orphans, which the kernel removes because SIGCHLD is ignored.
    """

    def __init__(self) -> None:
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY)
        _check("have processes of its own", _libc.unshare(_CLONE_NEWPID))
        try:
            first = os.fork()
            if first == 0:
                _wait_for_ever()
            self._tree = os.open(f"/proc/{first}/ns/pid", os.O_RDONLY)
        finally:
            self._enter(self._home)

    def __enter__(self) -> None:
        self._enter(self._tree)

    def __exit__(self, *details: object) -> None:
        self._enter(self._home)

    def _enter(self, namespace: int) -> None:
        """Affects only the future children of this process."""
        _check("enter its processes", _libc.setns(namespace, _CLONE_NEWPID))


def _wait_for_ever() -> None:
    # This is a copy of the supervisor; never return into its code.
    try:
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            signal.pause()
    finally:
        with contextlib.suppress(OSError):
            os._exit(1)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def forbid_vsock() -> None:
    """Remove AF_VSOCK from this process and everything that it starts.

    adbd listens on vsock and TCP. A network namespace does not reliably cover vsock: in a virtual
    machine the hypervisor could reach it. A seccomp filter answers such sockets with "address
    family not supported", which adbd tolerates.
    """
    machine = platform.machine()
    if machine not in _SYSTEM_CALLS:
        raise OSError(errno.ENOSYS, f"a fake phone does not run on {machine}")
    architecture, number = _SYSTEM_CALLS[machine]
    # seccomp_data: the call's number at 0, the architecture at 4, the first argument at 16.
    instructions = [
        (_LOAD, 0, 0, 4),
        (_JUMP_IF_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, 0),
        (_JUMP_IF_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, 16),
        (_JUMP_IF_EQUAL, 0, 1, _AF_VSOCK),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(instructions), ctypes.cast(buffer, ctypes.c_void_p))
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        _check("do without vsock", _libc.prctl(*arguments))


STATE = "data/system/fake"
DATA = (Path(__file__).parent / "programs", Path(__file__).parent / "answers")
_PROGRAMS, _ANSWERS = DATA
LINKER = "system/bin/linker64"
LIBRARIES = "system/lib64"

# Android's C library knows these names without a file.
_USERS = {"root": 0, "system": 1000, "readproc": READ_PROCESSES}
_SETTINGS = {
    "low_power": "0",
    "stay_on_while_plugged_in": "0",
    "window_animation_scale": "1.0",
    "transition_animation_scale": "1.0",
    "animator_duration_scale": "1.0",
}
# A zone named soc is the battery's state of charge on many phones, in percent.
_CHARGE = 62
_FEATURES = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca "
    "pacg dcpodp sve2 i8mm bf16"
)
_SME2_FEATURES = " sme smei16i64 smef64f64 smei8i32 smef16f32 smeb16f32 smef32f32 smefa64 sme2"


@dataclass(frozen=True)
class Phone:
    """The properties of one fake phone."""

    name: str
    port: int
    sme2: bool = True
    android: int = 16
    """The version of Android whose answers it gives: 14, 15 or 16."""
    properties: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """Override the defaults; None removes a setting, so that it reads as ``null``."""
    settings_refused: bool = False
    """Whether ``settings put`` and ``delete`` are refused; ``svc`` goes on working."""
    storage_bytes: int | None = None
    """The size of ``/data/local/tmp``; None means as much as memory allows."""
    max_frequencies_khz: Sequence[int] = ()
    """One per core; empty means that all are of one kind."""
    flags: str = ""
    """The features in ``/proc/cpuinfo``; empty means those of some core with or without SME2."""
    parts: Sequence[str] = ()
    """Implementer and part of each core, as in ``0x41:0xd8b``; empty means all of one kind."""
    thermal: str = "works"
    """Android's thermal service: ``works``, ``absent``, ``hangs`` or ``unready``."""
    asleep: bool = False
    """Whether the screen is off at first."""
    temperature_millidegrees: int = 30_000


@dataclass(frozen=True)
class Userland:
    """The shell and the tools of all phones, ready to be copied."""

    folder: Path
    """What goes to the phone, at its place."""
    tools: Sequence[str]
    """The names of toybox."""
    shell: int
    """The user of the phone's shell, as this process must name it; 0 where it has but one user."""


def own_loader(patchelf: str, program: Path) -> list[str]:
    """The command that lets a phone's program find its loader and libraries, and no others."""
    change = ["--set-interpreter", f"/{LINKER}", "--force-rpath", "--set-rpath", f"/{LIBRARIES}"]
    return [patchelf, *change, str(program)]


def build_root(root: Path, phone: Phone, userland: Userland) -> None:
    """Lay a root out, and make what belongs to the running phone."""
    lay_out(root, phone, userland)
    for place in (root / STATE, *(root / STATE).rglob("*")):
        os.chown(place, userland.shell, userland.shell)
    _write_sysfs(root, phone)
    _mount(root, phone, userland.shell)


def lay_out(root: Path, phone: Phone, userland: Userland) -> None:
    """Write the files of a root."""
    for folder in ("system/bin", "vendor/bin", "data/local", STATE, "proc", "dev", "sys", "adbd"):
        (root / folder).mkdir(parents=True)
    (root / "bin").symlink_to("system/bin")
    (root / "etc").symlink_to("system/etc")
    shutil.copytree(userland.folder, root, dirs_exist_ok=True)
    for name in userland.tools:
        (root / "system/bin" / name).symlink_to("toybox")
    for program in _PROGRAMS.iterdir():
        target = root / "system/bin" / program.name
        target.unlink(missing_ok=True)
        shutil.copyfile(program, target)
        target.chmod(0o755)
    (root / "system/etc").mkdir()
    numbers = {**_USERS, "shell": userland.shell or SHELL}
    users = "".join(f"{name}:x:{number}:{number}::/:/bin/sh\n" for name, number in numbers.items())
    groups = "".join(f"{name}:x:{number}:\n" for name, number in numbers.items())
    (root / "system/etc/passwd").write_text(users, encoding="utf-8")
    (root / "system/etc/group").write_text(groups, encoding="utf-8")
    _write_state(root, phone)


def _write_state(root: Path, phone: Phone) -> None:
    state = root / STATE
    answers = _ANSWERS / str(phone.android)
    for answer in (_ANSWERS / "power", answers / "battery", answers / "thermalservice"):
        shutil.copyfile(answer, state / answer.name)
    properties = {"ro.serialno": phone.name}
    for file in (_ANSWERS / "properties", answers / "properties"):
        lines = file.read_text(encoding="utf-8").splitlines()
        properties |= dict(line.split("=", 1) for line in lines)
    properties |= phone.properties
    listed = [f"{name}={value}" for name, value in sorted(properties.items())]
    features = phone.flags or _FEATURES + (_SME2_FEATURES if phone.sme2 else "")
    settings = {**_SETTINGS, **phone.settings}
    _write(
        state,
        {
            "properties": "\n".join(listed),
            **{f"settings/global/{name}": value for name, value in settings.items()},
            "thermal_status": 0,
            "thermal": phone.thermal,
            "wakefulness": "Asleep" if phone.asleep else "Awake",
            "settings_refused": "yes" if phone.settings_refused else None,
            "cpuinfo": "\n".join(
                f"processor\t: {core}\nBogoMIPS\t: 38.40\nFeatures\t: {features}\n"
                f"CPU implementer\t: {part.partition(':')[0]}\nCPU architecture: 8\n"
                f"CPU variant\t: 0x0\nCPU part\t: {part.partition(':')[2]}\nCPU revision\t: 0\n"
                for core, part in enumerate(phone.parts or ["0x41:0xd8e"] * (os.cpu_count() or 1))
            ),
        },
    )
    (state / "journal").touch()


def _write_sysfs(root: Path, phone: Phone) -> None:
    frequencies = list(phone.max_frequencies_khz) or [3_600_000] * (os.cpu_count() or 1)
    cpus = root / "sys/devices/system/cpu"
    for core, frequency in enumerate(frequencies):
        values = {
            "cpuinfo_max_freq": frequency,
            "cpuinfo_min_freq": 300_000,
            "scaling_max_freq": frequency,
            "scaling_cur_freq": frequency,
            "scaling_governor": "schedutil",
        }
        _write(cpus / f"cpu{core}" / "cpufreq", values)
    _write(cpus, dict.fromkeys(("online", "present", "possible"), f"0-{len(frequencies) - 1}"))
    warm = phone.temperature_millidegrees
    zones = {"cpu-0-0": warm, "cpu-1-0": warm, "battery": warm, "skin": warm, "soc": _CHARGE}
    for index, (kind, value) in enumerate(zones.items()):
        _write(root / f"sys/class/thermal/thermal_zone{index}", {"type": kind, "temp": value})


def _write(folder: Path, values: Mapping[str, object]) -> None:
    """Write files of one value each; None makes no file."""
    for name, value in values.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if value is not None:
            (folder / name).write_text(f"{value}\n", encoding="utf-8")


def _mount(root: Path, phone: Phone, shell: int) -> None:
    """Mount what the phone needs; mounts are private to the sandbox and end with it.

    /proc shows the processes of the mounting process, so this runs in the phone's process tree.
    """
    # A group that does not exist here cannot be named. Then the shell owns all that it may see.
    group = f",gid={READ_PROCESSES}" if shell else ""
    mount("proc", root / "proc", f"hidepid=2{group}")
    bind(root / STATE / "cpuinfo", root / "proc/cpuinfo")
    make_devices(root / "dev")
    (root / "dev/pts").mkdir()
    mount("devpts", root / "dev/pts", "newinstance,ptmxmode=0666")
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    storage = root / "data/local/tmp"
    storage.mkdir()
    size = f",size={phone.storage_bytes}" if phone.storage_bytes else ""
    mount("tmpfs", storage, f"mode=0771,uid={shell},gid={shell}{size}")
    bind(root.parent / "adbd", root / "adbd")


def make_devices(folder: Path) -> None:
    """Mount a folder of devices that every program may use."""
    mount("tmpfs", folder, "mode=0755")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        (folder / name).touch()
        bind(Path("/dev", name), folder / name)


ADBD = "/adbd/adbd"
"""In the root of a phone."""
SOCKET = "adb.socket"
"""Where the adb server listens, in the sandbox's root."""
# Where systemd takes numbers for users of short life; accounts do not have them.
_SPARE_USERS = range(61184, 65520)


class Supervisor:
    """Answers one request at a time with a JSON object, which has ``error`` if it failed.

    A request names a method, and has its arguments.
    """

    def __init__(self, control: socket.socket, folder: Path, plan: dict[str, Any]) -> None:
        self.control, self.folder, self.plan = control, folder, plan
        self.userland: Userland
        self.server: subprocess.Popen[bytes] | None = None
        self.devices: dict[str, subprocess.Popen[bytes]] = {}
        self.trees: dict[str, ProcessTree] = {}
        self.phones: dict[str, Phone] = {}

    def start(self) -> None:
        bring_up_loopback()
        forbid_vsock()
        shell = _shell_user()
        mount("tmpfs", self.folder, "mode=0755")
        for place in ("adbd", "server/adb", "server/home", "dev", "proc"):
            (self.folder / place).mkdir(parents=True)
        for place, files in self.plan["programs"].items():
            for file in files:
                shutil.copy2(file, self.folder / place / Path(file).name)
        os.chown(self.folder / "server/home", shell, shell)
        tools = self._make_userland(self.folder / "userland")
        for folder in DATA:
            # Read when a phone is added, from the same place.
            shutil.copytree(folder, self.folder / folder.relative_to("/"))
        make_devices(self.folder / "dev")
        mount("proc", self.folder / "proc")
        leave_machine(self.folder)
        self.folder = Path("/")
        self.userland = Userland(Path("/userland"), tools, shell)

    def _make_userland(self, folder: Path) -> list[str]:
        """Lay the shell and the tools where a phone has them, and return the tools' names."""
        for place in (Path(LINKER).parent, Path(LIBRARIES)):
            (folder / place).mkdir(parents=True)
        for place, file in self.plan["files"].items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, folder / place)
            (folder / place).chmod(0o755)
        for place in self.plan["with own loader"]:
            _run(*own_loader(self.plan["patchelf"], folder / place))
        return _run(self.plan["toybox"], environment=self.plan["environment"]).split()

    def serve(self) -> None:
        while message := self.control.recv(65536):
            request = json.loads(message)
            try:
                answer = getattr(self, request.pop("do"))(**request) or {}
            except (OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            self.control.send(json.dumps(answer).encode())

    def start_server(self) -> None:
        """Start adb; only the user who started the sandbox can connect to it."""
        environment = {"HOME": "/home", "TMPDIR": "/home"}
        environment |= dict.fromkeys(("ADB_MDNS", "ADB_USB", "ADB_EMU"), "0")
        place = self.folder / SOCKET
        place.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            usual = os.umask(0o177)
            listener.bind(str(place))
            os.umask(usual)
            listener.listen(64)
            descriptor = listener.fileno()
            words = ["-L", f"acceptfd:{descriptor}", "server", "nodaemon"]
            self.server = self._start(
                *("server", "/adb", "adb", words), environment, limited=True, pass_fds=[descriptor]
            )

    def _start(
        self,
        name: str,
        place: str,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        limited: bool = False,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a program of ``place`` in the root ``name``, as the shell's user.

        What adbd starts, an emulator among it, has the limits of this machine.
        """
        become = becoming_shell(self.folder / name, self.userland.shell)

        def prepare() -> None:
            if limited:
                limit_process()
            become()

        loader = [f"{place}/{self.plan['loader']}", "--library-path", place]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*loader, f"{place}/{program}", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=prepare,
                **options,
            )

    def add_phone(self, phone: dict[str, Any]) -> None:
        made = Phone(**phone)
        tree = ProcessTree()
        with tree:
            build_root(self.folder / made.name, made, self.userland)
        self.phones[made.name], self.trees[made.name] = made, tree
        self.start_adbd(made.name)

    def start_adbd(self, name: str) -> None:
        port = self.phones[name].port
        environment = {
            "ADBD_PORT": str(port),
            "PATH": "/system/bin:/vendor/bin",
            "HOME": "/data/local/tmp",
            "SHELL": "/system/bin/sh",
            "TMPDIR": "/data/local/tmp",
        }
        with self.trees[name]:
            place, _, program = ADBD.rpartition("/")
            self.devices[name] = self._start(name, place, program, (), environment)
        _wait_for_listener(port, self.devices[name])

    def kill_adbd(self, name: str) -> None:
        """Kill only adbd; its processes go on, as when a cable is pulled."""
        _kill(self.devices[name])

    def kill_server(self) -> None:
        if self.server is not None:
            _kill(self.server)

    def read(self, name: str, path: str) -> dict[str, Any]:
        """A file of the phone, read without adb."""
        return {"text": (self.folder / name / path).read_text(encoding="utf-8")}

    def write(self, name: str, path: str, text: str) -> None:
        file = self.folder / name / path
        file.write_text(text, encoding="utf-8")
        around = file.parent.stat()
        os.chown(file, around.st_uid, around.st_gid)

    def files(self, name: str, path: str) -> dict[str, Any]:
        """All files below a folder of the phone, listed without adb."""
        folder = self.folder / name / path
        found = sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))
        return {"files": found}

    def remove(self, name: str, path: str) -> None:
        place = self.folder / name / path
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


def _shell_user() -> int:
    """The number of the shell's user, which no account has: who has it could enter the phone.

    0 where there is only one user.
    """
    if not _has_user(SHELL):
        return 0
    for number in (SHELL, *filter(_has_user, _SPARE_USERS)):
        try:
            pwd.getpwuid(number)
        except KeyError:
            return number
    raise OSError("a fake phone needs the number of a user that no account has")


def _has_user(number: int) -> bool:
    """Whether files and processes here can belong to a user with this number."""
    lines = Path("/proc/self/uid_map").read_text(encoding="utf-8").splitlines()
    rows = (map(int, line.split()) for line in lines)
    return any(first <= number < first + count for first, _, count in rows)


def _run(*command: str, environment: dict[str, str] | None = None) -> str:
    given = {"PATH": os.environ.get("PATH", ""), **(environment or {})}
    done = subprocess.run(
        command, env=given, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise OSError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def _wait_for_listener(port: int, process: subprocess.Popen[bytes]) -> None:
    # Looked up instead of connected to, because adbd would see a connection as a host.
    deadline = time.monotonic() + 60
    while True:
        rows = "".join(
            Path(table).read_text(encoding="utf-8") for table in ("/proc/net/tcp", "/proc/net/tcp6")
        )
        if re.search(rf":{port:04X} \S+:0000 0A ", rows):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise OSError(f"adbd does not listen on port {port}")
        time.sleep(0.01)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(timeout=60)


def main(arguments: list[str]) -> int:
    descriptor, folder, plan = arguments
    # The test handles Ctrl-C; this process ends with the control socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(descriptor))
    supervisor = Supervisor(control, Path(folder), json.loads(plan))
    try:
        supervisor.start()
    except (OSError, subprocess.SubprocessError) as error:
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return 1
    control.send(json.dumps({"ready": True}).encode())
    supervisor.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
