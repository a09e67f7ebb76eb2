"""Every rewrite, exported before and after."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import NAMES, REWRITES, Variant, parse_variant, rewrite_for
from pytest_sme2.results.run import Artifact
from pytest_sme2.trace.etrecord import read_attribution
from pytest_sme2.trace.program import read_program
from tests.support.needs import needs_export

pytestmark = needs_export

FOLDER = Path(__file__).parents[2] / "support" / "splitting"


@functools.cache
def exported(variant: str) -> Artifact:
    entry = discover([FOLDER]).get("splitting")
    return export_model(entry, parse_variant(variant))


def outside(artifact: Artifact) -> list[str]:
    """For each operator outside of the delegate the rewrite that removes it, or its own name."""
    assert artifact.etrecord is not None
    origins = read_attribution(artifact.etrecord).origins
    (method,) = read_program(artifact.pte)
    found = []
    for instruction, operators in method.calls.items():
        # Scalars are converted to the data type of the model, which costs nothing.
        if len(operators) == 1 and "::" in operators[0].operation and operators[0].output:
            origin = origins[instruction]
            rewrite = rewrite_for(origin.written, constant=origin.constant)
            found.append(rewrite.name if rewrite else operators[0].operation)
    return found


def test_each_rewrite_removes_what_it_is_known_for() -> None:
    before = outside(exported("fp16"))
    # Of these the delegate takes what is meant, and something is lost.
    inside = {"transposed", "conv1d", "depthwise", "channel", "form", "sigmoid"}
    assert set(NAMES) - inside <= set(before), "the model holds each of them"
    after = outside(exported("+".join(("fp16", *NAMES))))
    assert set(after) == {"aten::embedding.out"}, "which is a look-up, and cheap"


def test_the_recommended_passes_remove_copies_that_expand_nothing() -> None:
    found = []
    for variant in ("fp16", "fp16+no_passes"):
        meta = json.loads((exported(variant).folder / "export_meta.json").read_text("utf-8"))
        found.append((meta["passes"], meta["operators"]["portable"]["aten::expand_copy.default"]))
    assert found == [(["RemoveNoopExpandCopyPass"], 1), ([], 9)]


def test_a_variant_names_its_rewrites() -> None:
    variant = parse_variant("fp16+silu+sdpa@64")
    assert variant == Variant("fp16", 64, ("silu", "sdpa"))
    assert str(variant) == "fp16+silu+sdpa@64"
    assert parse_variant("fp16+no_passes") == Variant("fp16", passes=False)
    assert str(parse_variant("fp16+no_passes+silu@64")) == "fp16+silu+no_passes@64"
    for wrong in ("fp16+", "fp16+sil", "fp16+silu+silu", "+silu", "fp16+no_passes+no_passes"):
        with pytest.raises(UsageError, match="is not a variant"):
            parse_variant(wrong)


def test_no_operator_belongs_to_two_rewrites() -> None:
    written = [name for rewrite in REWRITES for name in rewrite.written]
    assert len(set(written)) == len(written)
    assert rewrite_for("aten.relu", constant=False) is None
    # Weights that are computed in `forward`: folding is tried.
    computed = rewrite_for("aten.conv2d", constant=False)
    assert computed is not None
    assert computed.name == "constant"
