"""The options that commands share with pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.cli.main import build_parser
from pytest_sme2.cli.options import chosen
from pytest_sme2.errors import UsageError
from pytest_sme2.plugin.options import long_name
from pytest_sme2.session.options import FIRST, OPTIONS
from pytest_sme2.session.settings import Settings, parse_phone, parse_reports
from tests.support import Command

WORDS = [
    "--device=android",
    "--serial=a,b",
    "--serial=c",
    "--phone=adb-server=lab:5037",
    "--phone=cpus=4-5",
    "--phone=bundle=x.tar.gz",
    "--phone=fake",
]


@pytest.mark.parametrize("command", [("run", "net"), ("advise", "net"), ("doctor",)])
def test_a_phone_can_be_described(command: tuple[str, ...]) -> None:
    arguments = build_parser(command[:1]).parse_args([*command, *WORDS])
    assert chosen(arguments, device="auto", no_cost=True) == {
        "device": "android",
        "serials": ("a", "b", "c"),
        "adb_server": "lab:5037",
        "cpus": (4, 5),
        "device_bundle": Path("x.tar.gz"),
        "fake_phone": True,
        "no_cost": True,
    }


def test_a_wrong_option_is_named_as_the_command_has_it(sme2: Command) -> None:
    told = sme2("run", "net", "--sme2-runner=x", code=2).err
    assert told.startswith("sme2: --runner: 'x' are not two runners.")
    told = sme2("run", "net", "--phone=cpus=all", code=2).err
    assert told.startswith("sme2: --phone: 'all' does not name cores. Choose one of: ")


def test_there_are_few_options_with_a_prefix() -> None:
    assert len(OPTIONS) <= 22
    assert {option.flag for option in OPTIONS if option.flag != long_name(option.flag)} == {
        "--device",
        "--update-baselines",
        "--against",
        "--threads",
    }
    assert tuple(option.name for option in OPTIONS[: len(FIRST)]) == FIRST
    assert {option.field for option in OPTIONS} <= {"", *Settings.__dataclass_fields__}


@pytest.mark.parametrize("text", ["", "report.pdf", "=x", "github=x.json"])
def test_a_report_of_no_kind_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a"):
        parse_reports([text])


def test_the_kind_of_a_report_is_said_or_seen() -> None:
    assert parse_reports(["a=b.html", "c.json"]) == {
        "report": Path("a=b.html"),
        "comment": Path("c.json"),
    }


def test_a_wrong_setting_of_a_phone_names_the_right_ones() -> None:
    with pytest.raises(UsageError, match=r"'colour' is not a setting.*Choose one of: cpus, "):
        parse_phone(["colour=red"])
    assert parse_phone(["fake=False", "patience=2m"]) == {
        "fake_phone": False,
        "patience_seconds": 120.0,
    }
