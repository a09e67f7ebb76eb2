"""Several phones: leased one a process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.results.run import Artifact
from pytest_sme2.targets.phone.target import lease_phone
from tests.support.phones import MakeTarget, StartRun, leftovers, settings_of


def test_restoring_a_phone_does_not_end_other_runs(
    lab: FakeLab, make_target: MakeTarget, start: StartRun
) -> None:
    phones = lab.add(), lab.add()
    slow, quick = (make_target(phone) for phone in phones)
    # It has run something, so there is something to clear up.
    start(quick)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(start, slow, 2)
        while not any("./sme2_runner" in words for words in phones[0].processes().values()):
            assert not running.done(), running.result()
            time.sleep(0.02)
        quick.restore()
        assert len(running.result().wall_ns) > 0


def test_lease_belongs_to_one_process_and_ends_with_it(lab: FakeLab, phone: FakePhone) -> None:
    program = (
        "import sys\nfrom pytest_sme2.targets.phone.adb import open_server\n"
        "from pytest_sme2.targets.phone.target import take_lease\n"
        "lease = take_lease(open_server(sys.argv[1]), sys.argv[2])\n"
        "print(lease is not None, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, lab.address, phone.serial],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "True\n"
        with pytest.raises(TargetError, match=r"All devices are in use.*run fewer workers"):
            lease_phone(lab.server, [phone.serial], timeout=0.2)
        other.kill()
    lease_phone(lab.server, [phone.serial], timeout=5).restore()
    assert leftovers(phone) == []


def test_sme2_clean(
    lab: FakeLab,
    phone: FakePhone,
    make_target: MakeTarget,
    artifact: Artifact,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = settings_of(phone)
    target = make_target(phone)
    target.storage.put({"file": artifact.pte})
    arguments = ["clean", "--device", "android", "--serial", phone.serial]
    assert main([*arguments, "--phone", f"adb-server={lab.address}"]) == 0
    assert capsys.readouterr().out == f"{phone.serial}: cleaned, its settings are put back\n"
    assert phone.files() == []
    assert settings_of(phone) == before
    assert main([*arguments, "--phone", f"adb-server={lab.address}", "--json"]) == 0
    (done,) = json.loads(capsys.readouterr().out)
    assert done == {"serial": phone.serial, "restored": False, "refused": []}


def test_sme2_run_leaves_the_phone_to_others(
    sme2_lab: FakeLab, toy: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phone = sme2_lab.add()
    where = ["--phone", f"adb-server={sme2_lab.address}", "--serial", phone.serial]
    words = ["run", str(toy.pte), "--device", "android", *where, "--out", str(tmp_path)]
    assert main(words) == 0, capsys.readouterr()
    assert "2 of 2 matrix operators ran on SME2 kernels" in capsys.readouterr().out
    assert leftovers(phone) == []


def test_sme2_clean_of_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "--device", "linux"]) == 2
    assert "'linux' is not a device that can be cleaned" in capsys.readouterr().err
