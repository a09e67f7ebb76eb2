"""Baselines that were edited, damaged or exchanged, and conditions that nobody accepted."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.attacks.stage import Attack, Change, Project, edit, edit_by_hand, equal, of


def _sessions(*factors: float) -> Change:
    """Each baseline says that it was measured so many times, each time so many times as slow."""

    def change(found: dict[str, Any]) -> None:
        (session,) = found["sessions"]
        found["sessions"] = []
        for factor in factors:
            other = copy.deepcopy(session)
            other["session"] = f"s{factor}"
            for values in other["medians_ns"].values():
                values[:] = [value * factor for value in values]
            found["sessions"].append(other)

    return edit_by_hand(change)


def text(new: str) -> Change:
    def change(project: Project) -> None:
        project.baselines()[-1].write_text(new, "utf-8")

    return change


def _replaced(old: str, new: str) -> Change:
    def change(project: Project) -> None:
        for path in project.baselines():
            found = path.read_text("utf-8")
            assert old in found
            path.write_text(found.replace(old, new), "utf-8")

    return change


def _of_the_other(project: Project) -> None:
    fp16, fp32 = project.baselines()
    shutil.copy(fp16, fp32)


def _instead(make: Callable[[Path], object]) -> Change:
    """Something else in the place of a baseline."""

    def change(project: Project) -> None:
        path = project.baselines()[-1]
        path.unlink()
        make(path)

    return change


def older(found: dict[str, Any]) -> None:
    found["schema"] = 2
    del found["promised"]


OLDER = "was written by an older version"
SILENT = "2 baselines (toy-fp16, toy-fp32): nothing there says what must be compared"
UNREADABLE = "the baseline cannot be read"
BY_HAND = "it is not as --update-baselines wrote it (edited or merged by hand?)"

EDITED = of(
    "baselines that were edited",
    Attack("they are of an older version", OLDER, edit(older)),
    Attack("what they promise is removed", SILENT,
           edit(lambda found: found.pop("promised"))),
    Attack("what they promise is empty", SILENT,
           edit(lambda found: found.update(promised={"1": {}}))),
    Attack("the limits are removed", "limit max_regression: none was accepted",
           edit(lambda found: found.pop("limits"))),
    Attack("latencies ten times as long", BY_HAND, _sessions(10)),
    Attack("three sessions instead of one", BY_HAND, _sessions(1, 1, 1)),
    Attack("no latencies", "", edit(lambda found: found.update(sessions=[]))),
    Attack("one is no JSON", UNREADABLE, text("{ this is not JSON")),
    Attack("one is empty", UNREADABLE, text("")),
    Attack("one is of the future", "was written with schema 999", text('{"schema": 999}')),
    Attack("one has the marks of a merge", "conflict markers", text("<<<<<<< ours\n{}\n")),
    Attack("one is that of another variant", "is the baseline of toy-fp16. Move it back",
           _of_the_other),
    Attack("one is a pipe", "", _instead(os.mkfifo)),
    Attack("one leads to a device without an end", "",
           _instead(lambda path: path.symlink_to("/dev/zero"))),
    Attack("one is a folder", "", _instead(Path.mkdir)),
    Attack("one has NaN", UNREADABLE, _replaced('"model"', '"x": NaN, "model"')),
    Attack("an update over a damaged one", "the baseline was not written", text("{"),
           words="--update-baselines=all"),
    equal("the form of the file is another one", edit_by_hand(lambda found: None)),
)  # fmt: skip


def _given(factor: float) -> dict[str, Any]:
    return {"inputs": factor}


CONDITIONS = of(
    "conditions that nobody accepted",
    Attack("other weights", "weights: random (seed 0) was accepted, and it is other.pt.",
           device={"artifact": {"weights": "other.pt"}}),
    Attack("other weights, in CI", "weights: random (seed 0) was accepted, and it is other.pt.",
           device={"artifact": {"weights": "other.pt"}}, words="", variables={"CI": "true"}),
    Attack("two threads", "with another number of threads",
           words="--sme2-strict --threads=2 -k structure"),
    Attack("other inputs", "input 0 is not the accepted one",
           lambda project: project.pytest("--update-baselines", inputs=1.0), device=_given(2.0)),
    Attack("inputs that are endless", "input 0 is not the accepted one",
           lambda project: project.pytest("--update-baselines", inputs=1.0), device=_given(1e36)),
    equal("other last digits of the inputs",
          lambda project: project.pytest("--update-baselines", inputs=1.0),
          device=_given(1.0000001), words="--sme2-strict -k structure",
          said="compared: 6 of 10 stored figures"),
)  # fmt: skip

ATTACKS = (*EDITED, *CONDITIONS)
