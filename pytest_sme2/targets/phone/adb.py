"""adbutils, with what measuring needs: every wait ends, and no server is started unasked.

The adb program is run only to start a server. What commands mean is not known here.

The phone is chosen by serial or ANDROID_SERIAL; else it is the only attached one.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import adbutils
from adbutils.errors import AdbError, AdbTimeout

from pytest_sme2.errors import ConnectionLostError, DeviceTimeoutError, TargetError, UsageError
from pytest_sme2.system.files import new_file
from pytest_sme2.targets.phone.answers import ShellResult, parse_devices, parse_lines
from pytest_sme2.targets.settings import (
    adb_server_from,
    is_network_serial,
    parse_adb_server,
)

DEFAULT_PORT = 5037
_CHUNK = 64 * 1024
_LONGEST_REQUEST = 0xFFFF

INSTALL_ADB = (
    "No adb was found. Install Android's platform-tools (Debian, Ubuntu: sudo apt install adb; "
    "Fedora: sudo dnf install android-tools; Arch: sudo pacman -S android-tools; "
    "macOS: brew install android-platform-tools)."
)

# adbd sends at most one megabyte at a time.
_LARGEST_PACKET = 16 << 20
MOST_OUTPUT = 64 << 20
"""What a command on a phone may print."""
LARGEST_FILE = 1 << 30
"""What may be read from a phone: results, traces, outputs and logs."""


def quote(words: Sequence[str]) -> str:
    """An argument vector as one command for the device's shell. All quoting happens here."""
    for word in words:
        if "\0" in word:
            raise TargetError(
                f"{word!r} contains a NUL character, which is not allowed in a command."
            )
    return shlex.join(words)


def find_adb() -> Path | None:
    """Adb on PATH, in the Android SDK, or from adbutils."""
    homes = filter(None, map(os.environ.get, ("ANDROID_HOME", "ANDROID_SDK_ROOT")))
    folders = [*(Path(home) / "platform-tools" for home in homes)]
    folders.append(Path(adbutils.__file__).parent / "binaries")
    path = os.pathsep.join([os.environ.get("PATH") or os.defpath, *map(str, folders)])
    found = shutil.which("adb", path=path)
    return None if found is None else Path(found)


class _Socket(socket.socket):
    """One deadline for all that is sent and received, a bound on it, and no end in between.

    adbutils starts its timeout again with each part, takes an end for an empty answer, and does not
    look how much of a part was sent.
    """

    deadline = 0.0
    allowed = 0

    def _wait(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.settimeout(left)

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        self._wait()
        self.sendall(data, flags)
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        if size > _LARGEST_PACKET:
            raise ValueError(f"a packet of {size} bytes")
        self._wait()
        data = super().recv(size, flags)
        if not data:
            raise EOFError
        self.allowed -= len(data)
        if self.allowed < 0:
            raise OverflowError
        return data


class _Connection(adbutils.AdbConnection):  # type: ignore[misc]
    """One request to the adb server."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        super().__init__(client.host, client.port)

    def _safe_connect(self) -> _Socket:
        """Adbutils would start a server, and knows neither Unix sockets nor IPv6."""
        client = self._client
        seconds = min(max(client.deadline - time.monotonic(), 0.01), 5.0)
        with contextlib.ExitStack() as failed:
            if client.host.startswith("/"):
                made = failed.enter_context(_Socket(socket.AF_UNIX))
                made.settimeout(seconds)
                made.connect(client.host)
            else:
                plain = socket.create_connection((client.host, client.port), timeout=seconds)
                made = _Socket(fileno=plain.detach())
            failed.pop_all()
        made.deadline, made.allowed = client.deadline, client.allowed
        return made

    def send_command(self, cmd: str) -> None:
        """Adbutils gives a long command a length of five digits, and refuses odd names."""
        encoded = cmd.encode("utf-8", "surrogateescape")
        if len(encoded) > _LONGEST_REQUEST:
            raise TargetError(
                f"A command of {len(encoded)} bytes is too long for adb (limit: "
                f"{_LONGEST_REQUEST}). Shorten the names in it."
            )
        self.send(b"%04x" % len(encoded) + encoded)


class _Client(adbutils.AdbClient):  # type: ignore[misc]
    """The adb server during one operation."""

    def __init__(self, host: str, port: int, timeout: float, allowed: int) -> None:
        super().__init__(host, port)
        self.deadline = time.monotonic() + timeout
        self.allowed = allowed
        self.opened = contextlib.ExitStack()

    def make_connection(self, timeout: float | None = None) -> _Connection:
        """Also in ``opened``: where a phone is refused, adbutils forgets the connection."""
        try:
            connection = _Connection(self)
        except TimeoutError as error:
            # An unreachable server is another error than a slow one.
            raise ConnectionError("no answer") from error
        self.opened.callback(connection.close)
        return connection

    def server_version(self) -> int:
        """That of platform-tools 29. adbutils asks for it before each command."""
        return 41


class _Phone(adbutils.AdbDevice):  # type: ignore[misc]
    def get_features(self) -> str:
        """Of every Android since 7. adbutils asks before a command, and runs it anyway."""
        return "shell_v2"


@dataclass
class AdbServer:
    """An adb server, on this or another machine."""

    host: str = "127.0.0.1"
    """It may be the path of a socket."""
    port: int = DEFAULT_PORT
    ours_to_start: bool = False
    """Whether it may be started from here: only the default server of this machine."""

    @property
    def _is_file(self) -> bool:
        return self.host.startswith("/")

    def __str__(self) -> str:
        return f"localfilesystem:{self.host}" if self._is_file else f"{self.host}:{self.port}"

    @contextlib.contextmanager
    def client(self, timeout: float, doing: str, allowed: int | None = None) -> Iterator[_Client]:
        """One operation of adbutils; its failures become our own errors."""
        allowed = MOST_OUTPUT if allowed is None else allowed
        client = _Client(self.host, self.port, timeout, allowed)
        try:
            with client.opened:
                yield client
        except (TimeoutError, AdbTimeout) as error:
            raise DeviceTimeoutError(f"{doing} did not finish in {timeout:g} s.") from error
        except OverflowError as error:
            raise TargetError(
                f"More than {allowed >> 20} MiB came while {doing}, and it was cut short. Does a "
                "program there print without end?"
            ) from error
        except (AdbError, ValueError, IndexError, struct.error) as error:
            raise TargetError(
                f"The adb server at {self} failed while {doing}: {error}. Is it really an adb "
                "server?"
            ) from error
        except (EOFError, OSError) as error:
            reason = str(error) or "closed by the other side"
            raise ConnectionLostError(
                f"The connection to the adb server at {self} was lost while {doing} ({reason})."
            ) from error

    def ensure_running(self, *, find: Callable[[], Path | None] = find_adb) -> None:
        """Start the server if it does not run and is ours to start."""
        try:
            self.version()
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
        self.version()

    def version(self, *, timeout: float = 10.0) -> int:
        with self.client(timeout, "asking for its version") as client:
            version: int = super(_Client, client).server_version()
        return version

    def devices(self) -> dict[str, str]:
        """Serial to state. Of "no permissions", adbutils' list keeps only the first word."""
        with self.client(10.0, "listing devices") as client, client.make_connection() as connection:
            connection.send_command("host:devices")
            connection.check_okay()
            return parse_devices(connection.read_string_block())

    def connect(self, address: str, *, timeout: float = 15.0) -> str:
        """Ask the server to connect to a device at HOST:PORT, and return its answer."""
        with self.client(timeout, f"connecting to {address}") as client:
            return str(client.connect(address))

    def disconnect(self, address: str) -> None:
        with contextlib.suppress(TargetError), self.client(10.0, "disconnecting") as client:
            client.disconnect(address)


def open_server(address: str | None = None) -> AdbServer:
    """The named adb server, else the default one, which is started if needed."""
    if address is not None:
        server = AdbServer(*parse_adb_server(address))
    else:
        host, port = adb_server_from(os.environ)
        local = host in ("127.0.0.1", "localhost", "::1")
        server = AdbServer(host, port, ours_to_start=local)
    server.ensure_running()
    return server


@dataclass
class AdbDevice:
    """One device, by its serial. Runs commands and copies files."""

    server: AdbServer
    serial: str

    @contextlib.contextmanager
    def phone(self, timeout: float, doing: str, allowed: int | None = None) -> Iterator[_Phone]:
        """One operation of adbutils; a refusal means that the phone has gone."""
        with self.server.client(timeout, f"{doing} on {self.serial}", allowed) as client:
            try:
                yield _Phone(client, self.serial)
            except AdbError as error:
                if isinstance(error, AdbTimeout):
                    raise
                raise ConnectionLostError(
                    f"The device {self.serial} does not answer while {doing}: {error}"
                ) from error

    def shell(self, command: str | Sequence[str], *, timeout: float = 30.0) -> ShellResult:
        """Run a command: an argument vector is quoted, a string is shell code."""
        text = command if isinstance(command, str) else quote(command)
        with self.phone(timeout, f"running {text.partition(' ')[0][:60]}") as phone:
            # adbutils leaves the command's input open: one that reads it would never end.
            done = phone.shell2(f"exec </dev/null; {text}", v2=True, encoding=None)
            return ShellResult(done.returncode, done.stdout, done.stderr)

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
        timeout: float = 600.0,
    ) -> None:
        """Write a file on the device. By hand: adbutils' push does not tell why it failed."""
        with (
            self.phone(timeout, f"pushing {Path(remote).name!r}") as phone,
            phone.open_transport() as connection,
            io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file,
        ):
            connection.send_command("sync:")
            connection.check_okay()
            path = f"{remote},{0o100000 | mode}".encode()
            connection.send(b"SEND" + struct.pack("<I", len(path)) + path)
            try:
                while chunk := file.read(_CHUNK):
                    connection.send(b"DATA" + struct.pack("<I", len(chunk)) + chunk)
                connection.send(b"DONE" + struct.pack("<I", time.time_ns() // 1_000_000_000))
            except (BrokenPipeError, ConnectionResetError):
                # adbd may have sent the reason before it closed; if not, the read below fails too.
                pass
            status, length = struct.unpack("<4sI", connection.read(8))
            if status == b"FAIL":
                reason = connection.read_string(length)
                raise TargetError(f"{self.serial} could not write {remote}: {reason}")

    def pull(self, remote: str, local: Path, *, timeout: float = 600.0) -> None:
        """Copy a file from the device; ``local`` appears only when it is complete."""
        partial = local.with_name(f".{local.name}.partial")
        doing = f"reading {Path(remote).name!r}"
        try:
            with self.phone(timeout, doing, LARGEST_FILE) as phone, new_file(partial) as file:
                try:
                    file.writelines(phone.sync.iter_content(remote))
                except AdbError as error:
                    # With the path: adbd said it. Without: the phone could not be reached.
                    if len(error.args) < 2:
                        raise
                    raise TargetError(
                        f"{self.serial} could not read {remote}: {error.args[0]}"
                    ) from error
            partial.replace(local)
        finally:
            partial.unlink(missing_ok=True)


# What to do about a state that is not "device".
_ADVICE = {
    "unauthorized": (
        "Unlock the phone and accept 'Allow USB debugging' (tick 'Always allow'). If it does not "
        "ask, revoke USB debugging authorizations in the developer options and plug it in again."
    ),
    "authorizing": "Wait a moment, and unlock the phone if it asks.",
    "offline": (
        "Unplug the phone and plug it in again, or switch USB debugging off and on; over Wi-Fi, "
        "check that it is on the same network and awake."
    ),
    "connecting": "Wait a moment. If it does not change, check the phone's address and network.",
    "no permissions": (
        "This machine does not let adb use the USB device. On Linux install the package "
        "android-sdk-platform-tools-common (udev rules) and plug the phone in again."
    ),
    "recovery": "Start Android on the phone: adb reboot.",
    "bootloader": "Start Android on the phone: fastboot reboot.",
    "sideload": "Start Android on the phone: adb reboot.",
}


def list_attached(server: AdbServer) -> dict[str, str]:
    """Every device of the server, by serial: with model and Android version if it answers."""
    found = {}
    for serial, state in sorted(server.devices().items()):
        said = state
        if state == "device":
            command = "getprop ro.product.model; getprop ro.build.version.release"
            try:
                answer = AdbDevice(server, serial).shell(command, timeout=10)
                model, android = parse_lines(answer.text, 2)
                said = f"{model or 'unknown model'}, Android {android or '?'}"
            except (ConnectionLostError, DeviceTimeoutError):
                said = "offline"
        found[serial] = f"{serial} ({said})"
    return found


def own_serial(server: AdbServer, serial: str) -> str:
    """The serial that a phone has by cable, however it is attached; that given if it is away."""
    if is_network_serial(serial):
        with contextlib.suppress(TargetError):
            server.connect(serial, timeout=5)
            command = ["getprop", "ro.serialno"]
            return AdbDevice(server, serial).shell(command, timeout=10).text.strip() or serial
    return serial


def choose_serials(
    server: AdbServer, serials: Sequence[str] = (), *, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """The chosen devices; whether they work is seen when they are leased."""
    wanted = tuple(serials) or tuple(filter(None, [environment.get("ANDROID_SERIAL")]))
    if wanted:
        return wanted
    attached = list_attached(server)
    if not attached:
        raise TargetError(
            f"No device is attached to the adb server at {server}. Plug a phone in with USB "
            "debugging on, or name one on the network with --sme2-serial HOST:PORT."
        )
    # One phone may be there by cable and by network; the cable is steadier.
    phones: dict[str, str] = {}
    for serial in sorted(attached, key=is_network_serial):
        phones.setdefault(own_serial(server, serial), serial)
    attached = {serial: attached[serial] for serial in phones.values()}
    if len(attached) > 1:
        raise UsageError(
            "Several devices are attached: "
            + "; ".join(attached.values())
            + ". Choose with --sme2-serial (may be repeated) or ANDROID_SERIAL."
        )
    return tuple(attached)


def make_ready(server: AdbServer, serial: str, *, seconds: float = 15.0) -> None:
    """Connect if the serial is an address, and check that the device works."""
    deadline, said = time.monotonic() + seconds, ""
    while (state := server.devices().get(serial)) != "device":
        if is_network_serial(serial) and state in (None, "offline"):
            if state == "offline":
                server.disconnect(serial)
            said = server.connect(serial)
            state = server.devices().get(serial)
        if state == "device":
            return
        passing = state in ("authorizing", "connecting", "offline") or is_network_serial(serial)
        if state == "unauthorized" or not passing or time.monotonic() > deadline:
            raise _unusable(server, serial, state, said)
        time.sleep(0.2)


def _unusable(server: AdbServer, serial: str, state: str | None, said: str) -> TargetError:
    if state is None:
        if is_network_serial(serial):
            return ConnectionLostError(
                f"Could not connect to {serial}: {said.strip() or 'no answer'}. Check the address "
                "and that wireless debugging is on."
            )
        names = "; ".join(list_attached(server).values()) or "none"
        return ConnectionLostError(
            f"No device has the serial {serial!r}. Attached: {names}. Check the cable and "
            "--sme2-serial."
        )
    key = "no permissions" if state.startswith("no permissions") else state
    advice = _ADVICE.get(key, "Restart the phone and plug it in again.")
    # One that was there and is not reached any more is lost: another may take over.
    kind = ConnectionLostError if state in ("offline", "connecting") else TargetError
    return kind(f"The device {serial} is {state}. {advice}")
