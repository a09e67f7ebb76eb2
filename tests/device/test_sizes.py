"""The sizes that the emulator runs by default stand for larger ones: same operators and kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results.run import PAIR
from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from tests.device import provision

MODELS = Path(__file__).parents[2] / "models"
# Nightly: the larger sizes take minutes.
pytestmark = pytest.mark.nightly


def ran(session: Session, case: Case) -> dict[str, set[str]]:
    """The names of the operators and kernels of both arms."""
    found = {}
    for arm in PAIR:
        census = session.trace(case, arm).census
        operators = session.profile(case, arm).operators
        found[f"operators {arm}"] = {entry.operator.name for entry in operators}
        found[f"kernels {arm}"] = {kernel.name for kernel in census.kernels}
    return found


@pytest.mark.parametrize(
    ("model", "small", "large"),
    [
        ("edgetam_image_encoder", "fp32@64", "fp32@256"),
        ("edgetam_image_encoder", "fp16@64", "fp16@128"),
        ("efficient_sam", "fp32@32", "fp32@128"),
        ("efficient_sam", "int8_dynamic@32", "int8_dynamic@128"),
        ("squeeze_sam", "fp32@16", "fp32@64"),
        ("squeeze_sam", "fp16@16", "fp16@64"),
        ("llama_block_prefill", "fp32@32", "fp32@64"),
    ],
)
def test_a_small_input_runs_what_a_larger_one_runs(
    tmp_path: Path, model: str, small: str, large: str
) -> None:
    provision.runner()
    variants = tuple(parse_variant(variant) for variant in (small, large))
    session = Session(
        Settings(
            device="emulated", models=(model,), model_folders=(MODELS,), variants=variants,
            no_cost=True, out=tmp_path,
        )
    )  # fmt: skip
    try:
        of_small, of_large = session.cases()
        assert ran(session, of_small) == ran(session, of_large)
    finally:
        session.close()
