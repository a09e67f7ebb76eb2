"""What a run keeps for ``sme2 merge``. A conftest shards as pytest-split does: after all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.cli.commands.merge import merge
from pytest_sme2.session.run_directory import read_shard

CONFTEST = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--splits", type=int)
    parser.addoption("--group", type=int)

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.option.splits:
        items[:] = items[config.option.group - 1 :: config.option.splits]
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(5))
def test_it(number):
    assert number != 3, "three"

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass

@pytest.fixture
def broken():
    raise RuntimeError("no fixture")

def test_broken(broken):
    pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_all=TESTS)
    return pytester


def run(project: pytest.Pytester, out: str, *options: str) -> Path:
    project.runpytest_inprocess("--device=linux", f"--sme2-out={out}", *options)
    return project.path / out


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_every_test_and_its_end_are_kept(
    project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    shard = read_shard(run(project, "out", *workers))
    outcomes = {name.partition("::")[2]: ended for name, ended in shard.tests.items()}
    assert outcomes == {
        **{f"test_it[{number}]": "passed" for number in (0, 1, 2, 4)},
        "test_it[3]": "failed",
        "test_skipped": "skipped",
        "test_broken": "error",
    }
    assert set(shard.found) == set(shard.tests)
    assert (shard.exit_code, shard.number, shard.of) == (1, None, None)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_shards_know_each_others_tests(project: pytest.Pytester, workers: tuple[str, ...]) -> None:
    folders = [
        run(project, f"out-{number}", "--splits=2", f"--group={number}", *workers)
        for number in (1, 2)
    ]
    shards = [read_shard(folder) for folder in folders]
    assert [(shard.number, shard.of) for shard in shards] == [(1, 2), (2, 2)]
    assert sorted(len(shard.tests) for shard in shards) == [3, 4]
    assert {len(shard.found) for shard in shards} == {7}
    whole = merge(folders, project.path / "merged", project.path)
    assert (len(whole.tests), whole.problems) == (7, ())
    half = merge(folders[1:], project.path / "half", project.path)
    assert half.problems[0] == "Shards that are missing, of 2: 1."
    assert half.problems[1].startswith("4 tests of 7 ran in no shard: test_all.py::test_")


def test_a_shard_without_tests_is_a_shard(project: pytest.Pytester) -> None:
    folder = run(project, "out", "--splits=9", "--group=9")
    shard = read_shard(folder)
    assert (shard.tests, len(shard.found), shard.exit_code) == ({}, 7, 5)


def test_with_k_nobody_knows_what_is_missing(project: pytest.Pytester) -> None:
    shard = read_shard(run(project, "out", "-k", "it"))
    assert (len(shard.tests), shard.found) == (5, ())
