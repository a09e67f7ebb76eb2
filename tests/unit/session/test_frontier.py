"""A frontier through the session and ``sme2 threads``, on a device of known times."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from pytest_sme2.results.run import PAIR, Arm
from pytest_sme2.results.timing import Ship
from pytest_sme2.session.cases import program_case
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.targets.phone.answers import Core
from tests.support import Command
from tests.support.pretended_target import PretendedTarget, use

PROGRAM = Path(__file__).parents[2] / "data" / "programs" / "toy_fp16.pte"
CORES = tuple(Core(number, khz) for number, khz in enumerate([2_000_000] * 4 + [2_800_000] * 3))
# SME2 gains nothing from a second thread, NEON does: 1.5, 1.6 ms against 3.0, 2.0 ms.
FACTORS = {(Arm.ON, 2): 1.06, (Arm.OFF, 2): 2 / 3}


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> PretendedTarget:
    target = PretendedTarget(factors=FACTORS, cores=(*CORES, Core(7, 3_300_000)))
    use(target, monkeypatch)
    return target


def make_session(tmp_path: Path, threads: tuple[int, ...] = (1, 2)) -> Session:
    out = tmp_path / "out"
    return Session(Settings(device="linux", out=out, budget_seconds=5.0, threads=threads))


def test_the_record_has_it(target: PretendedTarget, tmp_path: Path) -> None:
    session = make_session(tmp_path)
    case = program_case(PROGRAM)
    found = session.frontier(case)
    record = read_record(session.keep(case, session.measured(case, timed=False), ()))
    assert record.measured.frontier == found
    measured = [(cell.arm, cell.threads) for cell in found.cells]
    assert measured == [(arm, threads) for threads in (1, 2) for arm in PAIR]
    assert {cell.cores for cell in found.cells} == {"7 at 3.30 GHz", "7 at 3.30 GHz, 4 at 2.80 GHz"}
    pinned = {(request.threads, request.cpus) for request, _ in target.requests if request.cpus}
    assert pinned == {(1, (7,)), (2, (7, 4))}
    assert session.measured(program_case(PROGRAM, 2), timed=False).frontier is None
    session.close()


@pytest.fixture
def threads(target: PretendedTarget, tmp_path: Path, sme2: Command) -> Command:
    where = ("--device", "linux", "--out", tmp_path / "out", "--budget", "5")
    return functools.partial(sme2, "threads", PROGRAM, *where)


def test_the_command_prints_a_table_and_the_decision(threads: Command) -> None:
    lines = threads("--threads", "1,2").out.splitlines()
    assert lines[1].split() == ["threads", "SME2", "NEON", "cores"]
    assert [line.split()[0] for line in lines[2:4]] == ["1", "2"]
    assert lines[4].startswith("Ship SME2 with 1 thread: 1.3")


def test_the_command_in_json_looks_at_what_the_device_has(threads: Command) -> None:
    found = json.loads(threads("--json").out)
    assert sorted({cell["threads"] for cell in found["cells"]}) == [1, 2, 4, 8]
    assert (found["ship"], found["model"]) == (str(Ship.CANDIDATE), "toy_fp16")
    assert found["decision"].startswith("Ship SME2 with")


def test_too_few_rounds_are_still_json(target: PretendedTarget, threads: Command) -> None:
    target.factors = {(arm, count): 400.0 for arm in PAIR for count in (1, 2)}
    printed = threads("--json", "--threads", "1,2", "--budget", "1").out
    found = json.loads(printed, parse_constant=pytest.fail)
    assert (found["ship"], found["speedup"]["high"]) == (str(Ship.UNCLEAR), None)
    assert found["decision"].startswith("Too close to tell")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ("2", "there is nothing to choose. Give several, as in 1,2,4"),
        ("0,1", "'0' is not a thread count"),
        ("1,16", "--threads 16: the device has 8 cores"),
    ],
)
def test_wrong_numbers_of_threads_are_one_line(threads: Command, numbers: str, said: str) -> None:
    assert said in threads("--threads", numbers, code=2).err


def test_emulated_times_are_refused(target: PretendedTarget, threads: Command) -> None:
    target.timing = False
    assert "linux cannot measure time" in threads("--threads", "1,2", code=3).err
