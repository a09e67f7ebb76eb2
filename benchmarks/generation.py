"""A generation that is slower in one phase: is it found there, and where it begins?

    python -m benchmarks.generation [--quick] [--trials N] [--json FILE]    # an hour; it resumes

Real generations of a random Llama of 33 million parameters on this machine, in pairs that take
turns, judged by ``check_against`` with a limit of 5 %. The slowdown is planted: a library before
the runner waits for a tenth of each step's time, in the prompt only, in new tokens only, or from a
context of 512 on. With --quick it is ``tiny_llama``, and one trial each: it shows that all of it
works, and no figure.
"""

from __future__ import annotations

import itertools
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Claim, append_record, finish, parser_of, read_records
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import DECODE, PREFILL, Arm, Artifact, Outcome
from pytest_sme2.runners.base import LOADER, started
from pytest_sme2.runners.sme2 import PROGRAM, Sme2Runner, wheel_runner
from pytest_sme2.session.device import HeldDevice
from pytest_sme2.session.reference import CANDIDATE, AgainstReference, OpenReference
from pytest_sme2.session.settings import Reference, Settings
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.system.processes import run_process
from pytest_sme2.system.provision import find_compiler
from pytest_sme2.verdict.judging import FAILING
from pytest_sme2.verdict.limits import default_limits

SOURCE = Path(__file__).with_name("slow_steps.cpp")
SLOWER = 0.10
LIMIT = SLOWER / 2
"""As far from what is equal as from what is slower."""
BEGINS = 512
NEAR = 2
"""Tokens that the named context may be off."""
LARGE = {
    "LAYERS": 1, "WIDTH": 384, "HEADS": 6, "KEY_VALUE_HEADS": 3, "FEED_FORWARD": 1024,
    "WORDS": 40960, "CACHE": 544, "LONGEST_PROMPT": 512, "    prompt": 504, "    new": 16,
}  # fmt: skip


def exported(folder: Path, sizes: dict[str, int]) -> Artifact:
    """``tiny_llama`` in these sizes."""
    text = (ROOT / "models" / "tiny_llama" / "model.py").read_text("utf-8")
    for name, size in sizes.items():
        text, found = re.subn(rf"^{name} = \d+$", f"{name} = {size}", text, flags=re.MULTILINE)
        assert found == 1, name
    (folder / "llama").mkdir(parents=True)
    (folder / "llama" / "model.py").write_text(text, "utf-8")
    return export_model(discover([folder]).get("tiny_llama"), parse_variant("fp32"), progress=print)


def slowed(runner: Sme2Runner, folder: Path, steps: int, first: int, last: int) -> Sme2Runner:
    """The same runner, whose steps from ``first`` to ``last`` of each generation take longer."""
    shutil.copytree(runner.folder, folder)
    (folder / PROGRAM).rename(folder / "real_runner")
    real = " ".join(started(folder, "real_runner"))
    if (folder / LOADER).exists():
        # The script is started without it.
        (folder / LOADER).rename(folder / "loader")
        real = real.replace(LOADER, "loader")
    library = folder / "slow_steps.so"
    compiler = find_compiler(host_platform()).cxx
    command = [compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"]
    made = run_process(command, timeout_seconds=120)
    assert made.returncode == 0, made.stderr
    # The product looks in the program for the options that it knows.
    script = (
        "#!/bin/sh\n# --give-turns --generate\n"
        f"export SLOW_STEPS={steps}:{first}:{last}:{SLOWER} LD_PRELOAD={library}\n"
        f'exec {real} "$@"\n'
    )
    (folder / PROGRAM).write_text(script, "utf-8")
    (folder / PROGRAM).chmod(0o755)
    return replace(runner, folder=folder)


def verdicts(
    artifact: Artifact, runners: tuple[Sme2Runner, Sme2Runner], folder: Path
) -> dict[str, Any]:
    """The verdict on each phase, with its ratio, and where the decode begins to be slower."""
    bench = HeldDevice(Settings(device="linux"), lambda: "benchmark", lambda line: None)
    known = {(artifact.model, artifact.variant): artifact}
    reference = OpenReference(Reference("bundle", "as it is"), None, known)
    against = AgainstReference(
        bench, "llama", folder, bench.request(artifact, Arm.OFF, 1), reference
    )
    against.sides = {
        side: (artifact, runner)
        for side, runner in zip((against.name, CANDIDATE), runners, strict=True)
    }
    checks = against.check_generation(replace(default_limits(), max_regression=LIMIT))
    shutil.rmtree(folder, ignore_errors=True)
    named = re.search(r"begins at context (\d+)", checks[1].message)
    found = {
        one.metric.split()[0]: [str(one.verdict), one.new, *(one.interval or ())] for one in checks
    }
    return {"phases": found, "where": int(named[1]) if named else 0}


def right(entry: dict[str, Any], slower: str, place: int) -> bool:
    """REGRESSED where it is slower and nowhere else, and nothing else that fails a test."""
    verdicts = {phase: Outcome(found[0]) for phase, found in entry["phases"].items()}
    near = abs(entry["where"] - place) <= (NEAR if place else 0)
    return near and all(
        verdict is Outcome.REGRESSED if phase == slower else verdict not in FAILING
        for phase, verdict in verdicts.items()
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    samples = Path("sme2-out/generation.jsonl")
    parser.add_argument("--samples", type=Path, default=samples, help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="a small model, one trial of each")
    parser.add_argument("--trials", type=int, default=20, help="of each kind (default: 20)")
    arguments = parser.parse_args(argv)
    trials = 1 if arguments.quick else arguments.trials
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        artifact = exported(root / "models", {} if arguments.quick else LARGE)
        plan = artifact.generation
        assert plan is not None
        begins = plan.prompt_tokens + 3 if arguments.quick else BEGINS
        steps, last = 1 + plan.new_tokens, plan.new_tokens
        kinds = {
            "nothing": ("", 0, (1, 0)),
            "the prompt": (PREFILL, 0, (0, 0)),
            "new tokens": (DECODE, plan.prompt_tokens + 1, (1, last)),
            f"new tokens from a context of {begins} on": (
                DECODE, begins, (begins - plan.prompt_tokens, last)
            ),
        }  # fmt: skip
        # The library costs a little itself, so the other side has it as well.
        usual = slowed(wheel_runner(host_platform()), root / "runner", steps, 1, 0)
        candidates = [
            slowed(wheel_runner(host_platform()), root / f"runner_{number}", steps, *slow)
            for number, (_, _, slow) in enumerate(kinds.values())
        ]
        samples = root / "samples.jsonl" if arguments.quick else arguments.samples
        known = [one for one in read_records(samples) if one["model"] == artifact.sha256]
        # One of each kind after another, so that what is stopped is as far with all of them.
        for trial, number in itertools.product(range(trials), range(len(kinds))):
            if any((one["trial"], one["kind"]) == (trial, number) for one in known):
                continue
            found = verdicts(artifact, (usual, candidates[number]), root / "runs")
            entry = {"trial": trial, "kind": number, **found, "model": artifact.sha256}
            known.append(append_record(samples, entry))
            print(f"{trial}, {[*kinds][number]}: {found}", flush=True)
    claims = []
    for number, (kind, (slower, place, _)) in enumerate(kinds.items()):
        times = sum(right(one, slower, place) for one in known if one["kind"] == number)
        what = f"{SLOWER:.0%} slower in {kind}, limit {LIMIT:.0%}: found there, and nowhere else"
        what = "the same program: no alarm in either phase" if not slower else what
        limit = None if arguments.quick else trials
        claims.append(Claim(f"kind_{number}", what, times, limit=limit, least=True))
    return finish(claims, arguments.json, {"trials": str(trials), "model": artifact.sha256[:12]})


if __name__ == "__main__":
    sys.exit(main())
