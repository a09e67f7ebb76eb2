"""Whole checks, word for word: verdict, message, figures, unit, limit and details.

What each of the checks may come to is in test_gate.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_sme2.results import (
    Arm,
    Bounds,
    Category,
    Check,
    Fingerprint,
    Limits,
    Outcome,
    Tolerance,
)
from pytest_sme2.verdict import outputs, sizes, structure, times
from tests.support.gate_examples import (
    agreement,
    baseline,
    census,
    emulated,
    measured,
    medians,
    session,
)
from tests.unit.verdict.test_gate import LIMITS, measurement, with_limits, with_on, with_share

BOUNDED = with_limits(shares={Category.DATA_MOVEMENT: Bounds(0.2, 0.35)})
TIGHT = with_limits(on_off_tolerances={"fp16": Tolerance(max_abs=1e-9)})
ELSEWHERE = baseline(
    fingerprint=Fingerprint("linux", (("cores", "8"), ("cpu", "Cortex-X5"), ("os", "BSD")))
)

CASES: dict[str, tuple[Callable[[], Check], Check]] = {
    "outputs that agree, and the worst of them": (
        lambda: outputs.check_outputs(
            measured(
                agreements=(
                    agreement(),
                    agreement(
                        index=1, arm=Arm.OFF, identical=True, max_abs=0.0, max_rel=0.0, sqnr_db=None
                    ),
                    agreement(against="reference", max_rel=0.5),
                )
            ),
            LIMITS,
            "off",
        ),
        Check(
            "outputs against off",
            Outcome.PASS,
            "All 2 outputs within the tolerance for fp16.",
            new=0.001,
            unit="share",
            limit=0.05,
            details=(
                "output 0 (float32, on): largest error 0.0001 (0.10% of the largest "
                "value); signal over noise 60.0 dB, at least 35",
                "output 1 (float32, off): identical",
            ),
        ),
    ),
    "outputs that do not agree": (
        lambda: outputs.check_outputs(
            measured(
                agreements=(
                    agreement(),
                    agreement(index=1, max_abs=0.25, max_rel=0.5, sqnr_db=6.0),
                    agreement(index=2, max_rel=0.3, max_abs=0.1, sqnr_db=None),
                )
            ),
            LIMITS,
            "off",
        ),
        Check(
            "outputs against off",
            Outcome.REGRESSED,
            "2 of 3 outputs outside the tolerance for fp16.",
            new=0.5,
            unit="share",
            limit=0.05,
            details=(
                "output 1 (float32, on): largest error 0.25 (50.00% of the largest "
                "value); signal over noise 6.0 dB, at least 35",
                "output 2 (float32, on): largest error 0.1 (30.00% of the largest value)",
            ),
        ),
    ),
    "a tolerance without a ratio": (
        lambda: outputs.check_outputs(measured(), TIGHT, "off"),
        Check(
            "outputs against off",
            Outcome.REGRESSED,
            "1 of 1 output outside the tolerance for fp16.",
            new=0.001,
            unit="share",
            details=(
                "output 0 (float32, on): largest error 0.0001 (0.10% of the largest "
                "value); signal over noise 60.0 dB",
            ),
        ),
    ),
    "NaN in both arms": (
        lambda: outputs.check_outputs(measured(nan_arms=(Arm.ON, Arm.OFF)), LIMITS, "off"),
        Check("outputs against off", Outcome.REGRESSED, "The output holds NaN (SME2 on and off)."),
    ),
    "NaN in one output of two": (
        lambda: outputs.check_outputs(
            measured(agreements=(agreement(), agreement(index=1, has_nan=True))), LIMITS, "off"
        ),
        Check("outputs against off", Outcome.REGRESSED, "The output holds NaN."),
    ),
    "no tolerance": (
        lambda: outputs.check_outputs(measured(), Limits(), "off"),
        Check(
            "outputs against off",
            Outcome.INVALID,
            "No tolerance is known for fp16. Give one in limits.toml.",
        ),
    ),
    "no output": (
        lambda: outputs.check_outputs(measured(agreements=()), LIMITS, "off"),
        Check(
            "outputs against off",
            Outcome.INVALID,
            "No output was held against the off, so none is known.",
        ),
    ),
    "the same memory": (
        lambda: sizes.check_memory(measured(), baseline(), LIMITS),
        Check(
            "peak memory (on)",
            Outcome.PASS,
            "the same as in the baseline; 10.0% more is allowed.",
            old=50000000,
            new=50000000,
            unit="bytes",
            limit=55000000.00000001,
        ),
    ),
    "more memory": (
        lambda: sizes.check_memory(measured(peak_bytes={Arm.ON: 60_000_000}), baseline(), LIMITS),
        Check(
            "peak memory (on)",
            Outcome.REGRESSED,
            "+20.0% against the baseline; 10.0% more is allowed. If that is intended,"
            " accept it with --update-baselines.",
            old=50000000,
            new=60000000,
            unit="bytes",
            limit=55000000.00000001,
        ),
    ),
    "more memory than allowed": (
        lambda: sizes.check_memory(
            measured(), baseline(), with_limits(max_memory_bytes=49_000_000)
        ),
        Check(
            "peak memory (on)",
            Outcome.REGRESSED,
            "50.0 MB is more than the 49.0 MB allowed.",
            new=50000000,
            unit="bytes",
            limit=49000000,
        ),
    ),
    "memory within what is allowed": (
        lambda: sizes.check_memory(measured(), None, with_limits(max_memory_bytes=80_000_000)),
        Check(
            "peak memory (on)",
            Outcome.PASS,
            "50.0 MB of the 80.0 MB allowed.",
            new=50000000,
            unit="bytes",
            limit=80000000,
        ),
    ),
    "memory without baseline": (
        lambda: sizes.check_memory(measured(), None, LIMITS),
        Check(
            "peak memory (on)",
            Outcome.NO_BASELINE,
            "No baseline. Make one with --update-baselines.",
            new=50000000,
            unit="bytes",
        ),
    ),
    "memory of another target": (
        lambda: sizes.check_memory(measured(), ELSEWHERE, LIMITS, Arm.OFF),
        Check(
            "peak memory (off)",
            Outcome.INVALID,
            "The baseline is of another target (cpu 'Cortex-X5' there, 'Neoverse-V3' "
            "here; os 'BSD' there, 'Linux' here).",
            new=48000000,
            unit="bytes",
        ),
    ),
    "memory under emulation": (
        lambda: sizes.check_memory(emulated(), baseline(), LIMITS),
        Check(
            "peak memory (on)",
            Outcome.INVALID,
            "An emulated process's memory holds the emulator's own and is never compared.",
        ),
    ),
    "no memory measured": (
        lambda: sizes.check_memory(measured(peak_bytes={}), baseline(), LIMITS),
        Check("peak memory (on)", Outcome.INVALID, "It was not measured."),
    ),
    "nothing measured": (
        lambda: sizes.check_memory(measured(peak_bytes=None), baseline(), LIMITS),
        Check("peak memory (on)", Outcome.INVALID, "It was not measured."),
    ),
    "the same size": (
        lambda: sizes.check_size(measured(), baseline(), LIMITS),
        Check(
            "program size",
            Outcome.PASS,
            "the same as in the baseline; 1.0% more is allowed.",
            old=100000,
            new=100000,
            unit="bytes",
            limit=101000.0,
        ),
    ),
    "a larger program": (
        lambda: sizes.check_size(measured(pte_bytes=110_000), baseline(), LIMITS),
        Check(
            "program size",
            Outcome.REGRESSED,
            "+10.0% against the baseline; 1.0% more is allowed. If that is intended, "
            "accept it with --update-baselines.",
            old=100000,
            new=110000,
            unit="bytes",
            limit=101000.0,
        ),
    ),
    "no size": (
        lambda: sizes.check_size(measured(pte_bytes=None), baseline(), LIMITS),
        Check("program size", Outcome.INVALID, "It was not measured."),
    ),
    "a baseline of nothing": (
        lambda: sizes.check_size(measured(pte_bytes=10), baseline(pte_bytes=0), LIMITS),
        Check(
            "program size",
            Outcome.REGRESSED,
            "+inf% against the baseline; 1.0% more is allowed. If that is intended, "
            "accept it with --update-baselines.",
            old=0,
            new=10,
            unit="bytes",
            limit=0.0,
        ),
    ),
    "a smaller program": (
        lambda: sizes.check_size(measured(pte_bytes=90_000), baseline(), LIMITS),
        Check(
            "program size",
            Outcome.IMPROVED,
            "-10.0% against the baseline; 1.0% more is allowed.",
            old=100000,
            new=90000,
            unit="bytes",
            limit=101000.0,
        ),
    ),
    "the same latency": (
        lambda: times.check_latency(measured(), baseline(), LIMITS),
        Check(
            "latency (on)",
            Outcome.PASS,
            "0.0% slower than the baseline.",
            old=9999960.0,
            new=10000000.0,
            unit="ns",
            interval=(0.9901, 1.01),
            limit=0.02,
        ),
    ),
    "slower": (
        lambda: times.check_latency(measured(medians_ns={Arm.ON: medians(11)}), baseline(), LIMITS),
        Check(
            "latency (on)",
            Outcome.REGRESSED,
            "10.0% slower than the baseline. If that is intended, accept it with "
            "--update-baselines.",
            old=9999960.0,
            new=11000000.0,
            unit="ns",
            interval=(1.0891, 1.111),
            limit=0.02,
        ),
    ),
    "faster": (
        lambda: times.check_latency(measured(medians_ns={Arm.ON: medians(9)}), baseline(), LIMITS),
        Check(
            "latency (on)",
            Outcome.IMPROVED,
            "10.0% faster than the baseline. Keep it with --update-baselines.",
            old=9999960.0,
            new=9000000.0,
            unit="ns",
            interval=(0.8911, 0.909),
            limit=0.02,
        ),
    ),
    "perhaps slower": (
        lambda: times.check_latency(
            measured(medians_ns={Arm.ON: medians(10.2)}), baseline(), LIMITS
        ),
        Check(
            "latency (on)",
            Outcome.INCONCLUSIVE,
            "2.0% slower than the baseline. Measure longer (--budget), or decide it "
            "with --against.",
            old=9999960.0,
            new=10200000.0,
            unit="ns",
            interval=(1.0099, 1.0302),
            limit=0.02,
        ),
    ),
    "perhaps slower, provisional": (
        lambda: times.check_latency(
            measured(medians_ns={Arm.ON: medians(10.2)}),
            baseline(sessions=(session(1), session(2))),
            LIMITS,
        ),
        Check(
            "latency (on)",
            Outcome.INCONCLUSIVE,
            "2.0% slower than the baseline (provisional: 2 of 3 sessions; run "
            "--update-baselines again at another time). Measure longer (--budget), or"
            " decide it with --against.",
            old=10000000.0,
            new=10200000.0,
            unit="ns",
            interval=(1.0184, 1.0216),
            limit=0.02,
        ),
    ),
    "latency without baseline": (
        lambda: times.check_latency(measured(), None, LIMITS),
        Check(
            "latency (on)",
            Outcome.NO_BASELINE,
            "No baseline for 1 thread(s) on this target. Make one with --update-baselines.",
            new=10000000.0,
            unit="ns",
            limit=0.02,
        ),
    ),
    "latency not measured": (
        lambda: times.check_latency(measured(medians_ns=None), None, LIMITS),
        Check("latency (on)", Outcome.INVALID, "It was not measured.", limit=0.02),
    ),
    "latency under emulation": (
        lambda: times.check_latency(emulated(), None, LIMITS),
        Check(
            "latency (on)",
            Outcome.INVALID,
            "Emulated times say nothing about hardware and are never compared. Choose"
            " a device that can vouch for timing.",
        ),
    ),
    "latency of another target": (
        lambda: times.check_latency(measured(), ELSEWHERE, LIMITS),
        Check(
            "latency (on)",
            Outcome.INVALID,
            "The baseline is of another target (cpu 'Cortex-X5' there, 'Neoverse-V3' "
            "here; os 'BSD' there, 'Linux' here), so times are not compared.",
            new=10000000.0,
            unit="ns",
            limit=0.02,
        ),
    ),
    "slower than the reference": (
        lambda: times.check_against(measurement(1.01, 1.05, Outcome.REGRESSED), LIMITS),
        Check(
            "latency against executorch 1.5.0",
            Outcome.REGRESSED,
            "3.0% slower than executorch 1.5.0 over 1 interleaved pairs.",
            old=10000000.0,
            new=10300000.0,
            unit="ns",
            interval=(1.01, 1.05),
            limit=0.02,
            p_value=0.5,
        ),
    ),
    "faster than the reference": (
        lambda: times.check_against(measurement(0.9, 0.94, None), LIMITS),
        Check(
            "latency against executorch 1.5.0",
            Outcome.IMPROVED,
            "8.0% faster than executorch 1.5.0 over 1 interleaved pairs.",
            old=10000000.0,
            new=9200000.0,
            unit="ns",
            interval=(0.9, 0.94),
            limit=0.02,
        ),
    ),
    "too close to the reference": (
        lambda: times.check_against(measurement(1.0, 1.05, None), LIMITS),
        Check(
            "latency against executorch 1.5.0",
            Outcome.INCONCLUSIVE,
            "2.5% slower than executorch 1.5.0 over 1 interleaved pairs. Measure "
            "longer (--budget).",
            old=10000000.0,
            new=10250000.0,
            unit="ns",
            interval=(1.0, 1.05),
            limit=0.02,
        ),
    ),
    "a speedup": (
        lambda: times.check_speedup(measured(), baseline(), LIMITS),
        Check(
            "speedup",
            Outcome.PASS,
            "SME2 makes it 2.00x as fast, at least the 0.98x asked for.",
            old=2.0,
            new=2.0,
            unit="ratio",
            interval=(1.97, 2.03),
            limit=0.980392157,
        ),
    ),
    "too small a speedup": (
        lambda: times.check_speedup(
            measured(), baseline(speedup=None), with_limits(min_speedup=2.5)
        ),
        Check(
            "speedup",
            Outcome.REGRESSED,
            "SME2 makes it 2.00x as fast, less than the 2.50x asked for.",
            new=2.0,
            unit="ratio",
            interval=(1.97, 2.03),
            limit=2.5,
        ),
    ),
    "a speedup too close": (
        lambda: times.check_speedup(measured(), None, with_limits(min_speedup=2.0)),
        Check(
            "speedup",
            Outcome.INCONCLUSIVE,
            "SME2 makes it 2.00x as fast, too close to the 2.00x asked for; measure "
            "longer (--budget).",
            new=2.0,
            unit="ratio",
            interval=(1.97, 2.03),
            limit=2.0,
        ),
    ),
    "no speedup": (
        lambda: times.check_speedup(
            measured(speedup=None), baseline(), with_limits(min_speedup=2.0)
        ),
        Check("speedup", Outcome.INVALID, "It was not measured.", old=2.0, limit=2.0),
    ),
    "share beyond its bounds with a baseline": (
        lambda: times.check_share(
            measured(shares=with_share(0.37)), baseline(), BOUNDED, Category.DATA_MOVEMENT
        ),
        Check(
            "share of DATA_MOVEMENT (on)",
            Outcome.REGRESSED,
            "37.0% of the time is above its bound (20.0% to 35.0%).",
            old=0.3,
            new=0.37,
            unit="share",
            interval=(0.36, 0.38),
            limit=0.35,
        ),
    ),
    "share without baseline": (
        lambda: times.check_share(measured(), None, LIMITS, Category.CONV, Arm.OFF),
        Check(
            "share of CONV (off)",
            Outcome.NO_BASELINE,
            "No baseline, and no bounds in limits.toml. Make one with --update-baselines.",
            new=0.6,
            unit="share",
            interval=(0.58, 0.62),
        ),
    ),
    "share of another target": (
        lambda: times.check_share(measured(), ELSEWHERE, LIMITS, Category.CONV),
        Check(
            "share of CONV (on)",
            Outcome.INVALID,
            "The baseline is of another target (cpu 'Cortex-X5' there, 'Neoverse-V3' "
            "here; os 'BSD' there, 'Linux' here).",
            new=0.6,
            unit="share",
        ),
    ),
    "no evidence": (
        lambda: structure.check_evidence(measured(evidence=None)),
        Check(
            "evidence",
            Outcome.INVALID,
            "Only the off arm ran: linux has no SME2, so nothing is shown about it. "
            "Choose a device that has it, or --device=emulated.",
        ),
    ),
    "evidence": (
        lambda: structure.check_evidence(measured()),
        Check(
            "evidence",
            Outcome.PASS,
            "4 of 4 matrix operators on SME2 with SME2 on, none off.",
            new=4,
            unit="count",
        ),
    ),
    "the same coverage": (
        lambda: structure.check_coverage(measured(), baseline(), LIMITS),
        Check(
            "SME2 coverage",
            Outcome.PASS,
            "4 of 4 matrix operators run on SME2 kernels; in the baseline 4 of 4.",
            old=1.0,
            new=1.0,
            unit="share",
            limit=1.0,
        ),
    ),
    "less coverage": (
        lambda: structure.check_coverage(
            measured(
                structures=with_on(conv=3, slow=1),
                versions={"executorch": "1.6.0", "executorch runtime": "1.6.0"},
            ),
            baseline(),
            LIMITS,
        ),
        Check(
            "SME2 coverage",
            Outcome.REGRESSED,
            "3 of 4 matrix operators run on SME2 kernels; in the baseline 4 of 4. The"
            " baseline was made with executorch 1.5.1, this is with 1.6.0. The "
            "baseline was made with executorch runtime 1.5.1, this is with 1.6.0. If "
            "that is intended, accept it with --update-baselines.",
            old=1.0,
            new=0.75,
            unit="share",
            limit=1.0,
        ),
    ),
    "less coverage than asked for": (
        lambda: structure.check_coverage(
            measured(structures=with_on(conv=3, slow=1)), None, with_limits(min_coverage=0.8)
        ),
        Check(
            "SME2 coverage",
            Outcome.REGRESSED,
            "3 of 4 matrix operators run on SME2 kernels, less than the 80% asked for.",
            new=0.75,
            unit="share",
            limit=0.8,
        ),
    ),
    "as much coverage as asked for": (
        lambda: structure.check_coverage(measured(), None, with_limits(min_coverage=0.8)),
        Check(
            "SME2 coverage",
            Outcome.PASS,
            "4 of 4 matrix operators run on SME2 kernels.",
            new=1.0,
            unit="share",
            limit=0.8,
        ),
    ),
    "coverage without baseline": (
        lambda: structure.check_coverage(measured(), None, LIMITS),
        Check(
            "SME2 coverage",
            Outcome.NO_BASELINE,
            "4 of 4 matrix operators run on SME2 kernels. There is no baseline. Make "
            "one with --update-baselines.",
            new=1.0,
            unit="share",
        ),
    ),
    "coverage of nothing": (
        lambda: structure.check_coverage(measured(structures=with_on(transpose=1)), None, LIMITS),
        Check("SME2 coverage", Outcome.PASS, "The program has no matrix operators.", unit="share"),
    ),
    "coverage of an arm that did not run": (
        lambda: structure.check_coverage(measured(structures={}), None, LIMITS),
        Check(
            "SME2 coverage", Outcome.INVALID, "The on arm did not run, so nothing is known of it."
        ),
    ),
    "the same operators": (
        lambda: structure.check_operators(measured(), baseline()),
        Check(
            "operators (on)",
            Outcome.PASS,
            "The same 6 operators as in the baseline.",
            old=6,
            new=6,
            unit="count",
        ),
    ),
    "other operators": (
        lambda: structure.check_operators(
            measured(structures=with_on(conv=3, slow=1, transpose=4)), baseline()
        ),
        Check(
            "operators (on)",
            Outcome.REGRESSED,
            "3 operators more and 1 operator fewer than in the baseline. If that is "
            "intended, accept it with --update-baselines.",
            old=6,
            new=8,
            unit="count",
            limit=6,
            details=(
                "+2 Transpose (ND, X16) Transpose (DATA_MOVEMENT, transpose, delegated)",
                "+1 Convolution (NHWC, F16) IGEMM (CONV, convolution, delegated)",
                "-1 Convolution (NHWC, PF16) IGEMM (CONV, convolution, delegated)",
            ),
        ),
    ),
    "fewer operators": (
        lambda: structure.check_operators(
            measured(structures=with_on(conv=4, transpose=1)), baseline()
        ),
        Check(
            "operators (on)",
            Outcome.IMPROVED,
            "0 operators more and 1 operator fewer than in the baseline. Keep it with"
            " --update-baselines.",
            old=6,
            new=5,
            unit="count",
            limit=6,
            details=("-1 Transpose (ND, X16) Transpose (DATA_MOVEMENT, transpose, delegated)",),
        ),
    ),
    "operators without baseline": (
        lambda: structure.check_operators(measured(), None),
        Check(
            "operators (on)",
            Outcome.NO_BASELINE,
            "No baseline. Make one with --update-baselines.",
            new=6,
            unit="count",
        ),
    ),
    "operators of an arm that did not run": (
        lambda: structure.check_operators(measured(structures={}), None, Arm.ON),
        Check("operators (on)", Outcome.INVALID, "The on arm did not run."),
    ),
    "more portable operators": (
        lambda: structure.check_delegation(
            measured(structures=with_on(conv=4, portable=2)),
            baseline(structures=with_on(conv=4, portable=1)),
        ),
        Check(
            "portable operators (on)",
            Outcome.REGRESSED,
            "2 operators outside the delegate, 1 in the baseline. If that is "
            "intended, accept it with --update-baselines.",
            old=1,
            new=2,
            unit="count",
            limit=1,
            details=("+1 aten::cumsum.out (DATA_MOVEMENT, transpose, portable)",),
        ),
    ),
    "fewer portable operators": (
        lambda: structure.check_delegation(
            measured(structures=with_on(conv=4, portable=1)),
            baseline(structures=with_on(conv=4, portable=2)),
        ),
        Check(
            "portable operators (on)",
            Outcome.IMPROVED,
            "1 operator outside the delegate, 2 in the baseline.",
            old=2,
            new=1,
            unit="count",
            limit=2,
            details=("-1 aten::cumsum.out (DATA_MOVEMENT, transpose, portable)",),
        ),
    ),
    "portable operators without baseline": (
        lambda: structure.check_delegation(measured(structures=with_on(conv=4, portable=1)), None),
        Check(
            "portable operators (on)",
            Outcome.NO_BASELINE,
            "No baseline. Make one with --update-baselines.",
            new=1,
            unit="count",
        ),
    ),
    "the same kernels": (
        lambda: structure.check_kernels(measured(), baseline()),
        Check(
            "kernels (on)",
            Outcome.PASS,
            "The same 2 kernels as in the baseline.",
            old=2,
            new=2,
            unit="count",
            limit=2,
        ),
    ),
    "other kernels": (
        lambda: structure.check_kernels(
            measured(kernels={Arm.ON: census(Arm.ON, "a_neon", "b_sme2")}), baseline()
        ),
        Check(
            "kernels (on)",
            Outcome.REGRESSED,
            "2 kernels ran that did not run in the baseline, 2 ran there alone. If "
            "that is intended, accept it with --update-baselines.",
            old=2,
            new=2,
            unit="count",
            limit=2,
            details=(
                "+ a_neon (neon)",
                "+ b_sme2 (sme2)",
                "- kai_matmul_sme2_mopa (sme2)",
                "- xnn_x16_transpose_neon (neon)",
            ),
        ),
    ),
    "kernels from elsewhere": (
        lambda: structure.check_kernels(
            measured(kernels={Arm.ON: census(Arm.ON, "a_neon", "b_sme2", source="log")}), baseline()
        ),
        Check(
            "kernels (on)",
            Outcome.NO_BASELINE,
            "The baseline's kernels come from emulator, these from log; the two "
            "cannot be compared.",
            new=2,
            unit="count",
        ),
    ),
    "no kernels": (
        lambda: structure.check_kernels(measured(kernels={}), baseline()),
        Check("kernels (on)", Outcome.INVALID, "Which kernels ran is not known on this target."),
    ),
    "kernels without baseline": (
        lambda: structure.check_kernels(measured(), None, Arm.OFF),
        Check(
            "kernels (off)",
            Outcome.NO_BASELINE,
            "No baseline. Make one with --update-baselines.",
            new=2,
            unit="count",
        ),
    ),
    "share of 0.3": (
        lambda: times.check_share(
            measured(shares=with_share(0.3)), baseline(), LIMITS, Category.DATA_MOVEMENT
        ),
        Check(
            "share of DATA_MOVEMENT (on)",
            Outcome.PASS,
            "0.0 points less of the time than in the baseline; at most 5.0 more are allowed.",
            old=0.3,
            new=0.3,
            unit="share",
            interval=(0.29, 0.31),
            limit=0.35,
        ),
    ),
    "share of 0.36": (
        lambda: times.check_share(
            measured(shares=with_share(0.36)), baseline(), LIMITS, Category.DATA_MOVEMENT
        ),
        Check(
            "share of DATA_MOVEMENT (on)",
            Outcome.INCONCLUSIVE,
            "6.0 points more of the time than in the baseline; at most 5.0 more are allowed.",
            old=0.3,
            new=0.36,
            unit="share",
            interval=(0.35, 0.37),
            limit=0.35,
        ),
    ),
    "share of 0.4": (
        lambda: times.check_share(
            measured(shares=with_share(0.4)), baseline(), LIMITS, Category.DATA_MOVEMENT
        ),
        Check(
            "share of DATA_MOVEMENT (on)",
            Outcome.REGRESSED,
            "10.0 points more of the time than in the baseline; at most 5.0 more are allowed.",
            old=0.3,
            new=0.4,
            unit="share",
            interval=(0.39, 0.41),
            limit=0.35,
        ),
    ),
    "share of 0.1": (
        lambda: times.check_share(
            measured(shares=with_share(0.1)), baseline(), LIMITS, Category.DATA_MOVEMENT
        ),
        Check(
            "share of DATA_MOVEMENT (on)",
            Outcome.PASS,
            "20.0 points less of the time than in the baseline; at most 5.0 more are allowed.",
            old=0.3,
            new=0.1,
            unit="share",
            interval=(0.09, 0.11),
            limit=0.35,
        ),
    ),
    "share of 0.3 with bounds": (
        lambda: times.check_share(
            measured(shares=with_share(0.3)), None, BOUNDED, Category.DATA_MOVEMENT
        ),
        Check(
            "share of DATA_MOVEMENT (on)",
            Outcome.PASS,
            "30.0% of the time is within its bounds (20.0% to 35.0%).",
            new=0.3,
            unit="share",
            interval=(0.29, 0.31),
            limit=0.35,
        ),
    ),
    "share of 0.18 with bounds": (
        lambda: times.check_share(
            measured(shares=with_share(0.18)), None, BOUNDED, Category.DATA_MOVEMENT
        ),
        Check(
            "share of DATA_MOVEMENT (on)",
            Outcome.REGRESSED,
            "18.0% of the time is below its bound (20.0% to 35.0%).",
            new=0.18,
            unit="share",
            interval=(0.17, 0.19),
            limit=0.2,
        ),
    ),
    "share of 0.37 with bounds": (
        lambda: times.check_share(
            measured(shares=with_share(0.37)), None, BOUNDED, Category.DATA_MOVEMENT
        ),
        Check(
            "share of DATA_MOVEMENT (on)",
            Outcome.REGRESSED,
            "37.0% of the time is above its bound (20.0% to 35.0%).",
            new=0.37,
            unit="share",
            interval=(0.36, 0.38),
            limit=0.35,
        ),
    ),
    "share of 0.355 with bounds": (
        lambda: times.check_share(
            measured(shares=with_share(0.355)), None, BOUNDED, Category.DATA_MOVEMENT
        ),
        Check(
            "share of DATA_MOVEMENT (on)",
            Outcome.INCONCLUSIVE,
            "35.5% of the time is above its bound (20.0% to 35.0%).",
            new=0.355,
            unit="share",
            interval=(0.345, 0.365),
            limit=0.35,
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_whole_check(case: str) -> None:
    make, expected = CASES[case]
    found = make()
    for name in ("metric", "verdict", "message", "old", "new", "unit", "details", "p_value"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.limit == pytest.approx(expected.limit)
    assert (found.interval is None) == (expected.interval is None)
    if found.interval is not None and expected.interval is not None:
        assert found.interval == pytest.approx(expected.interval, abs=1e-4)
