"""A zoo of two hundred programs over four shards, one after the other on this machine.

Small networks are exported here without any of this project's code. pytest-split spreads the suite
over four runs of pytest, each with a run directory of its own; all share one cache folder, which
holds the emulator and the runner, but no emulated run yet. Instructions are not counted. `sme2
merge` puts them together. Then once more, with one program cut off: its failure must reach the
merged exit code. Last, one shard is left out, which must be noticed.

    python -m benchmarks.shards [--programs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claims import Claim, finish
from pytest_sme2.session.run_directory import find_records
from pytest_sme2.session.shard import read_shard
from pytest_sme2.system.cache import cache_folder, mark_cache

ROOT = Path(__file__).parents[1]
PROGRAMS, SHARDS = 200, 4
# What a machine has before its first run; emulated runs and exports are not among it.
TOOLS = ("tools", "runners", "sdk", "zig")
LARGEST_IMBALANCE = 1.25
COMMAND = "import sys; from pytest_sme2.cli.main import main; sys.exit(main())"

# Programs as others export them: no file of theirs is known but the program.
EXPORTS = """
import sys
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch.nn import Conv2d, Flatten, Linear, ReLU, Sequential, Sigmoid

folder, count = Path(sys.argv[1]), int(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)


def network(number):
    kind, size = number % 4, 8 + number // 4
    if kind == 0:
        return Sequential(Linear(16, size), ReLU(), Linear(size, 8)), torch.randn(2, 16)
    if kind == 1:
        return Sequential(Conv2d(3, size, 3), ReLU()), torch.randn(1, 3, 8, 8)
    if kind == 2:
        layers = Conv2d(3, 4, 3), ReLU(), Flatten(), Linear(4 * 36, size)
        return Sequential(*layers), torch.randn(1, 3, 8, 8)
    return Sequential(Linear(size, 16), Sigmoid()), torch.randn(4, size)


for number in range(count):
    made, inputs = network(number)
    program = torch.export.export(made.eval(), (inputs,))
    edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    with (folder / f"net_{number:03}.pte").open("wb") as file:
        edge.to_executorch().write_to_file(file)
"""


@dataclass(frozen=True)
class Zoo:
    """Where everything is."""

    root: Path

    @property
    def programs(self) -> Path:
        return self.root / "programs"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SME2_CACHE_DIR": str(self.cache)}


@dataclass(frozen=True)
class Round:
    """Four shards, one after the other."""

    folders: tuple[Path, ...]
    seconds: tuple[float, ...]
    exit_codes: tuple[int, ...]

    @property
    def imbalance(self) -> float:
        """How much longer the slowest takes than the usual one."""
        return max(self.seconds) * len(self.seconds) / sum(self.seconds)


def make_zoo(root: Path, programs: int) -> Zoo:
    zoo = Zoo(root)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EXPORTS, str(zoo.programs), str(programs)],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    mark_cache(zoo.cache)
    for name in TOOLS:
        if (cache_folder() / name).is_dir():
            shutil.copytree(cache_folder() / name, zoo.cache / name, symlinks=True)
    return zoo


def run_shards(zoo: Zoo, name: str) -> Round:
    folders, seconds, codes = [], [], []
    for number in range(1, SHARDS + 1):
        folders.append(zoo.root / f"{name}-{number}")
        started = time.monotonic()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default"),
                *("--device=emulated", "--sme2-no-cost"),
                f"--sme2-models={zoo.programs}/*.pte",
                *(f"--sme2-out={folders[-1]}", f"--baseline-dir={zoo.root / 'baselines'}"),
                *(f"--splits={SHARDS}", f"--group={number}"),
                *(f"--durations-path={zoo.root / 'durations'}", "--no-header", "--tb=no"),
                str(ROOT / "tests" / "performance" / "test_structure.py"),
            ],
            cwd=ROOT,
            env=zoo.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        seconds.append(time.monotonic() - started)
        codes.append(done.returncode)
        last = done.stdout.strip().splitlines()[-1:]
        print(f"{name}, shard {number}: {seconds[-1]:.1f} s, {' '.join(last)}", flush=True)
    return Round(tuple(folders), tuple(seconds), tuple(codes))


def merge(zoo: Zoo, name: str, folders: Sequence[Path]) -> tuple[int, str, Mapping[str, str]]:
    """The exit code, what was printed, and what became of each test."""
    junit = zoo.root / f"{name}.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-c", COMMAND, "merge", *map(str, folders)),
            *("--out", str(zoo.root / f"{name}-merged"), "--junit", str(junit)),
            *("--html", str(zoo.root / f"{name}.html"), "--history", str(zoo.root / "history")),
        ],
        cwd=ROOT,
        env=zoo.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        kinds = [part.tag for part in case]
        found[f"{case.get('classname')}::{case.get('name')}"] = kinds[0] if kinds else "passed"
    return done.returncode, done.stdout + done.stderr, found


def lost_and_twice(folders: Sequence[Path]) -> tuple[int, int]:
    """Tests that ran in no shard, and in more than one, by what the shards themselves wrote."""
    shards = [read_shard(folder) for folder in folders]
    ran = Counter(name for shard in shards for name in shard.tests)
    found = {name for shard in shards for name in shard.found}
    return len(found - set(ran)), sum(times > 1 for times in ran.values())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=int, default=PROGRAMS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    if importlib.util.find_spec("pytest_split") is None:
        parser.exit(2, "pytest-split is missing. Install it with `pip install pytest-split`.\n")
    with tempfile.TemporaryDirectory() as name:
        zoo = make_zoo(Path(name), arguments.programs)
        cold = run_shards(zoo, "cold")
        started = time.monotonic()
        code, told, tests = merge(zoo, "cold", cold.folders)
        merging = time.monotonic() - started
        print(told, flush=True)
        cases = len(list(find_records(zoo.root / "cold-merged")))
        lost, twice = lost_and_twice(cold.folders)
        # The same again, with what the first round left in the shared folder.
        cut = sorted(zoo.programs.glob("*.pte"))[arguments.programs // 2]
        cut.write_bytes(cut.read_bytes()[:300])
        warm = run_shards(zoo, "warm")
        failed_code, _, failed_tests = merge(zoo, "warm", warm.folders)
        failed = {key for key, outcome in failed_tests.items() if outcome in ("failure", "error")}
        others = [key for key in failed if cut.stem not in key]
        fewer_code, fewer_told, _ = merge(zoo, "fewer", (*cold.folders[:2], *cold.folders[3:]))
    noticed = "Shards that are missing, of 4: 3." in fewer_told and "ran in no shard" in fewer_told
    claims = [
        Claim("programs", "programs of a zoo in the merged report of 4 shards", cases,
              limit=arguments.programs, least=True),
        Claim("tests", "tests of these", len(tests)),
        Claim("lost", "of these, lost", lost, limit=0),
        Claim("twice", "of these, run twice", twice, limit=0),
        Claim("clean", "exit codes of shards and merge that are not 0, nothing planted",
              sum(value != 0 for value in (*cold.exit_codes, code)), limit=0),
        Claim("imbalance", "the slowest shard over the usual one", cold.imbalance, "x",
              limit=LARGEST_IMBALANCE),
        Claim("slowest", "the slowest shard, first run", max(cold.seconds), "s"),
        Claim("all", "all four shards one after the other, first run", sum(cold.seconds), "s"),
        Claim("again", "the same again, with the shared folder", sum(warm.seconds), "s"),
        Claim("merging", "`sme2 merge` with report, JUnit and history", merging, "s"),
        Claim("planted", "a planted failure reaches the merged exit code (1: yes)",
              int(failed_code == 1 and bool(failed)), limit=1, least=True),
        Claim("others", "other tests that fail with it", len(others), limit=0),
        Claim("noticed", "a shard that was left out is noticed (1: yes)",
              int(fewer_code == 1 and noticed), limit=1, least=True),
    ]  # fmt: skip
    details = {
        "seconds": {"first run": cold.seconds, "again": warm.seconds},
        "failed": sorted(failed),
        "left out": fewer_told.splitlines()[-3:],
    }
    return finish(claims, arguments.json, details)


if __name__ == "__main__":
    raise SystemExit(main())
