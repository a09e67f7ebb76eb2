"""The progress stays out of pytest's own output, on a terminal and in a log."""

from __future__ import annotations

import io

import pytest

from pytest_sme2.plugin.progress import EVERY_SECONDS, Progress, Remaining


def screen(text: str) -> list[str]:
    """What a terminal shows: as much of one as the progress line needs."""
    lines, row, column = [""], 0, 0
    while text:
        if text.startswith("\x1b["):
            end = next(place for place in range(2, len(text)) if text[place].isalpha())
            number = int(text[2:end] or 0)
            if text[end] == "K":
                lines[row] = lines[row][:column]
            elif text[end] == "A":
                row -= number
            elif text[end] == "C":
                column += number
            text = text[end + 1 :]
            continue
        letter, text = text[0], text[1:]
        if letter == "\r":
            column = 0
        elif letter == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column].ljust(column) + letter + lines[row][column + 1 :]
            column += 1
    return [line for line in lines if line]


def test_on_a_terminal_the_dots_stay_in_their_line() -> None:
    stream = io.StringIO()
    dots = "test_a.py .."
    stream.write(dots)
    progress = Progress(stream, lambda: len(dots), 40)
    progress.say("toy: exporting")
    progress.say("toy: a traced run")
    assert screen(stream.getvalue()) == [dots, "toy: a traced run"]
    progress.clear()
    progress.clear()
    stream.write("F")
    assert screen(stream.getvalue()) == [f"{dots}F"]


def test_on_a_terminal_a_line_is_never_wider_than_it_and_never_two() -> None:
    stream = io.StringIO()
    progress = Progress(stream, lambda: 0, 12)
    progress.say("a" * 30 + "\nb")
    assert screen(stream.getvalue()) == ["a" * 11]
    progress.clear()
    assert screen(stream.getvalue()) == []


def test_in_a_log_there_is_a_line_now_and_then_and_never_in_that_of_the_dots() -> None:
    stream, now = io.StringIO(), [0.0]
    progress = Progress(stream, lambda: 2, None, clock=lambda: now[0])
    stream.write("..")
    for line in ("toy: exporting", "toy: running", "toy: running (20 s)", "big:\nexporting"):
        progress.say(line)
        now[0] += EVERY_SECONDS / 2
    # pytest goes on in the same line, as it believes.
    progress.clear()
    stream.write(".")
    now[0] += EVERY_SECONDS
    progress.say("big: running")
    assert stream.getvalue().splitlines() == [
        *("..", "sme2: toy: running (20 s)", ".", "sme2: big: running")
    ]


CASES = ["toy-fp32", "big-fp32"]


def test_a_case_is_done_with_its_last_test() -> None:
    now = [0.0]
    tests = ["t.py::a[toy-fp32]", "t.py::b[toy-fp32]", "t.py::a[big-fp32]", "t.py::other"]
    far = Remaining(tests, CASES, lambda: now[0])
    assert str(far) == "0 of 2 cases done"
    now[0] = 8.0
    far.finished(tests[0])
    assert str(far) == "0 of 2 cases done"
    far.finished(tests[1])
    assert str(far) == "1 of 2 cases done, about 8 s left"
    for test in (tests[1], tests[3], tests[2]):
        far.finished(test)
    assert str(far) == "2 of 2 cases done"


def test_nothing_is_estimated_from_too_little() -> None:
    now = [0.0]
    cases = [f"toy-{number}" for number in range(30)]
    far = Remaining([f"t.py::a[{case}]" for case in cases], cases, lambda: now[0])
    now[0] = 100.0
    far.finished("t.py::a[toy-0]")
    assert str(far) == "1 of 30 cases done"
    now[0] = 120.0
    assert str(far) == "1 of 30 cases done, about 58 min left"
    now[0] = 100.0
    for case in cases[1:3]:
        far.finished(f"t.py::a[{case}]")
    assert str(far) == "3 of 30 cases done, about 15 min left"


@pytest.mark.parametrize("cases", [[], CASES])
def test_where_most_are_of_no_case_tests_are_counted_and_nothing_is_estimated(
    cases: list[str],
) -> None:
    tests = ["t.py::one", "t.py::two[toy-fp32]"]
    far = Remaining(tests, cases, lambda: 0.0)
    far.finished("t.py::one")
    assert str(far) == "1 of 2 tests done"
