"""A model broken in eight ways: the first line of each report names the line and the effect.

All of them are measured in one run, against the baseline of the model as it was.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_sme2.system.cache import cache_folder

CACHE = cache_folder()
MODEL = """
import torch
from pytest_sme2 import register_model
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.mix = nn.Conv2d(16, 16, 1)
        self.head = nn.Linear(16, {wide})

    def forward(self, image):
        x = {fused}
        x = {between}
        x = torch.relu(self.mix(x))
        {last}


@register_model("{name}", variants=("{variant}",))
class Model:
    def get_eager_model(self):
        return Net()

    def get_example_inputs(self):
        return torch.randn(1, 3, 16, 16)
"""
USUAL = {"wide": "10", "fused": "torch.relu(self.norm(self.stem(image)))", "between": "x + x"}
LAST = "return self.head(x.mean((2, 3), keepdim=True).flatten(1))"
SUITE = """
def test_it(sme2_gate):
    sme2_gate.check_operators()
    sme2_gate.check_cost()
    sme2_gate.check_outputs()
"""
NORM = "nn.functional.layer_norm(x.flatten(2), (256,)).view(1, 16, 16, 16)"
MORE = "more instructions"
# What is changed, the line that is to blame, and the effect.
WAYS = {
    "flip": ({"between": "x.flip(-1)"}, "x = x.flip(-1)", MORE),
    "wider": ({"wide": "512"}, LAST, MORE),
    "transposed": ({"between": "x.transpose(2, 3)"}, "x = x.transpose(2, 3)", MORE),
    "dtype": ({"between": "(x.double() + 1).float()"}, "x = (x.double() + 1).float()", MORE),
    "unfused": (
        {"fused": "self.norm(torch.relu(self.stem(image)))"},
        "x = self.norm(torch.relu(self.stem(image)))",
        MORE,
    ),
    "outside": ({"between": "x.cumsum(1)"}, "x = x.cumsum(1)", MORE),
    "numerics": ({"between": NORM}, f"x = {NORM}", "wrong outputs against reference"),
    "slower": ({"between": "self.mix(self.mix(x))"}, "x = self.mix(self.mix(x))", MORE),
}


def write_model(root: Path, name: str, changes: dict[str, str]) -> None:
    folder = root / "models" / name
    folder.mkdir(parents=True)
    variant = "fp16" if name in ("net16", "numerics") else "fp32"
    text = MODEL.format(name=name, variant=variant, last=LAST, **{**USUAL, **changes})
    (folder / "model.py").write_text(text, "utf-8")


def place(root: Path, name: str, code: str) -> str:
    lines = (root / "models" / name / "model.py").read_text("utf-8").splitlines()
    number = 1 + [line.strip() for line in lines].index(code)
    return f"{code} at models/{name}/model.py:{number}"


# Its ten exports take two minutes of CPU.
@pytest.mark.nightly
def test_the_first_line_names_the_source_line_and_the_largest_effect(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(CACHE))
    root = pytester.path
    for name in ("net", "net16"):
        write_model(root, name, {})
    pytester.makeini("[pytest]\nsme2_device = emulated\n")
    pytester.makepyfile(SUITE)
    pytester.runpytest_subprocess("--update-baselines").assert_outcomes(passed=2)
    for name, (changes, _, _) in WAYS.items():
        write_model(root, name, changes)
        good = "net16-fp16" if name == "numerics" else "net-fp32"
        (path,) = root.glob(f"baselines/*/{good}.json")
        known = {**json.loads(path.read_text("utf-8")), "model": name}
        (path.parent / f"{name}-{good[-4:]}.json").write_text(json.dumps(known), "utf-8")
    options = ["--sme2-models", ",".join(WAYS), "--sme2-report=c.json", "--sme2-report=r.html"]
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(failed=len(WAYS))
    printed = result.stdout.str().replace("`", "")
    page = (root / "r.html").read_text("utf-8")
    data = page.partition('application/json">')[2].partition("</script>")[0]
    cases = {case["id"].rpartition("-")[0]: case for case in json.loads(data)["cases"]}
    ours = printed.partition("= sme2 =")[2].splitlines()[1 : 1 + len(WAYS)]
    for name, (_, code, effect) in WAYS.items():
        line = place(root, name, code)
        (failure,) = re.findall(rf"__ test_it\[{name}-fp\d+\] _+\n(.*)\n", printed)
        (first,) = (each for each in ours if each.startswith(f"{name}-fp"))
        told = cases[name]["reason"], (cases[name]["where"] or "").replace("`", "")
        for text in (failure, first, ": ".join(told)):
            assert effect in text
            assert line in text
    comment = json.loads((root / "c.json").read_text("utf-8"))["worst"]
    worst = next(iter(cases))
    assert place(root, worst, WAYS[worst][1]) in comment["place"]
    assert WAYS[worst][2] in comment["effect"]
