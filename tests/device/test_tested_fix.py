"""A failed run, and the change of its model that the comment on a pull request then carries."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.report.comment import comment_json
from pytest_sme2.results import Check, Outcome
from pytest_sme2.session.run_directory import find_records, read_record, write_record

MODEL = """\
import torch
import torch.nn.functional as F
from pytest_sme2 import register_model
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, image):
        x = self.stem(image)
        x = F.silu(x)
        return self.head(x.mean((2, 3), keepdim=True).flatten(1))


@register_model("net", variants=("fp16",))
class Model:
    def get_eager_model(self):
        return Net()

    def get_example_inputs(self):
        return (torch.randn(1, 3, 16, 16),)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the model whose cost failed."""
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "models" / "net" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text(MODEL, encoding="utf-8")
    assert main(["run", "net", "--variant", "fp16", "--device", "emulated"]) == 0
    (folder,) = find_records(tmp_path / "sme2-out")
    failed = Check("cost (on)", Outcome.REGRESSED, "Too much.", old=1.0, new=2.0)
    write_record(folder, replace(read_record(folder), checks=(failed,)))
    return tmp_path


def test_the_comment_carries_a_change_that_was_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comment = run / "comment.json"
    assert main(["advise", "--run", "sme2-out", "--comment", str(comment)]) == 2
    assert "is not what --sme2-report FILE.json wrote" in capsys.readouterr().err
    (folder,) = find_records(run / "sme2-out")
    comment.write_text(comment_json([read_record(folder)]), encoding="utf-8")
    assert main(["advise", "--run", "sme2-out", "--comment", str(comment)]) == 0

    text = comment.read_text("utf-8")
    fix = json.loads(text)["fix"]
    assert (fix["case"], fix["model"]) == ("net-fp16", "net")
    said = re.match(r"silu saves ([\d,]+) of ([\d,]+) instructions", fix["effect"])
    (run / "fix.diff").write_text(fix["diff"], encoding="utf-8")
    subprocess.run(["git", "apply", "fix.diff"], cwd=run, check=True)
    source = (run / "models" / "net" / "model.py").read_text("utf-8")
    assert source == MODEL.replace("F.silu(x)", "x * torch.sigmoid(x)")

    # What the comment says is what the changed model takes.
    assert main(["run", "net", "--variant", "fp16", "--device", "emulated"]) == 0
    (folder,) = find_records(run / "sme2-out")
    saved, before = (int(number.replace(",", "")) for number in said.groups())
    costs = read_record(folder).measured.costs
    assert {str(arm): cost.total.instructions for arm, cost in costs.items()}[
        "on"
    ] == before - saved
    # A run that passed leaves a comment as it is.
    assert main(["advise", "--run", "sme2-out", "--comment", str(comment)]) == 0
    assert "No case of sme2-out failed" in capsys.readouterr().out
    assert comment.read_text("utf-8") == text
