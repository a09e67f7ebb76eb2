"""The adb server's protocol: devices, shell v2, push and pull, every wait with a time limit.

The adb program is run only to start a server. This module does not know what commands mean.
The protocol is in SERVICES.TXT, SYNC.TXT and shell_protocol.h of adb's sources.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pytest_sme2.errors import ConnectionLostError, DeviceTimeoutError, TargetError
from pytest_sme2.system.files import new_file
from pytest_sme2.targets.phone.answers import (
    ShellResult,
    parse_devices,
    parse_hexadecimal,
    parse_list,
)

DEFAULT_PORT = 5037
# All servers since platform-tools 29 have it; nothing here was tried with an older one.
_LEAST_SERVER = 41
_CHUNK = 64 * 1024
_LONGEST_REQUEST = 0xFFFF
_STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = 1, 2, 3, 4

INSTALL_ADB = (
    "No adb was found. Install Android's platform-tools (Debian, Ubuntu: sudo apt install adb; "
    "Fedora: sudo dnf install android-tools; Arch: sudo pacman -S android-tools; "
    "macOS: brew install android-platform-tools)."
)


def quote(words: Sequence[str]) -> str:
    """An argument vector as one command for the device's shell. All quoting happens here."""
    for word in words:
        if "\0" in word:
            raise TargetError(
                f"{word!r} contains a NUL character, which is not allowed in a command."
            )
    return shlex.join(words)


# adbd sends at most one megabyte at a time.
_LARGEST_PACKET = 16 << 20
MOST_OUTPUT = 64 << 20
"""What a command on a phone may print."""
LARGEST_FILE = 1 << 30
"""What may be read from a phone: results, traces, outputs and logs."""


def find_adb(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Adb on PATH, in the Android SDK, or from adbutils."""
    found = shutil.which("adb", path=environment.get("PATH"))
    if found is not None:
        return Path(found)
    for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        candidate = Path(environment.get(name, "/nonexistent")) / "platform-tools" / "adb"
        if candidate.is_file():
            return candidate
    import importlib.util

    package = importlib.util.find_spec("adbutils")
    if package is not None and package.origin is not None:
        candidate = Path(package.origin).parent / "binaries" / "adb"
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


class _Connection:
    """One request to the adb server; a deadline covers all of it."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.deadline = time.monotonic() + timeout
        try:
            self.socket = _connected(host, port, min(timeout, 5.0))
        except TimeoutError as error:
            # An unreachable server is another error than a slow one.
            raise ConnectionError("no answer") from error

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *details: object) -> None:
        self.socket.close()

    def _set_timeout(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)

    def send(self, data: bytes) -> None:
        self._set_timeout()
        self.socket.sendall(data)

    def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._set_timeout()
            chunk = self.socket.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)

    def request(self, service: str) -> None:
        encoded = service.encode("utf-8", "surrogateescape")
        if len(encoded) > _LONGEST_REQUEST:
            raise TargetError(
                f"A command of {len(encoded)} bytes is too long for adb (limit: "
                f"{_LONGEST_REQUEST}). Shorten the names in it."
            )
        self.send(b"%04x" % len(encoded) + encoded)
        status = self.receive(4)
        if status == b"FAIL":
            raise _RefusedError(self.block())
        if status != b"OKAY":
            raise TargetError(f"The adb server answered {status!r}. Is it really an adb server?")

    def block(self) -> str:
        return self.receive(parse_hexadecimal(self.receive(4))).decode("utf-8", "replace")

    def packet(self, length: int) -> bytes:
        """A part of an answer, whose length the other side has said."""
        if length > _LARGEST_PACKET:
            raise ValueError(f"a packet of {length} bytes")
        return self.receive(length)


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    if host.startswith("/"):
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(timeout)
        try:
            made.connect(host)
        except OSError:
            made.close()
            raise
        return made
    made = socket.create_connection((host, port), timeout=timeout)
    # Notice a lost machine within half a minute, not only after the deadline.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, seconds)
    return made


class _RefusedError(Exception):
    """The server's FAIL, with its message."""


class AdbServer:
    """An adb server, on this or another machine; ``host`` may be the path of a socket.

    ``ours_to_start`` says whether it may be started from here: yes for the default server of this
    machine, no for any other.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = DEFAULT_PORT, *, ours_to_start: bool = False
    ) -> None:
        self.host = host
        self.port = port
        self.ours_to_start = ours_to_start

    @property
    def _is_file(self) -> bool:
        return self.host.startswith("/")

    def __str__(self) -> str:
        return f"localfilesystem:{self.host}" if self._is_file else f"{self.host}:{self.port}"

    @contextlib.contextmanager
    def connection(self, timeout: float, doing: str) -> Iterator[_Connection]:
        """A connection whose failures become our own errors."""
        try:
            with _Connection(self.host, self.port, timeout) as connection:
                yield connection
        except TimeoutError as error:
            raise DeviceTimeoutError(f"{doing} did not finish in {timeout:g} s.") from error
        except (ValueError, IndexError, struct.error) as error:
            raise TargetError(
                f"The adb server at {self} answered something that is not adb's protocol while "
                f"{doing}: {error}. Is it really an adb server?"
            ) from error
        except (EOFError, OSError) as error:
            reason = str(error) or "closed by the other side"
            raise ConnectionLostError(
                f"The connection to the adb server at {self} was lost while {doing} ({reason})."
            ) from error

    def ask(self, service: str, *, timeout: float = 10.0) -> str:
        """A host service that answers with one block of text."""
        with self.connection(timeout, f"asking for {service}") as connection:
            try:
                connection.request(service)
            except _RefusedError as error:
                raise TargetError(f"The adb server at {self} refused {service}: {error}") from error
            return connection.block()

    def ensure_running(self, *, find: Callable[[], Path | None] = find_adb) -> None:
        """Start the server if it does not run and is ours to start; refuse one that is too old."""
        try:
            self._check_version()
            return
        except (ConnectionLostError, DeviceTimeoutError) as error:
            if not self.ours_to_start:
                place = f"-L {self}" if self._is_file else f"-a -P {self.port}"
                raise ConnectionLostError(
                    f"No adb server answers at {self}. Start one there with: "
                    f"adb {place} nodaemon server"
                ) from error
        adb = find()
        if adb is None:
            raise TargetError(INSTALL_ADB)
        kept = ("PATH", "HOME", "TMPDIR", "USER", "ADB_VENDOR_KEYS", "ANDROID_USER_HOME")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        try:
            done = subprocess.run(
                [str(adb), "-P", str(self.port), "start-server"],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TargetError(f"{adb} could not start a server: {error}.") from error
        if done.returncode != 0:
            raise TargetError(f"{adb} could not start a server: {done.stderr.strip()}")
        self._check_version()

    def _check_version(self) -> None:
        version = parse_hexadecimal(self.ask("host:version").encode())
        if version < _LEAST_SERVER:
            raise TargetError(
                f"The adb server at {self} is too old: its version is {version}, and "
                f"{_LEAST_SERVER} is needed (platform-tools 29 or newer). Stop it there with "
                "adb kill-server, and start a newer one."
            )

    def devices(self) -> dict[str, str]:
        """Serial to state, as ``adb devices`` lists them."""
        return parse_devices(self.ask("host:devices"))

    def connect(self, address: str, *, timeout: float = 15.0) -> str:
        """Ask the server to connect to a device at HOST:PORT, and return its answer."""
        return self.ask(f"host:connect:{address}", timeout=timeout)

    def disconnect(self, address: str) -> None:
        with contextlib.suppress(TargetError):
            self.ask(f"host:disconnect:{address}")


class AdbDevice:
    """One device, by its serial. Runs commands and copies files."""

    def __init__(self, server: AdbServer, serial: str) -> None:
        self.server = server
        self.serial = serial

    @contextlib.contextmanager
    def service(self, name: str, timeout: float, doing: str) -> Iterator[_Connection]:
        """A service of the device's own adbd."""
        with self.server.connection(timeout, f"{doing} on {self.serial}") as connection:
            try:
                connection.request(f"host:tport:serial:{self.serial}")
                connection.receive(8)  # The number of the transport, which is not needed.
                connection.request(name)
            except _RefusedError as error:
                raise ConnectionLostError(
                    f"The device {self.serial} does not answer while {doing}: {error}"
                ) from error
            yield connection

    def features(self) -> tuple[str, ...]:
        """What the device's adbd can do, such as ``shell_v2``."""
        doing = f"asking for the features of {self.serial}"
        with self.server.connection(10.0, doing) as connection:
            try:
                connection.request(f"host-serial:{self.serial}:features")
            except _RefusedError as error:
                raise ConnectionLostError(
                    f"The device {self.serial} does not answer: {error}"
                ) from error
            return parse_list(connection.block())

    def shell(self, command: str | Sequence[str], *, timeout: float = 30.0) -> ShellResult:
        """Run a command: an argument vector is quoted, a string is shell code."""
        text = command if isinstance(command, str) else quote(command)
        stdout, stderr = bytearray(), bytearray()
        doing = f"running {text.partition(' ')[0][:60]}"
        with self.service(f"shell,v2,raw:{text}", timeout, doing) as connection:
            connection.send(struct.pack("<BI", _CLOSE_STDIN, 0))
            while True:
                kind, length = struct.unpack("<BI", connection.receive(5))
                data = connection.packet(length)
                if len(stdout) + len(stderr) > MOST_OUTPUT:
                    raise TargetError(
                        f"{self.serial} said more than {MOST_OUTPUT >> 20} MiB while {doing}, and "
                        "was cut short. Does a program there print without end?"
                    )
                if kind == _STDOUT:
                    stdout += data
                elif kind == _STDERR:
                    stderr += data
                elif kind == _EXIT:
                    return ShellResult(data[0], bytes(stdout), bytes(stderr))

    def check(self, command: str | Sequence[str], *, timeout: float = 30.0) -> str:
        """Run a command that must succeed, and return its output as text."""
        done = self.shell(command, timeout=timeout)
        if done.code != 0:
            text = command if isinstance(command, str) else quote(command)
            said = done.said or "no message"
            raise TargetError(
                f"On {self.serial}, {text[:200]!r} failed with {done.code}: {said[-400:]}"
            )
        return done.text

    def push(
        self,
        source: Path | bytes,
        remote: str,
        *,
        mode: int = 0o644,
        progress: Callable[[int], None] | None = None,
        timeout: float = 600.0,
    ) -> None:
        """Write a file on the device; ``progress`` gets the size of every chunk."""
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(
                self.service("sync:", timeout, f"pushing {Path(remote).name!r}")
            )
            path = f"{remote},{0o100000 | mode}".encode()
            connection.send(b"SEND" + struct.pack("<I", len(path)) + path)
            try:
                for chunk in _chunks(source):
                    connection.send(b"DATA" + struct.pack("<I", len(chunk)) + chunk)
                    if progress is not None:
                        progress(len(chunk))
                connection.send(b"DONE" + struct.pack("<I", time.time_ns() // 1_000_000_000))
            except (BrokenPipeError, ConnectionResetError):
                # adbd may have sent the reason before it closed; if not, the read below fails too.
                pass
            status, length = struct.unpack("<4sI", connection.receive(8))
            if status == b"FAIL":
                reason = connection.packet(length).decode("utf-8", "replace")
                raise TargetError(f"{self.serial} could not write {remote}: {reason}")

    def read(self, remote: str, *, timeout: float = 600.0) -> Iterator[bytes]:
        """The content of a file on the device, in chunks."""
        doing = f"reading {Path(remote).name!r}"
        with self.service("sync:", timeout, doing) as connection:
            path = remote.encode()
            connection.send(b"RECV" + struct.pack("<I", len(path)) + path)
            while True:
                status, length = struct.unpack("<4sI", connection.receive(8))
                if status == b"FAIL":
                    reason = connection.packet(length).decode("utf-8", "replace")
                    raise TargetError(f"{self.serial} could not read {remote}: {reason}")
                if status == b"DONE":
                    return
                if status != b"DATA":
                    raise ValueError(f"{status!r} in place of a part of a file")
                yield connection.packet(length)

    def pull(self, remote: str, local: Path, *, timeout: float = 600.0) -> None:
        """Copy a file from the device; ``local`` appears only when it is complete."""
        partial = local.with_name(f".{local.name}.partial")
        try:
            with new_file(partial) as file:
                for chunk in self.read(remote, timeout=timeout):
                    file.write(chunk)
                    if file.tell() > LARGEST_FILE:
                        raise TargetError(
                            f"{remote} on {self.serial} has more than {LARGEST_FILE >> 20} MiB, "
                            "which nothing that is read from a phone has."
                        )
            partial.replace(local)
        finally:
            partial.unlink(missing_ok=True)


def _chunks(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        for start in range(0, len(source), _CHUNK):
            yield source[start : start + _CHUNK]
        return
    with source.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
