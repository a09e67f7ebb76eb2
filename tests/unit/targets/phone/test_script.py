"""The script of a run, and its answer, without a phone."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.runners.base import ProcessFiles
from pytest_sme2.targets.base import on_cores, one_line
from pytest_sme2.targets.phone.adb import quote
from pytest_sme2.targets.phone.answers import Answer, ShellResult
from pytest_sme2.targets.phone.processes import PhoneRun


def make_run(folder: Path, *command: str, etdump: bool = False) -> PhoneRun:
    place = folder / "runs" / "name"
    files = ProcessFiles(
        model="model",
        inputs=(),
        result=f"{place}/runner.json",
        etdump=f"{place}/run.etdump" if etdump else None,
        outputs=None,
    )
    return PhoneRun("name", str(place), str(folder), command, files, longest_seconds=60)


def answer_of(run: PhoneRun) -> Answer:
    """This machine's shell stands for the phone's; it has no dumpsys, as old phones have none."""
    done = subprocess.run(["sh", "-c", run.script()], capture_output=True, timeout=600, check=False)
    (answer,) = run.parse("serial", ShellResult(done.returncode, done.stdout, done.stderr))
    return answer


def test_an_untraced_run_clears_up_after_itself(tmp_path: Path) -> None:
    run = make_run(tmp_path, "sh", "-c", 'echo said; pwd; echo "$PYTEST_SME2_RUN"; exit 7')
    answer = answer_of(run)
    assert answer.code == 7
    assert answer.log.decode() == f"said\n{tmp_path}\nname\n"
    assert answer.document == b""
    assert not answer.status
    assert not Path(run.place).exists()


def test_a_run_that_ended_before_its_watcher_began(tmp_path: Path) -> None:
    run = make_run(tmp_path, "sh", "-c", f"sleep 0.2; rm {tmp_path}/runs/name/heat; echo said")
    assert answer_of(run).log == b"said\n"


def test_a_traced_run_keeps_its_files(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "name"
    answer_of(make_run(tmp_path, "sh", "-c", f"echo x > {place}/run.etdump", etdump=True))
    assert (place / "run.etdump").exists()


def test_result_that_looks_like_a_marker_is_a_result(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "name"
    text = "code 99\\nThermal Status: 5\\n==another==\\n"
    run = make_run(tmp_path, "sh", "-c", f"printf '{text}' > {place}/runner.json")
    answer = answer_of(run)
    assert answer.code == 0
    assert not answer.status
    assert answer.document.decode() == text.replace("\\n", "\n")


def test_a_run_that_could_not_be_started(tmp_path: Path) -> None:
    run = dataclasses.replace(make_run(tmp_path, "true"), home=str(tmp_path / "nowhere"))
    with pytest.raises(TargetError, match=r"serial could not start the run: .*sme2 clean"):
        answer_of(run)


@pytest.mark.parametrize(
    ("statuses", "status"), [((), 0), ((0, 0), 0), ((0, 2, 0), 2), ((0, 1), 1), ((3, 1), 3)]
)
def test_the_highest_thermal_status_of_a_run_counts(statuses: tuple[int, ...], status: int) -> None:
    seen = "".join(f"Thermal Status: {seen}\n" for seen in statuses)
    done = ShellResult(0, f"code 0\n{seen}==name==\n{{}}".encode(), b"==name==\n")
    (answer,) = make_run(Path(), "true").parse("serial", done)
    assert answer.status == status


def test_the_watcher_of_heat_ends_with_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, "true")
    marked = f"grep -l PYTEST_SME2_RUN={tmp_path.name} /proc/[0-9]*/environ 2>/dev/null"
    run = dataclasses.replace(run, name=tmp_path.name)
    assert answer_of(run).code == 0
    left = subprocess.run(["sh", "-c", marked], capture_output=True, timeout=600, check=False)
    assert left.stdout == b""


def test_cores_are_a_mask() -> None:
    assert on_cores(["run"], ()) == ("run",)
    assert on_cores(["run"], (4, 5, 7)) == ("taskset", "b0", "run")


def test_a_command_in_a_log_is_one_line() -> None:
    assert one_line(["a b", "c\nd'"]) == b"$ 'a b' \"c\\nd'\"\n"


def test_nul_in_a_command_is_refused() -> None:
    with pytest.raises(TargetError, match="NUL"):
        quote(["a\0b"])
