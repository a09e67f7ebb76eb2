"""A command that generates text and prints how long it took: ExecuTorch's ``llama_main``, or what
prints a line ``PyTorchObserver`` as well. Each process is one generation.

What ExecuTorch's own runners of language models print about a generation (``llama_main`` and
others): a line ``PyTorchObserver {…}`` per generation, with times in whole milliseconds.

It tells neither single steps nor which kernels ran, so it proves nothing about SME2.
"""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_sme2.errors import RunError, UsageError
from pytest_sme2.results import DECODE, PREFILL, Arm, Artifact, Run, RunRequest
from pytest_sme2.runners.base import LeftFiles, ProcessFiles, Runner
from pytest_sme2.runners.stock import LIBRARY, binary_platform
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.reading import json_value, read_text_if_there

MARK = "PyTorchObserver "
UNTOLD = (
    "The runner does not tell which kernels ran, so nothing is known of SME2, nor single steps."
)
_LIMIT = 64 * 2**20
_REMEDY = "Give the output of a run of llama_main, or of several."
_LONGEST_MS = 1e9


@dataclass(frozen=True)
class ObservedGeneration:
    """One generation; a time of 0 was too short for the runner's clock, or not taken."""

    prompt_tokens: int
    new_tokens: int
    load_ms: float
    first_token_ms: float
    """From the start of the inference."""
    prefill_ms: float
    decode_ms: float

    @property
    def token_ms(self) -> dict[str, float]:
        """Of each phase, the time of a token."""
        return {
            PREFILL: self.prefill_ms / self.prompt_tokens,
            DECODE: self.decode_ms / self.new_tokens,
        }


def read_observed(path: Path) -> list[ObservedGeneration]:
    """The generations in a log; none where it has no such line, as an ETDump has none."""
    try:
        text = read_text_if_there(path, remedy=_REMEDY, limit=_LIMIT, error=UsageError) or ""
    except UsageError:
        return []  # not text
    lines = (line.partition(MARK) for line in text.splitlines())
    return [_generation(rest, path) for _, mark, rest in lines if mark and rest.startswith("{")]


def _generation(text: str, path: Path) -> ObservedGeneration:
    where = f"{path}: a line of PyTorchObserver"
    document = json_value(text, where, remedy=_REMEDY, error=UsageError, finite=True)

    def number(name: str) -> float:
        value: Any = document.get(name) if isinstance(document, dict) else None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
            raise UsageError(f"{where} has no number {name!r}. {_REMEDY}")
        return float(value)

    def span(start: str, end: str) -> float:
        length = (number(end) - number(start)) * 1000 / scale
        if not 0 <= length <= _LONGEST_MS:
            raise UsageError(f"{where} ends ({end}) before it begins ({start}). {_REMEDY}")
        return length

    scale = number("SCALING_FACTOR_UNITS_PER_SECOND")
    prompt, new = number("prompt_tokens"), number("generated_tokens")
    if min(scale, prompt, new) < 1:
        raise UsageError(f"{where} is of a generation without tokens. {_REMEDY}")
    return ObservedGeneration(
        int(prompt),
        int(new),
        span("model_load_start_ms", "model_load_end_ms"),
        span("inference_start_ms", "first_token_ms"),
        span("inference_start_ms", "prompt_eval_end_ms"),
        span("prompt_eval_end_ms", "inference_end_ms"),
    )


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
