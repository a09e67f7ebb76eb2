"""Does advice name what saves most? Architectures that nothing was prepared for, and twelve more.

``python -m benchmarks.architectures [NAME …]`` runs the models of ``benchmarks/zoo``
on the emulator. It tries every rewrite that changes a model, also those
that the advice does not name, and holds the multiply-accumulates against those that PyTorch counts
in the model itself. Rows are kept in ``benchmarks/results/architectures.json``; ``--write`` puts
them into the page. Counts do not depend on what else runs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Table, table_lines
from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import ASKED, FOLDING, NAMES, parse_variant
from pytest_sme2.report.findings import advice
from pytest_sme2.report.text import percent
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.session.trials import named_rewrites, run_once, try_rewrites
from pytest_sme2.system.files import write_json

FOLDERS = (ROOT / "benchmarks" / "zoo",)
VARIANT = "fp32"
LEAST = 0.01
"""A saving below is none."""

# Runs where torch is: which rewrites change the model, and its multiply-accumulates.
_IN_TORCH = """
import json, sys
from pathlib import Path
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from pytest_sme2 import import_torchvision
from pytest_sme2.export.registry import execute_model_file
from pytest_sme2.export.rewriting import Rewriting

import_torchvision()
file, cls, names = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
model = getattr(execute_model_file(file), cls)()
network, inputs = model.get_eager_model().eval(), model.get_example_inputs()
depthwise = 0

def count(module, _inputs, output):
    global depthwise
    if module.groups == module.in_channels > 1:
        depthwise += output.numel() * module.weight[0].numel()

for module in network.modules():
    if isinstance(module, (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)):
        module.register_forward_hook(count)
changing = []
with torch.no_grad():
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network(*inputs)
    macs = counter.get_total_flops() // 2 - depthwise
    for name in names:
        mode, used = Rewriting([name]), []
        for function, replacements in mode.replaced.items():
            for place, replacement in enumerate(replacements):
                def noting(*arguments, _inner=replacement, **keywords):
                    answer = _inner(*arguments, **keywords)
                    used.extend([1] if answer is not None else [])
                    return answer
                replacements[place] = noting
        with mode:
            network(*inputs)
        changing += [name] if used else []
print(json.dumps({"macs": macs, "changing": changing}))
"""


def in_torch(file: Path, name: str) -> dict[str, Any]:
    """What PyTorch itself says of a model."""
    words = [sys.executable, "-W", "ignore", "-c", _IN_TORCH, str(file), name, ",".join(NAMES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} does not run in PyTorch:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(model: str) -> dict[str, Any]:
    """One row."""
    entry = discover(FOLDERS).get(model)
    assert entry.file is not None
    known = in_torch(entry.file, entry.class_name)
    with tempfile.TemporaryDirectory() as out:
        session = Session(
            Settings(
                device="emulated",
                models=(model,),
                model_folders=FOLDERS,
                variants=(parse_variant(VARIANT),),
                out=Path(out),
            ),
            lambda line: print(f"  {line}", flush=True),
        )
        try:
            (case,) = session.cases()
            before = run_once(session, case)
        except Sme2Error as error:
            # Without the paths of this machine.
            return {"problem": re.sub(r"'?/[\w./-]+'?", "…", str(error).splitlines()[0])}
        named = named_rewrites(before)
        others = [one for one in (*known["changing"], *ASKED, FOLDING) if one not in named]
        trials = {
            name: trial
            for name in (*named, *sorted(others))
            for trial in try_rewrites(session, case, before, (name,))
            if trial.rewrites == (name,)
        }
        session.close()
    assert before.cost is not None
    costs = before.cost.operators
    first = next(iter(advice({VARIANT: before.findings})), None)
    return {
        "instructions": before.cost.total.instructions,
        "matrix_operators": before.profile.coverage.matrix_operators,
        "sme2_operators": before.profile.coverage.sme2_operators,
        "macs": sum(entry.macs or 0 for entry in costs if entry.matrix),
        "macs_in_torch": known["macs"],
        "costs_most": "" if first is None else first.what,
        "share": 0.0 if first is None else first.cost.share,
        "named": list(named),
        "savings": {
            name: None if trial.problem else round(trial.saving, 4)
            for name, trial in trials.items()
        },
    }


def names_the_best(row: dict[str, Any]) -> bool:
    """Whether advice names the best rewrite, or one that is as good."""
    return best_of(row, row["named"])[1] >= best_of(row)[1] - LEAST


KEPT = ROOT / "benchmarks" / "results" / "architectures.json"


def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text("utf-8"))
    return {name: found[name] for name in discover(FOLDERS).names if name in found}


def best_of(row: dict[str, Any], names: Sequence[str] | None = None) -> tuple[str, float]:
    """The rewrite that saves most, of these or of all; none where none saves anything."""
    savings = {
        name: value
        for name, value in row["savings"].items()
        if value is not None and (names is None or name in names)
    }
    name = max(savings, key=savings.__getitem__, default="")
    return (name, savings[name]) if name and savings[name] >= LEAST else ("", 0.0)


def table() -> list[str]:
    """One row per architecture: what costs most, and the best rewrite, which advice names."""
    rows = [("model", "on SME2", "costs most", "best rewrite saves")]
    for model, row in kept().items():
        if "problem" in row:
            rows.append((f"`{model}`", "", "is refused", ""))
            continue
        name, saving = best_of(row)
        on_sme2 = f"{row['sme2_operators']} of {row['matrix_operators']}"
        most = f"{row['costs_most']} ({percent(row['share'])})" if row["costs_most"] else ""
        best = f"`{name}` {percent(saving)}" if name else ""
        rows.append((f"`{model}`", on_sme2, most, best))
    return table_lines(*rows, numbers=(1,))


TABLE = Table(
    ROOT / "benchmarks" / "zoo" / "README.md", "architectures",
    "python -m benchmarks.architectures --write", table,
)  # fmt: skip


def main() -> int:
    known = discover(FOLDERS).names
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="run nothing; write the page")
    parser.add_argument("names", nargs="*", choices=[[], *known], metavar="NAME")
    given = parser.parse_args()
    for name in () if given.write else given.names or known:
        print(name, flush=True)
        write_json(KEPT, {**kept(), name: measured(name)})
    rows = [row for row in kept().values() if "problem" not in row]
    print(f"advice names the best rewrite in {sum(map(names_the_best, rows))} of {len(rows)}")
    TABLE.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
