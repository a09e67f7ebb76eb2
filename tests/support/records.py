"""Run directories for tests of the reports: real or built dumps, with what was measured beside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results.case import CaseResult, Check
from pytest_sme2.results.evidence import Counts, InferenceCost, KernelCost, OperatorCost
from pytest_sme2.results.run import PAIR, Arm
from pytest_sme2.results.timing import Look, PairedTiming, PairSample
from pytest_sme2.session.case_result import shares_of
from pytest_sme2.session.run_directory import SCHEMA, CaseRecord, read_record, write_record
from pytest_sme2.system.files import safe_name
from pytest_sme2.trace.etdump import read_etdump
from tests.support import ETDUMPS, gate_examples
from tests.support.etdump_builder import build_etdump
from tests.support.profiles import Call, run_of


def stored_dumps(name: str) -> dict[Arm, bytes]:
    """The pair of a real model: ``toy_fp16``, ``mobile_int8`` …"""
    return {arm: (ETDUMPS / f"cpp_{name}_{arm}.etdump").read_bytes() for arm in PAIR}


def write_case(
    root: Path,
    model: str,
    variant: str,
    dumps: Mapping[Arm, bytes],
    *,
    emulated: bool = False,
    checks: tuple[Check, ...] = (),
    **changes: Any,
) -> Path:
    """One case of a run directory, as a run leaves it before it is concluded; its folder."""
    case = f"{model}-{variant}"
    make = gate_examples.emulated if emulated else gate_examples.measured
    target = make().fingerprint.target
    folder = root / safe_name(case) / "runs" / target
    etdumps = {}
    for arm, dump in dumps.items():
        path = folder / f"{target}_sme2_{arm}" / "run.etdump"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dump)
        (path.parent / "runner.log").write_text("the runner's own words\n")
        etdumps[arm] = path.relative_to(folder).as_posix()
    profiles = {arm: build_profiles(read_etdump(dump))[0] for arm, dump in dumps.items()}
    facts: dict[str, Any] = {
        "model": model,
        "variant": variant,
        "structures": {arm: structure_of(profile) for arm, profile in profiles.items()},
        "evidence": check_pair(profiles[Arm.ON], profiles[Arm.OFF]) if len(profiles) == 2 else None,
        "weights": "random (seed 0)",
    }
    if not emulated:
        facts["shares"] = {arm: shares_of(profile) for arm, profile in profiles.items()}
    measured = make(**{**facts, **changes})
    pairs = measurement(measured) if len(measured.medians_ns or {}) == len(PAIR) else None
    write_record(folder, CaseRecord(SCHEMA, case, measured, pairs, checks, etdumps))
    return folder


def built(root: Path, off: Sequence[Call], on: Sequence[Call], **changes: Any) -> CaseRecord:
    """A case whose arms make these calls, twice."""
    dumps = {Arm.OFF: build_etdump([run_of(off)] * 2), Arm.ON: build_etdump([run_of(on)] * 2)}
    return read_record(write_case(root, "toy", "fp32", dumps, **changes))


def cost_of(measured: CaseResult, arm: Arm, each: int) -> InferenceCost:
    """Each operator of an arm executes so many instructions, in one kernel."""
    operators = tuple(
        OperatorCost(
            index=member.index,
            label=member.label,
            name=member.operator.name,
            category=member.operator.category,
            executor=member.operator.executor,
            counts=Counts(instructions=each, outer_products=each // 100),
            kernels=(("kai_run_x_sme2_mopa", each),),
            macs=1000 if member.operator.matrix else None,
            matrix=member.operator.matrix,
            sme2=arm is Arm.ON and member.operator.matrix,
        )
        for member in measured.profiles[arm].operators
    )
    kernels = (KernelCost("kai_run_x_sme2_mopa", Counts(instructions=each * len(operators))),)
    return InferenceCost("max", 512, operators, kernels, Counts(instructions=500), Counts())


def measurement(measured: CaseResult) -> PairedTiming:
    """Pairs whose medians are those of the case, found to be quiet."""
    medians = measured.medians_ns or {}
    pairs = tuple(
        PairSample(number, "off", off, on, math.log(on / off), 0.0)
        for number, (off, on) in enumerate(zip(medians[Arm.OFF], medians[Arm.ON], strict=True))
    )
    return PairedTiming(
        reference="off",
        candidate="on",
        seed=0,
        warmup=3,
        runs=10,
        threads=1,
        pairs=pairs,
        dropped=(),
        decision=None,
        looks=(Look(10, 0.005, 0.5, (0.493, 0.508), 0.5),),
        stopped_because="precise",
        noise_floor=0.0021,
        detectable=0.0114,
        drift=(),
        notes=("Interference was not checked: nothing tells how long threads waited for a core.",),
        seconds=12.5,
    )


def changed(record: CaseRecord, **facts: Any) -> CaseRecord:
    """The record as if these had been measured."""
    return replace(record, measured=replace(record.measured, **facts))


HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>|`'\"\n../../e;vil"


def toy_run(root: Path, *, emulated: bool = False) -> list[Path]:
    """The toy model in three variants, from stored dumps; fp16 misses SME2 kernels."""
    return [
        write_case(root, "toy", variant, stored_dumps(f"toy_{variant}"), emulated=emulated)
        for variant in ("fp16", "fp32", "int8")
    ]
