from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.report.case_summary import Noise, noise_of, overall
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import CaseRecord, read_record
from tests.support.gate_examples import medians
from tests.support.records import stored_dumps, toy_run, write_case


@pytest.fixture
def record(tmp_path: Path) -> CaseRecord:
    return read_record(toy_run(tmp_path)[0])


def test_a_pair_was_measured_to_what_its_measurement_says(record: CaseRecord) -> None:
    found = noise_of(record)
    assert found == Noise(0.0021, 0.0114)
    assert str(found) == "noise floor 0.2 %, smallest detectable difference 1.1 %"


def test_too_few_pairs_tell_nothing(record: CaseRecord) -> None:
    assert record.measurement is not None
    few = replace(record.measurement, noise_floor=None, detectable=None)
    assert noise_of(replace(record, measurement=few)) is None


def test_one_arm_alone_still_shows_its_noise(tmp_path: Path) -> None:
    dumps = {Arm.OFF: stored_dumps("toy_fp32")[Arm.OFF]}
    alone = {"medians_ns": {Arm.OFF: medians(20, spread=0.05)}, "speedup": None}
    found = noise_of(read_record(write_case(tmp_path, "toy", "fp32", dumps, **alone)))
    assert found is not None
    assert found.noise_floor == pytest.approx(0.04, rel=0.5)
    assert found.detectable is None
    assert str(found).startswith("noise floor ")
    assert "detectable" not in str(found)


def test_one_process_shows_no_noise(tmp_path: Path) -> None:
    dumps = {Arm.OFF: stored_dumps("toy_fp32")[Arm.OFF]}
    alone = {"medians_ns": {Arm.OFF: (2e7,)}, "speedup": None}
    assert noise_of(read_record(write_case(tmp_path, "toy", "fp32", dumps, **alone))) is None


def test_nothing_is_said_of_emulated_time(tmp_path: Path) -> None:
    assert noise_of(read_record(toy_run(tmp_path, emulated=True)[0])) is None


def test_several_cases_are_told_in_one_sentence() -> None:
    quiet, loud, alone = Noise(0.002, 0.011), Noise(0.031, 0.058), Noise(0.01, None)
    assert overall({"a": quiet}) == "noise floor 0.2 %, smallest detectable difference 1.1 %"
    assert overall({"a": quiet, "b": loud, "c": alone}) == (
        "noise floor 0.2 % to 3.1 %, smallest detectable difference 1.1 % to 5.8 %; "
        "the noisiest is b"
    )
    assert overall({"c": alone}) == "noise floor 1.0 %"
