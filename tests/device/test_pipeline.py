"""Experiment files, run for real on the emulator and on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_sme2.cli.experiments import read_plan, run_plan
from pytest_sme2.report.writing import validate_run
from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.qemu import Qemu
from pytest_sme2.timing.processes import selfcheck_artifact
from tests.support import Command


def experiment_file(folder: Path, device: str, experiments: list[dict[str, Any]]) -> Path:
    path = folder / "experiment.json"
    document = {
        "model": str(selfcheck_artifact().pte),
        "output_root": str(folder / "out" / "runs" / device),
        "device": device,
        "experiments": experiments,
    }
    path.write_text(json.dumps(document))
    return path


def problems(root: Path) -> list[str]:
    return [f"{found.path}: {found.problem}" for found in validate_run(root) if found.problem]


def test_a_pair_on_the_emulator(
    tmp_path: Path, qemu: Qemu, emulated_runner: object, sme2: Command
) -> None:
    amount = {"runs": 1, "warmup": 0}
    file = experiment_file(
        tmp_path,
        "emulated",
        [
            {"name": "emulated_sme2_on", **amount},
            {"name": "emulated_sme2_off", **amount},
            {"name": "kernels_sme2_on", "mode": "xnntrace", **amount},
        ],
    )
    printed = sme2("run", "--config", file, "--json").out
    (case,) = json.loads(printed)["cases"]
    assert case["evidence"]["valid"]
    root = tmp_path / "out" / "runs" / "emulated"
    assert problems(root) == []
    dumps = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.etdump"))
    assert dumps == [
        f"emulated_sme2_{arm}/selfcheck_emulated_sme2_{arm}_t1.etdump" for arm in ("off", "on")
    ]
    record = read_record(root)
    assert record.measured.medians_ns is None
    assert record.measured.kernels[Arm.ON].kernels
    assert (root / "kernels_sme2_on" / "selfcheck_kernels_sme2_on_t1_kernels.json").is_file()
    sme2("report", root, "--html", tmp_path / "r.html")


def test_several_experiments_on_this_machine(tmp_path: Path, local_runner: object) -> None:
    file = experiment_file(
        tmp_path,
        "linux",
        [
            {"name": "one_sme2_off", "runs": 3, "warmup": 1},
            {"name": "two_sme2_off", "runs": 3, "warmup": 1, "extra_args": ["--method", "forward"]},
        ],
    )
    lines: list[str] = []
    cases = run_plan(read_plan(file), Settings(device="linux"), lines.append, "")
    assert len(cases) == 2
    assert len(lines) == 2
    root = tmp_path / "out" / "runs" / "linux"
    assert problems(root) == []
    assert cases[1][0] == root / "pairs" / "two_sme2_off"
    for _, record in cases:
        (median,) = (record.measured.medians_ns or {})[Arm.OFF]
        assert median > 0
        assert record.measured.speedup is None
    log = next((root / "two_sme2_off").glob("*.log")).read_text()
    assert "'--method' 'forward'" in log
