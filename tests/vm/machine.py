"""A phone in a virtual machine: Debian's kernel with 16 KB pages, SELinux, SME2, and a real adbd.

Its programs are those of the fake phone, built for Arm. Everything comes from Debian's archive into
the product's own cache.
"""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
import platform
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone.lab import find_parts
from pytest_sme2.fake_phone.supervisor import (
    LIBRARIES,
    LINKER,
    Phone,
    Userland,
    lay_out,
    own_loader,
)
from pytest_sme2.results.run import Arm
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.provision import find_compiler, system_sources, unpack_packages, with_suites
from pytest_sme2.system.qemu import DEFAULT_CPU, find_qemu
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer, make_ready
from pytest_sme2.targets.phone.target import FAKE_PROPERTY
from tests.support import HANGS

HERE = Path(__file__).parent
SUITES = ("forky", "sid")
HOST = ("qemu-system-arm", "checkpolicy")
GUEST = ("linux-image-arm64-16k", "adbd", "mksh", "toybox")
MODULES = ("net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net")
GUEST_PORT = 5600
LOADER = "ld-linux-aarch64.so.1"
ARM_LIBRARIES = "usr/lib/aarch64-linux-gnu"
"""On an idle machine."""


def unpacked(name: str, packages: tuple[str, ...], architecture: str | None = None) -> Path:
    """The packages and all that they need, fetched once."""
    folder = cache_folder() / "tools" / f"vm-{name}"
    archives = with_suites(system_sources(), SUITES)
    return unpack_packages(packages, archives, folder, architecture=architecture, dependencies=True)


@dataclass(frozen=True)
class Programs:
    """Programs of this machine's kind, with the libraries that they were built with."""

    folder: Path

    def command(self, name: str) -> list[str]:
        libraries = next((self.folder / "usr/lib").glob(f"{platform.machine()}-linux-gnu"))
        loader = next(libraries.glob("ld-linux-*.so.*"))
        program = self.folder / "usr/bin" / name
        return [str(loader), "--library-path", str(libraries), str(program)]


def make_initramfs(folder: Path) -> Path:
    """The phone's files, as the kernel unpacks them into memory."""
    guest = unpacked("guest", GUEST, "arm64")
    root = folder / "root"
    lay_out(
        root, Phone("vm", GUEST_PORT, properties={FAKE_PROPERTY: "1"}), _userland(folder, guest)
    )
    for file in _with_libraries(guest, guest / "usr/lib/android-sdk/platform-tools/adbd"):
        shutil.copy2(file, root / "adbd" / file.name)
    (root / "data/local/tmp").mkdir()
    (root / "modules").mkdir()
    kernel = next((guest / "usr/lib/modules").glob("*-arm64-16k/kernel"))
    for module in MODULES:
        content = lzma.decompress((kernel / f"{module}.ko.xz").read_bytes())
        (root / "modules" / f"{Path(module).name}.ko").write_bytes(content)
    for name in ("enter", "denied"):
        compiler = find_compiler("linux-aarch64").cxx
        source = ["-x", "c++", "-static", "-O1", str(HERE / f"{name}.c")]
        _run([compiler, *source, "-o", str(root / "vendor/bin" / name)])
    policy = Programs(unpacked("host", HOST)).command("checkpolicy")
    _run([*policy, "-U", "allow", "-o", str(root / "policy"), str(HERE / "policy.conf")])
    (root / "init").write_text(
        (HERE / "init").read_text("utf-8").replace("LOADER", LOADER), "utf-8"
    )
    (root / "init").chmod(0o755)
    return _archive(root, folder / "initramfs.gz")


def _userland(folder: Path, guest: Path) -> Userland:
    """The shell and the tools, with a loader of their own, as on a fake phone."""
    place = folder / "userland"
    for name in (LINKER, LIBRARIES):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / LIBRARIES).mkdir()
    programs = {"sh": guest / "usr/bin/mksh", "toybox": guest / "usr/bin/toybox"}
    patchelf = str(find_parts().patchelf)
    for name, program in programs.items():
        target = place / "system/bin" / name
        shutil.copy2(program, target)
        for file in _with_libraries(guest, program)[1:]:
            there = LINKER if file.name == LOADER else f"{LIBRARIES}/{file.name}"
            shutil.copy2(file, place / there)
        _run(own_loader(patchelf, target))
    libraries = guest / ARM_LIBRARIES
    listed = _run(
        [
            *(str(find_qemu().path), str(libraries / LOADER), "--library-path", str(libraries)),
            str(programs["toybox"]),
        ]
    )
    return Userland(place, listed.split(), 0)


def _with_libraries(guest: Path, program: Path) -> list[Path]:
    """A program, its loader and all libraries that it loads."""
    folders = (guest / ARM_LIBRARIES / "android", guest / ARM_LIBRARIES)
    found = {program.name: program, LOADER: guest / ARM_LIBRARIES / LOADER}
    waiting = [program]
    while waiting:
        words = ["readelf", "--dynamic", str(waiting.pop())]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", told):
            if name not in found:
                found[name] = next(folder / name for folder in folders if (folder / name).is_file())
                waiting.append(found[name])
    return list(found.values())


def _archive(root: Path, target: Path) -> Path:
    """The files as the kernel's own kind of archive (newc), all of them root's."""
    with gzip.open(target, "wb", compresslevel=1) as out:
        entries = [(path, str(path.relative_to(root))) for path in sorted(root.rglob("*"))]
        for number, (path, name) in enumerate(entries, start=1):
            _write_entry(out.write, number, name, path.lstat().st_mode, _content(path))
        _write_entry(out.write, 0, "TRAILER!!!", 0, b"")
    return target


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(path.readlink())
    return b"" if path.is_dir() else path.read_bytes()


def _write_entry(
    write: Callable[[bytes], object], number: int, name: str, mode: int, content: bytes
) -> None:
    encoded = os.fsencode(name) + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    write(header + bytes(-len(header) % 4) + content + bytes(-len(content) % 4))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed: {done.stderr[-2000:]}")
    return done.stdout


@dataclass(frozen=True)
class Machine:
    """A running phone."""

    device: AdbDevice
    console: Path


@contextlib.contextmanager
def boot(folder: Path, options: str = "") -> Iterator[Machine]:
    """Start the machine and its adb server; both end with the block.

    ``options`` are for the kernel.
    """
    initramfs = make_initramfs(folder)
    host, guest = unpacked("host", HOST), unpacked("guest", GUEST, "arm64")
    kernel = next((guest / "usr/lib/modules").glob("*-arm64-16k/vmlinuz"))
    port, server_port = _free_port(), _free_port()
    console = folder / "console.log"
    forward = f"user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:{port}-:{GUEST_PORT}"
    command = [
        *Programs(host).command("qemu-system-aarch64"),
        *("-L", str(host / "usr/share/qemu"), "-M", "virt", "-smp", "2", "-m", "1536"),
        *("-cpu", DEFAULT_CPU.model(Arm.ON), "-display", "none", "-no-reboot"),
        *("-serial", f"file:{console}", "-nic", forward),
        *("-kernel", str(kernel), "-initrd", str(initramfs)),
        *("-append", f"console=ttyAMA0 panic=-1 loglevel=4 lsm=selinux {options}"),
    ]
    parts = find_parts()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
    quiet = {"ADB_MDNS": "0", "ADB_USB": "0", "ADB_EMU": "0", **parts.environment}
    adb = [str(parts.adb), "-P", str(server_port), "server", "nodaemon"]
    with (
        (folder / "qemu.log").open("wb") as log,
        _running(command, log, environment) as machine,
        _running(adb, log, environment | quiet),
    ):
        server = AdbServer("127.0.0.1", server_port)
        serial = f"127.0.0.1:{port}"
        _wait(server, serial, machine, folder)
        yield Machine(AdbDevice(server, serial), console)


def _wait(server: AdbServer, serial: str, machine: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + HANGS
    while True:
        try:
            server.ensure_running()
            make_ready(server, serial, seconds=10)
            return
        except TargetError as error:
            if time.monotonic() > deadline or machine.poll() is not None:
                logs = [folder / name for name in ("qemu.log", "console.log")]
                said = [
                    path.read_text("utf-8", "replace")[-3000:] for path in logs if path.exists()
                ]
                raise RuntimeError(f"The machine did not start: {error}\n{said}") from error
            time.sleep(1)


@contextlib.contextmanager
def _running(
    command: list[str], log: IO[bytes], environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=60)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
