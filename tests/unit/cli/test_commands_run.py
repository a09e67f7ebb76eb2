"""What ``sme2 run`` says about outputs."""

from __future__ import annotations

from pytest_sme2.cli.running import output_checks, output_lines
from pytest_sme2.results.timing import Outcome
from tests.support import Command
from tests.support.gate_examples import LIMITS, agreement, measured


def test_wrong_outputs_come_with_their_scale_and_a_verdict() -> None:
    wrong = agreement(against="reference", max_abs=3.9, max_rel=1.2, sqnr_db=-0.5, peak=3.25)
    now = measured(agreements=(wrong,))
    (line,) = output_lines(now, LIMITS)
    assert line == (
        "output 0: SME2 on against the eager model: largest error 3.9 (120.00% of the largest "
        "value, 3.25); signal over noise -0.5 dB, at least 35"
    )
    (check,) = output_checks(now, LIMITS)
    assert (check.metric, check.verdict) == ("outputs against reference", Outcome.FAILED)


def test_several_thread_counts_are_refused(sme2: Command) -> None:
    told = sme2("run", "toy_cnn", "--threads", "1,2", "--device", "emulated", code=2).err
    assert "compare several: sme2 threads toy_cnn --threads 1,2" in told
