"""``sme2 merge``: the runs of several machines as one."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.report.history import read_history
from pytest_sme2.results.case import Check
from pytest_sme2.results.run import PAIR
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import (
    SHARD_SCHEMA,
    TESTS,
    Shard,
    read_record,
    read_shard,
    write_shard,
)
from tests.support import Command
from tests.support.records import stored_dumps, write_case

ALL = tuple(f"test_it.py::test_it[toy-{variant}]" for variant in ("fp16", "fp32"))


def check(metric: str) -> Check:
    return Check(metric, Outcome.PASS, "Equal.")


def shard(root: Path, variant: str, *, test: str = "passed", **facts: object) -> Path:
    """A run directory with one case and one test of the two that were found."""
    checks = (check("operators (on)"),)
    write_case(root, "toy", variant, stored_dumps("toy_fp16"), checks=checks)
    ran = {f"test_it.py::test_it[toy-{variant}]": test}
    made = Shard(SHARD_SCHEMA, int(test == "failed"), ran, ALL)
    write_shard(root, replace(made, **facts))  # type: ignore[arg-type]
    return root


def case_of(root: Path) -> Path:
    (metrics,) = root.rglob("metrics.json")
    return metrics.parent


@pytest.fixture
def merged(sme2: Command) -> Command:
    return functools.partial(sme2, "merge")


def test_two_shards_become_one_run(tmp_path: Path, merged: Command) -> None:
    first = shard(tmp_path / "1", "fp16", number=1, of=2)
    second = shard(tmp_path / "2", "fp32", number=2, of=2)
    out = tmp_path / "out"
    printed = merged(first, second, "--out", out, "--history", tmp_path / "history")
    assert "2 shards, 2 cases, 2 tests: 2 passed" in printed.out
    assert printed.err == ""
    cases = {path.parent.parent.parent.name for path in out.rglob("metrics.json")}
    assert cases == {"toy-fp16", "toy-fp32"}
    assert "toy-fp32" in (out / "report.md").read_text()
    assert len(read_history(tmp_path / "history")) == 2


def test_only_what_belongs_together_is_merged(tmp_path: Path, merged: Command) -> None:
    roots = [
        shard(tmp_path / str(number), variant, number=number, of=2 * number)
        for number, variant in ((1, "fp16"), (2, "fp32"))
    ]
    for root, commit in zip(roots, ("abc", "def"), strict=True):
        manifest = {"commit": commit, "recorded": read_record(case_of(root)).measured.recorded}
        (case_of(root) / "manifest.json").write_text(json.dumps(manifest))
    told = merged(*roots, "--out", tmp_path / "out", "--history", tmp_path / "mixed", code=1).err
    assert f"the project's commit is abc in {roots[0]} and def in {roots[1]}." in told
    assert "Some runs are of 2 and of 4 shards." in told
    # The history is told the commit that was measured, not that of the folder here.
    shutil.rmtree(roots[1])
    write_shard(roots[0], replace(read_shard(roots[0]), found=(), number=None, of=None))
    merged(roots[0], "--out", tmp_path / "one", "--history", tmp_path / "history")
    assert [record.commit for record in read_history(tmp_path / "history")] == ["abc"]


def test_a_killed_merge_leaves_no_run_directory(tmp_path: Path, merged: Command) -> None:
    root, out = shard(tmp_path / "1", "fp16", found=()), tmp_path / "out"
    script = (
        "import os, sys\nfrom pytest_sme2.cli import main\n"
        "from pytest_sme2.cli.commands import merge\n"
        "merge.write_run = lambda *words: os.kill(os.getpid(), 9)\nmain.main(sys.argv[1:])\n"
    )
    words = [sys.executable, "-c", script, "merge", str(root), "--out", str(out)]
    assert subprocess.run(words, check=False).returncode == -9
    assert not out.exists()
    merged(root, "--out", out)
    assert (out / "report.md").is_file()


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"number": 1, "of": 3}, "Shards that are missing, of 3: 2, 3."),
        ({"number": 2, "of": 2}, "Shards that are missing, of 2: 1."),
        ({}, "1 test of 2 ran in no shard: test_it.py::test_it[toy-fp32]."),
        ({"found": (), "test": "failed"}, "failed: test_it.py::test_it[toy-fp16]."),
        ({"found": (), "exit_code": 2}, "pytest ended with exit code 2 before all its tests"),
    ],
)
def test_what_is_missing_is_noticed(
    facts: dict[str, Any], said: str, tmp_path: Path, merged: Command
) -> None:
    root = shard(tmp_path / "1", "fp16", **facts)
    assert said in merged(root, "--out", tmp_path / "out", code=1).err


def test_a_test_that_ran_twice_is_named(tmp_path: Path, merged: Command) -> None:
    roots = [shard(tmp_path / name, "fp16", found=ALL[:1]) for name in "12"]
    printed = merged(*roots, "--out", tmp_path / "out", "--json", code=1)
    assert "1 test ran in more than one shard: test_it.py::test_it[toy-fp16]." in printed.err
    assert json.loads(printed.out)["failed"] is True


def test_the_checks_of_one_case_come_together(tmp_path: Path, merged: Command) -> None:
    """A plugin that spreads tests may give two tests of a case to two machines."""
    first = shard(tmp_path / "1", "fp16", found=())
    second = tmp_path / "2"
    checks = (check("operators (on)"), check("cost (on)"))
    folder = write_case(second, "toy", "fp16", stored_dumps("toy_fp16"), checks=checks)
    write_shard(second, Shard(SHARD_SCHEMA, 0, {"test_it.py::test_cost[toy-fp16]": "passed"}))
    merged(first, second, "--out", tmp_path / "out")
    record = read_record(tmp_path / "out" / folder.relative_to(second))
    assert [entry.metric for entry in record.checks] == ["operators (on)", "cost (on)"]


def test_another_program_under_the_same_name_is_noticed(tmp_path: Path, merged: Command) -> None:
    roots = [tmp_path / "1", tmp_path / "2"]
    for root in roots:
        write_case(root, "toy", "fp16", stored_dumps("toy_fp16"), pte_sha256=root.name * 64)
        write_shard(root, Shard(SHARD_SCHEMA, 0, {f"test_it.py::test_{root.name}": "passed"}))
    told = merged(*roots, "--out", tmp_path / "out", code=1).err
    assert "toy-fp16 is another program in" in told


def test_both_arms_are_copied_and_links_are_not_followed(tmp_path: Path, merged: Command) -> None:
    root = shard(tmp_path / "1", "fp16", found=ALL[:1])
    (tmp_path / "precious").write_text("precious")
    (case_of(root) / "link").symlink_to(tmp_path / "precious")
    merged(root, "--out", tmp_path / "out")
    assert not list((tmp_path / "out").rglob("link"))
    assert set(read_record(case_of(tmp_path / "out")).measured.profiles) == set(PAIR)


def test_wrong_usage(tmp_path: Path, merged: Command) -> None:
    root, out = shard(tmp_path / "1", "fp16"), tmp_path / "out"
    assert "is named twice" in merged(root, root, "--out", out, code=2).err
    assert "is there already" in merged(root, "--out", root, code=2).err
    assert f"it has no {TESTS}" in merged(tmp_path, "--out", out, code=2).err
    (root / TESTS).write_text("[]")
    assert "Run this shard again." in merged(root, "--out", out, code=3).err
    (root / TESTS).write_text('{"schema": 9, "exit_code": 0}')
    assert "this version reads" in merged(root, "--out", out, code=2).err
    assert not out.exists()
