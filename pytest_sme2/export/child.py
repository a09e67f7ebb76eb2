"""One export into the cache, made by a child process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from pytest_sme2.errors import ExportError, MissingExtraError, ModelError, Sme2Error, UsageError
from pytest_sme2.export.registry import ModelEntry
from pytest_sme2.export.server import SERVERS, ForkedProcess, FreshProcess, ProcessEnvironment
from pytest_sme2.export.store import (
    META_FILE,
    SCHEMA,
    artifact_stem,
    load_artifact,
    model_folder,
    package_versions,
    source_hashes,
    weights_hash,
)
from pytest_sme2.export.variant import Variant
from pytest_sme2.results import Artifact
from pytest_sme2.system.cache import put_in_place, working_folder
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.processes import end_group, tie, untie

# The environment of an export: any other variable could change a model unnoticed.
_ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE",
)  # fmt: skip


_HEARTBEAT_SECONDS = 10.0


class _Clock:
    """How long an export has taken, and may take."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._started = time.monotonic()

    def waited(self) -> float:
        return time.monotonic() - self._started

    def is_over(self) -> bool:
        return self.waited() >= self.limit

    def next_wait(self) -> float:
        """Until there is something to say: that it goes on, or that the time is over."""
        return max(min(_HEARTBEAT_SECONDS, self.limit - self.waited()), 0.001)


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
        with working_folder(self.root / self.key) as folder:
            answer = self._run_child(folder, timeout_seconds)
            meta = self._meta(folder, answer)
            (folder / META_FILE).write_text(json.dumps(meta, indent=2) + "\n", "utf-8")
            final = self.root / self._folder_name(meta)
            put_in_place(folder, final)
        return load_artifact(final)

    def _folder_name(self, meta: Mapping[str, Any]) -> str:
        dependencies = json.dumps(meta["dependencies"], sort_keys=True)
        return f"{self.stem}-{self.key}-{hashlib.sha256(dependencies.encode()).hexdigest()[:8]}"

    def _meta(self, folder: Path, answer: Mapping[str, Any]) -> dict[str, Any]:
        around = model_folder(self.entry)
        dependencies = {
            "files": {
                os.path.relpath(name, around) if self.entry.folder else name: file_sha256(
                    Path(name)
                )
                for name in answer["dependencies"]["files"]
            },
            "packages": answer["dependencies"]["packages"],
        }
        if self.weights is None:
            weights = f"random (seed {self.seed})"
        else:
            weights = f"{self.weights.name} (sha256 {weights_hash(self.weights)[:12]})"
        weights += ", given as bfloat16" * answer["bfloat16"]
        return {
            "schema": SCHEMA,
            "model": self.entry.name,
            "variant": str(self.variant),
            "backend": "xnnpack",
            "pte": f"{self.stem}.pte",
            "inputs": answer["inputs"],
            "outputs": answer["outputs"],
            "tokens": answer["tokens"],
            "generation": answer["generation"],
            "parameters": answer["parameters"],
            "operators": answer["operators"],
            "passes": answer["passes"],
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
        circumstances = ProcessEnvironment(
            export_environment(),
            [str(Path(name).absolute()) for name in sys.path],
            package_versions(),
        )
        request["sys_path"] = circumstances.sys_path
        request_file = folder / "request.json"
        request_file.write_text(json.dumps(request), "utf-8")
        log = folder / LOG_FILE
        clock = _Clock(timeout_seconds)
        with log.open("wb") as log_stream, contextlib.ExitStack() as held:
            forked = self._forked(request_file, log_stream, circumstances, clock, held)
            process = forked or FreshProcess(request_file, log_stream, folder, circumstances)
            tie(process.pid)
            try:
                answer = self._listen(process, log, clock)
            finally:
                _end(process)
                untie(process.pid)
        request_file.unlink()
        return answer

    def _forked(
        self,
        request_file: Path,
        log: IO[bytes],
        circumstances: ProcessEnvironment,
        clock: _Clock,
        held: contextlib.ExitStack,
    ) -> ForkedProcess | None:
        """A fork of the server, which then is ours until ``held`` is left; None if none serves."""
        server = SERVERS.get(circumstances)
        # Another thread may be at an export.
        if server is None or not server.busy.acquire(blocking=False):
            return None
        held.callback(server.busy.release)
        stage = "importing torch"
        self.say(f"{self.title}: {stage}")
        while True:
            try:
                server.wait_until_ready(clock.next_wait())
                break
            except TimeoutError:
                self._still(stage, log=Path(log.name), clock=clock)
            except EOFError:
                SERVERS.drop(server, hopeless=server.gave_up())
                return None
        try:
            return server.fork(request_file, log, request_file.parent)
        except (EOFError, TimeoutError):
            # Somebody ended it, and the next export starts another one.
            SERVERS.drop(server, hopeless=False)
            return None

    def _still(self, stage: str, *, log: Path, clock: _Clock) -> None:
        """Say that it goes on, or raise that it took too long."""
        if clock.is_over():
            raise self._failed(log, f"{stage} took more than {clock.limit:.0f} s.")
        self.say(f"{self.title}: {stage} ({clock.waited():.0f} s)")

    def _listen(
        self, process: ForkedProcess | FreshProcess, log: Path, clock: _Clock
    ) -> dict[str, Any]:
        lines: queue.Queue[bytes | None] = queue.Queue()

        def read() -> None:
            for line in process.stdout:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        stage = "starting"
        while True:
            try:
                line = lines.get(timeout=clock.next_wait())
            except queue.Empty:
                self._still(stage, log=log, clock=clock)
                continue
            if line is None:
                raise self._failed(log, f"{stage} ended the process: {_end_of(process)}.")
            message = _message(line)
            if "progress" in message:
                stage = message["progress"]
                self.say(f"{self.title}: {stage}")
            elif "done" in message:
                self.say(f"{self.title}: done in {clock.waited():.1f} s")
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


def _end(process: ForkedProcess | FreshProcess) -> None:
    """End the child and everything that it started."""
    with contextlib.suppress(TimeoutError):
        process.stdin.close()
        process.wait(timeout=0.5)
    end_group(process.pid)
    process.wait()
    process.stdout.close()


def _end_of(process: ForkedProcess | FreshProcess) -> str:
    try:
        code = process.wait(timeout=5)
    except TimeoutError:
        return "it closed its output but is still running"
    if code is None:
        return "somebody ended it"
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
