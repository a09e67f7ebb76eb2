from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from pytest_sme2.cli.commands import doctor
from pytest_sme2.errors import BuildError
from tests.support import Command
from tests.support.pretended_mac import PretendedMac


@pytest.mark.parametrize(
    ("installed", "settings", "told"),
    [
        (
            ("sme2", "hydra_pytest", "hypothesispytest"),
            "",
            " with addopts = -p no:hydra_pytest -p ",
        ),
        (("sme2", "hypothesispytest"), "", " with addopts = -p no:hypothesispytest in "),
        (("sme2", "hydra_pytest"), "addopts = -v -p no:hydra_pytest", ""),
        (("sme2", "xdist"), "", ""),
    ],
)
def test_plugins_that_slow_each_start_are_named_until_they_are_off(
    installed: tuple[str, ...],
    settings: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [EntryPoint(name, "module", "pytest11") for name in installed]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: entries)
    monkeypatch.chdir(tmp_path)
    Path("pytest.ini").write_text(f"[pytest]\n{settings}\n")
    found = doctor.start_of_pytest()
    assert found.startswith(pytest.__version__)
    assert told in found if told else found == pytest.__version__


def test_a_machine_on_which_it_fails_leaves_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sme2: Command
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BuildError("The runner could not be compiled.")

    PretendedMac(tmp_path, monkeypatch)
    monkeypatch.setattr("pytest_sme2.runners.sme2.wheel_runner", fail)
    monkeypatch.chdir(tmp_path)
    printed = sme2("doctor", "--device", "mac", code=1).out
    assert "  no  The runner could not be compiled." in printed
    document = json.loads(Path("sme2-doctor-mac.json").read_text())
    assert document["machine"]["problems"] == ["The runner could not be compiled."]
    assert document["usable"] is False
