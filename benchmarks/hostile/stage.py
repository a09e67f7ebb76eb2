"""Where commands are run for trials: a small checkout, its caches, its home, and its processes."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import filelock

from benchmarks.harness import ROOT
from benchmarks.trials import Ending, NotCleanError, NotPossibleError, ending_of, expect, start
from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.store import load_artifact
from pytest_sme2.export.variant import Variant
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.cache import mark_cache
from pytest_sme2.system.platforms import LINUX_AARCH64, host_platform
from pytest_sme2.system.processes import adopt_orphans, descendants
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.verdict import baselines

TOY = ROOT / "models" / "toy_cnn"
MOUNTS = "SME2_HOSTILE_MOUNTS"
"""The variable that says that this process may mount."""

_SME2 = ("-c", "import sys; from pytest_sme2.cli.main import main; sys.exit(main())")
_PARTS = ("operators", "outputs")
_SUITE = """\
def test_operators(sme2_gate):
    sme2_gate.check_operators()


def test_outputs(sme2_gate):
    sme2_gate.check_outputs()
"""


@dataclass
class Stage:
    """One user's surroundings, in one folder."""

    root: Path
    cache: Path
    checkout: Path
    home: Path
    out: Path
    history: Path
    extra: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        names = ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
        found = {name: os.environ[name] for name in names if name in os.environ}
        found |= {"LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        found["TMPDIR"] = str(self.root / "tmp")
        found |= {"HOME": str(self.home), "SME2_CACHE_DIR": str(self.cache)}
        return {**found, **self.extra}

    def sme2(self, *words: str | Path) -> list[str]:
        return [sys.executable, *_SME2, *map(str, words)]

    def export(self) -> list[str]:
        return self.sme2("export", "toy_cnn", "--models-folder", "models")

    def measure(self, device: str = "linux") -> list[str]:
        return self.sme2(
            "run", "toy_cnn", "--device", device, "--budget", "1s",
            "--models-folder", "models", "--out", self.out,
        )  # fmt: skip

    def pytest(self, *words: str | Path) -> list[str]:
        chosen = ("-p", "no:cacheprovider", "--device=linux", "--sme2-models=toy_cnn",
                  "--sme2-variants=fp32", f"--sme2-out={self.out}")  # fmt: skip
        return [sys.executable, "-m", "pytest", *chosen, *map(str, words)]

    def update(self) -> list[str]:
        return self.pytest("--update-baselines=all")

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        return start(command, self.checkout, self.environment())

    def run(self, command: Sequence[str]) -> Ending:
        return ending_of(self.start(command))

    def check_whole(self) -> None:
        """Nothing half made, no lock held, nobody left behind."""
        expect_no_strays()
        for folder in {self.root, self.cache}:
            for path in folder.rglob("*.lock"):
                try:
                    with filelock.FileLock(path, timeout=5):
                        pass
                except filelock.Timeout:
                    raise NotCleanError(f"the lock {path} is still held") from None
        for path in (self.checkout / "baselines").glob("*/*.json"):
            expect(baselines.read(path) is not None, f"{path} is gone")
        for folder in self.cache.glob("exports/*_xnnpack_*"):
            load_artifact(folder)
        if self.history.exists():
            self.run(self.sme2("history", self.history)).expect_plain()

    def check_no_leftovers(self) -> None:
        """After a run that ended well there is nothing that an earlier one left half done."""
        marks = (".part", ".tmp", ".removed")
        for folder in (self.cache, self.out, self.checkout):
            for path in folder.rglob("*") if folder.exists() else ():
                expect(not any(mark in path.name for mark in marks), f"left over: {path}")
        temporary = Path(self.environment()["TMPDIR"])
        left = [path.name for path in temporary.iterdir() if "sme2" in path.name]
        expect(not left, f"left over in the folder for temporary files: {left}")


@functools.cache
def _provided() -> dict[str, Path]:
    """The program and the runners, made once; a trial gets copies of them."""
    try:
        artifact = export_model(discover([TOY.parent]).get("toy_cnn"), Variant("fp32"))
        return {
            "exports": artifact.folder,
            "runner": wheel_runner(host_platform()).folder,
            "emulated": wheel_runner(LINUX_AARCH64).folder,
            "qemu": find_qemu().path,
        }
    except Sme2Error as error:
        raise NotPossibleError(f"nothing can be run here: {error}") from error


def make_stage(
    folder: Path,
    *,
    exports: bool = True,
    runners: bool = True,
    home: str = "home",
    checkout: str = "checkout",
) -> Stage:
    """A checkout with one model and two tests; caches filled as asked."""
    if sys.platform != "linux":
        raise NotPossibleError("orphans can be told apart on Linux only")
    adopt_orphans()
    _provided()
    _OURS.update(descendants(os.getpid()))
    cache, out, history = (folder / name for name in ("cache", "out", "history"))
    stage = Stage(folder, cache, folder / checkout, folder / home, out, history)
    (folder / home).mkdir()
    (folder / "tmp").mkdir()
    fill_cache(folder / "cache", exports=exports, runners=runners)
    shutil.copytree(TOY, stage.checkout / "models" / "toy_cnn",
                    ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    (stage.checkout / "pytest.ini").write_text("[pytest]\nsme2_models = models\n")
    (stage.checkout / "test_suite.py").write_text(_SUITE)
    return stage


def fill_cache(cache: Path, *, exports: bool, runners: bool) -> None:
    provided = _provided()
    mark_cache(cache)
    if exports:
        shutil.copytree(provided["exports"], cache / "exports" / provided["exports"].name)
    if runners:
        # On aarch64 one runner serves both.
        for path in {provided["runner"], provided["emulated"]}:
            shutil.copytree(path, cache / "runners" / path.name)
    tool = cache / "tools" / "qemu" / "usr" / "bin" / "qemu-aarch64"
    tool.parent.mkdir(parents=True)
    tool.symlink_to(provided["qemu"])


def merging(stage: Stage) -> list[str]:
    """Put two parts of one run beside the stage; the command that merges them."""
    shutil.copytree(_parts().name, stage.root / "parts")
    parts = [stage.root / "parts" / part for part in _PARTS]
    given = ("--baseline-dir", stage.root / "parts" / "baselines", "--history", stage.history)
    return stage.sme2("merge", *parts, "--out", stage.out, *given)


@functools.cache
def _parts() -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory(prefix="hostile-")
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        stage = make_stage(Path(folder))
        # What is merged is held against what is stored.
        stage.run(stage.update()).expect(0)
        shutil.copytree(stage.checkout / "baselines", Path(made.name, "baselines"))
        for part in _PARTS:
            stage.out = Path(made.name, part)
            stage.run(stage.pytest("-k", part)).expect(0)
    return made


_OURS: set[int] = set()
"""What runs below this process for its own purposes."""


def expect_no_strays() -> None:
    """Everything that a command started is gone, if not at once then in a moment."""
    deadline = time.monotonic() + 10
    while (left := {*descendants(os.getpid())} - _OURS) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = [command_line(pid) for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # Orphans that this process inherited want to be collected.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    expect(not left, f"still running: {names}")


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")[:200]
    return str(pid)


def enter_namespace() -> None:
    """Start this program again where its mounts are its own; stay where that cannot be had."""
    if MOUNTS in os.environ or shutil.which("unshare") is None:
        return
    for options in (["--mount"], ["--mount", "--map-root-user"]):
        command = ["unshare", *options]
        tried = subprocess.run([*command, "true"], capture_output=True, check=False)
        if tried.returncode == 0:
            words = [*command, sys.executable, "-m", "benchmarks.hostile", *sys.argv[1:]]
            os.execvpe("unshare", words, {**os.environ, MOUNTS: "1"})  # noqa: S606 - no shell meant


@contextlib.contextmanager
def mounted(place: Path, *words: str | Path, then: Sequence[str] = ()) -> Iterator[None]:
    """Something in the place of a folder, by these words of ``mount``, and then by those."""
    if MOUNTS not in os.environ:
        raise NotPossibleError("nothing can be mounted here: unshare --mount does not work")
    place.mkdir(parents=True, exist_ok=True)
    _mount(*words, place)
    try:
        if then:
            _mount(*then, place)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def small_disk(folder: Path, size: int) -> contextlib.AbstractContextManager[None]:
    """A file system of this many bytes in place of a folder, which must be empty."""
    return mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")


def resize_disk(folder: Path, size: int) -> None:
    _mount("-o", f"remount,size={size}", folder)


def read_only(folder: Path) -> contextlib.AbstractContextManager[None]:
    return mounted(folder, "--bind", folder, then=("-o", "remount,ro,bind"))


def _mount(*words: str | Path) -> None:
    command = ["mount", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPossibleError(f"{' '.join(command)}: {done.stderr.strip()}")
