"""`sme2 report validate` on a run directory as Arm's profiling kit leaves it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.report.validation import validate_run
from tests.support import ETDUMPS


def kit_run(folder: Path, **changes: Any) -> Path:
    metrics = {
        "runs": 3,
        "threads": 1,
        "latency_ms": [2.5, 2.25, 3.0],
        "median_ms": 2.5,
        "min_ms": 2.25,
        "max_ms": 3.0,
        "etdump": "here_sme2_on/net_here_sme2_on_t1.etdump",
        **changes,
    }
    results = [{"experiment": "here_sme2_on", "metrics": metrics}]
    (folder / "here_sme2_on").mkdir(parents=True)
    shutil.copy(
        ETDUMPS / "cpp_toy_fp16_on.etdump", folder / "here_sme2_on" / "net_here_sme2_on_t1.etdump"
    )
    (folder / "metrics.json").write_text(json.dumps({"results": results}))
    (folder / "manifest.json").write_text(json.dumps({"model": "net.pte", "results": results}))
    return folder


def problems(folder: Path) -> list[str]:
    return [f"{found.path.name} {found.problem}" for found in validate_run(folder) if found.problem]


def test_a_whole_one_has_no_problem(tmp_path: Path) -> None:
    assert problems(kit_run(tmp_path)) == []
    assert len(validate_run(tmp_path)) == 3


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"median_ms": 9.0}, "metrics.json results[0].median_ms is 9.0, but latency_ms gives 2.5"),
        ({"latency_ms": [1, -1]}, "metrics.json results[0].latency_ms is not a list of times"),
        ({"latency_ms": []}, "metrics.json results[0].latency_ms is not a list of times"),
        ({"etdump": "none.etdump"}, "none.etdump is missing"),
        ({"etdump": "/etc/passwd"}, "metrics.json is damaged: "),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    (found,) = problems(kit_run(tmp_path, **changes))
    assert found.startswith(problem)


def test_files_that_are_missing_or_of_another_form(tmp_path: Path) -> None:
    kit_run(tmp_path)
    (tmp_path / "metrics.json").write_text(json.dumps({"results": [1]}))
    (tmp_path / "manifest.json").write_text("{}")
    assert problems(tmp_path) == [
        "metrics.json results[0] has no metrics",
        "manifest.json lacks the keys model, results",
    ]
    (tmp_path / "manifest.json").unlink()
    assert "manifest.json is missing" in problems(tmp_path)
