"""The benchmarks as one command: what is run again, what is kept, and that no number drifts."""

from __future__ import annotations

import math

import pytest

from benchmarks import __main__ as command
from benchmarks import harness
from benchmarks.__main__ import BY_NAME, chosen
from benchmarks.harness import (
    Benchmark,
    Claim,
    append_record,
    clean_claims,
    read_records,
    told,
)


@pytest.mark.parametrize(
    ("value", "limit", "least", "met"),
    [
        (30, 30, False, True),
        (30.1, 30, False, False),
        (99, 100, True, False),
        (100, 100, True, True),
        (math.nan, 100, True, False),
        (5, None, False, None),
    ],
)
def test_a_limit_is_met_or_not(value, limit, least, met):
    assert Claim("key", "what", value, limit=limit, least=least).met is met


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "%", "0 %"),
        (0.9134, "%", "91.3 %"),
        (1234.5, "MB", "1,234 MB"),
        (99.96, "", "100"),
        (200_000, "", "200,000"),
        (0.0001234, "s", "0.000123 s"),
        (104.3, "x", "104x"),
        (math.nan, "s", "unknown"),
    ],
)
def test_figures_are_told_in_three_digits(value, unit, text):
    assert told(value, unit) == text


def test_a_cut_off_line_is_left_out_and_stays_alone(tmp_path, capsys):
    samples = tmp_path / "samples.jsonl"
    written = [append_record(samples, {"name": "one"})]
    with samples.open("a") as file:
        file.write('{"name": "tw')
    written.append(append_record(samples, {"name": "three"}))
    assert read_records(samples) == written
    assert "cut off" in capsys.readouterr().err


def test_one_trial_that_is_not_clean_misses_the_limit():
    rows = [{"trials": 50, "clean": 50}, {"trials": 10, "clean": 10}]
    assert [claim.met for claim in clean_claims(rows)] == [None, True]
    rows[1]["clean"] = 9
    assert [claim.met for claim in clean_claims(rows)] == [None, False]


def test_what_is_chosen():
    def names(*words, **kind):
        return [entry.name for entry in chosen(list(words), **kind)]

    assert names(quick=False, everything=False) == ["startup", "attacks"]
    assert names(quick=False, everything=True) == list(BY_NAME)
    quick = ["startup", "faults", "hostile"]
    assert names(quick=True, everything=False) == quick
    assert names("faults", "startup", quick=False, everything=False) == ["faults", "startup"]


SCRIPT = """\
import json, pathlib, sys
if pathlib.Path("broken").exists():
    sys.exit("something is missing")
claim = {"key": "k", "what": "speed | width", "value": 2.0, "unit": "s",
         "limit": 3.0 if "--quick" in sys.argv else 1.0, "peer": "other", "peer_value": 4}
path = pathlib.Path(sys.argv[sys.argv.index("--json") + 1])
path.write_text(json.dumps({"claims": [claim], "details": {"n": 1}}))
sys.exit(0 if "--quick" in sys.argv else 1)
"""
HEADLINE = "It takes **{k}**, the other {k.peer}."
TINY = Benchmark("tiny", HEADLINE, quick=("--quick",))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """``python -m benchmarks`` in a checkout whose benchmarks take no time."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "tiny.py").write_text(SCRIPT)
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    monkeypatch.setattr(command, "BY_NAME", {"tiny": TINY})
    monkeypatch.setattr(command, "OUT", tmp_path / "OUT")
    return tmp_path


def test_a_result_is_kept_with_its_circumstances(checkout, capfd):
    assert command.main([]) == 1
    result = harness.read_result(checkout / "OUT" / "full" / "tiny.json")
    assert result["command"] == "python -m benchmarks.tiny"
    (claim,) = result["claims"]
    assert (claim.key, claim.value, claim.told_peer()) == ("k", 2.0, "other: 4 s")
    assert result["details"] == {"n": 1}
    assert {"cpu", "system"} <= set(result["machine"])
    assert {"python", "pytest", "pytest-sme2"} <= set(result["versions"])
    assert command.main(["--quick"]) == 0
    (checkout / "broken").touch()
    assert command.main(["tiny"]) == 3
    assert "something is missing\ntiny: no result" in capfd.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        command.main(["dance"])
    assert "'dance' is not a benchmark. Choose from: tiny" in capfd.readouterr().err


@pytest.mark.parametrize("table", command.tables(), ids=lambda table: table.name)
def test_the_pages_follow_from_the_kept_results(table):
    text = table.path.read_text("utf-8")
    assert table.put(text) == text, "write it with: python -m benchmarks table"


def test_kept_results_are_full_ones_and_their_headlines_complete():
    kept = command.load(command.KEPT)
    assert not [name for name, found in kept.items() if "--quick" in found["command"]]
    assert not [line for line in command.headlines(kept) if "{" in line]
