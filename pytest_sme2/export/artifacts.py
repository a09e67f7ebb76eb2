"""Model to Artifact: the content-addressed cache and the child process that fills it.

torch is imported in that child alone (see lowering.py); a cache hit starts no process at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pytest_sme2.errors import ExportError, MissingExtraError, ModelError, Sme2Error, UsageError
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE, ModelEntry
from pytest_sme2.export.variant import Variant
from pytest_sme2.results import Artifact, TensorSpec
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.files import file_sha256, safe_name
from pytest_sme2.system.leash import tie, untie

# 1: the first.
SCHEMA = 1
META_FILE = "export_meta.json"
LOG_FILE = "export.log"
TIMEOUT_SECONDS = 3600.0

# What an export may see of the environment: anything else could change a model unnoticed.
_ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE",
)  # fmt: skip

# The path is set before the first import of ours, so that the child finds what the parent found.
_BOOTSTRAP = (
    "import json, sys; request = json.load(open(sys.argv[1], encoding='utf-8')); "
    "sys.path[:] = request['sys_path']; "
    "from pytest_sme2.export.lowering import main; main(sys.argv[1])"
)
_HEARTBEAT_SECONDS = 10.0

# Our own files that decide what comes out.
_CODE = ("artifacts.py", "lowering.py", "random_weights.py", "torchvision_shim.py", "weights.py")


def export_model(
    entry: ModelEntry,
    variant: Variant,
    *,
    cache: Path | None = None,
    weights: Path | None = None,
    seed: int = 0,
    graph: bool = False,
    progress: Callable[[str], None] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Artifact:
    """The artifact of a model's variant: from the cache, else made once however many ask for it."""
    say = progress or _say_nothing
    if not 0 <= seed < 2**32:
        raise UsageError(f"{seed} is not a seed. Give a whole number from 0 to {2**32 - 1}.")
    if weights is not None:
        weights = weights.absolute()
    key = cache_key(entry, variant, weights=weights, seed=seed, graph=graph)
    root = (cache or cache_folder()) / "exports"
    stem = artifact_stem(entry.name, variant)
    found = _find(root, stem, key, say)
    if found is not None:
        return found
    if entry.file is not None and not is_utf8(entry.file.resolve()):
        raise ModelError(
            f"{entry.name!r} cannot be exported from {entry.file.parent}: the folder's name is not "
            "UTF-8, and torch cannot capture code in such a place. Move or rename the folder."
        )
    _require_packages()
    try:
        with _locked(root / "locks" / f"{stem}-{key}.lock", f"{entry.name} {variant}", say):
            # Whoever held the lock may have made it meanwhile.
            found = _find(root, stem, key, say)
            if found is not None:
                return found
            return _Export(entry, variant, weights, seed, graph, root, key, say).make(
                timeout_seconds
            )
    except OSError as error:
        raise ExportError(
            f"The artifact of {entry.name!r} ({variant}) cannot be written below {root}: {error}. "
            "Make room there, or name another folder in SME2_CACHE_DIR."
        ) from error


def load_artifact(folder: Path) -> Artifact:
    """The artifact in a folder, checked against the sizes and hashes it was written with."""
    return _artifact(folder, _read_meta(folder))


def is_utf8(path: Path) -> bool:
    """Whether a path is text: file systems take any bytes for a name."""
    return not any("\udc80" <= letter <= "\udcff" for letter in str(path))


def find_artifact(
    model: str, variant: Variant, sha256: str, *, cache: Path | None = None
) -> Artifact | None:
    """The artifact whose program has this content, where the cache still has it."""
    root = (cache or cache_folder()) / "exports"
    for folder in sorted(root.glob(f"{artifact_stem(model, variant)}-*")):
        try:
            found = load_artifact(folder)
        except ExportError:
            # Damaged is as good as gone.
            continue
        if found.sha256 == sha256:
            return found
    return None


def artifact_stem(model: str, variant: Variant) -> str:
    """``<model>_xnnpack_<variant>``, as a file name."""
    return f"{safe_name(model)}_xnnpack_{variant}"


def package_versions() -> dict[str, str]:
    """What is installed of the packages that shape an export; imports none of them."""
    found = {}
    for package in EXTRA_OF_PACKAGE:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def cache_key(
    entry: ModelEntry, variant: Variant, *, weights: Path | None, seed: int, graph: bool
) -> str:
    """Everything that shapes the artifact, and is known before torch is, as one short hash."""
    here = Path(__file__).parent
    parts = {
        "schema": SCHEMA,
        "code": [file_sha256(here / name) for name in _CODE],
        "model": [entry.name, entry.kind, entry.module, entry.class_name],
        "source": _source_hashes(entry),
        "variant": str(variant),
        "seed": seed,
        "weights": None if weights is None else _weights_hash(weights),
        "graph": graph,
        "versions": package_versions(),
        "python": platform.python_version_tuple()[:2],
        "machine": platform.machine(),
    }
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


# --- looking up -----------------------------------------------------------------------------------


def _find(root: Path, stem: str, key: str, say: Callable[[str], None]) -> Artifact | None:
    """A whole and current entry of the cache. One key may have several: see ``_is_current``."""
    for folder in sorted(root.glob(f"{stem}-{key}-*")):
        try:
            meta = _read_meta(folder)
        except ExportError as error:
            say(f"{error} It is made again.")
            continue
        if meta["key"] == key and _is_current(meta["dependencies"]):
            return _artifact(folder, meta)
    return None


def _is_current(dependencies: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether what the model imported from outside its folder is still what it was."""
    for name, digest in dependencies["files"].items():
        file = Path(name)
        if not file.is_file() or file_sha256(file) != digest:
            return False
    for package, installed in dependencies["packages"].items():
        try:
            if version(package) != installed:
                return False
        except PackageNotFoundError:
            return False
    return True


def _read_meta(folder: Path) -> dict[str, Any]:
    """The folder's metadata, after every file was compared with it."""
    try:
        meta: dict[str, Any] = json.loads((folder / META_FILE).read_text("utf-8"))
        if meta["schema"] != SCHEMA:
            raise ExportError(
                f"{folder / META_FILE} has schema {meta['schema']!r}, this version reads {SCHEMA}. "
                "Export the model again."
            )
        for name, expected in meta["files"].items():
            file = folder / Path(name).name
            whole = (
                file.stat().st_size == expected["bytes"] and file_sha256(file) == expected["sha256"]
            )
            if not whole:
                raise ExportError(
                    f"The artifact {folder} is damaged: {name} is not what was written."
                )
        _check_meta(meta)
    except ExportError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ExportError(
            f"The artifact {folder} is damaged: {type(error).__name__}: {error}."
        ) from error
    return meta


def _check_meta(meta: Mapping[str, Any]) -> None:
    """Raise where something is missing, or is not of its kind."""
    if meta["pte"] not in meta["files"]:
        raise ValueError("it lacks its program")
    for name in meta["files"]:
        # A place elsewhere would be read in the place of what was compared.
        if Path(name).name != name or "\0" in name:
            raise ValueError(f"{name!r} is no plain name")
    texts = [meta[key] for key in ("key", "model", "variant", "weights", "pte")]
    for table in (meta["versions"], *(meta["dependencies"][of] for of in ("files", "packages"))):
        texts += [text for entry in table.items() for text in entry]
    for spec in (*meta["inputs"], *meta["outputs"]):
        texts.append(spec["dtype"])
        if not all(isinstance(size, int) and 0 <= size < 2**63 for size in spec["shape"]):
            raise ValueError(f"{spec['shape']!r} is no shape")
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is no text")


def _artifact(folder: Path, meta: Mapping[str, Any]) -> Artifact:
    def specs(values: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(value["dtype"], tuple(value["shape"])) for value in values)

    inputs, outputs = specs(meta["inputs"]), specs(meta["outputs"])
    return Artifact(
        model=meta["model"],
        variant=meta["variant"],
        folder=folder,
        pte=folder / meta["pte"],
        sha256=meta["files"][meta["pte"]]["sha256"],
        inputs=inputs,
        outputs=outputs,
        input_files=tuple(folder / f"input_{index}.bin" for index in range(len(inputs))),
        reference_files=tuple(folder / f"reference_{index}.bin" for index in range(len(outputs))),
        etrecord=folder / f"{meta['pte']}.etrecord",
        weights=meta["weights"],
        versions=meta["versions"],
    )


# --- making ---------------------------------------------------------------------------------------


class _Export:
    """One export on its way into the cache; its caller holds the lock."""

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
        """Fill a temporary folder and rename it: there is a whole artifact or none."""
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
                # Out of the way in one step; a reader sees the old one, none, or the new one.
                final.rename(folder.with_name(f"{folder.name}-old"))
            folder.rename(final)
        finally:
            for left_over in self.root.glob(f"{prefix}*"):
                shutil.rmtree(left_over, ignore_errors=True)
        return _artifact(final, meta)

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
            weights = f"{self.weights.name} (sha256 {_weights_hash(self.weights)[:12]})"
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
            "source": _source_hashes(self.entry),
            "dependencies": dependencies,
            "files": {
                file.name: {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
                for file in sorted(folder.iterdir())
            },
        }

    def _run_child(self, folder: Path, timeout_seconds: float) -> dict[str, Any]:
        """Start the child, pass its progress on, and return its answer or raise its error."""
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
                env=_environment(),
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
            return ModelError(f"{message['message']}\nThe whole log: {self._keep_log(log)}")
        return self._failed(log, message["message"])

    def _failed(self, log: Path, why: str) -> ExportError:
        return ExportError(
            f"Model {self.entry.name!r} cannot be exported as {self.variant}: {why}\n"
            f"The whole log: {self._keep_log(log)}"
        )

    def _keep_log(self, log: Path) -> Path:
        """The log outlives the folder it was written to."""
        kept = self.root / "failed" / f"{self.stem}-{self.key}.log"
        kept.parent.mkdir(exist_ok=True)
        shutil.copyfile(log, kept)
        return kept


def _message(line: bytes) -> dict[str, Any]:
    """A line from the child; anything but a message of ours was printed before it took over."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """The child and all it started are gone when this returns."""
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
        return "it closed its output but lives on"
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        hint = ", often a lack of memory" if name == "SIGKILL" else ""
        return f"signal {name}{hint}"
    return f"signal {-code}"


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # Sets of strings are walked in the same order every time, so the same bytes come out.
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def _locked(file: Path, title: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of one artifact; say so where another process holds it."""
    from filelock import FileLock, Timeout

    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"{title}: another process is exporting it; waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


# --- hashing --------------------------------------------------------------------------------------


def _require_packages() -> None:
    installed = package_versions()
    for package, extra in EXTRA_OF_PACKAGE.items():
        if extra == "export" and package not in installed:
            raise MissingExtraError(package, extra, "Exporting a model")


def _source_hashes(entry: ModelEntry) -> dict[str, str]:
    files = entry.source_files()
    base = Path(os.path.commonpath([file.parent for file in files]))
    return {file.relative_to(base).as_posix(): file_sha256(file) for file in files}


def _weights_hash(weights: Path) -> str:
    try:
        return file_sha256(weights)
    except OSError as error:
        raise UsageError(
            f"The weights {str(weights)!r} cannot be read: {error.strerror}. "
            "Give a file saved with torch.save(network.state_dict(), FILE)."
        ) from error


def _say_nothing(line: str) -> None:
    pass
