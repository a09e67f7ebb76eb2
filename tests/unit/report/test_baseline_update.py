"""What an update of baselines says."""

from __future__ import annotations

from pytest_sme2.report.versus_baseline import Update, unaccepted, update_lines
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
        "  toy: program size 10 bytes → 11 bytes; instructions (on) 742 → 800; "
        "SME2 coverage 6 of 6 → 5 of 6; 1 operator"
    )


NEWER = BaselineChange("version of executorch", "1.5.0", "1.5.1")


def test_kinds_of_change_that_cases_share_are_counted() -> None:
    updates = [
        update(f"net-{number}", (*CHANGED[: 1 + number % 2], NEWER)) for number in range(41)
    ] + [update("other", (BaselineChange("kernel kai_x (on)", "runs", "none"),))]
    lines = update_lines(updates, "/b", width=120)
    assert lines[0] == "baselines: 42 changed, in /b"
    assert lines[1:4] == [
        "  41 cases: +2 Transpose (ND, X32) (on, delegated)",
        "  41 cases: executorch 1.5.0 → 1.5.1",
        "  20 cases: other program size",
    ]
    assert "kai_x" not in lines[4]


def test_a_kernel_that_comes_or_goes_is_a_kind_of_change() -> None:
    come = BaselineChange("kernel kai_y (off)", "none", "runs")
    gone = BaselineChange("kernel kai_x (on)", "runs", "none")
    lines = update_lines([update(f"net-{n}", (come, gone)) for n in range(4)], "/b")
    assert lines[1:3] == ["  4 cases: runs kai_y (off)", "  4 cases: no longer runs kai_x (on)"]


def test_kernels_without_a_name_are_one_kind_of_change() -> None:
    places = ("libxnnpack.so+0x18fe30", "libxnnpack.so+0x18fe34")
    changes = tuple(BaselineChange(f"kernel {place} (on)", "none", "runs") for place in places)
    lines = update_lines([update(f"net-{n}", changes) for n in range(4)], "/b")
    assert lines[1] == "  4 cases: other kernels without a name (on)"
    assert not any("+0x" in line for line in lines)


def test_changes_are_accepted_by_pattern() -> None:
    patterns = ("operator Transpose*", "program size")
    assert unaccepted(CHANGED[:2], patterns) == ()
    assert unaccepted(CHANGED, patterns) == CHANGED[2:]


def test_changes_are_accepted_by_the_kind_that_the_summary_counts() -> None:
    assert unaccepted(CHANGED[:1], ("+2 Transpose*",)) == ()
    assert unaccepted(CHANGED[:1], ("+2 Transpose (ND, X32) (on, delegated)",)) == ()
    assert unaccepted(CHANGED[:1], ("+1 Transpose*",)) == CHANGED[:1]
    assert unaccepted((NEWER,), ("+2 Transpose*",)) == (NEWER,)


def test_what_was_not_stored_is_named() -> None:
    updates = [update("toy", CHANGED, stored=False), update("net", CHANGED[:1])]
    lines = update_lines(updates, "/b")
    assert lines[0] == "baselines: 1 changed, 1 not stored, in /b"
    assert "  not stored: toy" in lines
    assert lines[-1].endswith("Commit the files.")
    (nothing,) = [line for line in update_lines(updates[:1], "/b") if "with -v" in line]
    assert "Commit" not in nothing
    detailed = update_lines(updates, "/b", verbosity=1)
    assert "toy: changes that were not stored in /b/toy.json" in detailed
    assert "net: baseline written to /b/net.json" in detailed


def test_a_first_baseline_that_was_not_stored_is_not_new() -> None:
    lines = update_lines([update("toy", NEW, new=True, stored=False), update("old", ())], "/b")
    assert lines == [
        "baselines: 1 not stored, 1 unchanged, in /b",
        "  not stored: toy",
        "  Every value, old and new, is shown with -v.",
    ]


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


def test_kernels_without_a_name_are_only_counted() -> None:
    kernels = ("kernel libxnnpack.so+0x106ee0 (on)", "kernel libxnnpack.so+0xe03d0 (off)")
    changes = (*CHANGED, *(BaselineChange(kernel, "none", "runs") for kernel in kernels))
    lines = update_lines([update("toy", changes)], "/b", verbosity=1)
    assert "  2 kernels without a name: each is in the file" in lines
    assert not [line for line in lines if "+0x" in line]
