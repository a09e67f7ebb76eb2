"""What the installed plugin adds to the start of pytest, beside what pytest-benchmark adds.

    python -m benchmarks.startup [--rounds 40] [--json FILE]

`pytest --collect-only` in an empty folder, in fresh processes: with no plugin, with this plugin
alone, with pytest-benchmark alone, in random order, so that a slow spell of the machine hits all
alike. Medians over the quieter half of the rounds, told by all starts of a round together and
so blind to which was slow. Fair, because all are the same pytest with the same options, and
each plugin alone is loaded by name: what one of them imports, none of the others pays. CPU time is
counted: each is one thread that waits for nothing, so it is what a user waits on an idle machine.

Users have more plugins: ExecuTorch's dependencies bring some. So two more starts load all that are
installed here, with and without what `sme2 init` writes into an ini file.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from benchmarks.harness import Claim, finish, parser_of
from pytest_sme2.cli.commands.init import WITHOUT_STRANGERS

MOST_MILLISECONDS = 30.0

MOST_OF_AS_INSTALLED = 0.7

INSTALLED, SET_UP = "all that is installed", "all, as `sme2 init` sets it up"
ARMS = {
    "pytest alone": [],
    "pytest-sme2": ["-p", "pytest_sme2.plugin.hooks"],
    "pytest-benchmark": ["-p", "pytest_benchmark.plugin"],
    INSTALLED: [],
    SET_UP: WITHOUT_STRANGERS.split(),
}


def children_cpu_seconds() -> float:
    """What all processes took that this one has waited for, and those that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one_start(name: str, folder: str) -> float:
    """Seconds of CPU time of one fresh pytest that collects nothing."""
    ours = ("PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    environment = {key: value for key, value in os.environ.items() if key not in ours}
    if name not in (INSTALLED, SET_UP):
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    words = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *ARMS[name]]
    before = children_cpu_seconds()
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, check=False
    )
    # 5: no tests were collected, which is what an empty folder holds.
    if done.returncode != 5:
        raise SystemExit(done.stdout.decode() + done.stderr.decode())
    return children_cpu_seconds() - before


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args(argv)
    order = random.Random(0)
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ARMS:
            one_start(name, folder)
        for _ in range(arguments.rounds):
            names = order.sample(list(ARMS), len(ARMS))
            rounds.append({name: one_start(name, folder) for name in names})
    quiet = sorted(rounds, key=lambda found: sum(found.values()))[: max(1, len(rounds) // 2)]
    medians = {name: statistics.median(found[name] for found in quiet) * 1000 for name in ARMS}
    alone = medians["pytest alone"]
    claims = [
        Claim("cost", "what the installed plugin adds to the start of pytest",
              medians["pytest-sme2"] - alone, "ms", limit=MOST_MILLISECONDS,
              peer="pytest-benchmark", peer_value=medians["pytest-benchmark"] - alone),
        Claim("set_up",
              "the start of pytest as `sme2 init` sets it up, of one with all that is installed",
              medians[SET_UP] / medians[INSTALLED], "%", limit=MOST_OF_AS_INSTALLED),
    ]  # fmt: skip
    return finish(claims, arguments.json, {"medians_ms": medians, "rounds": arguments.rounds})


if __name__ == "__main__":
    raise SystemExit(main())
