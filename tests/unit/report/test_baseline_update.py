"""What an update of baselines says."""

from __future__ import annotations

from pytest_sme2.report.baseline_update import Update, update_lines
from pytest_sme2.results import BaselineChange

NEW = tuple(
    BaselineChange(what, "none", "1")
    for what in (
        "SME2 coverage",
        *(f"operator {number} (on, delegated)" for number in range(100)),
        *(f"kernel {number} (off)" for number in range(100)),
        "instructions (on)",
        "instructions (off)",
        "program size",
        "version of torch",
    )
)
CHANGED = (
    BaselineChange("operator Transpose (ND, X32) (on, delegated)", "2", "4"),
    BaselineChange("program size", "10 bytes", "11 bytes"),
    BaselineChange("instructions (on)", "742", "800"),
    BaselineChange("SME2 coverage", "6 of 6", "5 of 6"),
)


def update(case: str, changes: tuple[BaselineChange, ...], **facts: object) -> Update:
    return Update(case, f"/b/{case}.json", changes, facts.pop("new", False), **facts)  # type: ignore[arg-type]


def test_many_new_values_are_few_lines() -> None:
    updates = [update(f"toy-{number}", NEW, new=True) for number in range(9)]
    lines = update_lines([*updates, update("old", ())], "/b")
    assert lines[0] == "baselines: 9 new, 1 unchanged, in /b"
    assert lines[1].startswith("  new: toy-0, toy-1, ")
    assert lines[1].endswith(" and 3 more")
    assert lines[2] == (
        "  stored of them: SME2 coverage, operators, kernels, instructions, program size,\n"
        "  versions"
    )
    assert len("\n".join(lines).splitlines()) <= 6


def test_a_change_names_the_figures_and_counts_the_rest() -> None:
    lines = update_lines([update("toy", CHANGED)], "/b", width=120)
    assert lines[1] == (
        "  toy: SME2 coverage 6 of 6 → 5 of 6; instructions (on) 742 → 800; "
        "program size 10 bytes → 11 bytes; 1 operator"
    )


def test_verbose_shows_every_value() -> None:
    lines = update_lines(
        [update("toy", CHANGED, doubts=("Noisy.",)), update("old", ())], "/b", verbosity=1
    )
    assert lines[0] == "toy: baseline written to /b/toy.json"
    assert "  program size: 10 bytes → 11 bytes" in lines
    assert "  warning: Noisy." in lines
    assert lines[-1] == "old: the baseline stays as it is (/b/old.json)"


def test_doubts_are_said_once_and_counted() -> None:
    lines = update_lines([update("toy", CHANGED, doubts=("Noisy.", "Busy."))], "/b")
    assert "  warning: toy: Noisy. (1 more warning with -v)" in lines
    assert update_lines([], "/b") == []
