"""The newcomer types what the README says, and is told something about the model."""

from __future__ import annotations

from pathlib import Path

from benchmarks.first_insight import INSIGHT, MODEL, readme_block
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.session.run_directory import read_record
from tests.support.records import toy_run


def test_the_commands_and_the_test_are_the_readme_s() -> None:
    commands = readme_block("bash run").splitlines()
    assert [line.split()[0] for line in commands] == ["sme2", "pytest", "pytest"]
    assert "--update-baselines" in commands[1]
    assert "--update-baselines" not in commands[2]
    assert "sme2_gate.check_evidence()" in readme_block("python file=test_my_models.py")


def test_the_insight_is_the_coverage_in_the_terminal_s_table(tmp_path: Path) -> None:
    compile(MODEL, "model.py", "exec")
    found = INSIGHT.search(
        "\n".join(run_lines([read_record(folder) for folder in toy_run(tmp_path)]))
    )
    assert found is not None
    assert found[1] == "3 of 3"
    assert INSIGHT.search("toy-fp32 -  NO_BASELINE\n") is None
