"""A command that generates text and prints how long it took: ExecuTorch's ``llama_main``, or what
prints a line ``PyTorchObserver`` as well. Each process is one generation.
"""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import RunError, UsageError
from pytest_sme2.results import Arm, Artifact, Run, RunRequest
from pytest_sme2.runners.base import LeftFiles, ProcessFiles, Runner
from pytest_sme2.runners.stock import LIBRARY, binary_platform
from pytest_sme2.system.files import file_sha256
from pytest_sme2.trace.observer import MARK, ObservedGeneration, read_observed


@dataclass(frozen=True)
class ObservedRunner(Runner):
    """One command; the files of this computer that it names go to the device with it."""

    program: Path
    words: tuple[tuple[str, Path | None], ...]
    """Each argument; of one that names a file, what comes before that, and the file."""

    def files(self, arm: Arm) -> tuple[Path, ...]:
        beside = (path for path in sorted(self.folder.iterdir()) if LIBRARY.fullmatch(path.name))
        return (self.program, *beside)

    def command(self, request: RunRequest, files: ProcessFiles) -> tuple[str, ...]:
        artifact = request.artifact
        local = (artifact.pte, *artifact.input_files)
        there = dict(zip(local, (files.model, *files.inputs), strict=True))
        words = (text if file is None else f"{text}{there[file]}" for text, file in self.words)
        return (f"./{self.program.name}", *words)

    def explain(self, returncode: int, stderr: str) -> str | None:
        return None

    def read_result(self, request: RunRequest, left: LeftFiles) -> Run:
        found = one_generation(left.log)
        return self.run_with(
            request,
            left,
            sme2_effective=None,
            wall_ns=(round((found.prefill_ms + found.decode_ms) * 1e6),),
            load_ns=round(found.load_ms * 1e6),
        )


def one_generation(log: Path) -> ObservedGeneration:
    """What one process printed."""
    found = read_observed(log)
    if len(found) != 1:
        printed = "no line" if not found else f"{len(found)} lines, not one,"
        raise RunError(
            f"The command printed {printed} that begins with {MARK.strip()}. Give one that "
            f"generates once, such as llama_main. Its log is {log}"
        )
    if min(found[0].token_ms.values()) <= 0:
        raise RunError(
            "The command tells times in milliseconds, and a phase took none. Let it generate more "
            f"tokens, with a longer prompt. Its log is {log}"
        )
    return found[0]


def observed_command(text: str, platform: str) -> tuple[ObservedRunner, Artifact]:
    """The runner and the files of a command line, which no shell sees; for a script, ``platform``
    is where it is to run.
    """
    try:
        first, *rest = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a command: {error}.") from error
    found = shutil.which(first)
    if found is None:
        raise UsageError(f"{first!r} is not a program of this computer. Give its path.")
    program = Path(found).absolute()
    words: list[tuple[str, Path | None]] = []
    for word in rest:
        before, mark, value = word.rpartition("=")
        file = Path(value)
        words.append((before + mark, file.absolute()) if file.is_file() else (word, None))
    files = tuple(dict.fromkeys(file for _, file in words if file is not None)) or (program,)
    with program.open("rb") as opened:
        script = opened.read(2) == b"#!"
    runner = ObservedRunner(
        kind="observed",
        platform=platform if script else binary_platform(program),
        executorch="unknown",
        folder=program.parent,
        program=program,
        words=tuple(words),
    )
    model, *others = files
    return runner, Artifact(
        model=program.name,
        variant="as given",
        folder=model.parent,
        pte=model,
        sha256=file_sha256(model),
        inputs=(),
        outputs=(),
        input_files=tuple(others),
    )
