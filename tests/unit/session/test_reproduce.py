"""The command that measures a case again, in words; tests/device runs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.cli.main import build_parser
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results.run import AS_EXPORTED
from pytest_sme2.session.cases import Case
from pytest_sme2.session.run_directory import (
    SCHEMA,
    CaseRecord,
    advise_command,
    reproduce_command,
    run_command,
)
from pytest_sme2.session.settings import Settings, parse_arms
from tests.support.gate_examples import measured


def case(**changes: object) -> Case:
    return Case(**{"model": "net", "variant": parse_variant("fp16@64"), **changes})  # type: ignore[arg-type]


def test_what_was_chosen_is_said_again() -> None:
    plain = Settings(model_folders=(Path("models"),))
    assert run_command(case(), plain, "linux") == "sme2 run net --variant fp16@64 --device linux"
    chosen = Settings(
        model_folders=(Path("/my nets"),),
        weights=Path("w.pt"),
        serials=("a", "b:5"),
        cpus=(4, 5),
        emulated_cpu="arm-c1",
        arms=parse_arms("off,sme1,on"),
    )
    command = run_command(case(threads=2), chosen, "android")
    assert command == (
        "sme2 run net --variant fp16@64 --device android --threads 2 --models-folder '/my nets' "
        "--weights w.pt --cpu arm-c1 --arms on,off,sme1 --serial a --serial b:5 "
        "--phone cpus=4,5"
    )


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(
            runners=(Path("a"), Path("b")), device_bundle=Path("c"),
            adb_server="lab:5037", cpus="big", fake_phone=True,
        ),
    ],
)  # fmt: skip
def test_the_command_accepts_it(settings: Settings) -> None:
    words = run_command(case(), settings, "android").split()
    build_parser(("run",)).parse_args(words[1:])


def test_a_record_of_an_older_version_has_a_command_too() -> None:
    def record(**changes: object) -> CaseRecord:
        return CaseRecord(SCHEMA, "x", measured(**changes), None, (), {})

    assert reproduce_command(record(model="a b")) == (
        "sme2 run 'a b' --variant fp16 --device linux"
    )
    assert "EXPERIMENT.json" in reproduce_command(record(variant=AS_EXPORTED))


def test_advice_is_asked_for_as_the_case_was_run() -> None:
    ran = (
        "sme2 run 'a b' --variant fp16 --device emulated --threads 2 --models-folder 'my nets' "
        "--weights net.pt --cpu sme1"
    )
    record = CaseRecord(SCHEMA, "x", measured(), None, (), {}, reproduce=ran)
    assert advise_command(record, "silu") == (
        "sme2 advise 'a b' --variants fp16 --device emulated --models-folder 'my nets' "
        "--cpu sme1 --try silu"
    )
    experiment = replace(record, reproduce="sme2 run --config a.json --device linux")
    assert advise_command(experiment, "") == "sme2 advise toy_cnn --variants fp16 --device linux"
