"""A folder of thirty programs from elsewhere, odd ones among them, through one command.

Twelve small networks are exported here without any of this project's code. Four more programs are
those of the tests. The others are what a folder collects in years: cut off copies, an empty file,
another format, other backends, an operator that the runner does not have.
One pytest command runs all of them on the emulator. Every program that can be run must be, and
every other one must say why not.

    python -m benchmarks.program_folder [--keep FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.claims import Claim, finish

ROOT = Path(__file__).parents[1]
STORED = ROOT / "tests" / "data" / "programs"

# Programs as others export them: no file of theirs is known but the program.
EXPORTS = """
import sys
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch.nn import Conv2d, Flatten, Linear, ReLU, Sequential

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)


class Sum(torch.nn.Module):
    def forward(self, x, y):
        return x @ y + x.sum()


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.linear = Linear(16, 16)

    def forward(self, tokens):
        return self.linear(self.table(tokens))


def write(name, network, inputs, partitioner=True, **options):
    program = torch.export.export(network.eval(), inputs, **options)
    edge = to_edge_transform_and_lower(
        program, partitioner=[XnnpackPartitioner()] if partitioner else []
    )
    with (folder / f"{name}.pte").open("wb") as file:
        edge.to_executorch().write_to_file(file)


torch.manual_seed(0)
for width in (8, 16, 24, 32):
    write(f"linear_{width}", Sequential(Linear(16, width), ReLU()), (torch.randn(2, 16),))
for channels in (4, 8, 12):
    network = Sequential(Conv2d(3, channels, 3), ReLU(), Flatten(), Linear(channels * 36, 5))
    write(f"convolution_{channels}", network, (torch.randn(1, 3, 8, 8),))
write("half", Linear(16, 16).half(), (torch.randn(2, 16).half(),))
write("two_inputs", Sum(), (torch.randn(4, 4), torch.randn(4, 4)))
write("words", Words(), (torch.randint(0, 50, (1, 6)),))
write("portable_only", Linear(16, 16), (torch.randn(2, 16),), partitioner=False)
batch = torch.export.Dim("batch", min=1, max=6)
write("dynamic", Linear(16, 16), (torch.randn(2, 16),), dynamic_shapes=({0: batch},))
"""


# They run, and the suite has something to say of them.
WITHOUT_SME2 = {
    "portable_only": "There is no SME2 kernel for any",
    "two_inputs": "There is no SME2 kernel for any",
    "methods:scale": "has no matrix operators",
    "phases:scale": "has no matrix operators",
}


def make_odd(folder: Path) -> dict[str, str]:
    """Write programs that cannot be run; what each must say."""
    whole = (STORED / "toy_int8.pte").read_bytes()
    half = (STORED / "toy_fp16.pte").read_bytes()
    backend = b"XnnpackBackend"
    odd: dict[str, tuple[bytes, str]] = {
        "empty": (b"", "the file is empty"),
        "text": (b"version https://git-lfs.example/spec/v1\nsize 7592\n", "not a program"),
        "archive": (b"PK\x03\x04" + whole[4:], "damaged or of another format"),
        "older_format": (whole[:4] + b"ET11" + whole[8:], "the identifier ET12 is missing"),
        "newer_format": (whole[:4] + b"ET13" + whole[8:], "the identifier ET12 is missing"),
        "cut_in_half": (whole[: len(whole) // 2], "the file was cut off"),
        "cut_early": (whole[:400], "it ends before its segments begin"),
        "cut_header": (whole[:20], "damaged or of another format"),
        "core_ml": (whole.replace(backend, b"CoreML_Backend"), "it needs CoreML_Backend"),
        "vulkan": (half.replace(backend, b"Vulkan_Backend"), "it needs Vulkan_Backend"),
        "neuropilot": (whole.replace(backend, b"Neuro__Backend"), "it needs Neuro__Backend"),
        "own_operator": (half.replace(b"aten::cumsum", b"mine::cumsum"), "mine::cumsum"),
        "own_operator_int8": (whole.replace(b"aten::cumsum", b"mine::cumsum"), "mine::cumsum"),
    }
    for name, (content, _) in odd.items():
        (folder / f"{name}.pte").write_bytes(content)
    return {name: reason for name, (_, reason) in odd.items()}


def make_folder(folder: Path) -> dict[str, str]:
    """The thirty programs; of those that fail, what each must say."""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EXPORTS, str(folder)],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    for path in STORED.glob("*.pte"):
        (folder / path.name).write_bytes(path.read_bytes())
    # No method of it is called as usual.
    phases = (STORED / "methods.pte").read_bytes().replace(b"forward", b"prefill")
    (folder / "phases.pte").write_bytes(phases)
    return make_odd(folder) | WITHOUT_SME2


def run(folder: Path, out: Path) -> dict[str, list[str]]:
    """One pytest command; the messages of each program's failed tests, empty where all passed."""
    report = out / "junit.xml"
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--device=emulated", "--sme2-no-cost", f"--sme2-models={folder}/*.pte"),
            *(f"--sme2-out={out / 'run'}", f"--baseline-dir={out / 'baselines'}"),
            *(f"--junit-xml={report}", "-W", "default"),
            str(ROOT / "tests" / "performance" / "test_structure.py"),
        ],
        cwd=ROOT,
        check=False,
    )
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = str(case.get("name")).partition("[")[2].rstrip("]").rpartition("-")[0]
        messages = found.setdefault(name, [])
        messages += [part.text or "" for part in case if part.tag in ("failure", "error")]
    return found


def judge(
    found: Mapping[str, Sequence[str]], odd: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Programs that should have run and did not, and odd ones without their reason."""
    not_run = [name for name, messages in found.items() if name not in odd and messages]
    silent = [
        name
        for name, reason in odd.items()
        if not found.get(name) or not all(reason in message for message in found[name])
    ]
    return sorted(not_run), sorted(silent)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the programs here")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = (arguments.keep or out / "programs").absolute()
        odd = make_folder(folder)
        started = time.monotonic()
        found = run(folder, out)
        programs = len(list(folder.glob("*.pte")))
        seconds = time.monotonic() - started
    not_run, silent = judge(found, odd)
    print("| program | result |\n|---|---|")
    for name, messages in sorted(found.items()):
        print(f"| {name} | {odd.get(name, 'FAILED') if messages else 'ran'} |")
    claims = [
        Claim("programs", "programs in the folder", programs, limit=30, least=True),
        Claim("cases", "cases: each method of a program is one", len(found)),
        Claim("not_run", "whole programs that did not run", len(not_run), limit=0),
        Claim("silent", "odd programs that did not say why", len(silent), limit=0),
        Claim("seconds", "time of the whole command", seconds, "s"),
    ]
    return finish(claims, arguments.json, {"not_run": not_run, "silent": silent, "odd": odd})


if __name__ == "__main__":
    raise SystemExit(main())
