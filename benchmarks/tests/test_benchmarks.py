"""The benchmarks as one command: what is run again, what is kept, and that no number drifts."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import harness
from benchmarks.__main__ import BENCHMARKS, BY_NAME, chosen
from benchmarks.first_insight import INSIGHT, MODEL, readme_block
from benchmarks.generation import right
from benchmarks.harness import ROOT, Benchmark, Claim, clean_claims, finish, told
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.session.run_directory import read_record
from tests.support.records import toy_run


@pytest.mark.parametrize(
    ("value", "limit", "least", "met"),
    [
        (29.9, 30, False, True),
        (30, 30, False, True),
        (30.1, 30, False, False),
        (99, 100, True, False),
        (100, 100, True, True),
        (math.nan, 100, True, False),
        (math.nan, 100, False, False),
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
        (1.0, "%", "100 %"),
        (12.345, "ms", "12.3 ms"),
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


@pytest.mark.parametrize(
    ("verdicts", "where", "slower", "counts"),
    [
        ("PASS INCONCLUSIVE", 0, "", True),
        ("PASS INVALID", 0, "", False),
        ("REGRESSED PASS", 0, "prefill", True),
        ("INVALID PASS", 0, "prefill", False),
        ("PASS REGRESSED", 514, "decode", True),
        ("PASS REGRESSED", 515, "decode", False),
        ("REGRESSED REGRESSED", 512, "decode", False),
    ],
)
def test_a_slower_phase_counts_where_it_alone_is_named(verdicts, where, slower, counts):
    phases = dict(zip(("prefill", "decode"), verdicts.split(), strict=True))
    entry = {"phases": {phase: [verdict] for phase, verdict in phases.items()}, "where": where}
    assert right(entry, slower, 512 if slower == "decode" else 0) is counts


def test_claims_are_stored_and_read_again(tmp_path, capsys):
    claims = [Claim("a", "first", 1.5, "s", limit=1), Claim("b", "second", 2)]
    path = tmp_path / "folder" / "result.json"
    assert finish(claims, path, {"more": [1]}) == 1
    document = json.loads(path.read_text("utf-8"))
    assert [Claim(**claim) for claim in document["claims"]] == claims
    assert document["details"] == {"more": [1]}
    assert [entry.name for entry in path.parent.iterdir()] == ["result.json"]
    assert "first: 1.5 s (limit ≤ 1 s: MISSED)" in capsys.readouterr().out
    assert finish(claims[1:], None) == 0


def test_one_trial_that_is_not_clean_misses_the_limit():
    rows = [{"trials": 50, "clean": 50}, {"trials": 10, "clean": 10}]
    assert [claim.met for claim in clean_claims(rows)] == [None, True]
    rows[1]["clean"] = 9
    assert [claim.met for claim in clean_claims(rows)] == [None, False]


@pytest.mark.parametrize("benchmark_", BENCHMARKS, ids=lambda entry: entry.name)
def test_every_benchmark_says_what_it_compares_and_gives_json(benchmark_):
    spec = importlib.util.find_spec(f"benchmarks.{benchmark_.name}")
    assert spec.origin is not None
    path = Path(spec.origin)
    if path.name == "__init__.py":
        path = path.with_name("__main__.py")
    text = path.read_text("utf-8")
    head = text.split('"""')[1]
    assert f"python -m benchmarks.{benchmark_.name}" in head
    # It adds the option --json.
    assert "parser_of(__doc__" in text


def test_no_benchmark_is_left_out_of_the_catalogue():
    scripts = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        if 'if __name__ == "__main__":' in path.read_text("utf-8")
    }
    # What only writes a program or a page, and what has an environment of its own.
    apart = {"__main__", "architectures", "detection_programs", "findings", "hardware", "rewrites"}
    assert scripts - apart <= set(BY_NAME)


def test_what_is_chosen():
    def names(*words, **kind):
        return [entry.name for entry in chosen(list(words), **kind)]

    full = names(quick=False, everything=False)
    assert "startup" in full
    assert not {"detection", "faults", "hostile"} & set(full)
    assert names(quick=False, everything=True) == list(BY_NAME)
    quick = names(quick=True, everything=False)
    assert "faults" in quick
    assert "detection" not in quick
    assert names("faults", "startup", quick=False, everything=False) == ["faults", "startup"]


def test_the_usual_run_takes_as_long_as_is_promised():
    full = chosen([], quick=False, everything=False)
    assert sum(entry.minutes for entry in full) <= 8


SCRIPT = """\
import json, pathlib, sys
calls = pathlib.Path("calls")
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
if pathlib.Path("broken").exists():
    sys.exit("something is missing")
claim = {"key": "k", "what": "speed | width", "value": 2.0, "unit": "s",
         "limit": 3.0 if "--quick" in sys.argv else 1.0, "peer": "other", "peer_value": 4}
path = pathlib.Path(sys.argv[sys.argv.index("--json") + 1])
path.write_text(json.dumps({"claims": [claim], "details": {"n": 1}}))
sys.exit(0 if "--quick" in sys.argv else 1)
"""
HEADLINE = "It takes **{k}**, the other {k.peer}."
TINY = Benchmark("tiny", "a tiny one", 0.1, quick=("--quick",), headline=HEADLINE)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """``python -m benchmarks`` in a checkout whose benchmarks take no time."""
    for name in ("benchmarks", "OUT", "KEPT", "docs"):
        (tmp_path / name).mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "tiny.py").write_text(SCRIPT)
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    for name, value in (("BENCHMARKS", (TINY,)), ("BY_NAME", {"tiny": TINY}), ("ROOT", tmp_path)):
        monkeypatch.setattr(command, name, value)
    for name in ("OUT", "KEPT"):
        monkeypatch.setattr(command, name, tmp_path / name)
    return tmp_path


def test_a_result_is_kept_with_its_circumstances_and_not_made_twice(checkout, capfd):
    assert command.main([]) == command.main([]) == 1
    assert "tiny: finished at 20" in capfd.readouterr().out
    assert (checkout / "calls").read_text() == "x"
    result = harness.read_result(checkout / "OUT" / "full" / "tiny.json")
    assert result.command == "python -m benchmarks.tiny"
    (claim,) = result.claims
    assert (claim.key, claim.value, claim.told_peer()) == ("k", 2.0, "other: 4 s")
    assert result.details == {"n": 1}
    assert {"cpu", "cores", "system"} <= set(result.machine)
    assert {"python", "pytest", "pytest-sme2"} <= set(result.versions)
    assert command.main(["--quick"]) == 0
    (checkout / "broken").touch()
    assert command.main(["tiny", "--again"]) == 3
    assert "something is missing\ntiny: no result" in capfd.readouterr().err
    assert (checkout / "calls").read_text() == "xxx"


def test_what_cannot_be_run_is_said(checkout, capsys):
    needy = replace(TINY, samples="sme2-out/samples.jsonl")
    said = harness.run_one(needy, checkout, quick=False)
    assert said == "collect first: python -m benchmarks.tiny collect --minutes 60"
    with pytest.raises(SystemExit, match="2"):
        command.main(["dance"])
    assert "'dance' is not a benchmark. Choose from: tiny" in capsys.readouterr().err


def test_pages_are_written_from_what_is_kept(checkout):
    begin, end = "<!-- begin {}: python -m benchmarks table -->\n", "<!-- end -->\n\nEnd.\n"
    page, readme = checkout / "docs" / "project.md", checkout / "README.md"
    page.write_text("# Top\n" + begin.format("figures") + end, "utf-8")
    readme.write_text(begin.format("claims") + "- old\n" + end, "utf-8")
    command.main(["tiny"])
    assert command.main(["table", "--take"]) == 0
    assert (checkout / "KEPT" / "tiny.json").is_file()
    text = page.read_text("utf-8")
    assert "| `python -m benchmarks.tiny` | 20" in text
    assert text.count("| 0 of 1 |") == 1
    assert readme.read_text("utf-8") == (
        begin.format("claims")
        + "\n- It takes **2 s**, the other 4 s. `python -m benchmarks.tiny`\n\n"
        + end
    )
    readme.write_text("no marks", "utf-8")
    with pytest.raises(SystemExit, match=r"README.md has lost the lines around its table claims"):
        command.main(["table"])


@pytest.mark.parametrize("table", command.tables(), ids=lambda table: table.name)
def test_the_pages_follow_from_the_kept_results(table):
    text = table.path.read_text("utf-8")
    assert table.put(text) == text, "write it with: python -m benchmarks table"


def test_kept_results_are_full_ones_and_their_headlines_complete():
    kept = command.load(command.KEPT)
    assert not [name for name, found in kept.items() if "--quick" in found.command]
    assert not [line for line in command.headlines(kept) if "{" in line]


def test_the_commands_are_the_readme_s() -> None:
    commands = readme_block("bash run").splitlines()
    assert [line.split()[0] for line in commands] == ["sme2", "pytest", "pytest"]
    assert commands[0] == "sme2 init"
    assert "--update-baselines" not in commands[1]
    assert "--update-baselines" in commands[2]


def test_the_insight_is_the_coverage_in_the_terminal_s_table(tmp_path: Path) -> None:
    compile(MODEL, "model.py", "exec")
    found = INSIGHT.search(
        "\n".join(run_lines([read_record(folder) for folder in toy_run(tmp_path)]))
    )
    assert found[1] == "3 of 3"
    assert INSIGHT.search("toy-fp32 -  NO_BASELINE\n") is None
