"""Baselines: what is accepted, how it is written, and that nothing can leave half a file."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import BaselineError
from pytest_sme2.results.case import (
    Accepted,
    Baseline,
    BaselineFigures,
    CaseResult,
    Limits,
    Sample,
    Tolerance,
)
from pytest_sme2.results.evidence import Counts, StoredCost, StoredOperator
from pytest_sme2.results.profile import Category
from pytest_sme2.results.run import SME1_ONLY, Arm, Fingerprint
from pytest_sme2.results.timing import Estimate
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.baselines import parse, render
from tests.support.gate_examples import (
    CONV_ON,
    EMULATED,
    EVIDENCE,
    KERNELS,
    LIMITS,
    LINUX,
    STRUCTURES,
    TRANSPOSE,
    baseline,
    census,
    edit_baseline,
    emulated,
    measured,
    medians,
    structure,
)

PATH = Path("baselines/linux/toy.json")
EXAMPLE = render(baseline())
HOSTILE = (
    "a b",
    "'; rm -rf ~ #",
    "../../../etc/passwd",
    "..",
    ".",
    "",
    "<script>alert(1)</script>",
    "new\nline",
    "nul\0byte",
    "/absolute",
    "x" * 400,
    "naïve-模型",
    "broken \udcff name",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_names(tmp_path: Path, name: str) -> None:
    root = tmp_path / "baselines"
    path, _ = baselines.store(root, emulated(model=name))
    assert path.parent == root / "emulated"
    assert path.is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["baselines"]
    assert baselines.load(root, name, "fp16", EMULATED).model == name


def test_names_stay_readable_and_never_collide() -> None:
    path = baselines.baseline_path(Path("b"), "toy_cnn", "fp16@256", EMULATED)
    assert path == Path("b/emulated/toy_cnn-fp16@256.json")
    names = [*HOSTILE, "a_b", "a?b", "a!b"]
    paths = {baselines.baseline_path(Path("b"), name, "fp16", EMULATED) for name in names}
    assert len(paths) == len(names)


def test_everything_survives_the_file() -> None:
    name = HOSTILE[1]
    known = baseline(
        model=name,
        fingerprint=Fingerprint(name, (("", name),)),
        kernels=KERNELS,
        figures={4: BaselineFigures(Estimate(2, 1.9, 2.1, 0.99, 10), {Arm.ON: 7})},
        promised={1: {name: ""}},
        limits=Limits(min_speedup=1.5, max_p95={"4": 0.1}, tolerances={name: Tolerance(0.1)}),
        settings={name: name},
        samples={"output 0": Sample("float32[2]", (0.5, -2.0), name, 1e-9, "ab")},
        operators={Arm.SME1: (StoredOperator(name, Category.CONV, shapes="1x3", place=name),)},
    )
    assert parse(render(known), PATH) == known
    assert render(parse(render(known), PATH)) == render(known)


COST = StoredCost(
    cpu="max",
    total=Counts(instructions=120),
    operators=(
        StoredOperator("Conv", Category.CONV, 90, "kai_run", 5, "1x3 -> 1x4", "model.py:28"),
        StoredOperator("Add", Category.ELEMENTWISE, 10, "libm"),
    ),
    system=7,
    runtime=20,
)


def test_an_operator_is_one_line_with_its_place() -> None:
    counted = baseline(structures={}, costs={Arm.ON: COST})
    text = render(counted)
    assert parse(text, PATH).costs == counted.costs
    assert parse(text, PATH).program(Arm.ON) == COST.operators
    line = next(line for line in text.splitlines() if '"model.py:28"' in line)
    assert '"instructions": 90' in line
    assert '"shapes": "1x3 -> 1x4"' in line
    assert sum('"shapes"' in line for line in text.splitlines()) == 1


def test_what_another_run_compares_is_promised_as_well() -> None:
    known = None
    for figure, promised in (
        ("latency (on)", {"latency (on)"}),
        ("load time (on)", {"latency (on)", "load time (on)"}),
    ):
        accepted = Accepted({figure: "test_it"}, LIMITS)
        known, _ = baselines.update(known, measured(), accepted=accepted)
        assert {*known.promised[1]} == promised
    assert known.limits is not None
    assert {*known.limits.tolerances} == {"fp16"}


def test_the_file_is_made_for_diffs() -> None:
    text = render(baseline())
    assert text.endswith("}\n")
    assert text.startswith('{\n  "schema": 5,\n')
    fewer = {**STRUCTURES, Arm.ON: structure({CONV_ON: 4, TRANSPOSE: 1})}
    other = render(baseline(structures=fewer))
    changed = [
        (old, new)
        for old, new in zip(text.splitlines(), other.splitlines(), strict=True)
        if old != new
    ]
    (seal, operator) = (new for _, new in changed)
    assert '"sealed"' in seal
    assert TRANSPOSE in operator


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"schema": 1}',
        b'{"schema": "1"}',
        b'{"schema": true}',
        b'{"schema": -1}',
        b'{"schema": NaN}',
        b"[" * 100_000,
        b"\x00\x01",
        b"\xff\xfe{}",
    ],
)
def test_damage_is_named_and_nothing_is_overwritten(tmp_path: Path, content: bytes) -> None:
    path = baselines.baseline_path(tmp_path, "toy_cnn", "fp16", LINUX)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(BaselineError, match="cannot be read") as caught:
        baselines.load(tmp_path, "toy_cnn", "fp16", LINUX)
    assert str(path) in str(caught.value)
    with pytest.raises(BaselineError):
        baselines.store(tmp_path, measured())
    assert path.read_bytes() == content


def every_place(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from every_place(inner, (*path, key))


def with_value(place: tuple[Any, ...], wrong: object) -> str:
    """The file of the example, with something else in one place."""
    document = inner = json.loads(EXAMPLE)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = wrong
    return json.dumps(document)


def test_what_was_edited_or_merged_by_hand_is_refused_wherever_it_differs() -> None:
    places = [place for place in every_place(json.loads(EXAMPLE)) if place[0] != "promised"]
    assert len(places) > 100
    for place in places:
        with pytest.raises(BaselineError, match=r"edited or merged by hand|its schema is"):
            parse(with_value(place, "other"), PATH)
    other = json.dumps(json.loads(EXAMPLE), indent=1)
    assert parse(other, PATH) == baseline()


def test_another_model_target_or_schema_is_refused_and_kept(tmp_path: Path) -> None:
    path, _ = baselines.store(tmp_path, measured())
    text = path.read_text()
    for changes, message in (
        ({"model": "other"}, "baseline of other-fp16. Move it back"),
        ({"variant": "fp32"}, "baseline of toy_cnn-fp32. Move it back"),
        (
            {"fingerprint": {"target": "linux", "facts": [["cpu", "Cortex-X5"]]}},
            "cpu 'Cortex-X5' there, 'Neoverse-V3' here",
        ),
        ({"schema": 6}, "schema 6; this pytest-sme2 knows up to 5"),
        ({"schema": 2}, "by an older version. Remove it and run with"),
        ({"schema": 4}, "by an older version. Remove it and run with"),
    ):
        path.write_text(text)
        edit_baseline(path, methodcaller("update", changes))
        changed = path.read_text()
        with pytest.raises(BaselineError, match=message):
            baselines.load(tmp_path, "toy_cnn", "fp16", LINUX)
        with pytest.raises(BaselineError, match=message):
            baselines.store(tmp_path, measured())
        assert path.read_text() == changed


def test_structure_may_come_from_the_emulator_and_times_may_not(tmp_path: Path) -> None:
    here = tmp_path, "toy_cnn", "fp16", LINUX
    assert baselines.load_structure(*here) is None
    baselines.store(tmp_path, emulated())
    assert baselines.load_structure(*here).fingerprint == EMULATED
    assert baselines.load(*here) is None
    baselines.store(tmp_path, measured())
    assert baselines.load_structure(*here).fingerprint == LINUX


SHIPPED = Path(__file__).parents[3] / "baselines"


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*/*.json")), ids=lambda path: path.stem)
def test_shipped_baselines_load(path: Path) -> None:
    found = baselines.read(path)
    assert path == baselines.baseline_path(SHIPPED, found.model, found.variant, found.fingerprint)


def test_error_names_the_field(tmp_path: Path) -> None:
    path = tmp_path / "toy_cnn-fp16.json"
    path.write_text(EXAMPLE)
    edit_baseline(path, lambda found: found["sessions"][0].update(threads="4"))
    with pytest.raises(BaselineError, match=r"sessions\[0\]\.threads: Expected `int`, got `str`"):
        baselines.read(path)
    for number in ("NaN", "Infinity"):
        text = EXAMPLE.replace('"pte_bytes": ', f'"pte_bytes": {number}, "x": ')
        with pytest.raises(BaselineError, match=f"{number} is not a number"):
            parse(text, PATH)


def test_a_name_stands_once_in_a_table() -> None:
    twice = render(baseline()).replace('"model":', '"model": "toy", "model":', 1)
    with pytest.raises(BaselineError, match="'model' stands twice in one table"):
        parse(twice, PATH)


def test_conflict_markers_say_what_to_do() -> None:
    ours, theirs = render(baseline()), render(baseline(pte_bytes=7))
    text = f"<<<<<<< HEAD\n{ours}=======\n{theirs}>>>>>>> other\n"
    # The command must also work outside of the file's folder.
    path = Path("baselines", "emulated", "toy_cnn-fp16.json")
    words = f"conflict markers .*git checkout --ours or --theirs -- {re.escape(str(path))}"
    with pytest.raises(BaselineError, match=words):
        parse(text, path)


def after(*sessions: CaseResult) -> Baseline:
    """The baseline that these leave, one after another."""
    known = None
    for session in sessions:
        known, _ = baselines.update(known, session)
    assert known is not None
    return known


def test_first_update_accepts_everything() -> None:
    now = measured()
    new, changed = baselines.update(None, now)
    assert new.structures == now.structures
    assert new.at(1).speedup == now.speedup
    assert new.at(1).peak_bytes == now.peak_bytes
    assert [entry.session for entry in new.sessions] == [now.session]
    assert {change.old for change in changed} == {"none"}
    texts = {change.what: change.new for change in changed}
    assert texts["SME2 coverage"] == "4 of 4 matrix operators"
    assert texts["latency (on, 1 thread)"] == "10.000 ms"
    assert texts["sessions (1 thread)"] == "1 (provisional until 3)"


def test_an_update_says_old_and_new() -> None:
    slower = measured(
        session="second",
        medians_ns={Arm.ON: medians(12), Arm.OFF: medians(20)},
        structures={**STRUCTURES, Arm.ON: structure({CONV_ON: 4, TRANSPOSE: 3})},
    )
    _, changed = baselines.update(after(measured()), slower)
    texts = {change.what: (change.old, change.new) for change in changed}
    assert texts == {
        f"operator {TRANSPOSE} (on, delegated)": ("2", "3"),
        "latency (on, 1 thread)": ("10.000 ms", "12.000 ms"),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": {"executorch": "1.5.1", "executorch runtime": "1.6.0"}},
        {"runner": "pair"},
        {"structures": {**STRUCTURES, Arm.ON: structure({CONV_ON: 5})}},
        {"pte_sha256": "cd" * 32},
        {"medians_ns": {Arm.ON: medians(13), Arm.OFF: medians(20)}},
        {"medians_ns": {Arm.ON: medians(10), Arm.OFF: medians(15)}},
    ],
)
def test_something_else_starts_a_new_epoch_and_keeps_the_history(changes: dict[str, Any]) -> None:
    second = after(measured(), measured(session="second", **changes))
    assert [entry.epoch for entry in second.sessions] == [1, 2]
    assert [entry.session for entry in second.current(1)] == ["second"]


def test_noise_alone_starts_no_epoch() -> None:
    """On a rough machine a session may lie far off without meaning anything."""
    known = after(
        *(
            measured(session=str(each), medians_ns={Arm.ON: medians(each, spread=0.3)})
            for each in (10, 10.8)
        )
    )
    assert len(known.current(1)) == 2


@pytest.mark.parametrize(
    ("milliseconds", "epochs"),
    [((10, 10.7, 9.4, 10.9, 9.8), [1, 1, 1, 1, 1]), ((10, 10.02, 9.98, 12), [1, 1, 1, 2])],
)
def test_the_same_bytes_start_an_epoch_only_once_three_sessions_agree(
    milliseconds: tuple[float, ...], epochs: list[int]
) -> None:
    """However far a noisy machine strays, unless it has changed for good."""
    sessions = (
        measured(session=str(number), runtime="r", medians_ns={Arm.ON: medians(each)})
        for number, each in enumerate(milliseconds)
    )
    assert [entry.epoch for entry in after(*sessions).sessions] == epochs


def test_updating_the_structure_alone_does_not_put_a_new_program_into_an_old_epoch() -> None:
    """First the structure of another program is stored without times, then its times."""
    other: dict[str, Any] = {
        "structures": {**STRUCTURES, Arm.ON: structure({CONV_ON: 5})},
        "pte_sha256": "cd" * 32,
        "runtime": "r",
    }
    untimed = measured(session="second", medians_ns=None, speedup=None, loads_ns=None, **other)
    stored = after(measured(runtime="r"), untimed)
    assert len(stored.sessions) == 1
    stored, _ = baselines.update(stored, measured(session="third", **other))
    assert [entry.epoch for entry in stored.sessions] == [1, 2]


def test_old_sessions_are_dropped_in_the_end() -> None:
    of_one_thread = [measured(session=str(n)) for n in range(baselines.MAX_SESSIONS + 5)]
    known = after(measured(threads=4), *of_one_thread)
    assert len(known.current(1)) == baselines.MAX_SESSIONS
    assert known.current(1)[-1].session == str(baselines.MAX_SESSIONS + 4)
    assert len(known.current(4)) == 1


def test_what_was_not_measured_is_kept() -> None:
    """Nor does the same session count twice."""
    first = after(measured())
    assert baselines.update(first, measured()) == (first, ())
    only_off = measured(
        session="second",
        structures={Arm.OFF: STRUCTURES[Arm.OFF]},
        kernels={},
        medians_ns=None,
        speedup=Estimate(1.0, 0.0, float("inf"), 0.99, 2),
        shares=None,
        loads_ns=None,
        peak_bytes=None,
        pte_bytes=None,
        agreements=(),
        evidence=None,
    )
    assert baselines.update(first, only_off) == (first, ())


@pytest.mark.parametrize(
    ("unfit", "message"),
    [
        (
            measured(evidence=dataclasses.replace(EVIDENCE, valid=False, message="Off is on.")),
            "not valid and was not stored: Off is on",
        ),
        (emulated(medians_ns={Arm.ON: medians(10)}), "emulated times"),
        (emulated(speedup=Estimate(2, 1.9, 2.1, 0.99, 10)), "emulated times"),
        (emulated(shares={}), "emulated times"),
        (emulated(fingerprint=LINUX), "a fake phone has none"),
        (measured(fingerprint=EMULATED), "only real devices"),
        (measured(nan_arms=(Arm.ON,)), "holds NaN"),
        (measured(structures={}), "nothing was traced"),
        (measured(throttled_pairs=1), "another highest clock, in 1 measured pair"),
    ],
)
def test_what_must_not_be_believed_is_not_stored(tmp_path: Path, unfit: Any, message: str) -> None:
    with pytest.raises(BaselineError, match=message):
        baselines.update(None, unfit)
    for force in (False, True):
        with pytest.raises(BaselineError, match=message):
            baselines.store(tmp_path / "baselines", unfit, force=force)
    assert not (tmp_path / "baselines").exists()


def test_busy_machine_is_not_stored_unless_forced(tmp_path: Path) -> None:
    busy = measured(interference=3.06)
    with pytest.raises(BaselineError) as caught:
        baselines.store(tmp_path, busy)
    assert str(caught.value) == (
        "toy_cnn-fp16: it was not stored, because the machine was busy: wall time was 306% over "
        "CPU time, and at most 5% is allowed. Measure again on an idle machine, or store it all "
        "the same with --update-baselines=all."
    )
    assert not list(tmp_path.rglob("*.json"))
    path, _ = baselines.store(tmp_path, busy, force=True)
    baselines.store(tmp_path, measured(session="idle", interference=baselines.BUSY))
    kept = baselines.read(path)
    # What was forced is remembered.
    assert [session.interference for session in kept.sessions] == [3.06, None]


def test_kernels_are_stored_by_name() -> None:
    twice = emulated(kernels={Arm.ON: census(Arm.ON, "a_sme2"), Arm.OFF: census(Arm.OFF, "b")})
    newer, changed = baselines.update(after(emulated()), twice)
    assert [kernel.name for kernel in newer.kernels[Arm.ON].kernels] == ["a_sme2"]
    assert ("kernel a_sme2 (on)", "none", "runs") in [
        (change.what, change.old, change.new) for change in changed
    ]


def test_store_writes_once_and_leaves_nothing_else(tmp_path: Path) -> None:
    path, changed = baselines.store(tmp_path, measured())
    assert changed
    assert path.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    before = path.stat().st_mtime_ns
    _, changed = baselines.store(tmp_path, measured())
    assert changed == ()
    assert path.stat().st_mtime_ns == before


def test_leftovers_of_a_killed_update_are_cleared_away(tmp_path: Path) -> None:
    path, _ = baselines.store(tmp_path, measured())
    leftover = path.with_name(f".{path.name}.abc.tmp")
    leftover.write_text("half a f")
    other = path.with_name(".other.json.abc.tmp")
    other.write_text("somebody else's")
    baselines.store(tmp_path, measured(session="second"))
    assert not leftover.exists()
    assert other.exists()


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = baselines.store(tmp_path, measured())
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    broken = {"medians_ns": {Arm.ON: (math.nan,), Arm.OFF: (1.0,)}}
    for changes, message in (
        ({}, "No space left on device"),
        (broken, r"toy_cnn-fp16 cannot be written.*not a number"),
    ):
        with pytest.raises(BaselineError, match=message):
            baselines.store(tmp_path, measured(session="second", **changes))
        assert path.read_bytes() == before
        assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_held_lock_is_named(tmp_path: Path) -> None:
    import filelock

    baselines.store(tmp_path, measured())
    with (
        filelock.FileLock(tmp_path / baselines.LOCK_NAME),
        pytest.raises(BaselineError, match="Another process is updating the baselines"),
    ):
        baselines.store(tmp_path, measured(session="second"), timeout_seconds=0.05)


UPDATE = """
import sys
from pathlib import Path
from tests.support.gate_examples import measured
from pytest_sme2.verdict import baselines

baselines.store(Path(sys.argv[1]), measured(session=sys.argv[2]))
"""


@pytest.mark.slow
def test_concurrent_updates_lose_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    names = [f"session-{number}" for number in range(4)]
    command = [sys.executable, "-c", UPDATE, str(tmp_path)]
    started = [subprocess.Popen([*command, name], env=environment) for name in names]
    assert [process.wait(600) for process in started] == [0] * 4
    found = baselines.load(tmp_path, "toy_cnn", "fp16", LINUX)
    assert sorted(entry.session for entry in found.sessions) == names


def test_a_chip_without_sme2_is_compared_with_the_third_arm() -> None:
    third = {**STRUCTURES, Arm.SME1: structure({TRANSPOSE: 7})}
    stored = baseline(fingerprint=EMULATED, structures=third)
    chip = Fingerprint("linux", (("sme2", SME1_ONLY),))
    assert stored.on_chip(chip).structures == {
        Arm.ON: third[Arm.SME1], Arm.OFF: third[Arm.OFF]
    }  # fmt: skip
    # Where it was not stored, the arm with SME2 does not stand in for it.
    assert Arm.ON not in stored.on_chip(chip).kernels
    assert stored.on_chip(LINUX) is stored
    own = dataclasses.replace(stored, fingerprint=chip)
    assert own.on_chip(chip) is own
