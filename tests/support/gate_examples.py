"""Example values for the tests of checks, baselines and reports: all of one small program."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_sme2.results.case import (
    Agreement,
    Baseline,
    BaselineFigures,
    BaselineSession,
    Bounds,
    CaseResult,
    Limits,
    OperatorCount,
    Spread,
    Structure,
    Tolerance,
)
from pytest_sme2.results.evidence import Evidence, Kernel, KernelCensus, KernelFamily
from pytest_sme2.results.profile import Category, Executor
from pytest_sme2.results.run import PAIR, Arm, Fingerprint
from pytest_sme2.results.timing import (
    Decision,
    Estimate,
    Frontier,
    FrontierCell,
    Look,
    Outcome,
    PairedTiming,
    PairSample,
    Ship,
)
from pytest_sme2.system.files import sealed
from pytest_sme2.verdict.limits import default_limits

LINUX = Fingerprint("linux", (("cores", "8"), ("cpu", "Neoverse-V3"), ("os", "Linux")))
EMULATED = Fingerprint("emulated", ())

CONV_ON = "Convolution (NHWC, PF16) IGEMM"
CONV_OFF = "Convolution (NHWC, F16) IGEMM"
TRANSPOSE = "Transpose (ND, X16) Transpose"
PORTABLE = "aten::cumsum.out"


def structure(counts: Mapping[str, int]) -> Structure:
    return Structure(tuple(operator(name, count) for name, count in sorted(counts.items())))


def operator(name: str, count: int) -> OperatorCount:
    matrix = name.startswith(("Convolution", "Fully"))
    return OperatorCount(
        name=name,
        category=Category.CONV if matrix else Category.DATA_MOVEMENT,
        kind="convolution" if matrix else "transpose",
        executor=Executor.PORTABLE if name.startswith("aten::") else Executor.DELEGATED,
        matrix=matrix,
        sme2=", P" in name,
        count=count,
    )


def census(arm: Arm, *names: str, source: str = "emulator") -> KernelCensus:
    def family(name: str) -> KernelFamily:
        return KernelFamily.SME2 if "sme2" in name else KernelFamily.NEON

    return KernelCensus(arm, source, tuple(Kernel(name, family(name), 7) for name in sorted(names)))


def agreement(**changes: Any) -> Agreement:
    facts: dict[str, Any] = {
        "against": "off",
        "arm": Arm.ON,
        "index": 0,
        "dtype": "float32",
        "identical": False,
        "max_abs": 1e-4,
        "max_rel": 1e-3,
        "sqnr_db": 60.0,
        "has_nan": False,
    }
    return Agreement(**{**facts, **changes})


STRUCTURES = {
    Arm.ON: structure({CONV_ON: 4, TRANSPOSE: 2}),
    Arm.OFF: structure({CONV_OFF: 4, TRANSPOSE: 2}),
}
KERNELS = {
    Arm.ON: census(Arm.ON, "kai_matmul_sme2_mopa", "xnn_x16_transpose_neon"),
    Arm.OFF: census(Arm.OFF, "xnn_f16_gemm_neon", "xnn_x16_transpose_neon"),
}
EVIDENCE = Evidence(True, "4 of 4 matrix operators on SME2 with SME2 on, none off.", 4, 4, 0)


def medians(milliseconds: float, count: int = 10, spread: float = 0.002) -> tuple[float, ...]:
    """Process medians around a value, evenly spread."""
    steps = (index / (count - 1) * 2 - 1 if count > 1 else 0.0 for index in range(count))
    return tuple(round(milliseconds * 1e6 * (1 + spread * step)) * 1.0 for step in steps)


def measured(**changes: Any) -> CaseResult:
    """A valid run on real hardware: 10 ms with SME2, 20 ms without."""
    facts: dict[str, Any] = {
        "model": "toy_cnn",
        "variant": "fp16",
        "fingerprint": LINUX,
        "emulated": False,
        "runner": "wheel",
        "session": "20250101T000000Z-0000",
        "recorded": "2025-01-01T00:00:00Z",
        "structures": STRUCTURES,
        "kernels": KERNELS,
        "medians_ns": {Arm.ON: medians(10), Arm.OFF: medians(20)},
        "speedup": Estimate(2.0, 1.97, 2.03, 0.99, 10),
        "shares": {
            arm: {
                Category.CONV: Spread(0.6, 0.58, 0.62),
                Category.DATA_MOVEMENT: Spread(0.3, 0.28, 0.32),
            }
            for arm in PAIR
        },
        "loads_ns": {Arm.ON: medians(5), Arm.OFF: medians(5)},
        "peak_bytes": {Arm.ON: 50_000_000, Arm.OFF: 48_000_000},
        "pte_bytes": 100_000,
        "pte_sha256": "ab" * 32,
        "inputs": "cd" * 32,
        "agreements": (agreement(), agreement(against="reference", sqnr_db=50.0)),
        "evidence": EVIDENCE,
        "versions": {"executorch": "1.5.1", "executorch runtime": "1.5.1"},
    }
    return CaseResult(**{**facts, **changes})


def frontier(
    value: float = 1.4, ship: Ship = Ship.CANDIDATE, arms: tuple[Arm, ...] = (Arm.ON, Arm.OFF),
    **changes: Any,
) -> Frontier:  # fmt: skip
    """SME2 is best with 2 threads, NEON with 4; one arm alone is best with 4, then with 2."""
    times = {Arm.ON: (3.0, 2.0, 2.2), Arm.OFF: (6.0, 4.0, 2.0 * value)}
    cells = tuple(
        FrontierCell(arm, threads, medians(times[arm][index], 20), cores=f"{8 - threads}-7")
        for index, threads in enumerate((1, 2, 4))
        for arm in arms
    )
    best = (2, 5) if len(arms) > 1 else (2, 1)
    speedup = Estimate(value, value * 0.98, value * 1.02, 0.99, 10)
    known: dict[str, Any] = {"dropped": 0, "throttled": 0, "unsure": (), "seconds": 60.0}
    known |= {"stopped_because": "clear", **changes}
    return Frontier(cells, *best, speedup, ship, **known)


def emulated(**changes: Any) -> CaseResult:
    """The same program on the emulator: structure and kernels, no times."""
    facts: dict[str, Any] = {
        "fingerprint": EMULATED,
        "emulated": True,
        "medians_ns": None,
        "speedup": None,
        "shares": None,
        "loads_ns": None,
        "peak_bytes": None,
    }
    return measured(**{**facts, **changes})


def session(number: int, milliseconds: float = 10, **changes: Any) -> BaselineSession:
    facts: dict[str, Any] = {
        "session": f"session-{number}",
        "recorded": f"2025-01-{number:02}T00:00:00Z",
        "epoch": 1,
        "threads": 1,
        "runner": "wheel",
        "executorch": "1.5.1",
        "medians_ns": {Arm.ON: medians(milliseconds), Arm.OFF: medians(2 * milliseconds)},
        "loads_ns": {Arm.ON: medians(5), Arm.OFF: medians(5)},
        "inputs": "cd" * 32,
    }
    return BaselineSession(**{**facts, **changes})


def figures(**changes: Any) -> BaselineFigures:
    """Those of ``measured()``."""
    now = measured()
    facts: dict[str, Any] = {
        "speedup": now.speedup, "peak_bytes": now.peak_bytes
    }  # fmt: skip
    return BaselineFigures(**{**facts, **changes})


def baseline(**changes: Any) -> Baseline:
    """What ``measured()`` agrees with, over three sessions that differ by half a percent."""
    now = measured()
    facts: dict[str, Any] = {
        "model": now.model,
        "variant": now.variant,
        "fingerprint": LINUX,
        "structures": STRUCTURES,
        "kernels": KERNELS,
        "sessions": tuple(session(n + 1, ms) for n, ms in enumerate((9.98, 10.0, 10.02))),
        "figures": {1: figures()},
        "pte_bytes": now.pte_bytes,
        "pte_sha256": now.pte_sha256,
        "versions": now.versions,
    }
    return Baseline(**{**facts, **changes})


LIMITS = default_limits()


def edit_baseline(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """As if it had been stored like that."""
    document = json.loads(path.read_text("utf-8"))
    change(document)
    promised = document.pop("promised", {})
    path.write_text(json.dumps({**sealed(document), "promised": promised}), "utf-8")


def with_limits(**changes: object) -> Limits:
    return dataclasses.replace(LIMITS, **changes)  # type: ignore[arg-type]


def with_on(**counts: int) -> dict[Arm, object]:
    """The structures of the example with other counts on the on arm."""
    names = {"conv": CONV_ON, "slow": CONV_OFF, "transpose": TRANSPOSE, "portable": PORTABLE}
    return {
        Arm.ON: structure({names[key]: count for key, count in counts.items()}),
        Arm.OFF: STRUCTURES[Arm.OFF],
    }


def measurement(low: float, high: float, decided: Outcome | None, at: float = 0.02) -> PairedTiming:
    look = Look(10, 0.005, (low + high) / 2, (low, high), 0.5)
    pair = PairSample(0, "A", 10e6, 10e6 * look.estimate, 0.0, 0.0)
    decision = None if decided is None else Decision(decided, at, (look,), 0.5)
    return PairedTiming(
        "executorch 1.5.0", "this", 0, 3, 10, 1, (pair,), (), decision, (look,), "clear",
        0.003, 0.03, (), (), 1.0,
    )  # fmt: skip


def of_this_code(old: Baseline, now: CaseResult) -> Baseline:
    """The baseline as if its last session had run what ``now`` ran."""
    *before, last = old.sessions
    same = dataclasses.replace(last, program=now.pte_sha256, runtime=now.runtime, inputs=now.inputs)
    return dataclasses.replace(old, sessions=(*before, same))


BOUNDED = with_limits(shares={Category.DATA_MOVEMENT: Bounds(0.2, 0.35)})
TIGHT = with_limits(on_off_tolerances={"fp16": Tolerance(max_abs=1e-9)})
