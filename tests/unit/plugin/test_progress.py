"""The progress stays out of pytest's own output, on a terminal and in a log."""

from __future__ import annotations

import io

import pytest

from pytest_sme2.plugin.progress import EVERY_SECONDS, HowFar, LogProgress, TerminalProgress


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
    progress = TerminalProgress(stream, lambda: len(dots), 40, lambda: "1 of 2")
    progress.say("toy: exporting")
    progress.say("toy: a traced run")
    assert screen(stream.getvalue()) == [dots, "1 of 2: toy: a traced run"]
    progress.clear()
    progress.clear()
    stream.write("F")
    assert screen(stream.getvalue()) == [f"{dots}F"]


def test_on_a_terminal_a_line_is_never_wider_than_it_and_never_two() -> None:
    stream = io.StringIO()
    progress = TerminalProgress(stream, lambda: 0, 20, lambda: "1 of 2")
    progress.say("a" * 30 + "\nb")
    assert screen(stream.getvalue()) == ["1 of 2: " + "a" * 11]
    progress.stop()
    assert screen(stream.getvalue()) == []


class Log(io.StringIO):
    """A log, pytest's column in it and the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.column = 0
        self.text = ""
        self.progress = LogProgress(
            self, lambda: self.column, lambda: "3 of 9 tests done", lambda: self.now
        )

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def wait(self, seconds: float = EVERY_SECONDS) -> None:
        self.now += seconds
        self.progress.tick()


def test_in_a_log_there_is_a_line_every_thirty_seconds() -> None:
    log = Log()
    log.progress.say("toy: exporting")
    assert log.text == ""
    for _ in range(4):
        log.wait(EVERY_SECONDS / 2)
    log.progress.stop()
    assert log.text.splitlines() == [
        "sme2: 3 of 9 tests done: toy: exporting (30 s)",
        "sme2: 3 of 9 tests done: toy: exporting (60 s)",
    ]


def test_a_line_that_tells_its_time_is_left_as_it_is() -> None:
    log = Log()
    log.progress.say("toy: lowering (12 s)")
    log.wait()
    log.progress.stop()
    assert log.text == "sme2: 3 of 9 tests done: toy: lowering (12 s)\n"


def test_in_a_log_a_line_never_runs_into_the_dots() -> None:
    log = Log()
    log.progress.say("toy: exporting")
    log.text, log.column = "test_a.py ..", 12
    for _ in range(2):
        log.wait()
    assert log.text.splitlines()[0] == "test_a.py .."
    assert all(line.startswith("sme2: ") for line in log.text.splitlines()[1:])
    # pytest goes on in the same line, as it believes.
    log.progress.clear()
    log.text += "."
    log.wait()
    log.progress.stop()
    assert log.text.splitlines()[3] == "."


def test_after_the_end_nothing_is_said() -> None:
    log = Log()
    log.progress.say("toy: exporting")
    log.progress.stop()
    log.wait()
    assert log.text == ""


def test_what_is_done_is_not_said_any_more() -> None:
    log = Log()
    log.progress.say("toy: exporting")
    log.progress.rest()
    log.wait()
    assert log.text == ""
    log.progress.say("toy: running")
    log.progress.stop()
    assert log.text == "sme2: 3 of 9 tests done: toy: running\n"


def test_long_cases_count_more_in_what_is_left() -> None:
    now = [0.0]
    tests = ["t.py::a[toy-fp32]", "t.py::b[toy-fp32]", "t.py::a[big-fp32]", "t.py::other"]
    far = HowFar(tests, {"toy-fp32": 10, "big-fp32": 90}, lambda: now[0])
    assert str(far) == "0 of 2 cases done"
    now[0] = 8.0
    far.finished(tests[0])
    assert str(far) == "0 of 2 cases done"
    far.finished(tests[1])
    assert str(far) == "1 of 2 cases done, about 1 min left"
    far.finished(tests[3])
    far.finished(tests[2])
    assert str(far) == "2 of 2 cases done"


def test_a_case_of_unknown_length_counts_as_a_usual_one() -> None:
    now = [0.0]
    far = HowFar(["t.py::a[new]", "t.py::a[old]"], {"new": 0, "old": 50}, lambda: now[0])
    now[0] = 30.0
    far.finished("t.py::a[new]")
    assert str(far) == "1 of 2 cases done, about 30 s left"


@pytest.mark.parametrize("weights", [{}, {"toy-fp32": 10}])
def test_where_most_are_of_no_case_tests_are_counted(weights: dict[str, int]) -> None:
    tests = ["t.py::one", "t.py::two[toy-fp32]"]
    far = HowFar(tests, weights, lambda: 0.0)
    far.finished("t.py::one")
    assert str(far) == "1 of 2 tests done"


@pytest.mark.parametrize(
    ("weight", "seconds", "said"),
    [
        (9, 119.0, "1 of 2 cases done"),
        (9, 120.0, "1 of 2 cases done, about 20 min left"),
        (10, 6.0, "1 of 2 cases done, about 54 s left"),
    ],
)
def test_what_is_left_is_said_after_a_tenth_or_two_minutes(
    weight: int, seconds: float, said: str
) -> None:
    now = [0.0]
    far = HowFar(
        ["t.py::a[small]", "t.py::a[big]"], {"small": weight, "big": 100 - weight}, lambda: now[0]
    )
    now[0] = seconds
    far.finished("t.py::a[small]")
    assert str(far) == said
