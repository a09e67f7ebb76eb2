"""Answers of phones: whatever comes, a parser returns a value or raises one clear error."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_sme2.errors import TargetError
from pytest_sme2.targets.phone import answers
from pytest_sme2.targets.phone.answers import ShellResult

# Pieces of real answers, so that what is generated gets past the first look.
PIECES = [
    *("==\n", "0", "9" * 5000, "-1", "1.5", "٣", "\x00", "'", '"', "/", "..", "\t", "\n", "null"),
    *("code ", "0 exit ", "1 signal ", "Thermal Status: ", "mWakefulness=", "level: ", "temp:"),
    *("Temperature{mValue=", ", mType=0,", "/sys/thermal_zone7/", "type:", "Features : sme"),
    *("/cpu7/cpufreq/cpuinfo_max_freq:", "Cpus_allowed_list:\t", "0-9999,", "9-0"),
    *(" kB", "ab" * 32, "temperature: ", "==mark==", answers._CURRENT),
]
TEXT = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=12).map("".join)
BYTES = TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=40)
# What a parser takes besides the answer.
KNOWN: dict[str, object] = {
    "serial": "X1",
    "name": "ro.x",
    "command": "stat",
    "count": 2,
    "names": ("a", "b"),
    "mark": "==mark==",
    "separator": " ",
}
PARSERS: list[Callable[..., object]] = [
    function
    for name, function in vars(answers).items()
    if inspect.isfunction(function) and name.startswith(("parse_", "last_"))
]


# For each of forty parsers; the benchmark of hostile files tries far more.
@given(text=TEXT, data=BYTES, more=BYTES)
@example(text="", data=b"", more=b"")
@example(text="'", data=b"code " + b"9" * 5000 + b"\n", more=b"0 exit " + b"9" * 5000 + b"\n")
@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
def test_anything_gives_a_value_or_one_clear_error(
    parser: Callable[..., object], text: str, data: bytes, more: bytes
) -> None:
    given_values = {**KNOWN, "text": text, "said": data, "written": data}
    given_values["done"] = ShellResult(0, data, more)
    wanted = {name: given_values[name] for name in inspect.signature(parser).parameters}
    try:
        parser(**wanted)
    except TargetError as error:
        message = str(error)
        assert len(message) < 1500
        assert message.rstrip().endswith((".", ")", "X1", "?")), message


@pytest.mark.parametrize(
    ("parse", "command"),
    [
        (lambda: answers.parse_free_bytes("X1", "stat -f", ""), "stat -f"),
        (lambda: answers.parse_free_bytes("X1", "stat -f", "12"), "stat -f"),
        (lambda: answers.parse_free_bytes("X1", "stat -f", "a b"), "stat -f"),
        (lambda: answers.parse_names("X1", "a\n..\n"), "ls -1"),
    ],
)
def test_an_answer_that_cannot_be_used_is_told_with_its_command(
    parse: Callable[[], object], command: str
) -> None:
    with pytest.raises(TargetError) as caught:
        parse()
    said = str(caught.value)
    assert said.startswith(f"X1 answered {command!r} with ")
    assert "adb -s X1 shell" in said
