"""``sme2 run --command``: ExecuTorch's own runner of language models, alone and in turns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.runners.stock import UNTOLD
from tests.support import Command
from tests.support.spoken import make_spoken

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_executorchs_own_runner_is_measured(tmp_path: Path, sme2: Command) -> None:
    make = [sys.executable, "-m", "tests.support.language_model", str(tmp_path)]
    subprocess.run(make, check=True, cwd=ROOT, timeout=600)
    command = f"{sys.executable} run.py words.pte words.bin"
    given = ["run", "--command", command, "--device", "linux", "--budget", "1"]
    (found,) = json.loads(sme2(*given, "--json").out)["generations"].values()
    assert {(one["prompt_tokens"], one["new_tokens"]) for one in found} == {(25, 15)}
    assert all(one["prefill_ms"] > 0 and one["load_ms"] > 0 for one in found)


@pytest.fixture
def spoken(tmp_path: Path) -> str:
    script, model = make_spoken(tmp_path)
    return f"{script} {{}} --model_path={model.name}"


@pytest.mark.parametrize(
    ("times", "code", "verdicts"),
    [
        ("100 1000", 0, {"prefill": "PASS", "decode": "PASS"}),
        ("100 1200", 1, {"prefill": "PASS", "decode": "REGRESSED"}),
        ("120 500", 1, {"prefill": "REGRESSED", "decode": "IMPROVED"}),
    ],
)
def test_two_commands_take_turns_and_each_phase_is_judged(
    times: str, code: int, verdicts: dict[str, str], spoken: str, sme2: Command
) -> None:
    first, second = (spoken.format(f"14 50 {each}") for each in ("100 1000", times))
    given = ["run", "--command", first, "--command", second, "--device", "linux"]
    said = sme2(*given, code=code).out
    for phase, verdict in verdicts.items():
        assert f"{phase} latency against A: {verdict}. " in said
    assert "A: 10 generations, load 5 ms, first token 100 ms" in said
    assert "begins at context" not in said
    assert UNTOLD in said
    order = sorted(
        Path("sme2-out/commands").rglob("runner.log"), key=lambda log: log.stat().st_mtime_ns
    )
    sides = [log.parents[1].name for log in order]
    # Neither side always comes first.
    assert {"".join(sides[at : at + 2]) for at in range(2, len(sides), 2)} == {"AB", "BA"}


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (["{spoken}", "{other}"], "differ in their tokens of prompt and answer (14 and 50,"),
        (["sh -c true"], "printed no line that begins with PyTorchObserver"),
        (["{quick}"], "a phase took none"),
        (["{missing}"], "no model"),
        (["no_such_program --model"], "'no_such_program' is not a program of this computer"),
        (["'"], "is not a command: No closing quotation"),
        (["true", "true", "true"], "--command is given once, or twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(
    commands: list[str], said: str, spoken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {
        "spoken": spoken.format("14 50 100 1000"),
        "other": spoken.format("14 60 100 1000"),
        "quick": spoken.format("14 50 0 1000"),
        "missing": f"{spoken.format('14 50 100 1000')}.gone",
    }
    words = [word for command in commands for word in ("--command", command.format(**known))]
    assert main(["run", *words, "--device", "linux"]) > 1
    assert said in capsys.readouterr().err


def test_an_emulator_has_no_times_to_compare(
    spoken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--command", spoken.format("1 1 1 1"), "--device", "emulated"]) > 1
    assert "cannot measure time" in capsys.readouterr().err
