"""One export into the cache, made by a child process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_sme2.errors import ExportError, MissingExtraError, ModelError, Sme2Error, UsageError
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.export.store import (
    META_FILE,
    SCHEMA,
    artifact_stem,
    load_artifact,
    package_versions,
    source_hashes,
    weights_hash,
)
from pytest_sme2.export.variant import Variant
from pytest_sme2.results import Artifact
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.processes import tie, untie

# The environment of an export: any other variable could change a model unnoticed.
_ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE",
)  # fmt: skip


# The path is set before our first import, so that the child finds the same modules.
_BOOTSTRAP = (
    "import json, sys; request = json.load(open(sys.argv[1], encoding='utf-8')); "
    "sys.path[:] = request['sys_path']; "
    "from pytest_sme2.export.lowering import main; main(sys.argv[1])"
)


_HEARTBEAT_SECONDS = 10.0


class Export:
    """One export into the cache; its caller holds the lock."""

    def __init__(
        self,
        entry: ModelEntry,
        variant: Variant,
        weights: Path | None,
        seed: int,
        graph: bool,
        root: Path,
        key: str,
        say: Callable[[str], None],
    ) -> None:
        self.entry = entry
        self.variant = variant
        self.weights = weights
        self.seed = seed
        self.graph = graph
        self.root = root
        self.key = key
        self.stem = artifact_stem(entry.name, variant)
        self.title = f"{entry.name} {variant}"
        self.say = say

    def make(self, timeout_seconds: float) -> Artifact:
        """Fill a temporary folder and rename it: there is a complete artifact or none."""
        prefix = f".making-{self.key}-"
        for left_over in self.root.glob(f"{prefix}*"):
            shutil.rmtree(left_over, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=self.root))
        try:
            answer = self._run_child(folder, timeout_seconds)
            meta = self._meta(folder, answer)
            (folder / META_FILE).write_text(json.dumps(meta, indent=2) + "\n", "utf-8")
            folder.chmod(0o755)
            final = self.root / self._folder_name(meta)
            if final.exists():
                # Moved away in one step; a reader sees the old one, none, or the new one.
                final.rename(folder.with_name(f"{folder.name}-old"))
            folder.rename(final)
        finally:
            for left_over in self.root.glob(f"{prefix}*"):
                shutil.rmtree(left_over, ignore_errors=True)
        return load_artifact(final)

    def _folder_name(self, meta: Mapping[str, Any]) -> str:
        dependencies = json.dumps(meta["dependencies"], sort_keys=True)
        return f"{self.stem}-{self.key}-{hashlib.sha256(dependencies.encode()).hexdigest()[:8]}"

    def _meta(self, folder: Path, answer: Mapping[str, Any]) -> dict[str, Any]:
        dependencies = {
            "files": {name: file_sha256(Path(name)) for name in answer["dependencies"]["files"]},
            "packages": answer["dependencies"]["packages"],
        }
        if self.weights is None:
            weights = f"random (seed {self.seed})"
        else:
            weights = f"{self.weights.name} (sha256 {weights_hash(self.weights)[:12]})"
        return {
            "schema": SCHEMA,
            "model": self.entry.name,
            "variant": str(self.variant),
            "backend": "xnnpack",
            "pte": f"{self.stem}.pte",
            "inputs": answer["inputs"],
            "outputs": answer["outputs"],
            "parameters": answer["parameters"],
            "operators": answer["operators"],
            "weights": weights,
            "seed": self.seed,
            "versions": package_versions(),
            "key": self.key,
            "source": source_hashes(self.entry),
            "dependencies": dependencies,
            "files": {
                file.name: {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
                for file in sorted(folder.iterdir())
            },
        }

    def _run_child(self, folder: Path, timeout_seconds: float) -> dict[str, Any]:
        """Start the child, report its progress, and return its answer or raise its error."""
        from pytest_sme2.export.lowering import LoweringRequest

        request = LoweringRequest(
            self.entry, self.variant, self.seed, self.weights, self.graph, folder, self.stem
        ).to_json()
        request["sys_path"] = [str(Path(name).absolute()) for name in sys.path]
        request_file = folder / "request.json"
        request_file.write_text(json.dumps(request), "utf-8")
        log = folder / LOG_FILE
        with log.open("wb") as log_stream:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, str(request_file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_stream,
                cwd=folder,
                env=export_environment(),
                start_new_session=True,
            )
            tie(process.pid)
            try:
                answer = self._listen(process, log, timeout_seconds)
            finally:
                _end(process)
                untie(process.pid)
        request_file.unlink()
        return answer

    def _listen(
        self, process: subprocess.Popen[bytes], log: Path, timeout_seconds: float
    ) -> dict[str, Any]:
        lines: queue.Queue[bytes | None] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None  # noqa: S101 - asked for with PIPE
            for line in process.stdout:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        started = time.monotonic()
        stage = "starting"
        while True:
            waited = time.monotonic() - started
            if waited >= timeout_seconds:
                raise self._failed(log, f"{stage} took more than {timeout_seconds:.0f} s.")
            try:
                line = lines.get(timeout=min(_HEARTBEAT_SECONDS, timeout_seconds - waited))
            except queue.Empty:
                self.say(f"{self.title}: {stage} ({time.monotonic() - started:.0f} s)")
                continue
            if line is None:
                raise self._failed(log, f"{stage} ended the process: {_end_of(process)}.")
            message = _message(line)
            if "progress" in message:
                stage = message["progress"]
                self.say(f"{self.title}: {stage}")
            elif "done" in message:
                self.say(f"{self.title}: done in {time.monotonic() - started:.1f} s")
                done: dict[str, Any] = message["done"]
                return done
            elif "error" in message:
                raise self._error(log, message)

    def _error(self, log: Path, message: Mapping[str, str]) -> Sme2Error:
        kind = message["error"]
        if kind == "MissingExtraError":
            purpose = f"Exporting model {self.entry.name!r}"
            return MissingExtraError(message["package"], message["extra"], purpose)
        if kind == "UsageError":
            return UsageError(message["message"])
        if kind == "ModelError":
            return ModelError(f"{message['message']}\nThe full log: {self._keep_log(log)}")
        return self._failed(log, message["message"])

    def _failed(self, log: Path, why: str) -> ExportError:
        return ExportError(
            f"Model {self.entry.name!r} cannot be exported as {self.variant}: {why}\n"
            f"The full log: {self._keep_log(log)}"
        )

    def _keep_log(self, log: Path) -> Path:
        """Keep the log when its folder is removed."""
        kept = self.root / "failed" / f"{self.stem}-{self.key}.log"
        kept.parent.mkdir(exist_ok=True)
        shutil.copyfile(log, kept)
        return kept


def _message(line: bytes) -> dict[str, Any]:
    """A message from the child, or None for a line that something else printed."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the child and everything that it started."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        if process.stdin is not None:
            process.stdin.close()
        process.wait(timeout=0.5)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _end_of(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "it closed its output but is still running"
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        hint = ", often because memory ran out" if name == "SIGKILL" else ""
        return f"signal {name}{hint}"
    return f"signal {-code}"


def export_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # A fixed order of sets of strings, so that the output is always the same.
    # Without the last one, oneDNN leaves a perf-PID.map in the temporary folder of Arm machines.
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "ONEDNN_JIT_PROFILE": "0",
    }


LOG_FILE = "export.log"
