"""A run directory may come from somebody else: nothing in it leads our files out of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error, StorageError
from pytest_sme2.report.validation import validate_run
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.session.run_directory import METRICS, read_record
from pytest_sme2.session.run_lock import LOCK, RunLock
from pytest_sme2.system.files import inside, new_file
from pytest_sme2.targets.base import Job, make_place, run_logged
from tests.support import records


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text("keep me")
    return path


def test_the_lock_of_a_run_directory_is_not_a_link(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOCK).symlink_to(precious)
    with pytest.raises(StorageError, match=rf"{LOCK}.*cannot be written"):
        RunLock(tmp_path / "out", "run")
    assert precious.read_text() == "keep me"


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
        make_place(job(tmp_path / "run"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_outputs_do_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    place = make_place(job(tmp_path / "run"))
    place.outputs.symlink_to(tmp_path / "elsewhere")
    make_place(job(tmp_path / "run"))
    assert not place.outputs.is_symlink()
    place.outputs.mkdir()
    (place.outputs / "output_0.bin").symlink_to(tmp_path / "elsewhere" / "file")
    make_place(job(tmp_path / "run"))
    assert not place.outputs.exists()
    assert (tmp_path / "elsewhere" / "file").exists()


@pytest.mark.parametrize("name", ["../run.etdump", "/etc/passwd", "a/../../x", "link", "loop"])
def test_metrics_name_files_inside_their_folder(tmp_path: Path, name: str) -> None:
    case = records.toy_run(tmp_path)[0]
    (case / "link").symlink_to("/etc/passwd")
    (case / "loop").symlink_to("loop")
    document = json.loads((case / METRICS).read_text("utf-8"))
    document["etdumps"] = dict.fromkeys(document["etdumps"], name)
    (case / METRICS).write_text(json.dumps(document), "utf-8")
    with pytest.raises(Sme2Error, match=rf"{METRICS} is damaged"):
        read_record(case)
    assert any("is damaged" in finding.problem for finding in validate_run(tmp_path))


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
