"""Coverage against two other counts: ExecuTorch's Inspector, and what names and kernels tell.

On the emulator an operator ran on SME2 if it executed such instructions; nothing else is asked.
Inspector knows names alone. Which convolutions are depthwise is counted in the model itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variants
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results.evidence import InferenceCost
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import PAIR, Arm, Fingerprint
from pytest_sme2.session.run_directory import read_profile, read_record
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from tests.device import provision
from tests.support import recorded_runs
from tests.support.inspector import inspected

# torch and torchao warn at import about matters of their own.
pytestmark = pytest.mark.filterwarnings("ignore")

# Each data type once, the two kinds of QP8 operators among them.
CASES = (("toy_cnn", "fp32,fp16,int8,int8_dynamic,int4"), ("llama_block_prefill", "fp32@1"))
# Of the networks that were recorded: one in each block, as their configurations have it.
DEPTHWISE = {
    "convnext": 4,
    "efficientnet": 5,
    "mobilenet_v3_small": 11,
    "mobilenet_v4": 15,
    "lraspp": 15,
}
MATRIX = re.compile(
    r"(?:Convolution|Deconvolution|(?:Dynamic )?Fully Connected|Batch Matrix Multiply) \(.*"
    r"|native_call_(?:convolution|addmm|mm|bmm|linear)\..*"
)


@pytest.fixture
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    provision.emulator()
    model, variants = request.param
    made = Session(
        Settings(
            device="emulated",
            model_folders=(provision.MODELS,),
            models=(model,),
            variants=parse_variants(variants),
            out=tmp_path,
        ),
        print,
    )
    yield made
    made.close()


def depthwise(model: str) -> int:
    """How many depthwise convolutions the network has."""
    import torch

    entry = discover([provision.MODELS]).get(model)
    network = entry.instantiate(None).get_eager_model()
    return sum(
        isinstance(layer, torch.nn.Conv2d) and layer.groups == layer.in_channels > 1
        for layer in network.modules()
    )


def assert_counted_by_others(
    profile: Profile, cost: InferenceCost, etdump: Path, without: int
) -> None:
    """Coverage against Inspector, the model's depthwise convolutions and the instructions."""
    (events,) = (series for name, series in inspected(etdump.read_bytes()) if name == "Execute")
    names = Counter(re.sub(r" #\d+\Z", "", name) for name, _, _ in events)
    by_inspector = sum(number for name, number in names.items() if MATRIX.fullmatch(name))
    coverage, structure = profile.coverage, structure_of(profile)
    assert coverage.matrix_operators + coverage.depthwise_operators == by_inspector
    # A batch norm that stands alone runs as one as well.
    assert coverage.depthwise_operators >= without
    # One truth: what is counted, what is stored, what each operator says.
    executed = sum(entry.sme2 for entry in cost.operators if entry.matrix)
    assert coverage.sme2_operators == structure.sme2 == executed
    assert coverage.matrix_operators == structure.matrix
    assert not coverage.unproven
    assert coverage.source == "executed instructions"


def assert_told_by_names(profile: Profile, by_names: Profile) -> None:
    """What a device shows, where no instruction is seen, is what was executed."""
    told = [entry.operator.proof for entry in by_names.operators]
    assert told == [entry.operator.proof for entry in profile.operators]
    assert by_names.coverage.source != profile.coverage.source


@pytest.mark.parametrize("session", CASES, ids=[model for model, _ in CASES], indirect=True)
def test_coverage_is_what_others_count(session: Session) -> None:
    cases = session.cases()
    assert cases
    without = depthwise(cases[0].model)
    for case in cases:
        profile, cost = session.profile(case, Arm.ON), session.cost(case, Arm.ON)
        etdump = session.traced(case, Arm.ON).etdump
        assert isinstance(cost, InferenceCost), cost
        assert_counted_by_others(profile, cost, etdump, without)
        for arm in PAIR:
            traced = session.trace(case, arm)
            named = read_profile(traced.run.etdump, traced.census, Fingerprint("emulated", ()))
            assert_told_by_names(session.profile(case, arm), named)


@pytest.mark.parametrize("name", recorded_runs.recorded())
def test_coverage_of_recorded_runs_is_what_others_count(name: str, tmp_path: Path) -> None:
    folder = recorded_runs.unpack(name, tmp_path)
    record = read_record(folder)
    measured, etdump = record.measured, folder / record.etdumps[Arm.ON]
    without = DEPTHWISE.get(measured.model, 0)
    profile = measured.profiles[Arm.ON]
    assert_counted_by_others(profile, measured.costs[Arm.ON], etdump, without)
    named = read_profile(etdump, measured.kernels[Arm.ON], measured.fingerprint)
    assert_told_by_names(profile, named)
