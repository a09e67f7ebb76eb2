"""The newcomer types what the README says, and is told something about the model."""

from __future__ import annotations

from benchmarks.first_insight import INSIGHT, MODEL, readme_block


def test_the_commands_and_the_test_are_the_readme_s() -> None:
    commands = readme_block("bash run").splitlines()
    assert [line.split()[0] for line in commands] == ["sme2", "pytest", "pytest"]
    assert "--update-baselines" in commands[1]
    assert "--update-baselines" not in commands[2]
    assert "sme2_gate.check_evidence()" in readme_block("python file=test_my_models.py")


def test_the_insight_is_the_sentence_about_coverage() -> None:
    compile(MODEL, "model.py", "exec")
    printed = "  fp32 82/82\n- efficientnet_b0: matrix operators on SME2: all 82 (fp32)\n- more"
    found = INSIGHT.search(printed)
    assert found is not None
    assert found[1] == "matrix operators on SME2: all 82 (fp32)"
    assert INSIGHT.search("- other: matrix operators on SME2: 1 of 2") is None
