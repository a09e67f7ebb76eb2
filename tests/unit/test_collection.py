"""Every process collects the same tests, whenever it starts: xdist refuses to run otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Loaded before any test module, so that a test id made from the clock differs.
MOVED_CLOCK = """
import os, time

_time, _time_ns = time.time, time.time_ns
_seconds = int(os.environ["MOVED_CLOCK_SECONDS"])
time.time = lambda: _time() + _seconds
time.time_ns = lambda: _time_ns() + _seconds * 1_000_000_000
"""


def collected(folder: Path, *, seconds: int, hash_seed: int) -> list[str]:
    (folder / "moved_clock.py").write_text(MOVED_CLOCK)
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONHASHSEED": str(hash_seed),
        "MOVED_CLOCK_SECONDS": str(seconds),
    }
    outcome = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "moved_clock"),
            *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"),
            *(
                "tests/unit",
                "tests/plugin",
                "tests/docs",
                "tests/browser",
                "tests/device",
                "benchmarks/tests",
            ),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return [line for line in outcome.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_ids_do_not_depend_on_the_clock_or_the_hash_seed(tmp_path: Path) -> None:
    first = collected(tmp_path, seconds=0, hash_seed=1)
    later = collected(tmp_path, seconds=86_461, hash_seed=2)
    assert len(first) > 1000
    assert first == later
