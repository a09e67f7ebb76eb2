"""What an operator's name says: category, kind, and who ran it. Pure.

One taxonomy for everything. XNNPACK's names are parsed by structure, ``Operation (layout, data
types) Algorithm``, so the table holds operations and not their hundreds of combinations; kernels
of ExecuTorch itself (``native_call_add.out``) are known by their name without the overload.
No times live here and no events: see ``operators.py`` and ``build.py``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pytest_sme2.results.profile import Category, Executor, Operator

_Place = tuple[Category, str]

_CONV = Category.CONV
_GEMM = Category.GEMM
_MOVE = Category.DATA_MOVEMENT
_ELEMENTWISE = Category.ELEMENTWISE
_OTHER = Category.OTHER


def _by_name(places: Mapping[_Place, Iterable[str]]) -> Mapping[str, _Place]:
    return MappingProxyType({name: place for place, names in places.items() for name in names})


XNNPACK_NAMES: Mapping[str, _Place] = _by_name(
    {
        # Which kind of convolution it is, the algorithm tells: see _CONVOLUTION_KINDS.
        (_CONV, "convolution"): ("Convolution",),
        (_CONV, "transposed"): ("Deconvolution",),
        (_GEMM, "linear"): ("Fully Connected", "Dynamic Fully Connected"),
        (_GEMM, "batched matmul"): ("Batch Matrix Multiply",),
        (_MOVE, "transpose"): ("Transpose",),
        (_MOVE, "reshape"): ("Static Reshape", "Static Expand Dims", "Fuse Dims", "Split Dims"),
        # XNNPACK concatenates and splits with Copy, one for each part.
        (_MOVE, "copy"): ("Copy",),
        (_MOVE, "slice"): ("Slice",),
        (_MOVE, "pad"): ("Constant Pad",),
        (_MOVE, "convert"): ("Convert",),
        (_MOVE, "pack"): ("Pack LH",),
        (_MOVE, "rearrange"): ("Depth To Space", "Space To Depth"),
        (_ELEMENTWISE, "activation"): (
            "ApproxGELU", "Clamp", "ELU", "GELU", "HardSwish", "LeakyReLU", "PReLU", "Sigmoid",
            "TanH",
        ),
        (_ELEMENTWISE, "arithmetic"): (
            "ATan2", "Abs", "Add", "Bankders Rounding", "Binary Elementwise", "Ceiling",
            "Copy Sign", "Cosine", "Cube Root", "Divide", "Exp", "Floor", "Log", "Maximum",
            "Minimum", "Modulus", "Multiply", "Negate", "Power", "Reciprocal Square Root", "RoPE",
            "Sign", "Sine", "Square", "Square Root", "Squared Difference", "Subtract",
            "Unary Elementwise",
        ),
        (_ELEMENTWISE, "bitwise"): (
            "Bitwise And", "Bitwise Not", "Bitwise Or", "Bitwise Xor", "Count Leading Zeros",
            "Population Count", "Shift Left", "Shift Right Arithmetic", "Shift Right Logical",
        ),
        (_OTHER, "normalization"): ("Normalize",),
        (_OTHER, "softmax"): ("Softmax",),
        (_OTHER, "pooling"): ("ArgMax Pooling", "Average Pooling", "Max Pooling", "Unpooling"),
        (_OTHER, "reduction"): ("Mean", "Mean Squared", "Reduce Max", "Reduce Min", "Sum"),
        (_OTHER, "resize"): ("Resize Bilinear",),
    }
)  # fmt: skip
"""XNNPACK's operations, as the part of the name before the parenthesis."""

XNNPACK_ALGORITHMS = (
    "Average Pooling", "Conv2D HWC2CHW", "DWConv", "GEMM", "IGEMM", "Pixelwise Average Pooling",
    "Reduce", "Reduce2", "SPMM", "Subconv2D", "Transpose", "VMulCAddC",
)  # fmt: skip
"""What may follow the parenthesis: the kind of microkernel, where an operation has several."""

# A convolution that is a plain matrix product is a pointwise one; DWConv and VMulCAddC work on
# each channel alone. Grouped convolutions run as IGEMM, and their names do not show it.
_CONVOLUTION_KINDS: Mapping[str, str] = {
    "GEMM": "pointwise",
    "SPMM": "pointwise",
    "DWConv": "depthwise",
    "VMulCAddC": "depthwise",
}

PORTABLE_NAMES: Mapping[str, _Place] = _by_name(
    {
        (_CONV, "convolution"): ("convolution", "convolution_backward"),
        (_GEMM, "linear"): ("addmm", "linear", "mixed_linear", "mixed_mm", "mm",
                            "quantized_moe_ffn"),
        (_GEMM, "batched matmul"): ("bmm",),
        (_GEMM, "attention"): (
            "channelwise_gated_delta_rule", "custom_quantized_sdpa", "custom_sdpa",
            "gated_delta_rule", "sdpa_with_kv_cache",
        ),
        (_MOVE, "transpose"): ("permute_copy", "t_copy", "transpose_copy"),
        (_MOVE, "reshape"): (
            "squeeze_copy", "unsqueeze_copy", "view_as_real_copy", "view_copy",
        ),
        (_MOVE, "copy"): (
            "_clone_dim_order", "_conj_physical", "_d2h_copy", "_h2d_copy", "alias_copy",
            "as_strided_copy", "clone", "copy", "copy_", "detach_copy", "expand_copy",
            "lift_fresh_copy", "update_cache", "update_cache_with_indices",
        ),
        (_MOVE, "concat"): ("cat", "stack"),
        (_MOVE, "slice"): (
            "diagonal_copy", "narrow_copy", "select_copy", "slice_copy", "split_copy",
            "split_with_sizes_copy", "unbind_copy", "unfold_copy",
        ),
        (_MOVE, "pad"): (
            "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
            "replication_pad1d", "replication_pad2d", "replication_pad3d",
        ),
        (_MOVE, "convert"): (
            "_to_copy", "_to_dim_order_copy", "choose_qparams",
            "choose_qparams_per_token_asymmetric", "dequantize_per_channel",
            "dequantize_per_tensor", "dequantize_per_token", "quantize_per_channel",
            "quantize_per_tensor", "quantize_per_token",
        ),
        (_MOVE, "rearrange"): (
            "flip", "pixel_shuffle", "pixel_unshuffle", "repeat", "repeat_interleave", "roll",
        ),
        (_MOVE, "index"): (
            "gather", "index", "index_put", "index_put_", "index_select", "masked_scatter",
            "masked_select", "nonzero", "scatter", "scatter_add", "select_scatter",
            "slice_scatter",
        ),
        (_MOVE, "fill"): (
            "_empty_dim_order", "arange", "empty", "fill", "full", "full_like", "ones",
            "scalar_tensor", "zeros",
        ),
        (_ELEMENTWISE, "activation"): (
            "clamp", "elu", "gelu", "glu", "hardtanh", "leaky_relu", "logit", "relu", "sigmoid",
            "tanh",
        ),
        (_ELEMENTWISE, "arithmetic"): (
            "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "ceil",
            "cos", "cosh", "div", "erf", "exp", "expm1", "floor", "floor_divide", "fmod", "log",
            "log10", "log1p", "log2", "maximum", "minimum", "mul", "neg", "pow", "reciprocal",
            "remainder", "round", "rsqrt", "rsub", "sign", "sin", "sinh", "sqrt", "sub", "tan",
            "trunc",
        ),
        (_ELEMENTWISE, "bitwise"): (
            "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
            "bitwise_right_shift", "bitwise_xor",
        ),
        (_ELEMENTWISE, "comparison"): (
            "eq", "ge", "gt", "isinf", "isnan", "le", "logical_and", "logical_not", "logical_or",
            "logical_xor", "lt", "ne",
        ),
        (_ELEMENTWISE, "selection"): ("masked_fill", "tril", "where"),
        (_OTHER, "normalization"): (
            "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
            "native_group_norm", "native_layer_norm",
        ),
        (_OTHER, "softmax"): ("_log_softmax", "_softmax"),
        (_OTHER, "pooling"): (
            "_adaptive_avg_pool2d", "avg_pool2d", "max_pool2d_with_indices",
            "max_pool2d_with_indices_backward",
        ),
        (_OTHER, "reduction"): (
            "amax", "amin", "any", "argmax", "argmin", "cumsum", "max", "mean", "min", "prod",
            "sum", "topk", "var", "var_mean",
        ),
        (_OTHER, "resize"): (
            "_upsample_bilinear2d_aa", "grid_sampler_2d", "upsample_bilinear2d",
            "upsample_nearest2d",
        ),
        (_OTHER, "embedding"): (
            "embedding", "embedding_2bit", "embedding_4bit", "embedding_byte", "embedding_xbit",
        ),
        (_OTHER, "random"): ("native_dropout", "rand", "randn"),
        (_OTHER, "distance"): ("_cdist_forward", "_pdist_forward"),
        (_OTHER, "transform"): ("_fft_c2r", "_fft_r2c", "fast_hadamard_transform"),
        # Registered by ExecuTorch's own custom operators as a placeholder that only raises.
        (_OTHER, "fallback"): ("fallback",),
    }
)  # fmt: skip
"""ExecuTorch's kernels (portable, optimized, quantized, custom), without namespace and overload."""

OPERATOR_CALL = "OPERATOR_CALL"
DELEGATE_CALL = "DELEGATE_CALL"

_UNNAMED: Mapping[str, _Place] = {
    # A call that holds no event of its own: ExecuTorch's scalar operators and hand-registered
    # kernels log no name, and neither does a delegate that was built without profiling.
    OPERATOR_CALL: (_OTHER, "unnamed call"),
    DELEGATE_CALL: (_OTHER, "opaque delegate"),
    # What XNNPACK calls an operator on one or two values that it has no name for.
    **dict.fromkeys(("Invalid Unary Op", "Invalid Binary Op"), (_ELEMENTWISE, "arithmetic")),
}

# XNNPACK's words for operands that were packed, and for the same ones where they were not.
_PACKED_TYPES: Mapping[str, str] = {"PF16": "F16", "PF32": "F32", "PQS8": "QS8"}

_XNNPACK_NAME = re.compile(
    r"(?P<operation>[^()]+?) \((?P<types>[^()]*)\)(?: (?P<algorithm>[^()#]+))?"
)
_NUMBER = re.compile(r" #\d+\Z")
_NATIVE = re.compile(r"native_call_(?:\w+::)*(?P<operation>\w+)(?:\.\w+)?")
_LAYOUT = re.compile(r"N[A-Z0-9]*")


def plain_name(name: str) -> str:
    """The name without the `` #n`` that XNNPACK's delegate appends to tell repeats apart."""
    return _NUMBER.sub("", name)


def classify(name: str) -> Operator:
    """What ``name`` says."""
    return _classify(plain_name(name))


def _is_matrix(category: Category, kind: str) -> bool:
    return category in (_CONV, _GEMM) and kind != "depthwise"


@functools.lru_cache(maxsize=4096)
def _classify(name: str) -> Operator:
    operation, algorithm, place = name, "", _UNNAMED.get(name)
    data_types: tuple[str, ...] = ()
    portable = name == OPERATOR_CALL or name.startswith("native_call_")
    if native := _NATIVE.fullmatch(name):
        operation = native["operation"]
        place = PORTABLE_NAMES.get(operation)
    elif (match := _XNNPACK_NAME.fullmatch(name)) and match["operation"] in XNNPACK_NAMES:
        operation, algorithm = match["operation"], match["algorithm"] or ""
        place = XNNPACK_NAMES[operation]
        if operation == "Convolution":
            place = (_CONV, _CONVOLUTION_KINDS.get(algorithm, place[1]))
        words = (word.strip() for word in match["types"].split(","))
        data_types = tuple(word for word in words if word and not _LAYOUT.fullmatch(word))
    category, kind = place or (_OTHER, "unknown")
    matrix = _is_matrix(category, kind)
    return Operator(
        name=name,
        category=category,
        kind=kind,
        executor=Executor.PORTABLE if portable else Executor.DELEGATED,
        matrix=matrix,
        sme2=False,
        known=place is not None and algorithm in ("", *XNNPACK_ALGORITHMS),
        operation=operation,
        data_types=data_types,
        algorithm=algorithm,
    )


def canonical_name(operator: Operator) -> str:
    """A name that is the same with SME2 on and off, for operators of two runs to be matched by.

    The packed types become the plain ones, and the algorithm is left out, since a kernel of the
    other family may need another. XNNPACK's packed int8 convolution always says that its weights
    are per channel; the plain one says ``QS8`` or ``QC8`` for them.
    """
    if not operator.data_types:
        return operator.name
    types = [_PACKED_TYPES.get(data_type, data_type) for data_type in operator.data_types]
    types = list(dict.fromkeys(types))
    if operator.operation == "Convolution" and types in (["QS8", "QC8W"], ["QC8"]):
        types = ["QS8"]
    return f"{operator.operation} ({', '.join(types)})"


def has_per_tensor_weights(operator: Operator) -> bool:
    """Whether it is an int8 operator with one scale for all of its weights."""
    return operator.data_types == ("QS8",)


_WORDS = {"F16": "fp16", "F32": "fp32", "BF16": "bf16", "QC8": "int8", "QS8": "int8",
          "QU8": "uint8", "PF16": "fp16", "PF32": "fp32", "PQS8": "int8"}  # fmt: skip
# Weights of fewer than 8 bits tell more than the inputs.
_NARROW = {"QB4W": "int4", "QC4W": "int4_channel", "QC2W": "int2_channel"}


def ran_in(operator: Operator) -> str:
    """The variant that an operator's data types belong to, as in ``int8_dynamic``."""
    types = operator.data_types
    if operator.executor is Executor.PORTABLE:
        return "portable"
    if narrow := [word for weights, word in _NARROW.items() if weights in types]:
        return narrow[0]
    if not {"QD8", "QP8"}.isdisjoint(types):
        return "int8_dynamic"
    # Of the others the input's type tells.
    return _WORDS.get("".join(types[:1]), ", ".join(types) or "unknown")
