"""The CPU time of exporting a zoo into an empty cache: forks of one process against fresh ones.

Every case is exported twice, once in each way, by two processes with a cache of their own. Forked
is what the product does on Linux; fresh is what it does elsewhere. The programs of both must be the
same bytes.

    python -m benchmarks.cold_exports [--cases toy_cnn:fp32 …] [--json FILE]

Fair, because both ways run the same code on the same cases, one case of each in turn, and CPU time
counts all processes of an export, the server's imports included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims import Claim, finish
from pytest_sme2.export.discovery import discover

ROOT = Path(__file__).parents[1]
MODELS = ("toy_cnn", "mobilenet_v3_small", "llama_block_decode", "llama_block_prefill")
LARGEST_SHARE = 2 / 3

# Exports each case that it reads, and prints its hash; at the end the CPU seconds of its children.
WORKER = """
import json, resource, sys
from pathlib import Path
from pytest_sme2.export import server
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.discovery import discover
from pytest_sme2.export.variant import parse_variant
way, models, cache = sys.argv[1:]
if way == "fresh":
    server.Servers.get = lambda self, circumstances: None
registry = discover([Path(models)], entry_points=False)
for line in sys.stdin:
    name, _, variant = line.strip().partition(":")
    artifact = export_model(registry.get(name), parse_variant(variant), cache=Path(cache))
    print(artifact.sha256, flush=True)
server.SERVERS.close()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, flush=True)
"""

# What variants could share, and what sharing it between processes would take, in CPU seconds.
CAPTURE = """
import io, json, time
import torch
from pytest_sme2.export.torchvision_shim import import_torchvision
network = import_torchvision().models.mobilenet_v3_small().eval()
inputs = (torch.randn(1, 3, 224, 224),)
torch.export.export(torch.nn.ReLU(), (torch.zeros(1),))
begun = time.process_time()
program = torch.export.export(network, inputs)
captured = time.process_time()
stream = io.BytesIO()
torch.export.save(program, stream)
stream.seek(0)
torch.export.load(stream)
print(json.dumps([captured - begun, time.process_time() - captured]))
"""


class Worker:
    """A process that exports in one way."""

    def __init__(self, way: str, cache: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, way, str(ROOT / "models"), str(cache)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def export(self, case: str) -> str:
        """The hash of the program."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        return self._answer()

    def finish(self) -> float:
        """The CPU seconds of all its exports."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        seconds = float(self._answer())
        self._process.wait()
        return seconds

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"an export failed: exit code {self._process.wait()}")
        return line.strip()


def capture_seconds() -> tuple[float, float]:
    """To capture a model once more, and to store a captured one and read it again."""
    command = [sys.executable, "-W", "ignore", "-c", CAPTURE]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    again, shared = json.loads(done.stdout.splitlines()[-1])
    return again, shared


def all_cases() -> list[str]:
    registry = discover([ROOT / "models"], entry_points=False)
    return [f"{name}:{variant}" for name in MODELS for variant in registry.get(name).variants]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", metavar="MODEL:VARIANT", default=None)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    cases = arguments.cases or all_cases()
    different = []
    with tempfile.TemporaryDirectory() as folder:
        workers = {way: Worker(way, Path(folder) / way) for way in ("forked", "fresh")}
        for case in cases:
            hashes = {worker.export(case) for worker in workers.values()}
            if len(hashes) > 1:
                different.append(case)
            print(f"{case}: {' and '.join(sorted(found[:12] for found in hashes))}", flush=True)
        seconds = {way: worker.finish() for way, worker in workers.items()}
    print(json.dumps(seconds))
    again, shared = capture_seconds()
    claims = [
        Claim("different", "programs that a fork makes otherwise", len(different), limit=0),
        Claim(
            "share",
            f"CPU time of {len(cases)} exports as forks, as a share of fresh processes",
            seconds["forked"] / seconds["fresh"],
            "%",
            limit=LARGEST_SHARE,
        ),
        Claim("forked", "CPU time of these exports as forks", seconds["forked"], "s"),
        Claim("fresh", "CPU time of these exports as fresh processes", seconds["fresh"], "s"),
        Claim("again", "CPU time to capture `mobilenet_v3_small` once more", again, "s"),
        Claim("shared", "CPU time to store it captured, and to read it again", shared, "s"),
    ]
    return finish(claims, arguments.json, {"cases": cases, "different": different})


if __name__ == "__main__":
    raise SystemExit(main())
