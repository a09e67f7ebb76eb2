"""Phones of a labgrid coordinator: taken, given back, and taken over when a process was killed."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.results.run import FarmDevice
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.settings import Settings
from pytest_sme2.targets import labgrid
from pytest_sme2.targets.labgrid import Lab, _Coordinator
from pytest_sme2.targets.phone.target import AndroidTarget
from tests.support.labgrid_lab import LabgridLab, labgrid_lab, wait_until

PLACES = {"a1", "a2", "b1", "b2"}
HOLDER = """
import sys
from pytest_sme2.targets import labgrid
lab = labgrid.Lab(sys.argv[1], {"name": sys.argv[2]}, lambda line: None)
print(lab.acquire().name, flush=True)
sys.stdin.read()
"""
# A measurement is one that no other disturbs: the second holder of the lock fails.
MEASURING = """
import fcntl, os, time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(16))
def test_a_measurement(number, sme2_target):
    name = f"{sme2_target.device.server}-{sme2_target.serial}".replace("/", "_")
    with open(name, "w") as lock, open("log", "a", buffering=1) as log:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(os.getpid(), name, file=log)
        for _ in range(5):
            assert sme2_target.device.shell("echo there").text == "there\\n"
            time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabgridLab]:
    with labgrid_lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture(autouse=True)
def _do_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labgrid, "_WAIT_SECONDS", 300.0)
    monkeypatch.setattr(labgrid, "_POLL_SECONDS", 0.1)


def farm(lab: LabgridLab, lines: list[str] | None = None, **wishes: str) -> Lab:
    return Lab(lab.address, wishes, (lines if lines is not None else []).append)


def hold(lab: LabgridLab, place: str) -> subprocess.Popen[str]:
    """Another process that has the place."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, lab.address, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == f"{place}\n"
    return holder


class Waiting:
    """Somebody who waits for a place that is in use."""

    def __init__(self, lab: LabgridLab, place: str) -> None:
        self.lines: list[str] = []
        self.taken: list[FarmDevice] = []
        self._farm = farm(lab, self.lines, name=place)
        self._thread = threading.Thread(target=self._take)
        self._thread.start()
        wait_until(lambda: self.lines)
        time.sleep(1)
        assert self.taken == [], "it is in use"

    def _take(self) -> None:
        self.taken.append(self._farm.acquire())

    def end(self) -> None:
        """It gets the place, and gives it back."""
        self._thread.join()
        self._farm.release(self.taken[0], lost=False)


def end(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()


def take_all(lab: LabgridLab) -> None:
    """Every place can be had, whatever happened before."""
    mine = farm(lab)
    taken = [mine.acquire() for _ in PLACES]
    assert {device.name for device in taken} == PLACES
    for device in taken:
        mine.release(device, lost=False)


def test_phones_are_taken_by_tag_and_given_back(lab: LabgridLab) -> None:
    mine = farm(lab, soc="sm8850")
    assert mine.size() == 2
    first, second = mine.acquire(), mine.acquire()
    assert {first.name, second.name} == {"b1", "b2"}
    assert first.serial in {phone.serial for phone in lab.phones[2:]}
    others = farm(lab)
    third = others.acquire()
    assert third.name in {"a1", "a2"}
    others.release(third, lost=False)
    for device in (first, second):
        mine.release(device, lost=False)
    take_all(lab)


def test_what_the_lab_does_not_have_is_said(
    lab: LabgridLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TargetError, match=r"no place with soc=x.*soc=dimensity-9500, soc=sm8850"):
        farm(lab, soc="x").acquire()
    monkeypatch.setattr(labgrid, "_PATIENCE_SECONDS", 0.0)
    with pytest.raises(TargetError, match=r"127.0.0.1:9 does not work: no answer.*--sme2-lab"):
        Lab("127.0.0.1:9", {}, lambda line: None).acquire()


def test_the_place_of_a_killed_process_is_freed_by_the_next_one(lab: LabgridLab) -> None:
    holder = hold(lab, "a1")
    waiting = Waiting(lab, "a1")
    assert re.search(r"waiting for one of 1 places of the lab, in use: a1 \(", waiting.lines[0])
    end(holder)
    waiting.end()
    assert waiting.lines[1].startswith("freeing the place a1: its holder")


def test_the_place_of_a_person_is_left_alone(lab: LabgridLab) -> None:
    with contextlib.closing(_Coordinator(lab.address, "desk/anna")) as person:
        person.call("AcquirePlace", placename="b1")
        waiting = Waiting(lab, "b1")
        assert "b1 (desk/anna)" in waiting.lines[0]
        person.give_back("b1", "desk/anna")
        waiting.end()


def test_a_phone_that_dies_is_given_back_and_another_taken(lab: LabgridLab) -> None:
    mine = farm(lab, soc="sm8850")
    held = HeldDevice(Settings(device="android"), lambda line: None)
    held.farm = mine
    first, phone = held.prepared, {phone.serial: phone for phone in lab.phones}
    assert isinstance(first, AndroidTarget)
    phone[first.serial].kill_adbd()
    try:
        held.give_up()
        second = held.prepared
        assert isinstance(second, AndroidTarget)
        assert second.device.shell("echo there").text == "there\n"
        assert second.serial != first.serial
    finally:
        phone[first.serial].start_adbd()
        held.close()
    take_all(lab)


def measure(lab: LabgridLab, folder: Path, *words: str) -> subprocess.Popen[str]:
    folder.mkdir()
    (folder / "test_measuring.py").write_text(MEASURING)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [
        *(sys.executable, "-m", "pytest", "--device=android", f"--sme2-lab={lab.address}"),
        *("--junit-xml=junit.xml", "-p", "no:cacheprovider", *words),
    ]
    # These runs are nobody's workers, even where this test is one's.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")
    }
    with (folder / "out").open("w") as out:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True
        )


def kill(victim: str, lab: LabgridLab, begun: list[str], chance: random.Random) -> None:
    if victim == "worker":
        with_phone = {int(line.split()[0]) for line in begun}
        os.kill(chance.choice(sorted(with_phone)), signal.SIGKILL)
    elif victim == "exporter":
        chance.choice(lab.exporters).kill()
    else:
        lab.coordinator.kill()


def one_round(lab: LabgridLab, folder: Path, victims: list[str], chance: random.Random) -> None:
    run = measure(lab, folder, "-n", "4")
    log = folder / "log"
    for victim in victims:
        before = len(log.read_text().splitlines()) if log.exists() else 0

        def more(before: int = before) -> bool:
            lines = log.read_text().splitlines() if log.exists() else []
            return len(lines) > min(before + 1, 14) or run.poll() is not None

        wait_until(more)
        if run.poll() is None:
            kill(victim, lab, log.read_text().splitlines(), chance)
    run.wait(600)
    said = (folder / "out").read_text()
    failed = []
    cases = list(ET.parse(folder / "junit.xml").iter("testcase"))
    for case in cases:
        problems = [child for child in case if child.tag in ("failure", "error", "skipped")]
        # What a killed worker was at is told, and is no result.
        if not problems or "crashed while running" not in (problems[0].get("message") or ""):
            failed += problems
    assert not failed, said[-6000:]
    assert {case.get("name") for case in cases} == {
        f"test_a_measurement[{number}]" for number in range(16)
    }, said[-6000:]
    assert said.count("crashed while running") <= 2 * victims.count("worker"), said[-6000:]
    take_all(lab)


@pytest.mark.parametrize("victim", ["worker", "exporter", "coordinator"])
def test_nothing_is_lost_or_measured_twice_when_something_is_killed(
    lab: LabgridLab, tmp_path: Path, victim: str
) -> None:
    one_round(lab, tmp_path / "run", [victim], random.Random(victim))


@pytest.mark.nightly
def test_twenty_rounds_of_random_kills(lab: LabgridLab, tmp_path: Path) -> None:
    chance = random.Random(20)
    for number in range(20):
        victims = chance.choices(["worker", "exporter", "coordinator"], k=chance.randint(1, 3))
        one_round(lab, tmp_path / str(number), victims, chance)


def test_one_worker_for_each_place(lab: LabgridLab, tmp_path: Path) -> None:
    run = measure(lab, tmp_path / "run", "-n", "auto", f"--sme2-lab={lab.address},soc=sm8850")
    assert run.wait(600) == 0, (tmp_path / "run" / "out").read_text()
    said = (tmp_path / "run" / "out").read_text()
    assert f"device android (from the labgrid coordinator {lab.address}; soc=sm8850)" in said
    assert len({line.split()[0] for line in (tmp_path / "run/log").read_text().splitlines()}) == 2
    take_all(lab)
