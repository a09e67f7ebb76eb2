"""Does advice name what saves most, and does it save that by hand as well?

``python -m benchmarks.architectures [NAME …]`` runs the models of ``benchmarks/zoo`` on the
emulator as ``sme2 advise`` does, and those of ``benchmarks/by_hand``, in which somebody changed
what can be changed. Rows are kept in ``benchmarks/results/architectures.json`` as they come;
``--write`` puts them into the page. Counts do not depend on what else runs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Table, table_lines
from pytest_sme2.cli.commands.advise import is_open, ranked
from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.registry import ModelEntry, discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.report.text import percent
from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.session.trials import named_rewrites, run_once, try_rewrites
from pytest_sme2.system.files import write_json

ZOO, BY_HAND = ROOT / "benchmarks" / "zoo", ROOT / "benchmarks" / "by_hand"
KEPT = ROOT / "benchmarks" / "results" / "architectures.json"
VARIANT = "fp32"
LEAST = 0.01
"""A saving below is none."""

# Runs where torch is: what PyTorch itself calls and counts in a model.
_IN_TORCH = """
import json, sys
from pathlib import Path
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from pytest_sme2 import import_torchvision
from pytest_sme2.export.registry import execute_model_file

import_torchvision()
module = execute_model_file(Path(sys.argv[1]))

class Matrix(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = self.depthwise = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        answer = function(*arguments, **(keywords or {}))
        name = function._overloadpacket.__name__
        if name == "convolution" and arguments[8] > 1 and arguments[1].shape[1] == 1:
            self.depthwise += answer.numel() * arguments[1][0].numel()
        else:
            self.calls += name in ("convolution", "mm", "addmm", "bmm", "baddbmm")
        return answer

found = {}
for place, name in (one.split("=") for one in sys.argv[2:]):
    model = getattr(module, place)()
    network, inputs = model.get_eager_model().eval(), model.get_example_inputs()
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), Matrix() as seen:
        with FlopCounterMode(display=False) as counter:
            network(*inputs)
    found[name] = seen.calls, counter.get_total_flops() // 2 - seen.depthwise
print(json.dumps(found))
"""


def in_torch(entries: list[ModelEntry]) -> dict[str, list[int]]:
    """The matrix operators and multiply-accumulates that PyTorch itself sees, by model."""
    words = [f"{entry.class_name}={entry.name}" for entry in entries]
    command = [sys.executable, "-W", "ignore", "-c", _IN_TORCH, str(ZOO / "model.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the zoo does not run in PyTorch:\n{done.stderr[-2000:]}")
    found: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


def advised(session: Session, case: Case) -> dict[str, Any]:
    """What ``sme2 advise`` finds."""
    before = run_once(session, case)
    trials = list(try_rewrites(session, case, before, named_rewrites(before)))
    assert before.cost is not None
    items = ranked({VARIANT: before}, {VARIANT: trials})
    return {
        "instructions": before.cost.total.instructions,
        "matrix_operators": before.profile.coverage.matrix_operators,
        "sme2_operators": before.profile.coverage.sme2_operators,
        "macs": sum(entry.macs or 0 for entry in before.cost.operators if entry.matrix),
        "advice": [
            {
                "what": entry.what,
                "share": entry.cost.share,
                "open": is_open(entry),
                "rewrite": entry.rewrite,
                "saving": max((one.saving for one in tried.values() if one.helps), default=None),
            }
            for entry, tried in items[:3]
        ],
        "tried": {
            "+".join(trial.rewrites): None if trial.problem else round(trial.saving, 4)
            for trial in trials
        },
        "in_vain": next((t.after.unused for t in trials if t.after and t.after.unused), ()),
    }


def changed(session: Session, case: Case) -> dict[str, Any]:
    """What a model executes that was changed by hand."""
    cost = run_once(session, case).cost
    assert cost is not None
    return {"by_hand": cost.total.instructions, "by_hand_problem": ""}


def rows(folder: Path, names: list[str], measure: Callable[[Session, Case], Any]) -> None:
    with tempfile.TemporaryDirectory() as out:
        settings = Settings(
            device="emulated",
            models=tuple(names),
            model_folders=(folder,),
            variants=(parse_variant(VARIANT),),
            out=Path(out),
        )
        session = Session(settings, lambda line: None)
        for case in session.cases():
            print(case.model, flush=True)
            try:
                found = measure(session, case)
            except Sme2Error as error:
                # Without the paths of this machine.
                problem = re.sub(r"'?/[\w./-]+'?", "…", str(error).splitlines()[0])
                found = {"problem" if folder == ZOO else "by_hand_problem": problem}
            row = {**kept().get(case.model, {}), **found}
            row |= {"earlier": False} if "advice" in found else {}
            write_json(KEPT, {**kept(), case.model: row})
        session.close()


def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() else {}
    return {name: found[name] for name in discover((ZOO,)).names if name in found}


def savings(row: dict[str, Any]) -> tuple[float, float | None]:
    """What one rewrite saves at most, and what the change by hand saves."""
    most = max((s for name, s in row["tried"].items() if s and "+" not in name), default=0.0)
    hand = row.get("by_hand")
    return most, None if hand is None else 1 - hand / row["instructions"]


def table() -> list[str]:
    """One row per architecture."""
    found = [("model", "on SME2", "in PyTorch", "first advice", "it saves",
              "by hand", "all that was tried")]  # fmt: skip
    for model, row in kept().items():
        if "problem" in row:
            found.append((f"`{model}`", "", "", "is refused", "", "", ""))
            continue
        first, (_, hand) = next(iter(row["advice"]), None), savings(row)
        most = max((s for s in row["tried"].values() if s), default=0.0)
        what = "" if first is None else first["what"]
        what += f" ({percent(first['share'])})" if first and first["share"] is not None else ""
        saving = first["saving"] if first else None
        found.append((
            f"`{model}`" + " (earlier)" * row.get("earlier", False),
            f"{row['sme2_operators']} of {row['matrix_operators']}",
            str(row.get("matrix_in_torch", "")), what,
            f"`{first['rewrite']}` {percent(saving)}" if first and saving else "",
            "" if hand is None else percent(hand), percent(most) if most >= LEAST else "",
        ))  # fmt: skip
    return table_lines(*found, numbers=(1, 2, 4, 5, 6))


TABLE = Table(
    ROOT / "benchmarks" / "zoo" / "README.md", "architectures",
    "python -m benchmarks.architectures --write", table,
)  # fmt: skip


def summary() -> list[str]:
    """What the rows show, and what they do not."""
    told = [(row, *savings(row)) for row in kept().values() if row.get("advice")]
    firsts = [(row["advice"][0]["saving"] or 0.0, most, hand) for row, most, hand in told]
    good = [1 for first, most, hand in firsts if first >= 0.8 * max(most, hand or 0.0) - LEAST]
    both = [(first, hand) for first, _, hand in firsts if hand is not None]
    near = [1 for first, hand in both if abs(first - hand) <= max(0.1 * hand, LEAST)]
    told = [one for one in told if not one[0].get("earlier")]
    closed = [row for row, *_ in told if not all(one["open"] for one in row["advice"])]
    return [
        f"{len(good)} of {len(firsts)}: the first advice saves at least 80 % of the best",
        f"{len(near)} of {len(both)}: the saving by hand is within a tenth of the printed one",
        f"{len(closed)} of {len(told)}: one of the first three has no action",
    ]


def main() -> int:
    entries = {entry.name: entry for entry in discover((ZOO,)).entries}
    hand = discover((BY_HAND,)).names
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="run nothing; write the page")
    parser.add_argument("--by-hand", action="store_true", help="only what was changed by hand")
    parser.add_argument("names", nargs="*", choices=[[], *entries], metavar="NAME")
    given = parser.parse_args()
    if not given.write:
        names = given.names or list(entries)
        if not given.by_hand:
            rows(ZOO, names, advised)
            for name, (calls, macs) in in_torch([entries[name] for name in names]).items():
                seen = {"matrix_in_torch": calls, "macs_in_torch": macs}
                write_json(KEPT, {**kept(), name: {**kept()[name], **seen}})
        if both := [name for name in names if name in hand]:
            rows(BY_HAND, both, changed)
    print(*summary(), sep="\n")
    TABLE.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
