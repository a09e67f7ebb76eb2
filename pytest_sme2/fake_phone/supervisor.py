"""The first process of a fake phone lab's sandbox: starts and stops its adb server and devices.

``lab.py`` starts it in separate namespaces (processes, mounts, network), with the standard library
only. It leaves this machine's files before it starts anything: what runs in the sandbox can change
nothing outside, whoever asks for it. The adb server and every adbd have no rights and a root of
their own even in there.

It ends when the other end of its control socket closes, for whatever reason. As the first
process of the sandbox it ends all its processes, mounts and ports, so nothing is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.fake_phone.root import (
    DATA,
    LIBRARIES,
    LINKER,
    SHELL,
    Phone,
    ProcessTree,
    Userland,
    becoming_shell,
    bring_up_loopback,
    build_root,
    forbid_vsock,
    leave_machine,
    make_devices,
    mount,
    own_loader,
)
from pytest_sme2.system.confine import limit_process

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
            self.devices[name] = self._start(name, "/adbd", "adbd", (), environment)
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

    def processes(self, name: str) -> dict[str, Any]:
        """Command lines of the processes in the phone's root, without adbd."""
        root = self.folder / name
        own = self.devices[name].pid
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit() or int(entry.name) == own:
                    continue
                words = (entry / "cmdline").read_bytes().split(b"\0")[:-1]
                if words and (entry / "root").resolve() == root:
                    found[entry.name] = [word.decode("utf-8", "replace") for word in words]
        return {"processes": found}

    def signal(self, pid: int, number: int) -> None:
        os.kill(pid, number)

    def log(self, name: str) -> dict[str, Any]:
        text = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return {"text": text[-8000:]}


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
