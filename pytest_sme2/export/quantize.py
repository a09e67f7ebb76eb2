"""Quantizes a model before it is lowered."""

from __future__ import annotations

from typing import Any

from pytest_sme2.errors import ExportError

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
