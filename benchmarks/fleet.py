"""A fleet's jobs: 300 programs over four shards, then a new machine whose store has everything.

    python -m benchmarks.fleet [--programs 300] [--json FILE]

Each shard has an empty cache of its own and writes to one store, which nginx serves on this
machine. The new machine lies at another path, installs everything, and may only read the store.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.first_run import Newcomer
from benchmarks.harness import ROOT, Claim, finish, parser_of
from tests.support.phones import MODEL
from tests.support.web_server import TOKEN, web_server

SHARDS = 4
MOST_SECONDS_WARM = 180.0


class Machine(Newcomer):
    """A machine of the fleet with its own clone, environment and cache."""

    store: str
    write = False

    def environment(self) -> dict[str, str]:
        own = {"SME2_STORE": self.store, "SME2_STORE_KEY": "fleet", "SME2_STORE_TOKEN": TOKEN}
        return {**super().environment(), **own, "SME2_STORE_WRITE": str(int(self.write))}

    def prepare(self, programs: int) -> None:
        """Models that differ in the width of a layer."""
        for number in range(programs):
            name = f"net{number:03}"
            folder = self.place / "models" / name
            folder.mkdir(parents=True)
            text = MODEL.format(name=name, width=4 + number)
            (folder / "model.py").write_text(text, "utf-8")
        (self.place / "pytest.ini").write_text("[pytest]\nsme2_models = models\n", "utf-8")

    def install(self) -> None:
        self.types("install", sys.executable, "-m", "venv", "venv")
        self.types("install", "venv/bin/pip", "install", "--quiet", "uv")
        python = ("--python", "venv/bin/python")
        install = ("venv/bin/uv", "pip", "install", "--quiet", *python)
        self.types("install", *install, f"{ROOT}[export]", "pytest-split")
        self.types("provision", "venv/bin/sme2", "provision", "--require")

    def run(self, stage: str, *options: str) -> int:
        suite = ROOT / "tests" / "performance"
        command = ("venv/bin/python", "-m", "pytest", suite, "-c", "pytest.ini", "-q", "-n", "2")
        printed = self.types(
            stage, *command, "--device=emulated", "-m", "structure or numerics", *options
        )
        (passed,) = re.findall(r"(\d+) passed", printed)
        return int(passed)


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--programs", type=int, default=300)
    arguments = parser.parse_args(argv)
    if "UV_FIND_LINKS" not in os.environ and "PIP_FIND_LINKS" in os.environ:
        os.environ["UV_FIND_LINKS"] = os.environ["PIP_FIND_LINKS"]
    with tempfile.TemporaryDirectory() as name, web_server(Path(name, "server")) as server:
        folder = Path(name)
        first = Machine(folder / "first", folder / "first")
        first.place.mkdir()
        first.store, first.write = f"{server.address}/store", True
        first.prepare(arguments.programs)
        first.install()
        cold = 0
        for shard in range(1, SHARDS + 1):
            first.folder = folder / f"cache of shard {shard}"
            part = ("--splits", str(SHARDS), "--group", str(shard), "--sme2-out", f"shard{shard}")
            cold += first.run("cold", *part)
        shards = [f"shard{shard}" for shard in range(1, SHARDS + 1)]
        first.types("merge", "venv/bin/sme2", "merge", *shards, "--out", "merged")
        second = Machine(folder / "second", folder / "a second machine")
        second.place.mkdir()
        second.store = first.store
        second.prepare(arguments.programs)
        before = server.state()
        second.install()
        warm = second.run("warm")
        assert warm == cold
        assert server.state() == before
    taken, total = second.stages, sum(second.stages.values())
    claims = [
        Claim("programs", "programs, each exported and counted on and off", arguments.programs),
        Claim("cold", f"{SHARDS} shards, nothing in the store", first.cpu["cold"], "CPU s"),
        Claim("merge", "merging them", first.stages["merge"], "s"),
        Claim("total", "a new machine with a warm store, all programs, from nothing", total, "s",
              limit=MOST_SECONDS_WARM),
        Claim("install", "… installing", taken["install"], "s"),
        Claim("provision", "… provisioning the emulator", taken["provision"], "s"),
        Claim("warm", "… the run", taken["warm"], "s"),
    ]  # fmt: skip
    return finish(claims, arguments.json, {"tests": warm})


if __name__ == "__main__":
    sys.exit(main())
