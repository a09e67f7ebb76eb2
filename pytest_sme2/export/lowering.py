"""The part of an export that needs torch; it runs in the child process that server.py starts.

Whatever is printed there goes to the log. The parent gets JSON lines.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_sme2.errors import ExportError, MissingExtraError, ModelError, Sme2Error
from pytest_sme2.export.explain import (
    Reporter,
    explain,
    keep_helper_frames,
    own_line,
    shorten,
    target_name,
)
from pytest_sme2.export.imports import (
    Reads,
    import_or_name_extra,
    import_tools,
    import_torchvision,
    misses_operators,
    packages_of,
)
from pytest_sme2.export.quicker import lower_quicker
from pytest_sme2.export.registry import Model, ModelEntry, missing_extra
from pytest_sme2.export.sequences import (
    Generation,
    answer_of,
    describe_generation,
    last_step,
    method_of_prompt,
    read_generation,
    tensor_spec,
    token_count,
    write_generation,
    write_tensors,
)
from pytest_sme2.export.store import artifact_stem
from pytest_sme2.export.variant import Variant
from pytest_sme2.export.weights import FILE_NAME as UPSTREAM_FILE
from pytest_sme2.export.weights import (
    lifeless,
    select_state,
    settle_batch_norms,
    upstream_of,
)
from pytest_sme2.results.run import FORWARD
from pytest_sme2.system.files import structured
from pytest_sme2.system.processes import adopt_orphans, end_descendants

# Weights per scale in int4, as in most published 4-bit models for XNNPACK.
INT4_GROUP = 32
# These change the captured graph; int4 changes the model before.
IN_THE_GRAPH = ("int8", "int8_dynamic", "int4_channel")


def quantize(
    program: Any,
    precision: str,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    torch: Any,
    shapes: Any = None,
) -> Any:
    """int8: all operators with an int8 kernel in XNNPACK. The others: only linear layers.

    ``shapes`` are those that a program takes besides the arguments', if it takes several.
    """
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        get_symmetric_quantization_config,
    )

    quantizer = _quantizer()
    if precision == "int8":
        quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
    else:
        linear = torch.ops.aten.linear.default
        if precision == "int4_channel" and all(
            node.target != linear for node in program.graph.nodes
        ):
            raise ExportError(
                "The model has no linear layer, so int4_channel would be fp32. Choose another "
                "variant."
            )
        bits = {"weight_qmin": -8, "weight_qmax": 7} if precision == "int4_channel" else {}
        quantizer.set_operator_type(
            linear, get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True, **bits)
        )
    return quantize_with(quantizer, program, arguments, keywords, torch, shapes)


def partitioners(precision: str) -> list[Any]:
    """What chooses the operators for XNNPACK. In bf16 it has linear layers alone: asked for more,
    ExecuTorch delegates convolutions as well, and XNNPACK refuses the program as it is loaded.
    """
    from executorch.backends.xnnpack.partition.config import gemm_configs
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    if precision != "bf16":
        return [XnnpackPartitioner()]
    layers = [gemm_configs.LinearConfig, gemm_configs.AddmmConfig, gemm_configs.MMConfig]
    return [XnnpackPartitioner(configs=layers, enable_bf16=True), XnnpackPartitioner()]


@contextlib.contextmanager
def quantized_first() -> Iterator[None]:
    """Where parts for XNNPACK would wait for each other: what is quantized as it runs comes first,
    as in ExecuTorch's recipe for language models. The program is not decomposed again for that.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
        XnnpackDynamicallyQuantizedPartitioner,
    )
    from executorch.exir import EdgeProgramManager

    delegate = EdgeProgramManager.to_backend

    def in_turn(self: Any, partitioner: Any) -> Any:
        try:
            return delegate(self, partitioner)
        except AssertionError as error:
            if "dependency cycles" not in str(error):
                raise
        first = delegate(self, XnnpackDynamicallyQuantizedPartitioner())
        return delegate(first, partitioner)

    EdgeProgramManager.to_backend = in_turn
    try:
        yield
    finally:
        EdgeProgramManager.to_backend = delegate


def quantize_with(
    quantizer: Any,
    program: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    torch: Any,
    shapes: Any = None,
) -> Any:
    """The program as this quantizer makes it, calibrated on the example inputs."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    # The guards of a program that takes several shapes do not survive being rewritten.
    guards = {} if shapes is None else {"check_guards": False}
    prepared = prepare_pt2e(program.module(**guards), quantizer)
    with torch.no_grad():
        prepared(*arguments, **keywords)
    converted = convert_pt2e(prepared)
    if shapes is not None:
        _ = converted.code  # quicker.py compiles it only now, and shapes belong to named inputs
    return torch.export.export(converted, arguments, keywords, dynamic_shapes=shapes)


def _quantizer() -> Any:
    """XNNPACK's quantizer, which leaves whole numbers alone."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    class Quantizer(XNNPACKQuantizer):  # type: ignore[misc]  # executorch has no types
        SUPPORTED_PATTERNS: list[Any]

        def annotate(self, model: Any) -> Any:
            """Without the patterns of batch norms where none is left: they are captured anew for
            each program, which takes nearly half of a small export.
            """
            if not any("batch_norm" in str(node.target) for node in model.graph.nodes):
                self.SUPPORTED_PATTERNS = [
                    pattern for pattern in self.SUPPORTED_PATTERNS if "_bn" not in pattern.name
                ]
            return super().annotate(model)

        def transform_for_annotation(self, model: Any) -> Any:
            """XNNPACK's own turns the 0 of ``arange + 0`` into a float, and so the indices of every
            Hugging Face decoder.
            """
            whole = [
                (node, node.args)
                for node in model.graph.nodes
                if node.op == "call_function"
                and hasattr(node.meta.get("val"), "dtype")
                and not node.meta["val"].is_floating_point()
            ]
            model = super().transform_for_annotation(model)
            for node, arguments in whole:
                node.args = arguments
            model.graph.eliminate_dead_code()
            model.recompile()
            return model

    return Quantizer()


def quantize_weights(network: Any, name: str, torch: Any) -> None:
    """int4: linear layers with symmetric weights in groups and dynamically quantized inputs.

    This is ExecuTorch's 8da4w. Layers whose inputs do not fill whole groups stay unchanged.
    torchao's ``PerAxis(0)`` ends up in groups too: one scale per channel is ``int4_channel``.
    """
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    def fits(module: Any, _name: str) -> bool:
        return isinstance(module, torch.nn.Linear) and module.in_features % INT4_GROUP == 0

    if not any(fits(module, "") for module in network.modules()):
        raise ExportError(
            f"Model {name!r} has no linear layer with a multiple of {INT4_GROUP} inputs, so int4 "
            "would be fp32. Choose another variant."
        )
    configuration = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(INT4_GROUP)
    )
    quantize_(network, configuration, filter_fn=fits)


_Inputs = tuple[tuple[Any, ...], dict[str, Any], Generation | None]
"""Of the measured inference, by place and by keyword, of those before it, and of a generation."""


@dataclass(frozen=True)
class LoweringRequest:
    """The request of the parent, sent as JSON."""

    entry: ModelEntry
    variant: Variant
    seed: int
    weights: Path | None
    folder: Path

    @classmethod
    def read(cls, file: Path) -> LoweringRequest:
        request: LoweringRequest = structured(json.loads(file.read_text("utf-8")), cls)
        return request


def main(request_file: str) -> None:
    """Serve one request; the exit code is 0 if the parent got an answer."""
    channel = _take_over_standard_output()
    _exit_with_parent()

    def send(**message: Any) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    request = LoweringRequest.read(Path(request_file))
    progress = Reporter(lambda line: send(progress=line), "importing torch")
    adopt_orphans()
    answer: dict[str, Any]
    try:
        answer = {"done": lower(request, progress)}
    except MissingExtraError as error:
        answer = {"error": "MissingExtraError", "package": error.package, "extra": error.extra}
    except Sme2Error as error:
        _log_traceback()
        answer = {"error": type(error).__name__, "message": str(error)}
    except (Exception, SystemExit) as error:
        _log_traceback()
        answer = {"error": "ExportError", "message": explain(error, progress)}
    # Whoever gets the answer ends this process at once.
    end_descendants(os.getpid())
    send(**answer)


def _log_traceback() -> None:
    # On a full disk the log takes no more, and the answer must reach the parent all the same.
    with contextlib.suppress(OSError):
        traceback.print_exc()


def lower(request: LoweringRequest, progress: Reporter) -> dict[str, Any]:
    """Write the program and its files; the answer describes them."""
    tools = import_tools()
    lower_quicker()
    keep_helper_frames()
    torch = sys.modules["torch"]
    before = set(sys.modules) - tools

    progress.enter("loading the model")
    progress.own_files = request.entry.source_files()
    name = request.entry.name
    reads = Reads([request.folder])
    model, network, (arguments, keywords, said), bfloat16, weights = _load(request, torch, reads)
    inputs = _leaves((arguments, keywords), torch, "input", name)
    loaded = [sys.modules[name] for name in sorted(set(sys.modules) - before)]

    shapes, prefill = method_of_prompt(model, said, arguments)
    progress.enter("running the eager model")
    with torch.no_grad(), _blame_model(request.entry):
        answer = answer_of(network, arguments, keywords)
        last = None if said is None else last_step(network, said, name, arguments, prefill)
    outputs = _leaves(answer, torch, "output", name)
    files = reads.found()

    if request.variant.precision == "int4":
        progress.enter("quantizing the linear layers' weights to 4 bits")
        quantize_weights(network, name, torch)

    # One method for both is captured with the prompt: torch takes a size of 1 for fixed.
    examples = {FORWARD: arguments, prefill: tuple(said.prompt) if said else arguments}
    programs, variant = {}, request.variant
    for method, example in examples.items():
        progress.enter("capturing the graph")
        program, found = _capture(network, example, keywords, variant.rewrites, torch, shapes)
        progress.captured = program
        if variant.precision in IN_THE_GRAPH:
            progress.enter("quantizing, calibrated on the example inputs")
            program = quantize(program, variant.precision, example, keywords, torch, shapes)
        programs[method] = program

    progress.enter("lowering to XNNPACK")
    from executorch.backends.xnnpack.utils.configs import get_transform_passes
    from executorch.exir import to_edge_transform_and_lower

    passes = get_transform_passes() if request.variant.passes else []
    with quantized_first():
        edge = to_edge_transform_and_lower(
            programs if len(programs) > 1 else programs[FORWARD],
            transform_passes=passes or None,
            partitioner=partitioners(request.variant.precision),
            generate_etrecord=True,
        )
    # Before memory planning rewrites the graph.
    progress.lowered = edge.exported_program()
    operators = _operators(edge.exported_program())
    if variant.precision == "bf16" and not operators["delegate_calls"]:
        raise ExportError(
            f"Model {name!r} has no linear layer, so all of it would run outside of XNNPACK in "
            "bf16. Choose another variant."
        )
    executable = edge.to_executorch()

    progress.enter("writing the artifact")
    pte = request.folder / f"{artifact_stem(name, request.variant)}.pte"
    with pte.open("wb") as file:
        executable.write_to_file(file)
    executable.get_etrecord().save(str(pte.with_name(f"{pte.name}.etrecord")))
    write_tensors(request.folder, "input", [inputs], torch)
    write_tensors(request.folder, "reference", [outputs], torch)
    if said is not None:
        write_generation(request.folder, said, _leaves(last, torch, "output", name), torch)
    described = {
        "inputs": [tensor_spec(tensor) for tensor in inputs],
        "outputs": [tensor_spec(tensor) for tensor in outputs],
        "tokens": token_count(model, name),
        "generation": None if said is None else describe_generation(said, prefill, inputs),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "operators": operators,
        "passes": [type(one).__name__ for one in passes],
        **found,
    }
    return {
        "described": described,
        "bfloat16": bfloat16,
        "files": files,
        "weights": weights,
        "packages": packages_of(loaded),
    }


def _capture(
    network: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    rewrites: tuple[str, ...],
    torch: Any,
    shapes: Any,
) -> tuple[Any, dict[str, list[str]]]:
    """The model's graph, with rewrites applied where the variant names some; what other forms were
    found, and what is computed in vain.
    """
    if not rewrites:
        return torch.export.export(network, arguments, keywords, dynamic_shapes=shapes), {}
    from pytest_sme2.export.forms import with_forms
    from pytest_sme2.export.rewriting import Narrow, unused

    with Narrow() if "conversion" in rewrites else contextlib.nullcontext():
        program = torch.export.export(network, arguments, keywords, dynamic_shapes=shapes)
    found: dict[str, list[str]] = {}
    if shapes is None:
        found["unused"] = unused(program, arguments, keywords)
    program, found["forms"] = with_forms(program, arguments, keywords, rewrites, shapes)
    return program, found


def _load(
    request: LoweringRequest, torch: Any, reads: Reads
) -> tuple[Model, Any, _Inputs, bool, list[str]]:
    """The model, its network in the variant's dtype, its inputs, whether weights were bf16, and
    the files that they may be from.
    """
    entry = request.entry
    if entry.folder is not None:
        sys.path.insert(0, str(entry.folder))
    with _blame_model(entry):
        model, network = _build(request, torch)
    weights = reads.data()
    if not isinstance(network, torch.nn.Module):
        raise ModelError(
            f"Model {entry.name!r}: get_eager_model() returned a {type(network).__name__}. "
            "It must return a torch.nn.Module."
        )
    network = network.eval()
    given = network.state_dict()
    if request.weights is not None:
        given = _load_weights(network, request.weights, entry, torch)
    bfloat16 = any(getattr(value, "dtype", None) is torch.bfloat16 for value in given.values())
    # Inputs do not depend on how many random numbers the weights used.
    _seed(request.seed, torch)
    with _blame_model(entry):
        given = model.get_example_inputs()
        # A tensor alone is one input. As a tuple it would be its rows.
        arguments = (given,) if isinstance(given, torch.Tensor) else tuple(given)
        keyword_inputs = getattr(model, "get_example_kwarg_inputs", None)
        keywords = dict((keyword_inputs() if keyword_inputs else None) or {})
        said = read_generation(model, entry.name, arguments, keywords)
        inputs = (arguments, keywords, said)
        network, inputs = _in(torch.float32, network, inputs, torch)
        arguments, keywords, _ = inputs
        # All variants get the same weights, so fp32 decides for all. What a model's own code has
        # set to zero stays: it may be what is wrong with it.
        if request.weights is None and _is_dead(network, inputs, torch):
            settle_batch_norms(network, *arguments, **keywords)
    if request.variant.precision in ("fp16", "bf16"):
        kind = torch.float16 if request.variant.precision == "fp16" else torch.bfloat16
        network, inputs = _in(kind, network, inputs, torch)
    return model, network, inputs, bfloat16, weights


def _in(dtype: Any, network: Any, inputs: _Inputs, torch: Any) -> tuple[Any, _Inputs]:
    """The network and its inputs with all their floats in one data type."""
    from torch.utils._pytree import tree_map

    def fit(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_floating_point():
            value = value.to(dtype)
        return value.detach().contiguous()

    *given, said = inputs
    if said is not None:
        prompt, steps = tree_map(fit, (list(said.prompt), [list(step) for step in said.steps]))
        said = replace(said, prompt=prompt, steps=steps)
    arguments, keywords = tree_map(fit, tuple(given))
    return network.to(dtype), (arguments, keywords, said)


def _is_dead(network: Any, inputs: _Inputs, torch: Any) -> bool:
    """Whether an output is zero or constant, as that of deep networks with random weights is.

    Comparing it with that of another variant would say nothing.
    """
    from torch.utils._pytree import tree_leaves

    arguments, keywords, _ = inputs
    with torch.no_grad():
        outputs = tree_leaves(answer_of(network, arguments, keywords))
    return any(
        lifeless(float(output.min()), float(output.max()), output.numel())
        for output in outputs
        if isinstance(output, torch.Tensor) and output.is_floating_point() and output.numel()
    )


def _build(request: LoweringRequest, torch: Any) -> tuple[Model, Any]:
    """The model and its network; where torchvision's compiled operators do not fit the installed
    torch, they are declared and it is built again, so that a model does not have to care.
    """

    def build() -> tuple[Model, Any]:
        _seed(request.seed, torch)
        model = request.entry.instantiate(request.variant.size)
        return model, model.get_eager_model()

    try:
        return build()
    except Exception as error:
        if not misses_operators(error):
            raise
        import_torchvision()
        return build()


def _seed(seed: int, torch: Any) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)  # at most 32 bits; artifacts.py checks this


def _load_weights(network: Any, file: Path, entry: ModelEntry, torch: Any) -> dict[str, Any]:
    """The file's weights, which are the network's from now on."""
    try:
        if file.suffix == ".safetensors":
            reader = import_or_name_extra("safetensors.torch", "Reading .safetensors weights")
            state = reader.load_file(file)
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
        if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
            state = state["state_dict"]
        state = select_state(state, upstream_of(entry))
        network.load_state_dict(state)
        return dict(state)
    except Sme2Error:
        raise
    except Exception as error:
        traceback.print_exc()
        problem = " ".join(str(error).split())
    raise ExportError(
        f"The weights {str(file)!r} do not fit model {entry.name!r}: {shorten(problem, 800)} Give "
        "a state dict saved with torch.save(network.state_dict(), FILE), or name the part of the "
        f"file in the model's {UPSTREAM_FILE}."
    )


def _leaves(tree: Any, torch: Any, what: str, name: str) -> list[Any]:
    """The tensors of a tree of inputs or outputs, in the program's order."""
    from torch.utils._pytree import tree_leaves

    leaves: list[Any] = tree_leaves(tree)
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            raise ModelError(
                f"Model {name!r}: {what} {index} is a {type(leaf).__name__}. Wrap the network so "
                f"that each {what} is a tensor."
            )
    return leaves


@contextlib.contextmanager
def _blame_model(entry: ModelEntry) -> Iterator[None]:
    """Turn an error in the model's own code into a ModelError with its place."""
    try:
        yield
    except Sme2Error:
        raise
    except (Exception, SystemExit) as error:
        place = own_line(error, entry.source_files())
        message = shorten(" ".join(str(error).split()))
        raise missing_extra(error, "") or ModelError(
            f"Model {entry.name!r} ({entry.source}) fails before any export: "
            f"{type(error).__name__}: {message}" + (f" At {place}." if place else "")
        ) from error


def _operators(program: Any) -> dict[str, Any]:
    """How many delegate calls the program makes, and which operators the runtime runs."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    found = collections.Counter(map(target_name, calls))
    delegates, _ = found.pop("executorch_call_delegate", 0), found.pop("getitem", 0)
    return {"delegate_calls": delegates, "portable": dict(sorted(found.items()))}


def _take_over_standard_output() -> Any:
    """Standard output as a private channel; everything printed later goes to the log."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def _exit_with_parent() -> None:
    """End when the parent ends: standard input is a pipe that only closes then."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
