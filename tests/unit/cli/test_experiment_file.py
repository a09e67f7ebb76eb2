from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.cli.commands.run import TEMPLATES, template
from pytest_sme2.cli.experiments import parse_plan
from pytest_sme2.errors import UsageError
from pytest_sme2.results.run import PAIR, Arm
from tests.support import Command


def plan(**changes: Any) -> dict[str, Any]:
    return {
        "model": "out/artifacts/toy_xnnpack_fp16.pte",
        "output_root": "out/runs/mac",
        "experiments": [{"name": "mac_sme2_on"}, {"name": "mac_sme2_off"}],
        **changes,
    }


def experiment(**changes: Any) -> dict[str, Any]:
    return plan(experiments=[{"name": "mac_sme2_on", **changes}])


def test_the_least_a_file_needs() -> None:
    found = parse_plan(plan())
    assert [entry.arm for entry in found.experiments] == [Arm.ON, Arm.OFF]
    assert found.compare == ((("mac_sme2_off", 1), ("mac_sme2_on", 1)),)
    first = found.experiments[0]
    assert (first.runs, first.warmup, first.threads, first.mode) == (10, 3, 1, "timing")
    assert first.runner_path is None
    assert found.device == "auto"
    named = parse_plan(plan(compare=[["mac_sme2_off", "mac_sme2_on"]]))
    assert named.compare == found.compare
    assert parse_plan(plan(compare=[])).compare == ()


def test_every_field_is_read() -> None:
    document = experiment(
        name="x",
        sme2="off",
        runner_path="cmake-out/executor_runner",
        mode="xnntrace",
        num_runs=4,
        warmup=0,
        num_threads=2,
        cpu_affinity="0,4-6",
        extra_args=["--flag=1"],
        timeout_seconds=60,
    )
    (found,) = parse_plan(document).experiments
    assert found.arm is Arm.OFF
    assert found.runner_path == Path("cmake-out/executor_runner")
    assert (found.mode, found.runs, found.warmup, found.threads) == ("xnntrace", 4, 0, 2)
    assert found.cpus == (0, 4, 5, 6)
    assert found.extra_arguments == ("--flag=1",)


def kit_plan(**changes: Any) -> dict[str, Any]:
    """A file with the fields that those of Arm's profiling kit have."""
    entry = {"runner_path": "cmake-out/x/executor_runner", "mode": "timing", "runs": 4, "warmup": 1}
    return {
        "model": "out_net/artifacts/net_xnnpack_fp16.pte",
        "output_root": "out_net/runs/phone",
        "experiments": [
            {"name": "phone_sme2_on", **entry, "threads": [1, 4]},
            {"name": "phone_sme2_off", **entry, "threads": [1, 4], "cpu_affinity": "0xf0"},
        ],
        "analysis": {"compare_pairs": []},
        **changes,
    }


def test_the_files_of_the_profiling_kit_are_read_as_they_are() -> None:
    found = parse_plan(kit_plan())
    assert [entry.key for entry in found.experiments] == [
        ("phone_sme2_on", 1),
        ("phone_sme2_on", 4),
        ("phone_sme2_off", 1),
        ("phone_sme2_off", 4),
    ]
    assert found.experiments[2].cpus == (4, 5, 6, 7)
    assert found.compare == tuple(
        (("phone_sme2_off", count), ("phone_sme2_on", count)) for count in (1, 4)
    )


def kit_pair(threads: int) -> dict[str, Any]:
    return {
        "baseline": {"experiment": "phone_sme2_off", "threads": threads},
        "candidate": {"experiment": "phone_sme2_on", "threads": threads},
    }


def test_pairs_of_the_kit_name_their_threads() -> None:
    pair = {**kit_pair(4), "label": "four"}
    found = parse_plan(kit_plan(analysis={"compare_pairs": [pair], "plots": True}))
    assert found.compare == ((("phone_sme2_off", 4), ("phone_sme2_on", 4)),)


def test_the_other_words_of_the_kit() -> None:
    entry = {"name": "mac_sme2_on", "quiet_runner": "quiet", "extra_args": ["--flag=1"]}
    document = kit_plan(experiments=[entry])
    del document["output_root"]
    found = parse_plan(document)
    assert found.output_root == Path("out_net/results")
    assert found.experiments[0].runner_path == Path("quiet")
    assert found.experiments[0].extra_arguments == ("--flag=1",)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "Expected `object`, got `array`"),
        (plan(model=None), "model: Expected `str`, got `null`"),
        (plan(model="toy.pt"), "model: 'toy.pt' is not a program"),
        (plan(experiments=[]), "experiments: must be at least one, of different names"),
        (plan(experiments=["x"]), r"experiments\[0\]: Expected `object`"),
        (plan(experimets=[]), "unknown field `experimets`. Did you mean 'experiments'"),
        (plan(device="phone"), "'phone' is not a device. Choose one of: auto"),
        (plan(experiments=[{"name": "a_sme2_on"}] * 2), "experiments: .* of different names"),
        (experiment(name="../x"), r"experiments\[0\].name: Expected `str` matching regex"),
        (experiment(name="x"), r"experiments\[0\].sme2: None is neither"),
        (experiment(sme2="maybe"), r"experiments\[0\].sme2: 'maybe' is neither"),
        (experiment(mode="fast"), r"'fast' is not a mode \(experiments\[0\]\)"),
        (experiment(runs=0), r"experiments\[0\].runs: Expected `int` >= 1"),
        (experiment(runs=True), r"experiments\[0\].runs: Expected `int \| null`, got `bool`"),
        (experiment(warmup=-1), r"experiments\[0\].warmup: Expected `int` >= 0"),
        (experiment(threads="2"), r"experiments\[0\].threads: Expected `int \| array \| null`"),
        (experiment(cpu_affinity="x"), r"experiments\[0\].cpu_affinity: 'x' names no cores"),
        (experiment(cpu_affinity=[-1]), r"experiments\[0\].cpu_affinity\[0\]: Expected `int` >= 0"),
        (experiment(extra_args="--x"), r"experiments\[0\].extra_args: Expected `array \| null`"),
        (
            experiment(thread=2),
            r"experiments\[0\]: .*unknown field `thread`. Did you mean 'threads'",
        ),
        # What would fail later.
        (plan(model="a\0.pte"), "it holds a NUL"),
        (experiment(runner_path="\ud800"), "half of a character"),
        (experiment(timeout_seconds=10**30), "timeout_seconds: Expected `int` <= 1000000"),
        (experiment(threads=1025), "threads: Expected `int` <= 1024"),
        (
            plan(experiments=[{"name": "x_sme2_on", "threads": 2}, {"name": "x_sme2_off"}]),
            r"compare\[0\]: .* differ in threads \(1, 2\), so their times cannot be compared",
        ),
        (plan(compare=[["mac_sme2_on"]]), r"compare\[0\]: Expected `array` of length 2, got 1"),
        (plan(compare=[["a", "mac_sme2_on"]]), r"compare\[0\]: 'a' is not an experiment"),
        # In files of the kit.
        (
            kit_plan(analysis={"compare_pairs": [{"baseline": {"experiment": 1}}]}),
            r"analysis\.compare_pairs\[0\]\.baseline\.experiment: ",
        ),
        (
            kit_plan(analysis={"compare_pairs": [kit_pair(2)]}),
            r"compare\[0\]: 'phone_sme2_off' with 2 threads is not an experiment",
        ),
        (experiment(threads=[1, "2"]), r"experiments\[0\].threads\[1\]: Expected `int`"),
    ],
)
def test_a_mistake_is_named_by_its_field(document: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_plan(document)


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_are_valid(name: str, sme2: Command) -> None:
    text = sme2("run", "--template", name).out
    assert text == template(name)
    found = parse_plan(json.loads(text))
    assert found.device == name
    assert found.compare
    assert {entry.arm for entry in found.experiments} == set(PAIR)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "e.json cannot be read"),
        ("{", "e.json cannot be read: it is not valid JSON"),
        ("[" * 100_000, "e.json cannot be read: it is not valid JSON"),
        (json.dumps(plan(device="phone")), "e.json: 'phone' is not a device"),
        (json.dumps(plan(model="none.pte")), "There is no program"),
    ],
    ids=["missing", "cut", "bottomless", "wrong", "without its program"],
)
def test_the_file_is_named_in_its_errors(
    text: str | None, message: str, tmp_path: Path, sme2: Command
) -> None:
    path = tmp_path / "e.json"
    if text is not None:
        path.write_text(text)
    assert message in sme2("run", "--config", path, code=2).err
