"""What a target is asked to run, and what one process left behind. What the files of a run or of a
program say, before anything is concluded from them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AS_EXPORTED = "as exported"
"""The variant of a program of which only the file is known."""
FORWARD = "forward"
"""The method of a program if none is named."""


class Word(str, enum.Enum):
    """One of a few words; it prints as itself."""

    def __str__(self) -> str:
        return str(self.value)


class Arm(Word):
    """What of SME a process sees. A chip that has SME and no SME2 has no third arm: there ``on`` is
    SME1, and reports say so.
    """

    ON = "on"
    OFF = "off"
    """Neither SME nor SME2."""
    SME1 = "sme1"
    """SME, with SME2 hidden: as on a chip that has no SME2."""


PAIR = (Arm.ON, Arm.OFF)
"""The two arms that every case has, where the device can switch."""
SHOWN = (Arm.OFF, Arm.SME1, Arm.ON)
"""All arms in the order in which reports show them."""


@dataclass(frozen=True)
class TensorSpec:
    """What a program takes or gives at one position."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class GenerationPlan:
    """A whole generation of a language model: the prompt, then one token a step."""

    prompt_tokens: int
    new_tokens: int
    prompt: tuple[TensorSpec, ...]
    """The inputs of the prompt; those of a step are the artifact's."""
    fed_back: tuple[int | None, ...]
    """For each input of a step, the output of the step before; None where it comes from a file."""
    prefill: str = FORWARD


@dataclass(frozen=True)
class Artifact:
    """One exported program and everything that was written beside it."""

    model: str
    variant: str
    folder: Path
    pte: Path
    sha256: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_files: tuple[Path, ...] = ()
    """The example inputs as raw little-endian values, one file per input."""
    reference_files: tuple[Path, ...] = ()
    """What the eager model answered to those inputs, one raw file per output."""
    etrecord: Path | None = None
    weights: str = "random"
    """Where the weights came from: ``random (seed 0)`` or the file's name and hash."""
    versions: Mapping[str, str] = field(default_factory=dict)
    method: str | None = None
    """Which of several methods is run; None where ``forward`` is the only one."""
    tokens: int | None = None
    """How many tokens the measured inference takes; None where the model does not say."""
    generation: GenerationPlan | None = None
    """None where the model is not a decoder, or does not say so."""
    forms: tuple[str, ...] = ()
    """How the variant's rewrites wrote what they found by trying."""
    unused: tuple[str, ...] = ()
    """What the model computes in vain; looked for where something is rewritten."""

    @property
    def generation_files(self) -> tuple[tuple[Path, ...], tuple[Path | int, ...]]:
        """The inputs of the prompt; those of the steps, or which output of the step before."""
        plan = self.generation
        if plan is None:
            return (), ()
        return (
            tuple(self.folder / f"prompt_{index}.bin" for index in range(len(plan.prompt))),
            tuple(
                self.folder / f"next_{index}.bin" if output is None else output
                for index, output in enumerate(plan.fed_back)
            ),
        )


@dataclass(frozen=True)
class Turn:
    """How much a process does before the other of its pair goes on."""

    runs: int
    """Of a generation, steps."""
    lead: int = 0
    """Untimed runs first, to fill the caches as if nothing else ran."""


@dataclass(frozen=True)
class RunRequest:
    """What one process of the runner is asked to do."""

    artifact: Artifact
    arm: Arm
    threads: int = 1
    warmup: int = 3
    runs: int = 10
    traced: bool = False
    keep_outputs: bool = False
    seed: int = 0
    timeout_seconds: float = 600.0
    cpus: tuple[int, ...] = ()
    """The cores to pin to; empty means the system decides."""
    extra_arguments: tuple[str, ...] = ()
    """Further ones for the runner, as they are."""
    counted: bool = False
    """Whether the runner marks the inference for an emulator that counts instructions."""
    turn: Turn | None = None
    """Where it takes turns with another process; None where it runs alone."""
    sme1: bool = False
    """Whether ``on`` must hide SME2: an emulated CPU has it, whatever chip it stands for."""
    generate: bool = False
    """Whether each run is a whole generation, and not one inference."""

    @property
    def steps(self) -> int:
        """Inferences of a run: a generation has the prompt's and those of the new tokens."""
        plan = self.artifact.generation if self.generate else None
        return 1 if plan is None else 1 + plan.new_tokens

    @property
    def inferences(self) -> int:
        """Of all its timed runs."""
        return self.runs * self.steps

    @property
    def switch(self) -> Arm:
        """What the runner gets."""
        return Arm.SME1 if self.sme1 and self.arm is Arm.ON else self.arm


@dataclass(frozen=True)
class Output:
    """One output of the last run of a process."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    has_nan: bool
    file: Path | None = None


@dataclass(frozen=True)
class CoreUse:
    """Which kind of cores the measured runs of a process were on, all its threads together."""

    performance_ns: int
    efficiency_ns: int
    energy_nj: int
    """As the system estimates it; in nanojoules."""
    quality: str
    """How urgent the system took the work to be."""

    @property
    def efficiency_share(self) -> float:
        """The part of its CPU time that was on efficiency cores."""
        whole = self.performance_ns + self.efficiency_ns
        return self.efficiency_ns / whole if whole > 0 else 0.0


@dataclass(frozen=True)
class Run:
    """One process of the runner: raw values only, statistics are derived elsewhere."""

    request: RunRequest
    target: str
    runner: str
    """Which kind of runner it was: ``wheel`` or ``pair``."""
    emulated: bool
    """Emulated times are never latency."""
    sme2_effective: bool | None
    """Whether the process saw SME2, as the process itself reports; None where it cannot know."""
    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...] = ()
    ran_on: tuple[int, ...] = ()
    """The core at the end of each run, where the system tells it."""
    waited_ns: tuple[int, ...] = ()
    """For how long its threads had no core in each run, where there are several."""
    meant_for: tuple[int, ...] = ()
    """The cores that its process was started for; empty where the system chose."""
    load_ns: int | None = None
    peak_rss_load_bytes: int | None = None
    peak_rss_bytes: int | None = None
    outputs: tuple[Output, ...] = ()
    cpu_features: tuple[str, ...] = ()
    vector_bits: int | None = None
    """The length of its streaming vectors; None without SME, or where nothing tells it."""
    etdump: Path | None = None
    log: Path | None = None
    warmup_wall_ns: tuple[int, ...] = ()
    """The inferences before the measured ones; never part of a statistic."""
    throttled: bool = False
    """Whether the device slowed itself down against heat meanwhile; such a pair is redone."""
    clock_change: str = ""
    """How the highest clock that a core may take differed from the session's start; redone, too."""
    spoiled: str = ""
    """Why it says nothing of the device as it was at the start, such as a screen that went off."""
    cores: CoreUse | None = None
    """None where the system does not tell fast cores from slow ones."""
    clock_ghz: float | None = None
    """Cycles over the time in which they were counted, on all its threads; None: not counted."""
    uncounted: str = ""
    step_wall_ns: tuple[int, ...] = ()
    """Of generations, the steps of all of them in order; the prompt is the first of each."""
    step_peak_bytes: tuple[int, ...] = ()

    @property
    def strayed(self) -> tuple[bool, ...]:
        """For each run, whether it ended on a core that its process was not meant for: a system
        that switches a core off moves what is kept on it.
        """
        if not (self.ran_on and self.meant_for):
            return (False,) * len(self.wall_ns)
        return tuple(core not in self.meant_for for core in self.ran_on)


SME1_ONLY = "no, only SME1"
"""The fact ``sme2`` of a chip that has SME and no SME2."""


@dataclass(frozen=True)
class Fingerprint:
    """What a target is, as far as its timings depend on it. Two that are equal may be compared."""

    target: str
    facts: tuple[tuple[str, str], ...]
    """Sorted pairs such as ``("cpu", "Neoverse-N1")``; never a clock speed that jitters."""

    @property
    def sme1(self) -> bool:
        """Whether ``on`` is SME1 there."""
        return ("sme2", SME1_ONLY) in self.facts

    @property
    def key(self) -> str:
        """A short name that is safe as a folder name."""
        import hashlib

        if self.target == "emulated":
            return "emulated"
        text = "\n".join(f"{name}={value}" for name, value in self.facts)
        return f"{self.target}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Capabilities:
    timing: bool
    sme2: bool
    reason: str = ""
    """Why not, where one of them is False."""
    sme1: bool = False
    """Whether it has SME and no SME2, so that ``on`` is SME1."""

    @property
    def switches(self) -> bool:
        """Whether there is something to switch on and off."""
        return self.sme2 or self.sme1


@dataclass(frozen=True)
class FarmDevice:
    """A phone that a lab has handed out."""

    serial: str
    """As ``adb devices`` lists it, or ``HOST:PORT``."""
    adb_server: str
    """``HOST:PORT`` of the adb server that has it."""
    name: str
    """Of its place."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The profiling events of an ETDump as columns: row i of every array is the same event.

    Rows stand in file order. The runtime writes an event when it ends, so an event stands before
    the one that encloses it. Times are nanoseconds of the runtime's clock, so only differences
    mean anything; ``end - start`` is the duration and never negative. XNNPACK's events are in the
    same unit, with starts that add up durations of whole microseconds: they may reach past the
    end of the DELEGATE_CALL they belong to, so ask ``parent`` and not the times.
    """

    names: tuple[str, ...]
    """The distinct names; ``names[name[i]]`` is row i's."""
    name: NDArray[np.int32]
    """A delegated event goes by its delegate's identifier, as in ExecuTorch's Inspector."""
    block: NDArray[np.int32]
    """Index of the RunData the event stands in."""
    run: NDArray[np.int32]
    """Index of the inference (a block that holds a Method::execute); -1 for load and init."""
    start: NDArray[np.uint64]
    end: NDArray[np.uint64]
    instruction: NDArray[np.int32]
    """Which instruction of the chain; tells one operator's events from another's."""
    chain: NDArray[np.int32]
    """-1 for the events of the method as a whole, whose instruction means nothing."""
    delegate_id: NDArray[np.int32]
    """The delegate's integer identifier, -1 where it has none."""
    delegate_name: NDArray[np.int32]
    """Index into ``names`` of the delegate's string identifier, -1 where it has none."""
    depth: NDArray[np.int32]
    """How many events of the same block enclose this one (0: outermost)."""
    parent: NDArray[np.int64]
    """Row of the innermost enclosing event, -1 for an outermost one. See ``nesting``."""
    block_names: tuple[str, ...]
    """Per block: ``Default`` for load and init, ``Execute`` for an inference."""
    runs: int
    """How many inferences there are."""


class Frame(NamedTuple):
    """A line of a source file, and the function that it is in."""

    file: str
    line: int
    function: str

    @property
    def installed(self) -> bool:
        """Whether it is of a package, and not of the user's own code."""
        parts = self.file.replace("\\", "/").split("/")
        return not {"site-packages", "dist-packages"}.isdisjoint(parts)


@dataclass(frozen=True)
class Origin:
    """Where an operator of a program was written in the model."""

    written: str
    """The operator as the model has it, before anything was decomposed: ``aten.silu``."""
    module: str = ""
    """The path of the module, ``features.0.2``; empty for the model itself."""
    module_type: str = ""
    """The module's class, without its package: ``SiLU``."""
    file: str = ""
    line: int = 0
    code: str = ""
    """The line itself."""
    constant: bool = False
    """Whether no input of the model goes into it: the result is always the same."""
    near: bool = False
    """Whether only an operator beside it is known to be there."""
    way: tuple[Frame, ...] = ()
    """The user's own lines that lead to it, the innermost last; not those of installed packages."""


@dataclass(frozen=True)
class ChangedLines:
    """What differs in a source file from its state when the baseline was accepted."""

    file: Path
    edits: tuple[tuple[range, range], ...]
    """The old lines and the new; one of both may be empty."""

    def holds(self, file: str, line: int, *, old: bool = False) -> bool:
        """Whether a line of a file is among them; of an old one, two parts of its path are kept."""
        there = Path(file)
        same = self.file.parts[-2:] == there.parts[-2:] if old else self.file == there.resolve()
        return same and any(line in (edit[0] if old else edit[1]) for edit in self.edits)


@dataclass(frozen=True)
class Attribution:
    """What a call of the program came from: ATen operators and modules, by instruction."""

    aten: Mapping[int, tuple[str, ...]]
    modules: Mapping[int, tuple[str, ...]]
    origins: Mapping[int, Origin] = field(default_factory=dict)
    """Of calls that run one operator; a delegate call runs many."""
    nodes: Mapping[int, tuple[tuple[str, Origin], ...]] = field(default_factory=dict)
    """What each call was made from, by name, in the order of the graph."""


Shape = tuple[int, ...]


@dataclass(frozen=True)
class OperatorShapes:
    """The tensors of one operator, as its program has them."""

    operation: str
    """What the program calls it: ``convolution``, ``linear``, ``aten::bmm.out``."""
    inputs: tuple[Shape, ...]
    """Weights are the last of them. XNNPACK's images have their channels last."""
    output: Shape

    def __str__(self) -> str:
        inputs = " by ".join(map(shape_text, self.inputs))
        return f"{inputs} to {shape_text(self.output)}"


def shape_text(shape: Shape) -> str:
    """``1x56x56x16``."""
    return "x".join(map(str, shape)) or "scalar"


@dataclass(frozen=True)
class MethodShapes:
    """The matrix operators of each call of one method of a program."""

    name: str
    calls: Mapping[int, tuple[OperatorShapes, ...]]
    """By instruction: those of a delegate call, in its order, or the one of a kernel call."""


@dataclass(frozen=True)
class MethodOutline:
    """What one method of a program takes and gives, and what it needs to run."""

    name: str
    inputs: tuple[TensorSpec | None, ...]
    """None for what is not a tensor. Sizes that may vary are the largest ones."""
    outputs: tuple[TensorSpec | None, ...]
    backends: tuple[str, ...]
    """Of its delegates, each once: ``XnnpackBackend``."""
    instructions: int
    """How many it executes; none where it only answers with a constant."""
