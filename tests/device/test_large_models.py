"""Twice the operators take about twice as long, from export to the table."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device import provision
from tests.support.needs import needs_export

pytestmark = [pytest.mark.nightly, needs_export]

COMMAND = "import sys; from pytest_sme2.cli.main import main; sys.exit(main(sys.argv[1:]))"
CHAIN = """
import torch
from pytest_sme2 import register_model


@register_model("chain", variants=("fp32",))
class Chain:
    def get_eager_model(self):
        pairs = [(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range({operators} // 2)]
        return torch.nn.Sequential(*(part for pair in pairs for part in pair))

    def get_example_inputs(self):
        return (torch.randn(4, 8),)
"""


def cpu_seconds(folder: Path, operators: int, *words: str) -> float:
    file = folder / "models" / "chain" / "model.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(CHAIN.format(operators=operators), "utf-8")
    where = ["--device", "emulated", "--models-folder", str(folder / "models")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", COMMAND, *words, *where],
        check=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    "words",
    [("run", "chain", "--variant", "fp32"), ("advise", "chain", "--variants", "fp32", "--no-try")],
    ids=lambda words: words[0],
)
def test_time_grows_with_the_operators_and_not_with_their_square(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    provision.emulator()
    some, more, most = (cpu_seconds(tmp_path, count, *words) for count in (500, 1000, 2000))
    # A square would make the second step four times the first.
    assert most - more < 3 * (more - some)
