"""The run directory: records that are damaged, its lock, and links in one of somebody else."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error, StorageError, UsageError
from pytest_sme2.report.writing import validate_run
from pytest_sme2.results.run import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session.run_directory import (
    LOCK,
    MANIFEST,
    METRICS,
    hold_run_directory,
    read_record,
)
from pytest_sme2.system.files import inside, new_file
from pytest_sme2.targets.base import Job, make_place, run_logged
from tests.support.records import toy_run


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text("keep me")
    return path


def test_a_record_whose_dump_is_gone_names_both(tmp_path: Path) -> None:
    case = toy_run(tmp_path)[0]
    next(case.rglob("*.etdump")).unlink()
    with pytest.raises(Sme2Error, match=r"metrics\.json names an ETDump .*\.etdump: no such file"):
        read_record(case)


def test_a_damaged_dump_and_a_bottomless_manifest_are_named(tmp_path: Path) -> None:
    case = toy_run(tmp_path)[0]
    (case / MANIFEST).write_text("[" * 100_000)
    problems = {finding.path.name: finding.problem for finding in validate_run(case)}
    assert "is not what its record" in problems[MANIFEST]
    dump = next(case.rglob("*.etdump"))
    dump.write_bytes(b"damaged")
    found = [finding.path for finding in validate_run(case) if "ETDump" in finding.problem]
    assert found == [case / METRICS, dump]


def test_another_run_is_refused_and_named(tmp_path: Path) -> None:
    first = hold_run_directory(tmp_path / "out")
    for _ in range(2):
        with pytest.raises(
            UsageError,
            match=rf"out is in use by another run \(process {os.getpid()} of .*--sme2-out",
        ):
            hold_run_directory(tmp_path / "out")
    first.close()
    hold_run_directory(tmp_path / "out").close()


def test_a_lock_that_is_another_file_is_not_written(tmp_path: Path, precious: Path) -> None:
    (tmp_path / LOCK).hardlink_to(precious)
    hold_run_directory(tmp_path).close()
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).symlink_to(precious)
    with pytest.raises(StorageError, match=rf"{LOCK} cannot be locked"):
        hold_run_directory(tmp_path)
    assert precious.read_text() == "keep me"


def test_it_ends_with_its_process(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; "
        "from pytest_sme2.session.run_directory import hold_run_directory; "
        "kept = hold_run_directory(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / LOCK).read_text()
    hold_run_directory(tmp_path).close()


def test_git_ignores_a_new_run_directory_and_leaves_others_alone(tmp_path: Path) -> None:
    hold_run_directory(tmp_path / "out").close()
    assert (tmp_path / "out" / ".gitignore").read_text().endswith("\n*\n")
    used = tmp_path / "used"
    used.mkdir()
    (used / "mine.txt").touch()
    hold_run_directory(used).close()
    assert not (used / ".gitignore").exists()


def test_a_log_replaces_the_link_that_has_its_name(tmp_path: Path, precious: Path) -> None:
    log = tmp_path / "runner.log"
    log.symlink_to(precious)
    run_logged(["/bin/echo", "said"], log, folder=tmp_path, timeout_seconds=600)
    assert "said" in log.read_text()
    assert not log.is_symlink()
    assert precious.read_text() == "keep me"


def job(folder: Path) -> Job:
    artifact = Artifact("toy", "fp32", folder, folder / "toy.pte", "", (), ())
    runner = Sme2Runner("wheel", "linux-aarch64", "1.5.1", folder)
    return Job(runner, RunRequest(artifact, Arm.ON, keep_outputs=True), folder)


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"run: cannot be written: it is a link"):
        make_place(job(tmp_path / "run"), "linux", emulated=False)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_outputs_do_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    place = make_place(job(tmp_path / "run"), "linux", emulated=False)
    place.outputs.symlink_to(tmp_path / "elsewhere")
    make_place(job(tmp_path / "run"), "linux", emulated=False)
    assert not place.outputs.is_symlink()
    place.outputs.mkdir()
    (place.outputs / "output_0.bin").symlink_to(tmp_path / "elsewhere" / "file")
    make_place(job(tmp_path / "run"), "linux", emulated=False)
    assert not place.outputs.exists()
    assert (tmp_path / "elsewhere" / "file").exists()


@pytest.mark.parametrize("name", ["../run.etdump", "/etc/passwd", "a/../../x", "link", "loop"])
def test_metrics_name_files_inside_their_folder(tmp_path: Path, name: str) -> None:
    case = toy_run(tmp_path)[0]
    (case / "link").symlink_to("/etc/passwd")
    (case / "loop").symlink_to("loop")
    document = json.loads((case / METRICS).read_text("utf-8"))
    document["etdumps"] = dict.fromkeys(document["etdumps"], name)
    (case / METRICS).write_text(json.dumps(document), "utf-8")
    with pytest.raises(Sme2Error, match=rf"{METRICS} is damaged"):
        read_record(case)
    (finding,) = [finding for finding in validate_run(tmp_path) if finding.path == case / METRICS]
    assert finding.problem.startswith("is damaged: ")


def test_inside_and_new_files(tmp_path: Path, precious: Path) -> None:
    assert inside(tmp_path, "a/b") == tmp_path / "a" / "b"
    assert inside(tmp_path, "precious") == precious
    (tmp_path / "link").symlink_to(precious)
    (tmp_path / "second name").hardlink_to(precious)
    for name in ("link", "second name"):
        with new_file(tmp_path / name) as file:
            file.write(b"new")
    assert precious.read_text() == "keep me"
    # A device is written to, never removed.
    with new_file(Path(os.devnull)) as file:
        file.write(b"new")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
