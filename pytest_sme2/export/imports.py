"""What an export imports and reads: the tools that every one needs, and what is the model's."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_sme2.export.explain import causes
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE, missing_extra
from pytest_sme2.export.store import content_of

# Beside torch: for any variant, so that a process that forks has them all.
_TOOLS = (
    "executorch.exir",
    "executorch.backends.xnnpack.partition.xnnpack_partitioner",
    "executorch.backends.xnnpack.quantizer.xnnpack_quantizer",
    "executorch.devtools.etrecord",
    "torchao.quantization.pt2e.quantize_pt2e",
)


@functools.cache
def import_tools() -> frozenset[str]:
    """Import what every export needs, and name the modules that torch alone does not bring.

    A model that imports one of them finds it there. So all of them count as the model's imports.
    """
    import_or_name_extra("torch", "Export")
    before = frozenset(sys.modules)
    for name in _TOOLS:
        import_or_name_extra(name, "Export")
    return frozenset(sys.modules) - before


@functools.cache
def installed_packages() -> Mapping[str, list[str]]:
    """The distributions that bring each top-level module; reading all of them takes a second."""
    return importlib.metadata.packages_distributions()


def packages_of(modules: list[ModuleType]) -> dict[str, str]:
    """The version of each installed package that the model imported."""
    packages: dict[str, str] = {}
    for module in modules:
        origin = getattr(module, "__file__", None)
        if not origin or not _INSTALLED & set(Path(origin).parts):
            continue
        top = module.__name__.partition(".")[0]
        if top in EXTRA_OF_PACKAGE:
            continue
        for distribution in installed_packages().get(top, ()):
            if distribution not in packages:
                packages[distribution] = importlib.metadata.version(distribution)
    return dict(sorted(packages.items()))


_INSTALLED = {"site-packages", "dist-packages"}
# What the machine says of itself.
_NO_FILES = ("/proc/", "/sys/", "/dev/", "/run/")


class Reads:
    """What this process opens, lists, and looks for in vain while it exports a model.

    What belongs to the interpreter and the packages is left out: versions tell it. So are files
    that the process has written itself.
    """

    def __init__(self, apart: Iterable[Path]) -> None:
        own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        own += [str(Path(__file__).parent.parent / name) for name in ("export", "system")]
        own += map(str, apart)
        both = {str(place) for folder in map(Path, own) for place in (folder, folder.resolve())}
        of_torch = f"{tempfile.gettempdir()}/torchinductor_"
        self._apart = (*_NO_FILES, of_torch, *(f"{folder}/" for folder in both))
        self._states: dict[str, tuple[int, ...] | None] = {}
        self._written: set[str] = set()
        self.listening = True
        sys.addaudithook(self._hear)
        for module, path in _COMPILED_READERS:
            with contextlib.suppress(ModuleNotFoundError):
                *parents, name = path.split(".")
                owner = functools.reduce(getattr, parents, importlib.import_module(module))
                reader = self._audited(getattr(owner, name))
                static = parents and name != "__init__"
                setattr(owner, name, staticmethod(reader) if static else reader)
        os.stat = self._look

    def found(self) -> dict[str, str]:
        """What each path held, as ``content_of`` says it; listens no longer."""
        self.listening = False
        os.stat = _STAT
        now = {path: _state(path) for path in self._states}
        return {
            path: content_of(Path(path)) if now[path] == before else "changed while it was read"
            for path, before in sorted(self._states.items())
            # What is gone by now was temporary.
            if before is None or now[path] is not None
        }

    def data(self) -> list[str]:
        """The files opened so far that may hold weights, the first one first."""
        return [
            path
            for path, state in self._states.items()
            if state is not None and stat.S_ISREG(state[0]) and Path(path).suffix not in _TEXT
        ]

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or not self.listening:
            return
        if event == "subprocess.Popen":
            # What another program is given to read.
            words = arguments[1] if isinstance(arguments[1], (list, tuple)) else ()
            for word in words:
                if isinstance(word, str | os.PathLike) and _state(os.fspath(word)):
                    self._note(word)
            return
        path, flags = arguments[0], arguments[-1] if event == "open" else os.O_RDONLY
        if event == "import":
            path = arguments[1]  # of a compiled module
        elif event in _LISTINGS:
            # What finds modules and packages looks through all folders of the path.
            caller = sys._getframe(1).f_code.co_filename
            if "importlib" in caller or "pkgutil" in caller:
                return
            path = "." if path is None else path
        self._note(path, flags)

    def _note(self, name: Any, flags: int = os.O_RDONLY) -> None:
        if not isinstance(name, str | bytes | os.PathLike):
            return
        where = Path(os.fsdecode(name)).absolute()
        # Not resolved otherwise: where a link leads is what may change.
        path = str(where.resolve() if ".." in where.parts else where)
        if path.startswith(self._apart) or _INSTALLED & set(where.parts):
            return
        if "__pycache__" in where.parts:
            try:
                path = importlib.util.source_from_cache(path)
            except ValueError:
                return
        if flags & (os.O_TRUNC | os.O_EXCL) or flags & os.O_ACCMODE == os.O_WRONLY:
            self._written.add(path)
        if path not in self._written:
            self._states.setdefault(path, _state(path))

    def _look(self, path: Any, *rest: Any, **options: Any) -> os.stat_result:
        """As ``os.stat``; what a model looks for and does not find may be there next time."""
        try:
            return _STAT(path, *rest, **options)
        except FileNotFoundError:
            # A traceback looks for the sources of code that was made in memory.
            if self.listening and "<" not in str(path) and not options.get("dir_fd"):
                self._note(path)
            raise

    def _audited(self, reader: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(reader)
        def read(*given: Any, **named: Any) -> Any:
            for value in (*given, *(named.get(name) for name in _PATH_NAMES)):
                if self.listening and isinstance(value, str | os.PathLike):
                    self._note(value)
                    break
            return reader(*given, **named)

        return read


_STAT = os.stat
_LISTINGS = frozenset(("os.listdir", "os.scandir"))
_EVENTS = _LISTINGS | {"open", "ctypes.dlopen", "import", "sqlite3.connect", "subprocess.Popen"}
# What reads files in compiled code, which raises no event. torch.load and NumPy open them before.
_COMPILED_READERS = (
    *(("torch", "from_file"), ("torch.jit", "load"), ("torch", "UntypedStorage.from_file")),
    *(("torch.package", "PackageImporter.__init__"), ("safetensors", "safe_open")),
    *(("safetensors.torch", "safe_open"),),
)
_PATH_NAMES = ("filename", "f", "file_or_buffer")
# Such files say how a network is built, or describe it.
_TEXT = frozenset(
    ("", ".py", ".json", ".toml", ".yaml", ".yml", ".txt", ".md", ".ini", ".cfg", ".csv", ".so")
)


def _state(path: str | bytes) -> tuple[int, ...] | None:
    """By which one sees that a file was replaced or written; None if there is none."""
    try:
        found = _STAT(path)
    except (OSError, ValueError):
        return None
    return (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ino)


def import_or_name_extra(name: str, purpose: str) -> Any:
    """The module; if it is not installed, the error names the extra that brings it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        extra = missing_extra(error, purpose)
        if extra is None:
            raise
        raise extra from error


# Its binary fits only one build of torch. With another one (for example a CPU build) its operators
# are missing. Its Python code then fails on import, because it describes ``nms`` and ``qnms`` to
# torch, although no network needs them. Declaring the two is enough for ``torchvision.models``, and
# for timm and transformers.


def import_torchvision() -> Any:
    """The module ``torchvision``, fully imported, even if its compiled operators do not load."""
    try:
        importlib.import_module("torchvision.models")
    except RuntimeError as error:
        if not misses_operators(error):
            raise
        _declare_operators()
        # Remove a half-finished import.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        importlib.import_module("torchvision.models")
    return sys.modules["torchvision"]


def misses_operators(error: BaseException) -> bool:
    """Whether an error, or its cause, is that torchvision's compiled operators are missing."""
    runtime = [str(link) for link in causes(error) if isinstance(link, RuntimeError)]
    return any("operator torchvision::" in text for text in runtime)


@functools.cache
def _declare_operators() -> Any:
    """The declarations live as long as what is returned, and so as long as the cache."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
