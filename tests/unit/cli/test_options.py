"""The options about a device are the same for every command that runs something."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.cli.device_options import device_settings
from pytest_sme2.cli.main import build_parser, main

WORDS = [
    "--device=android",
    "--serial=a,b",
    "--serial=c",
    "--adb-server=lab:5037",
    "--power-mode=boost",
    "--fixed-performance",
    "--max-celsius=40C",
    "--cpus=4-5",
    "--device-bundle=x.tar.gz",
    "--qemu=q",
]


@pytest.mark.parametrize("command", ["run net", "kernels net", "selfcheck"])
def test_a_phone_can_be_described(command: str) -> None:
    name = command.split()[0]
    arguments = build_parser((name,)).parse_args([*command.split(), *WORDS])
    found = device_settings(arguments, "auto")
    assert found["device"] == "android"
    assert found["serials"] == ("a", "b", "c")
    assert (found["adb_server"], found["power_mode"]) == ("lab:5037", "boost")
    assert (found["cpus"], found["fixed_performance"]) == ((4, 5), True)
    assert found["max_celsius"] == 40.0
    assert found["device_bundle"] == Path("x.tar.gz")


@pytest.mark.parametrize("command", ["run net", "kernels net"])
def test_one_runner_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--runner-on=x"]) == 2
    assert "Give both --runner-on and --runner-off" in capsys.readouterr().err
