from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest

from pytest_sme2.report.history import all_series
from pytest_sme2.report.html import embedded_json, history_page, page, report_document
from pytest_sme2.report.markdown import case_lines
from pytest_sme2.results.case import Generated, StepCosts
from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.trace import etdump
from tests.support import Command
from tests.support.gate_examples import frontier, medians
from tests.support.histories import run, timed
from tests.support.records import HOSTILE, changed, stored_dumps, toy_run, write_case


def data_of(text: str) -> Any:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def document(root: Path, **choices: Any) -> Any:
    return report_document([(folder, read_record(folder)) for folder in toy_run(root, **choices)])


def test_only_the_scripts_in_the_page_may_run(tmp_path: Path) -> None:
    text = page(document(tmp_path))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy[1]
    allowed = set(re.findall(r"'sha256-([^']+)'", policy[1]))
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = {
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    }
    assert hashes == allowed
    assert len(allowed) == 2
    assert "unsafe-eval" not in policy[1]
    assert not re.search(r"script-src[^;]*unsafe", policy[1])


def test_no_name_can_end_the_data() -> None:
    text = embedded_json({"name": HOSTILE, "endless": float("inf"), "\u2028": "\u2029"})
    assert "<" not in text
    assert json.loads(text) == {"name": HOSTILE, "endless": None, "\u2028": "\u2029"}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_cases_are_a_list_however_many_there_are(count: int) -> None:
    shown = {"before": [], "cases": iter([{"id": "a"}] * count), "after": {"x": 1}}
    assert data_of(page(shown)) == {"before": [], "cases": [{"id": "a"}] * count, "after": {"x": 1}}


def test_an_emulated_case_holds_no_time_at_all(tmp_path: Path) -> None:
    for case in document(tmp_path, emulated=True)["cases"]:
        assert case["latency"] == {}
        assert case["speedup"] is None
        for arm in case["arms"].values():
            assert not {"time", "share", "times", "end_to_end"} & set(arm)
            assert len(arm["label"]) == len(arm["sme2"])


def test_a_case_on_hardware_holds_both_arms(tmp_path: Path) -> None:
    case = next(document(tmp_path)["cases"])
    assert case["latency"]["off"]["median"] == pytest.approx(20)
    low, high = case["latency"]["on"]["low"], case["latency"]["on"]["high"]
    assert low <= case["latency"]["on"]["median"] <= high
    on = case["arms"]["on"]
    assert sum(on["share"]) + on["overhead"] / on["end_to_end"] == pytest.approx(1, abs=1e-3)
    assert sorted(set(on["sme2"])) == [0, 1, 2]
    assert {row["family"] for row in case["kernels"]["rows"]} == {"sme2", "neon"}


def test_a_frontier_is_a_table_with_the_best_of_each_arm_marked(tmp_path: Path) -> None:
    folder = toy_run(tmp_path)[0]
    record = read_record(folder)
    (without,) = report_document([(folder, record)])["cases"]
    assert without["frontier"] is None
    known = changed(record, frontier=frontier(), conditions={"cores": "7 at 3.30 GHz"})
    (case,) = report_document([(folder, known)])["cases"]
    titles, *rows = case["frontier"]["rows"]
    assert titles == ["threads", "SME2", "NEON", "cores"]
    best = [(row[0], titles[at]) for row in rows for at in (1, 2) if row[at].endswith(" *")]
    assert best == [("2", "SME2"), ("4", "NEON")]
    assert case["frontier"]["notes"][0].startswith("Ship SME2 with 2 threads")
    assert ("cores", "7 at 3.30 GHz") in case["environment"]
    text = "\n".join(case_lines(known, "##"))
    assert "### Best number of threads" in text
    assert "- Ship SME2 with 2 threads: 1.40x" in text
    assert "`7 at 3.30 GHz`" in text


def test_a_generation_is_told_in_each_report(tmp_path: Path) -> None:
    folder = toy_run(tmp_path)[0]
    costs = {arm: StepCosts((8000, 300, 400), (0, 0, 0)) for arm in (Arm.ON, Arm.OFF)}
    known = changed(read_record(folder), generation=Generated(16, 2, costs=costs))
    (case,) = report_document([(folder, known)])["cases"]
    told = "SME2 on: 500 instructions per token of the prompt (16), 350 per new token"
    assert any(note.startswith(told) for note in case["notes"])
    assert f"- {told}" in "\n".join(case_lines(known, "##"))


def test_one_arm_alone_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    dumps = {Arm.OFF: stored_dumps("toy_fp16")[Arm.OFF]}
    alone: dict[str, Any] = {"medians_ns": {Arm.OFF: medians(20)}, "speedup": None, "kernels": {}}
    folder = write_case(tmp_path, "toy", "fp16", dumps, **alone)
    (case,) = report_document([(folder, read_record(folder))])["cases"]
    assert case["kernels"] is None
    assert list(case["arms"]) == ["off"]


@pytest.mark.slow
def test_the_command_writes_all_reports(
    tmp_path: Path, sme2: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    toy_run(tmp_path / "run")
    toy_run(tmp_path / "other", emulated=True)
    reading = Mock(wraps=etdump._columns)
    monkeypatch.setattr(etdump, "_columns", reading)
    made = sme2("report", "run", "--html", "r.html", "--markdown", "r.md", "--json").out
    assert reading.call_count == 6, "each ETDump is read once"
    told = json.loads(made)
    assert told["cases"] == ["toy-fp16", "toy-fp32", "toy-int8"]
    assert all(Path(name).is_file() for name in told["files"])
    assert len(data_of(Path("r.html").read_text())["cases"]) == 3
    sme2("report", "run", "other", "--html", "both.html", "--markdown", "both.md")
    assert "| `toy-int8` | `emulated` | `other` |" in Path("both.md").read_text()
    assert len(data_of(Path("both.html").read_text())["cases"]) == 6
    sme2("report", "run", "other", code=2)
    sme2("report", "run", "--html", "r.pdf", code=2)
    assert "metrics.json" in sme2("report", tmp_path / "nothing", code=2).err


def drawings(page: str) -> list[list[str]]:
    """The kinds of what each chart shows."""
    found = [ElementTree.fromstring(text) for text in re.findall("<svg.*?</svg>", page)]
    return [[kind for part in one.iter() if (kind := part.get("class"))] for one in found]


def test_every_change_is_listed_and_drawn_with_its_commits_and_versions() -> None:
    runs = [
        run(number, 1e6 * 1.01**number, {"program bytes": 1000 + number}) for number in range(4)
    ]
    runs[2] = replace(runs[2], versions={"executorch": "1.5.1"})
    one = [run(3, 1e6, case="alone")]
    page = history_page(all_series([*runs, *one, *timed(80, {40: 1.05}, spread=0.005, seed=2)]))
    noisy, exact, alone = drawings(page)
    assert not {"change bad", "level"} & {*alone}
    assert [exact.count(kind) for kind in ("change bad", "level")] == [3, 0]
    assert [noisy.count(kind) for kind in ("level", "change bad")] == [1, 1]
    assert page.count("<li>") == 8
    assert "c0001..c0002; executorch none → 1.5.1" in page
    # The largest change comes first.
    assert page.index("linux-12ab") < page.index("emulated")


def test_it_asks_nothing_and_escapes_every_name() -> None:
    runs = [
        run(number, 1e6 + number * 1e5, case=HOSTILE, commit=HOSTILE, versions={HOSTILE: HOSTILE})
        for number in range(2)
    ]
    page = history_page(all_series([*runs, run(3, 1e6, device=HOSTILE, recorded=HOSTILE)]))
    assert HOSTILE not in page
    assert "<script" not in page
    assert "default-src &#x27;none&#x27;; script-src ;" in page
    assert not re.search(r"<[^>]* (src|href|on\w+)=", page)
