"""nginx as a store for many machines: a real server on this machine, with faults to choose from."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.debian_packages import system_archives, unpack_packages, with_suites
from pytest_sme2.system.locks import locked

TOKEN = "job:not-to-be-seen"
_DOCUMENTED = Path(__file__).parents[2] / "docs" / "ci" / "store.conf"
# The same files under every name: as the documentation has it, without a password, and with faults.
_SETTINGS = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {documented}
        location /open/ {{ alias {folder}/files/; dav_methods PUT; create_full_put_path on; }}
        location /locked/ {{
            alias {folder}/files/;
            if ($http_authorization != "Bearer a-token") {{ return 401; }}
        }}
        location /full/ {{
            alias {folder}/files/; dav_methods PUT; create_full_put_path on;
            client_max_body_size 10;
        }}
        location /slow/ {{ alias {folder}/files/; limit_rate 1; }}
        location /broken/ {{ return 500; }}
        location /moved/ {{ return 302 http://127.0.0.1:{port}/open$request_uri; }}
    }}
}}
"""


@dataclass(frozen=True)
class WebServer:
    address: str
    files: Path
    process: subprocess.Popen[bytes]

    def state(self) -> set[tuple[Path, int]]:
        """The files, and when each was put there."""
        return {(path, path.stat().st_ctime_ns) for path in self.files.rglob("*") if path.is_file()}


def find_nginx() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found:
        return found
    folder = cache_folder() / "test-tools" / "nginx"
    with locked(folder.with_suffix(".lock"), "downloading nginx"):
        if not folder.is_dir():
            try:
                unpack_packages(["nginx"], with_suites(system_archives(), ["bookworm"]), folder)
            except Sme2Error as error:
                pytest.skip(str(error))
    return str(folder / "usr/sbin/nginx")


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[WebServer]:
    program = find_nginx()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "files").mkdir(parents=True)
    settings = folder / "nginx.conf"
    documented = _DOCUMENTED.read_text("utf-8").replace("/srv/sme2-store", str(folder))
    settings.write_text(_SETTINGS.format(folder=folder, port=port, documented=documented), "utf-8")
    user, _, password = TOKEN.partition(":")
    (folder / "passwords").write_text(f"{user}:{{PLAIN}}{password}\n", "utf-8")
    process = subprocess.Popen([program, "-e", str(folder / "error.log"), "-c", str(settings)])
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, (folder / "error.log").read_text("utf-8")
            time.sleep(0.1)
        yield WebServer(f"http://127.0.0.1:{port}", folder / "files", process)
    finally:
        process.kill()
        process.wait()
