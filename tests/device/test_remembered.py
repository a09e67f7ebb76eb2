"""Emulated runs that are taken from the cache: the same as new ones, and only where they are."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.results.run import Arm, RunRequest
from pytest_sme2.system.cache import mark_cache
from pytest_sme2.system.files import sealed
from pytest_sme2.system.qemu import Qemu
from pytest_sme2.targets.emulated import EmulatedTarget, Traced, remembered_run, run_key
from pytest_sme2.trace.etdump import read_etdump
from tests.device import provision
from tests.support.phones import make_artifact


@pytest.fixture
def asked(programs: dict[str, Path]) -> RunRequest:
    toy = make_artifact(programs["toy_fp32"])
    return RunRequest(toy, Arm.ON, warmup=0, runs=1, traced=True, keep_outputs=True, counted=True)


def start(asked: RunRequest, folder: Path, cache: Path, *, fresh: bool = False) -> Traced:
    return remembered_run(
        provision.emulator(), provision.runner(), asked, folder, fresh=fresh, cache=cache
    )


def test_a_run_that_was_made_before_is_the_same(tmp_path: Path, asked: RunRequest) -> None:
    cache = tmp_path / "cache"
    made = start(asked, tmp_path / "first", cache)
    assert not made.remembered
    same = start(asked, tmp_path / "a b; 'c'", cache)
    assert same.remembered
    first, again = made.run, same.run
    assert same.census == made.census
    assert same.counted == made.counted
    assert not made.counted.problem
    assert [output.sha256 for output in again.outputs] == [
        output.sha256 for output in first.outputs
    ]
    for run in (first, again):
        assert run.emulated
        assert read_etdump(run.etdump).runs == 1
        assert all(output.file and output.file.stat().st_size for output in run.outputs)
        assert run.etdump.parent == run.log.parent
    assert again.etdump == tmp_path / "a b; 'c'" / "run.etdump"
    assert not start(asked, tmp_path / "third", cache, fresh=True).remembered


def test_a_kept_run_that_was_damaged_is_made_again(tmp_path: Path, asked: RunRequest) -> None:
    cache = tmp_path / "cache"
    mark_cache(cache)
    start(asked, tmp_path / "first", cache)
    (entry,) = (path for path in (cache / "emulated").iterdir() if path.is_dir())
    record = entry / "remembered.json"

    def cut(file: Path) -> None:
        file.write_bytes(file.read_bytes()[:-40])

    def write_other_counts() -> None:
        document = json.loads(record.read_text())
        document["counted"]["segments"] = []
        record.write_text(json.dumps(document))

    def put_under_this_key() -> None:
        """What was made for another program."""
        record.write_text(json.dumps(sealed({**json.loads(record.read_text()), "key": "0" * 32})))

    cut_etdump = functools.partial(cut, entry / "run.etdump")
    cut_record = functools.partial(cut, record)
    for damage in (cut_etdump, cut_record, write_other_counts, put_under_this_key):
        damage()
        assert not start(asked, tmp_path / "out", cache).remembered, damage
        assert start(asked, tmp_path / "out", cache).remembered


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, asked: RunRequest
) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file where the folder should be")
    for _ in range(2):
        made = start(asked, tmp_path / "out", cache)
        assert not made.remembered
        assert made.run.etdump is not None


def test_a_cache_that_was_moved_still_holds_everything(
    tmp_path: Path, asked: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a CI machine finds what another one has kept, at another path."""
    caches = [tmp_path / "a" / "cache", tmp_path / "another folder"]
    emulator, runner = provision.emulator(), provision.runner()
    keys = set()
    for number, cache in enumerate(caches):
        monkeypatch.setenv("SME2_CACHE_DIR", str(cache))
        if number:
            caches[0].rename(cache)
        keys.add(run_key(emulator, runner, asked))
        made = remembered_run(emulator, runner, asked, tmp_path / f"out{number}")
        assert made.remembered is bool(number)
    assert len(keys) == 1


def test_different_computation_has_another_key(tmp_path: Path, asked: RunRequest) -> None:
    emulator, runner = provision.emulator(), provision.runner()
    other_qemu = tmp_path / "qemu-aarch64"
    other_qemu.write_bytes(b"another")
    other_emulator = EmulatedTarget(Qemu(other_qemu, emulator.qemu.version))
    artifact = provision.artifact("fp32")
    asked = replace(asked, artifact=artifact)
    off = replace(asked, arm=Arm.OFF)
    artifacts = (
        replace(artifact, method="b"),
        replace(artifact, sha256="0"),
        replace(artifact, input_files=()),
    )
    requests = (asked, off, replace(asked, seed=1), replace(asked, threads=2))
    keys = [
        *(run_key(emulator, runner, request) for request in requests),
        *(run_key(emulator, runner, replace(asked, artifact=other)) for other in artifacts),
        run_key(provision.emulator(switch_cpu=False), runner, off),
        run_key(other_emulator, runner, asked),
        run_key(emulator, replace(runner, kind="source"), asked),
    ]
    assert len(set(keys)) == len(keys) == 10
    assert run_key(emulator, runner, replace(asked, timeout_seconds=1.0)) == keys[0]
