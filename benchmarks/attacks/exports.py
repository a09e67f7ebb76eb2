"""What an export read, what a program answers, figures that were edited, and budgets."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import numpy as np

from benchmarks.attacks.baselines import BY_HAND
from benchmarks.attacks.programs import NET, ONE, files
from benchmarks.attacks.stage import (
    Attack,
    Change,
    Project,
    Stage,
    add,
    both,
    edit_by_hand,
    equal,
    of,
    remove,
    swap,
    write,
)

MODEL = "models/net/model.py"
WEIGHTS, DATABASE = "weights/bias.npy", "weights/scales.db"
READS = """        net = Net()
        import numpy
        from pathlib import Path
        here = Path(__file__).resolve().parent
        bias = numpy.load(here.parents[1] / "weights" / "bias.npy")
        for path in (here / "linked" / "scale", here / ".scale"):
            bias = bias * float(path.read_text())
        import sqlite3, subprocess
        table = sqlite3.connect(here.parents[1] / "weights" / "scales.db")
        told = subprocess.check_output(["cat", here.parents[1] / "weights" / "scale"])
        bias = bias * table.execute("select scale from scales").fetchone()[0] * float(told)
        net.last.bias.data = torch.from_numpy(bias)
"""


def _weights(*values: float) -> Change:
    def change(project: Project) -> None:
        np.save(project.path / WEIGHTS, np.resize(np.array(values, "<f4"), 10))

    return change


def _scales(scale: int) -> Change:
    def change(project: Project) -> None:
        path = project.path / DATABASE
        path.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.executescript(
                f"create table scales(scale); insert into scales values({scale})"
            )

    return change


def _reading(project: Project) -> None:
    files(NET.replace("        net = Net()\n", READS))(project)
    for name, text in (
        ("elsewhere/scale", "2"),
        ("models/net/.scale", "3"),
        (WEIGHTS, ""),
        ("weights/scale", "1"),
    ):
        write(name, text)(project)
    _scales(1)(project)
    (project.path / "models/net/linked").symlink_to("../../elsewhere")
    _weights(0.1, -0.2, 0.3)(project)


READING = Stage("reading", _reading, ())
CHANGED = "is not the accepted one"

STALE = of(
    "exports that are stale",
    *(
        Attack(what, said, change, stage=READING)
        for what, said, change in (
            ("weights outside of the model's folder are others", "weights: bias.npy (sha256 ",
             _weights(0.4, 0.1)),
            ("... are NaN", "NaN", _weights(float("nan"))),
            ("... are gone", "bias.npy", remove(WEIGHTS)),
            ("a file in a linked folder is another", CHANGED, write("elsewhere/scale", "5")),
            ("a file whose name begins with a dot is another", CHANGED,
             write("models/net/.scale", "5")),
            ("a database is another", "weights: bias.npy (sha256 ", _scales(5)),
            ("what another program prints is another", CHANGED, write("weights/scale", "5")),
        )
    ),
    Attack("nothing that was read is another", "compared: 9 of 9 stored figures",
           both(write("weights/other.npy", ""), write("elsewhere/other", "")), stage=READING,
           code=0),
)  # fmt: skip

INT8 = Stage("int8", files(NET.replace('"fp32"', '"int8"')), ())


def _then(line: str) -> Change:
    return swap(MODEL, "        return net\n", f"        {line}\n        return net\n")


OUTPUTS = of(
    "outputs that are wrong",
    Attack("int8: the last bias is dropped", CHANGED, _then("net.last.bias.data.zero_()"),
           stage=INT8),
    Attack("int8: noise on the last weights", CHANGED,
           _then("net.last.weight.data += 0.05 * torch.randn(10, 16)"), stage=INT8),
    Attack("fp32: two channels change places", CHANGED,
           _then("order = [0, 3, 2, 1, *range(4, 10)]; net.last.weight.data = "
                 "net.last.weight.data[order]; net.last.bias.data = net.last.bias.data[order]"),
           stage=ONE),
    Attack("fp32: the last layer is a hundredth larger", CHANGED,
           _then("net.last.weight.data *= 1.01"), stage=ONE),
)  # fmt: skip


def _raise_total(found: dict[str, Any]) -> None:
    for cost in found["costs"].values():
        cost["total"]["instructions"] *= 2


def _raise_all(found: dict[str, Any]) -> None:
    _raise_total(found)
    for cost in found["costs"].values():
        cost["runtime"] += cost["total"]["instructions"] // 2


def _raise_scale(found: dict[str, Any]) -> None:
    for sample in found["samples"].values():
        sample["scale"] *= 1e6


COUNTS = of(
    "counts that were edited",
    Attack("only the total is raised", BY_HAND, edit_by_hand(_raise_total), stage=ONE),
    Attack("what is outside of operators is raised", BY_HAND, edit_by_hand(_raise_all), stage=ONE),
    Attack("the scale of inputs and outputs is raised", BY_HAND, edit_by_hand(_raise_scale),
           stage=ONE),
)  # fmt: skip

BUDGET = "models/toy/limits.toml"
ACCEPTED = both(
    write(BUDGET, "max_latency = '40 ms'\n"),
    lambda project: project.pytest("--update-baselines"),
)
LOOSER = "limit max_latency.any: 0.04 was accepted, and it is 1."

BUDGETS = of(
    "budgets",
    Attack("an inference takes longer than it may", "FAILED", ACCEPTED,
           device={"on": 1.5, "off": 1.5}),
    Attack("the budget is loosened", LOOSER,
           both(ACCEPTED, write(BUDGET, "max_latency = '1 s'\n")), device={"on": 1.5, "off": 1.5}),
    Attack("it is loosened by addopts", LOOSER,
           both(ACCEPTED, add("tox.ini", "addopts = --sme2-limit=max_latency=1s")),
           device={"on": 1.5, "off": 1.5}),
    Attack("there is none any more", "limit max_latency.any: 0.04 was accepted, and it is none.",
           both(ACCEPTED, remove(BUDGET))),
    equal("an inference takes less", ACCEPTED, said="compared: 12 of 12 stored figures"),
    Attack("one on the emulator says nothing", "nothing was compared",
           both(write("models/net/limits.toml", "max_latency = '1 ms'\n"),
                write("test_suite.py", "def test_it(sme2_gate):\n    sme2_gate.check_budgets()\n"),
                remove("baselines")), stage=ONE),
)  # fmt: skip

ATTACKS = (*STALE, *OUTPUTS, *COUNTS, *BUDGETS)
