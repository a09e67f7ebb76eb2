"""How often a failure names the operator that is to blame, and how often an innocent one.

    python -m benchmarks.culprits          # a few minutes; it resumes

Real regressions: a small network before and after a change whose culprit is known by construction.
Both are exported and traced in pairs by the product's own code, and the operators that the failure
text would name are compared with the culprit. Equal programs (other weights) have no culprit, so
whatever is named there is innocent.

The limits were set before the first run: no innocent operator is named, and the culprit is named in
nine of ten regressions. Two changes of the first run turned out to make the program faster (a dense
convolution in place of a grouped one) and were replaced. The first runs also showed that "longer in
every pair" of six named innocent operators, and that more work makes all else a little slower; so
the product's rule became stricter. What splits the delegate has the framework's overhead as a
culprit.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.detection_programs import kept_program, lowered
from benchmarks.harness import SCHEMA, Claim, append_record, finish, parser_of, read_records
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.report.versus_baseline import NEGLIGIBLE
from pytest_sme2.results import Artifact, Profile
from pytest_sme2.session.bench import Bench
from pytest_sme2.session.reference import OpenReference, Reference
from pytest_sme2.session.settings import Settings
from pytest_sme2.session.versus import CANDIDATE, Versus
from pytest_sme2.verdict.baselines import operator_times
from pytest_sme2.verdict.growth import OVERHEAD, TRACED_PAIRS, growth_of

LEAST_NAMED = 0.9
SHAPE = (1, 16, 32, 32)
CONVOLUTION, TRANSPOSE, LINEAR = "Convolution", "Transpose", "Fully Connected"


@dataclass(frozen=True)
class Regression:
    """A change, and the operators that it makes slower or adds: parts of their names."""

    name: str
    culprits: tuple[str, ...]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    shape: tuple[int, ...] = SHAPE


def _network(**choices: Any) -> Any:
    """A small network; every choice changes one thing about it."""
    import torch
    from torch import nn

    convolutions = choices.get("convolutions", 3)
    middle = choices.get("middle", 16)
    kernel = choices.get("kernel", 3)

    class Network(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(16, middle, 3, padding=1)
            self.middle = nn.Conv2d(middle, 16, kernel, padding=kernel // 2)
            self.more = nn.ModuleList(
                nn.Conv2d(16, 16, 3, padding=1) for _ in range(convolutions - 2)
            )
            hidden = choices.get("hidden", 128)
            self.linear = nn.Linear(32, hidden)
            self.back = nn.Linear(hidden, 32)
            self.linears = nn.ModuleList(
                nn.Linear(32, 32) for _ in range(choices.get("linears", 0))
            )
            self.norm = nn.LayerNorm(32)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            value = torch.relu(self.first(value))
            value = torch.relu(self.middle(value))
            for layer in self.more:
                value = torch.relu(layer(value))
            for _ in range(choices.get("transposes", 0)):
                value = value.transpose(2, 3)
            for _ in range(choices.get("adds", 0)):
                value = value + value.mean()
            if choices.get("softmax"):
                value = torch.softmax(value, dim=-1)
            if choices.get("sigmoid"):
                value = torch.sigmoid(value)
            if choices.get("pool"):
                size = choices["pool"]
                value = nn.functional.max_pool2d(value, size, stride=1, padding=size // 2)
            if choices.get("cumsum"):
                value = torch.cumsum(value, dim=-1)
            if choices.get("layer_norm"):
                value = self.norm(value)
            if choices.get("gelu"):
                value = nn.functional.gelu(value)
            if choices.get("concatenate"):
                value = torch.cat([value, value], dim=2)[:, :, :32]
            value = self.back(torch.relu(self.linear(value)))
            for layer in self.linears:
                value = layer(value)
            return value

    torch.manual_seed(choices.get("seed", 0))
    return Network().eval()


REGRESSIONS = (
    Regression("one convolution more", (CONVOLUTION,), {}, {"convolutions": 4}),
    Regression("two convolutions more", (CONVOLUTION,), {}, {"convolutions": 5}),
    Regression("convolutions doubled", (CONVOLUTION,), {}, {"convolutions": 6}),
    Regression("twice the channels", (CONVOLUTION,), {}, {"middle": 32}),
    Regression("four times the channels", (CONVOLUTION,), {}, {"middle": 64}),
    Regression("a 5x5 kernel", (CONVOLUTION,), {}, {"kernel": 5}),
    Regression("a 7x7 kernel", (CONVOLUTION,), {}, {"kernel": 7}),
    Regression("twice the channels and a 5x5 kernel", (CONVOLUTION,), {},
               {"middle": 32, "kernel": 5}),
    Regression("twice the channels and a convolution more", (CONVOLUTION,), {},
               {"middle": 32, "convolutions": 4}),
    Regression("a transpose more", (TRANSPOSE, "transpose", "permute"), {}, {"transposes": 1}),
    Regression("three transposes more", (TRANSPOSE, "transpose", "permute"), {}, {"transposes": 3}),
    Regression("a wider linear layer", (LINEAR,), {}, {"hidden": 256}),
    Regression("a linear layer four times as wide", (LINEAR,), {}, {"hidden": 512}),
    Regression("a linear layer more", (LINEAR,), {}, {"linears": 1}),
    Regression("three linear layers more", (LINEAR,), {}, {"linears": 3}),
    Regression("a softmax", ("Softmax", "softmax"), {}, {"softmax": True}),
    Regression("a sigmoid", ("Sigmoid", "sigmoid"), {}, {"sigmoid": True}),
    Regression("a larger pooling window", ("Max Pooling", "max_pool"), {"pool": 3}, {"pool": 7}),
    Regression("a cumulative sum outside of the delegate", ("cumsum", OVERHEAD), {},
               {"cumsum": True}),
    Regression("a layer norm", ("layer_norm", OVERHEAD), {}, {"layer_norm": True}),
    Regression("a GELU", ("GELU", "Gelu", "gelu"), {}, {"gelu": True}),
    Regression("a concatenation", ("native_call_cat", "Slice", OVERHEAD), {},
               {"concatenate": True}),
    Regression("equal: plain", (), {}, {"seed": 1}),
    Regression("equal: six convolutions", (), {"convolutions": 6}, {"convolutions": 6, "seed": 1}),
    Regression("equal: transposes", (), {"transposes": 3}, {"transposes": 3, "seed": 1}),
    Regression("equal: a wide linear layer", (), {"hidden": 512}, {"hidden": 512, "seed": 1}),
    Regression("equal: a cumulative sum", (), {"cumsum": True}, {"cumsum": True, "seed": 1}),
)  # fmt: skip


def artifact_of(choices: Mapping[str, Any], shape: tuple[int, ...]) -> Artifact:
    """The exported network."""
    told = "_".join(f"{name}_{value}" for name, value in sorted(choices.items())) or "plain"
    return kept_program(
        "network",
        f"culprits_{told}",
        shape,
        lambda: lowered(_network(**choices), shape),
        outputs=(),
        weights="random (seed 0)",
    )


Pairs = Sequence[tuple[Profile, Profile]]


def traced(regression: Regression, folder: Path) -> Pairs:
    """The two programs, traced in pairs by the product."""
    before, after = (
        artifact_of(choices, regression.shape) for choices in (regression.before, regression.after)
    )
    bench = Bench(Settings(device="linux"), lambda: "culprits", lambda line: None)
    reference = OpenReference(Reference("programs", "before"), None, {("network", "fp32"): before})
    arm = bench.arms[0]
    versus = Versus(bench, regression.name, folder, bench.request(after, arm, 1), reference)
    # How long a run takes, and the files brought into memory.
    seconds = versus.profile(CANDIDATE).end_to_end.median / 1e9
    return versus.traced_pairs(TRACED_PAIRS, seconds)


def named(pairs: Pairs) -> dict[str, list[str]]:
    """What the failure text would name: structure and times."""
    growth = growth_of(pairs, "before")
    least = NEGLIGIBLE * max(growth.end_to_end.before_ns, growth.end_to_end.after_ns)
    return {
        "structure": [line for line in growth.structure if line.startswith("+")],
        "operators": [change.name for change in growth.operators if change.delta_ns > least],
        "overhead": [
            change.name
            for change in growth.categories
            if change.name == OVERHEAD and change.delta_ns > least
        ],
    }


def record(regression: Regression, pairs: Pairs) -> dict[str, Any]:
    found = named(pairs)
    names = [line for lines in found.values() for line in lines]
    innocent = [name for name in names if not any(part in name for part in regression.culprits)]
    return {
        "schema": SCHEMA,
        "regression": regression.name,
        "equal": not regression.culprits,
        "named": found,
        "right": len(names) > len(innocent),
        "innocent": innocent,
        "operators": [len(structure_of(profile).operators) for profile in pairs[0]],
        "times_ns": [[operator_times(profile) for profile in pair] for pair in pairs],
        "end_to_end_ns": [[profile.end_to_end.median for profile in pair] for pair in pairs],
    }


def claims(records: Sequence[Mapping[str, Any]]) -> list[Claim]:
    true = [entry for entry in records if not entry["equal"]]
    right = sum(entry["right"] for entry in true)
    return [
        Claim("regressions", "real regressions with a known culprit", len(true), limit=20,
              least=True),
        Claim("named", "of these, with the culprit named", right,
              limit=LEAST_NAMED * len(true), least=True),
        Claim("innocent", f"innocent operators named, in {len(records)} comparisons",
              sum(len(entry["innocent"]) for entry in records), limit=0),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--samples",
        type=Path,
        default=Path("sme2-out/culprits.jsonl"),
        help="what was traced, one comparison a line; default %(default)s",
    )
    arguments = parser.parse_args(argv)
    records = read_records(arguments.samples)
    done = {entry["regression"] for entry in records}
    for regression in REGRESSIONS:
        if regression.name in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            entry = record(regression, traced(regression, Path(folder)))
        append_record(arguments.samples, entry)
        records.append(entry)
        told = "; ".join(line for lines in entry["named"].values() for line in lines)
        print(f"{regression.name}: {told or 'nothing named'}", flush=True)
    details = {
        entry["regression"]: {name: entry[name] for name in ("named", "right", "innocent", "equal")}
        for entry in records
    }
    return finish(claims(records), arguments.json, details)


if __name__ == "__main__":
    sys.exit(main())
