"""The first process of a fake phone lab's sandbox: starts and stops its adb server and devices.

``lab.py`` starts it in separate namespaces (processes, mounts, network), with the standard library
only. It ends when the other end of its control socket closes, for whatever reason. As the first
process of the sandbox it ends all its processes, mounts and ports, so nothing is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from pytest_sme2.fake_phone.no_vsock import forbid_vsock
from pytest_sme2.fake_phone.process_tree import ProcessTree
from pytest_sme2.fake_phone.root import (
    LIBRARIES,
    LINKER,
    SHELL,
    SHELL_GROUPS,
    Phone,
    Userland,
    build_root,
    mount,
    own_loader,
)

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def bring_up_loopback() -> None:
    """Start the loopback interface, the only one of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", request)[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


class Supervisor:
    """Answers one request at a time with a JSON object, which has ``error`` if it failed."""

    def __init__(self, control: socket.socket, folder: Path, plan: dict[str, Any]) -> None:
        self.control = control
        self.folder = folder
        self.plan = plan
        self.userland: Userland | None = None
        self.server: subprocess.Popen[bytes] | None = None
        self.devices: dict[str, subprocess.Popen[bytes]] = {}
        self.trees: dict[str, ProcessTree] = {}
        self.phones: dict[str, Phone] = {}

    def start(self) -> None:
        bring_up_loopback()
        forbid_vsock()
        mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", self.folder)
        adbd = self.folder / "adbd"
        adbd.mkdir()
        for file in self.plan["adbd_files"]:
            shutil.copy2(file, adbd / Path(file).name)
        (self.folder / "home").mkdir()
        self.userland = self._make_userland(self.folder / "userland")

    def _make_userland(self, folder: Path) -> Userland:
        """Lay the shell and the tools where a phone has them, with a loader of their own."""
        for place in (Path(LINKER).parent, Path(LIBRARIES)):
            (folder / place).mkdir(parents=True)
        for place, file in self.plan["files"].items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, folder / place)
            (folder / place).chmod(0o755)
        for place in self.plan["programs"]:
            _run(*own_loader(self.plan["patchelf"], folder / place))
        listed = _run(self.plan["toybox"], environment=self.plan["adb_environment"])
        return Userland(folder, listed.split(), SHELL if _has_user(SHELL) else 0)

    def serve(self) -> None:
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.control, 65536, 1)
            if not message:
                return
            request = json.loads(message)
            try:
                answer = self._handlers[request.pop("do")](self, descriptors, **request)
            except (OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            self.control.send(json.dumps(answer).encode())

    def start_server(self, descriptors: list[int]) -> dict[str, Any]:
        """Start adb in the sandbox, with a listening socket of the host's loopback."""
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "home"),
            "ADB_MDNS": "0",
            "ADB_USB": "0",
            "ADB_EMU": "0",
            **self.plan["adb_environment"],
        }
        with (self.folder / "server.log").open("ab") as log:
            self.server = subprocess.Popen(
                [self.plan["adb"], "-L", f"acceptfd:{descriptors[0]}", "server", "nodaemon"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=descriptors[:1],
                cwd=self.folder,
            )
        return {"pid": self.server.pid}

    def add_phone(self, descriptors: list[int], phone: dict[str, Any]) -> dict[str, Any]:
        made = Phone.from_json(phone)
        tree = ProcessTree()
        with tree:
            build_root(self.folder / made.name, made, self._known_userland())
        self.phones[made.name], self.trees[made.name] = made, tree
        return self.start_adbd(descriptors, made.name)

    def _known_userland(self) -> Userland:
        if self.userland is None:
            raise ValueError("the supervisor has not started")
        return self.userland

    def add_stubborn(self, descriptors: list[int], port: int) -> dict[str, Any]:
        """Start a fake adbd that asks every host for its key and never accepts it."""
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=_never_authorize, args=(listener,), daemon=True).start()
        return {}

    def start_adbd(self, descriptors: list[int], name: str) -> dict[str, Any]:
        phone = self.phones[name]
        root = self.folder / name
        environment = {
            "ADBD_PORT": str(phone.port),
            "PATH": "/system/bin:/vendor/bin",
            "HOME": "/data/local/tmp",
            "SHELL": "/system/bin/sh",
            "TMPDIR": "/data/local/tmp",
        }
        with (self.folder / f"{name}.log").open("ab") as log, self.trees[name]:
            self.devices[name] = subprocess.Popen(
                [
                    *as_shell(root, self._known_userland().shell),
                    *(f"/adbd/{self.plan['loader']}", "--library-path", "/adbd", "/adbd/adbd"),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _wait_for_listener(phone.port, self.devices[name])
        return {"serial": f"127.0.0.1:{phone.port}"}

    def kill_adbd(self, descriptors: list[int], name: str) -> dict[str, Any]:
        """Kill only adbd; its processes go on, as when a cable is pulled."""
        return _kill(self.devices[name])

    def kill_server(self, descriptors: list[int]) -> dict[str, Any]:
        return _kill(self.server) if self.server is not None else {}

    def read(self, descriptors: list[int], name: str, path: str) -> dict[str, Any]:
        """A file of the phone, read without adb."""
        return {"text": (self.folder / name / path).read_text(encoding="utf-8")}

    def write(self, descriptors: list[int], name: str, path: str, text: str) -> dict[str, Any]:
        file = self.folder / name / path
        file.write_text(text, encoding="utf-8")
        around = file.parent.stat()
        os.chown(file, around.st_uid, around.st_gid)
        return {}

    def files(self, descriptors: list[int], name: str, path: str) -> dict[str, Any]:
        """All files below a folder of the phone, listed without adb."""
        folder = self.folder / name / path
        found = sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))
        return {"files": found}

    def fill(self, descriptors: list[int], name: str, path: str) -> dict[str, Any]:
        """Write a file until the phone's storage is full."""
        size = 0
        file = (self.folder / name / path).open("wb", buffering=0)
        with file, contextlib.suppress(OSError):
            while True:
                size += file.write(bytes(1 << 20))
        return {"size": size}

    def remove(self, descriptors: list[int], name: str, path: str) -> dict[str, Any]:
        (self.folder / name / path).unlink(missing_ok=True)
        return {}

    def processes(self, descriptors: list[int], name: str) -> dict[str, Any]:
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

    def signal(self, descriptors: list[int], pid: int, number: int) -> dict[str, Any]:
        os.kill(pid, number)
        return {}

    def log(self, descriptors: list[int], name: str) -> dict[str, Any]:
        text = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return {"text": text[-8000:]}

    _handlers: ClassVar[dict[str, Callable[..., dict[str, Any]]]] = {
        "start server": start_server,
        "kill server": kill_server,
        "add phone": add_phone,
        "add stubborn": add_stubborn,
        "start adbd": start_adbd,
        "kill adbd": kill_adbd,
        "read": read,
        "write": write,
        "files": files,
        "fill": fill,
        "remove": remove,
        "processes": processes,
        "signal": signal,
        "log": log,
    }


def as_shell(root: Path, shell: int) -> list[str]:
    """What starts a program in a phone's root as the user of its shell."""
    if shell == SHELL:
        groups = ",".join(map(str, SHELL_GROUPS))
        chroot = _program("chroot")
        return [chroot, f"--userspec={SHELL}:{SHELL}", f"--groups={groups}", str(root)]
    # There is one user in the sandbox. In there it gets the number.
    user = [f"--map-user={SHELL}", f"--map-group={SHELL}"]
    return [_program("unshare"), "--user", *user, f"--root={root}"]


def _program(name: str) -> str:
    """With its folder: what it starts has another PATH."""
    return shutil.which(name) or f"/usr/sbin/{name}"


def _has_user(number: int) -> bool:
    """Whether files and processes here can belong to a user with this number."""
    for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines():
        first, _, count = map(int, line.split())
        if first <= number < first + count:
            return True
    return False


def _run(*command: str, environment: dict[str, str] | None = None) -> str:
    given = {"PATH": os.environ.get("PATH", ""), **(environment or {})}
    done = subprocess.run(
        command, env=given, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise OSError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def _never_authorize(listener: socket.socket) -> None:
    token = b"pytest-sme2 token..."
    magic = int.from_bytes(b"AUTH", "little")
    header = struct.pack(
        "<6I", magic, 1, 0, len(token), sum(token) & 0xFFFFFFFF, magic ^ 0xFFFFFFFF
    )
    signature, public_key = 2, 3
    while True:
        host, _ = listener.accept()
        with contextlib.suppress(OSError, struct.error), host:
            kind = signature
            # Every signature is wrong, and nobody accepts the key that follows.
            while True:
                if kind != public_key:
                    host.sendall(header + token)
                _, kind, _, length, _, _ = struct.unpack("<6I", _exactly(host, 24))
                _exactly(host, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := connection.recv(size - len(data))):
        data += chunk
    return data


def _wait_for_listener(port: int, process: subprocess.Popen[bytes]) -> None:
    # Looked up instead of connected to, because adbd would see a connection as a host.
    deadline = time.monotonic() + 60
    while True:
        rows = "".join(
            Path(table).read_text(encoding="ascii") for table in ("/proc/net/tcp", "/proc/net/tcp6")
        )
        if re.search(rf":{port:04X} \S+:0000 0A ", rows):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise OSError(f"adbd does not listen on port {port}")
        time.sleep(0.01)


def _kill(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    process.send_signal(signal.SIGKILL)
    return {"status": process.wait(timeout=60)}


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
