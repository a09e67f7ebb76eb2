"""What would bring more of a model onto SME2, from profiles made in code and from real dumps."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.profile.advice import advise
from pytest_sme2.results import Arm, Profile
from pytest_sme2.session.run_directory import SCHEMA, CaseRecord, write_record
from tests.support.gate_examples import emulated
from tests.support.profiles import ETDUMPS, profile_of, real

ON = "Fully Connected (NC, PF32) GEMM"
MISSED = "Fully Connected (NC, F16) GEMM"
TRANSPOSE = "Transpose (ND, X32)"


@pytest.fixture
def mixed() -> Profile:
    """Two operators stay on NEON, the cheaper kind twice; one operator splits the delegate."""
    return profile_of(
        [(ON, 100), (MISSED, 10), (MISSED, 10), (TRANSPOSE, 500), (TRANSPOSE, 100)],
        ("expand_copy.out", 70),
        ("mean.out", 900),
        [("Convolution (NHWC, F32) IGEMM", 600), (TRANSPOSE, 30), ("Add (ND)", 5)],
    )


def test_the_best_covered_variant_comes_first(mixed: Profile) -> None:
    whole = profile_of([(ON, 100)])
    advice = advise("net", {"fp16": mixed, "fp32": whole, "int8": whole}, timed=True)
    assert [entry.variant for entry in advice.variants] == ["fp32", "int8", "fp16"]
    assert [entry.variant for entry in advice.best] == ["fp32", "int8"]
    assert advice.variants[-1].coverage == 0.25


def test_a_program_without_matrix_operators_is_best_at_nothing() -> None:
    advice = advise("net", {"fp32": profile_of([("Add (ND)", 5)])}, timed=True)
    assert advice.best == ()
    assert advice.variants[0].coverage is None


def test_obstacles_stand_in_order_of_time_where_it_is_known(mixed: Profile) -> None:
    (entry,) = advise("net", {"fp16": mixed}, timed=True).variants
    assert [item.what for item in entry.missed] == ["Convolution (NHWC, F32) IGEMM", MISSED]
    assert [item.what for item in entry.portable] == [
        "mean.out",
        "expand_copy.out",
    ]
    shares = [item.share for item in entry.portable]
    assert shares == sorted(shares, key=lambda share: -(share or 0))
    assert shares[0] is not None


def test_obstacles_stand_in_order_of_counts_where_it_is_not(mixed: Profile) -> None:
    (entry,) = advise("net", {"fp16": mixed}, timed=False).variants
    assert [(item.what, item.count) for item in entry.missed] == [
        (MISSED, 2),
        ("Convolution (NHWC, F32) IGEMM", 1),
    ]
    assert {item.share for item in (*entry.missed, *entry.portable)} == {None}


def test_layout_changes_are_told_apart_by_where_they_stand(mixed: Profile) -> None:
    (entry,) = advise("net", {"fp16": mixed}, timed=False).variants
    first, second = entry.layout_changes
    assert (first.what, first.count) == ("between Fully Connected and expand_copy", 2)
    assert "at the output of a delegate call" in first.remedy
    assert (second.what, second.count) == ("between Convolution and Add", 1)
    assert "the model's own" in second.remedy


def test_real_dumps_show_that_fp16_is_covered_less() -> None:
    profiles = {name: real(f"cpp_mobile_{name}_on") for name in ("fp32", "fp16")}
    advice = advise("mobilenet_v3_small", profiles, timed=False)
    assert [entry.variant for entry in advice.best] == ["fp32"]
    fp16 = advice.variants[-1]
    assert fp16.missed
    assert fp16.depthwise is not None


def test_the_command_names_what_a_run_directory_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "net", "--run", str(tmp_path / "missing")]) == 2
    assert main(["advise", "net", "--run", str(tmp_path)]) == 2
    assert "holds no run of 'net'" in capsys.readouterr().err


def test_the_command_judges_an_earlier_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for variant in ("fp32", "fp16"):
        folder = tmp_path / variant
        folder.mkdir()
        shutil.copy(ETDUMPS / f"cpp_mobile_{variant}_on.etdump", folder / "on.etdump")
        found = replace(emulated(), model="net", variant=variant, kernels={})
        etdumps = {Arm.ON: "on.etdump"}
        write_record(folder, CaseRecord(SCHEMA, f"net-{variant}", found, None, (), etdumps))

    assert main(["advise", "net", "--run", str(tmp_path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "fp32: best SME2 coverage (100% of matrix operators)" in told
    assert "what an operator costs in time is not known" in told
    assert "% of the time" not in told

    assert main(["advise", "net", "--run", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["timed"] is False
    assert [entry["variant"] for entry in document["variants"]] == ["fp32", "fp16"]
