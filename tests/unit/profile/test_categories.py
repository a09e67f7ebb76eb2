from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.profile.categories import (
    PORTABLE_NAMES,
    XNNPACK_ALGORITHMS,
    XNNPACK_NAMES,
    canonical_name,
    classify,
)
from pytest_sme2.results.profile import Category, Executor

XNNPACK_NAME = re.compile(
    rb"(?<=\0)[A-Z][A-Za-z0-9 ]* \((?:N[A-Z0-9]*|X[0-9]+)(?:, [^()]*)?\)(?=\0)"
)
NATIVE_NAME = re.compile(rb"native_call_[A-Za-z0-9_:.]+(?=\0)")
CUSTOM_NAME = re.compile(rb"(?<=\0)(?:llama|quantized_decomposed)::[a-z0-9_]+\.[A-Za-z_]+(?=\0)")


def package() -> Path:
    spec = importlib.util.find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("executorch is not installed: there is no list of names to hold the tables to")
    return Path(next(iter(spec.submodule_search_locations)))


def strings(pattern: re.Pattern[bytes], *libraries: Path) -> set[str]:
    found = set()
    for library in libraries:
        found |= {name.decode() for name in pattern.findall(library.read_bytes())}
    return found


def libraries(*globs: str) -> list[Path]:
    root = package()
    found = [path for glob in globs for path in sorted(root.glob(glob))]
    assert len(found) >= len(globs), f"{globs} match only {found} in {root}"
    return found


def installed_xnnpack_names() -> set[str]:
    return strings(XNNPACK_NAME, *libraries("lib/libexecutorch_backend_xnnpack.*"))


def installed_kernel_names() -> set[str]:
    native = strings(
        NATIVE_NAME,
        *libraries(
            "lib/libexecutorch_kernels_optimized.*", "lib/libexecutorch_kernels_quantized.*"
        ),
        *libraries("extension/llm/custom_ops/libcustom_ops_aot_lib.*"),
    )
    custom = strings(
        CUSTOM_NAME,
        *libraries("extension/llm/custom_ops/libcustom_ops_aot_lib.*"),
        *libraries("kernels/quantized/libquantized_ops_aot_lib.*"),
    )
    yaml = (package() / "kernels/portable/functions.yaml").read_text()
    portable = re.findall(r"^- (?:op|func): (?:\w+::)?([\w.]+)", yaml, re.MULTILINE)
    return native | {f"native_call_{name}" for name in (*custom, *portable)}


@pytest.mark.parametrize(
    ("installed", "fewest", "executor"),
    [
        (installed_xnnpack_names, 150, Executor.DELEGATED),
        (installed_kernel_names, 230, Executor.PORTABLE),
    ],
)
def test_every_operator_of_the_installed_package_has_a_place(
    installed: Callable[[], set[str]], fewest: int, executor: Executor
) -> None:
    names = installed()
    assert len(names) > fewest
    for name in sorted(names):
        operator = classify(name)
        assert operator.known, name
        assert operator.executor is executor


def test_the_tables_hold_no_name_that_does_not_exist() -> None:
    # Linkers merge a string into the tail of a longer one, so a suffix counts as found.
    tails = b"\0".join(
        path.read_bytes() for path in libraries("lib/libexecutorch_backend_xnnpack.*")
    )
    for operation in XNNPACK_NAMES:
        assert f"{operation} (".encode() in tails, operation
    for algorithm in XNNPACK_ALGORITHMS:
        assert f"{algorithm}\0".encode() in tails, algorithm
    assert {classify(name).operation for name in installed_kernel_names()} == set(PORTABLE_NAMES)


@pytest.mark.parametrize(
    ("name", "category", "kind", "matrix"),
    [
        ("Convolution (NHWC, F16) IGEMM", "CONV", "convolution", True),
        ("Convolution (NHWC, PF16) IGEMM #12", "CONV", "convolution", True),
        ("Convolution (NHWC, QC8) GEMM", "CONV", "pointwise", True),
        ("Convolution (NHWC, F32) DWConv #1", "CONV", "depthwise", False),
        ("Convolution (NHWC, F32) VMulCAddC", "CONV", "depthwise", False),
        ("Convolution (NHWC, PQS8, QS8, QC8W) IGEMM", "CONV", "convolution", True),
        ("Convolution (NCHW, F32) Conv2D HWC2CHW", "CONV", "convolution", True),
        ("Deconvolution (NHWC, F32) Subconv2D", "CONV", "transposed", True),
        ("Fully Connected (NC, PF32) GEMM #1", "GEMM", "linear", True),
        ("Fully Connected (NC, QS8, QC8W) GEMM", "GEMM", "linear", True),
        ("Fully Connected (NC, PQS8, QC8W) GEMM", "GEMM", "linear", True),
        ("Batch Matrix Multiply (NC, BF16_F32)", "GEMM", "batched matmul", True),
        ("Transpose (ND, X16) #2", "DATA_MOVEMENT", "transpose", False),
        ("Transpose (ND, X16) Transpose #2", "DATA_MOVEMENT", "transpose", False),
        ("Pack LH (X32)", "DATA_MOVEMENT", "pack", False),
        ("Convert (NC, F32, QP8)", "DATA_MOVEMENT", "convert", False),
        ("Clamp (NC)", "ELEMENTWISE", "activation", False),
        ("Softmax (NC, F32)", "OTHER", "softmax", False),
        ("native_call_convolution.out", "CONV", "convolution", True),
        ("native_call_add.Scalar_out", "ELEMENTWISE", "arithmetic", False),
        # Hugging Face's decoders have these in int8.
        ("Invalid Unary Op", "ELEMENTWISE", "arithmetic", False),
        ("Invalid Binary Op", "ELEMENTWISE", "arithmetic", False),
        ("native_call_copy_", "DATA_MOVEMENT", "copy", False),
        ("native_call_llama::gated_delta_rule.out", "GEMM", "attention", True),
        ("OPERATOR_CALL", "OTHER", "unnamed call", False),
        ("DELEGATE_CALL", "OTHER", "opaque delegate", False),
    ],
)
def test_names_are_read_by_their_structure(
    name: str, category: str, kind: str, matrix: bool
) -> None:
    operator = classify(name)
    assert (operator.category, operator.kind) == (Category(category), kind)
    # Whether it ran on SME2, no name says.
    assert (operator.matrix, operator.sme2, operator.unproven) == (matrix, False, False)
    assert operator.known
    assert "#" not in operator.name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ThisIsNew (NHWC, F32)",
        "Convolution (NHWC, F32) NewAlgorithm",
        "native_call_brand_new.out",
        "native_call_",
        "native_call_<script>\n",
        "../../Convolution; rm -rf '(NC)'",
        "CoreML:predict",
    ],
)
def test_an_unknown_name_is_reported_and_not_guessed(name: str) -> None:
    operator = classify(name)
    assert not operator.known
    assert operator.name == name
    assert not operator.sme2
    portable = name.startswith("native_call_")
    assert operator.executor is (Executor.PORTABLE if portable else Executor.DELEGATED)
    if not name.startswith("Convolution"):
        assert (operator.category, operator.kind) == (Category.OTHER, "unknown")


@pytest.mark.parametrize(
    ("canonical", "off", "on"),
    [
        ("Convolution (F16)", "(NHWC, F16) IGEMM", "(NHWC, PF16) IGEMM"),
        ("Convolution (F32)", "(NHWC, F32) IGEMM", "(NHWC, PF32) IGEMM"),
        ("Convolution (QS8)", "(NHWC, QC8) GEMM", "(NHWC, PQS8, QS8, QC8W) IGEMM"),
        ("Convolution (QS8)", "(NHWC, QS8) IGEMM", "(NHWC, PQS8, QS8, QC8W) IGEMM"),
        ("Deconvolution (QS8, QC8W)", "(NC, QS8, QC8W) IGEMM", "(NHWC, PQS8, QS8, QC8W) IGEMM"),
        ("Fully Connected (F32)", "(NC, F32) GEMM", "(NC, PF32) GEMM"),
        ("Fully Connected (QS8, QC8W)", "(NC, QS8, QC8W) GEMM", "(NC, PQS8, QC8W) GEMM"),
        ("Fully Connected (QC8)", "(NC, QC8) GEMM", "(NC, QC8) GEMM"),
        ("Transpose (X16)", "(ND, X16)", "(ND, X16)"),
        ("Add (ND)", "(ND)", "(ND)"),
    ],
)
def test_on_and_off_names_meet_in_one(canonical: str, off: str, on: str) -> None:
    operation = canonical.partition(" (")[0]
    for types in (off, on):
        assert canonical_name(classify(f"{operation} {types}")) == canonical
