"""Tokens per second, where time counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_sme2.report.markdown_case import latency_lines
from pytest_sme2.report.tokens import instructions_per_token, tokens_per_second
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import read_record
from tests.support.records import toy_run


def test_tokens_per_second_are_those_of_the_median_process(tmp_path: Path) -> None:
    record = read_record(toy_run(tmp_path)[0])
    medians = {Arm.ON: (1e6, 2e6, 9e6), Arm.OFF: (4e6,)}
    timed = replace(record.measured, tokens=8, medians_ns=medians)
    assert tokens_per_second(timed) == "tokens per second: SME2 off 2,000.0, SME2 on 4,000.0"
    lines = list(latency_lines(replace(record, measured=timed)))
    assert "Tokens per second: SME2 off 2,000.0, SME2 on 4,000.0." in lines
    assert "okens" not in "\n".join(latency_lines(record))


def test_nothing_is_said_of_what_is_not_known(tmp_path: Path) -> None:
    emulated = read_record(toy_run(tmp_path, emulated=True)[0]).measured
    assert tokens_per_second(replace(emulated, tokens=8)) == ""
    assert instructions_per_token(replace(emulated, tokens=8)) == ""
    assert tokens_per_second(replace(emulated, medians_ns={Arm.ON: (1e6,)})) == ""
