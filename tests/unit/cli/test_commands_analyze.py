from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.report.text import WIDTH
from tests.support import ETDUMPS, Command

FP16_ON = ETDUMPS / "cpp_toy_fp16_on.etdump"
FP16_OFF = ETDUMPS / "cpp_toy_fp16_off.etdump"
REAL = sorted(ETDUMPS.glob("*.etdump"))


def flat(text: str) -> str:
    return " ".join(text.split())


def widest(text: str) -> int:
    return max(len(line) for line in text.splitlines())


def test_a_file_is_explained_on_the_terminal_and_in_json(sme2: Command) -> None:
    text = sme2("report", "analyze", FP16_ON).out
    assert "matrix operators on SME2: 2 of 3 (fp16)" in flat(text)
    assert "not on SME2: 1 Fully Connected (NC, F16) GEMM (9.1 % of the time): " in flat(text)
    assert "most likely 1x1 convolutions: ExecuTorch stores" in flat(text)
    assert "overhead" in text
    assert text.count("100.0 %") == 1
    # JSON is all there is on stdout.
    found = json.loads(sme2("report", "analyze", FP16_ON, "--json").out)
    experiment = found["experiments"]["cpp_toy_fp16_on"]
    times = [*experiment["category_ns"].values(), experiment["overhead_ns"]]
    assert sum(times) == pytest.approx(experiment["end_to_end"]["median"])


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_no_line_is_wider_than_a_terminal(path: Path, sme2: Command) -> None:
    lines = sme2("report", "analyze", path).out.splitlines()
    names = ("--names", "a" * 30, "b" * 30)
    lines += sme2("report", "compare", FP16_OFF, path, *names).out.splitlines()
    # The line that names the file is as long as the file's name.
    assert all(len(line) <= WIDTH for line in lines if str(ETDUMPS) not in line)


def test_a_single_file_writes_nothing_unless_told(tmp_path: Path, sme2: Command) -> None:
    target = tmp_path / "toy.etdump"
    shutil.copy(FP16_ON, target)
    sme2("report", "analyze", target)
    assert list(tmp_path.iterdir()) == [target]
    sme2("report", "analyze", target, "--out", tmp_path / "out")
    tables = ("all_runs_timeline", "category_summary", "operator_stats", "run0_timeline")
    expected = {"analysis_summary.json", "toy_robust_stats.json"}
    expected |= {f"toy_{table}.csv" for table in tables}
    assert {path.name for path in (tmp_path / "out").iterdir()} == expected


def make_run_directory(folder: Path, device: str = "linux") -> None:
    for arm, path in (("on", FP16_ON), ("off", FP16_OFF)):
        experiment = folder / f"{device}_sme2_{arm}"
        experiment.mkdir(parents=True)
        shutil.copy(path, experiment / "run.etdump")


def test_a_run_directory_gets_its_files_and_its_comparison(tmp_path: Path, sme2: Command) -> None:
    make_run_directory(tmp_path)
    text = flat(sme2("report", "analyze", tmp_path).out)
    assert "evidence: 2 of 3 matrix operators ran on SME2 kernels with SME2 on" in text
    assert "the bottleneck" in text
    assert (tmp_path / "analysis_summary.json").is_file()
    assert (tmp_path / "linux_sme2_on" / "run_operator_stats.csv").is_file()
    # A folder with one dump can be compared as well.
    folders = [tmp_path / f"linux_sme2_{arm}" for arm in ("off", "on")]
    assert "'on' is" in sme2("report", "compare", *folders, "--names", "off", "on").out


def test_a_damaged_dump_stops_none_of_the_others(tmp_path: Path, sme2: Command) -> None:
    make_run_directory(tmp_path)
    damaged = tmp_path / "linux_sme2_off" / "run.etdump"
    damaged.write_bytes(b"not a dump")
    printed = sme2("report", "analyze", tmp_path, code=1)
    assert "linux_sme2_on/run" in printed.out
    assert f"sme2: {damaged}: " in printed.err
    (tmp_path / "linux_sme2_on" / "run.etdump").write_bytes(b"nor this")
    assert sme2("report", "analyze", tmp_path, code=2).err.count(".etdump") == 2


def test_compare_says_what_moved_to_sme2(sme2: Command) -> None:
    for words, told in (
        ((FP16_OFF, FP16_ON), ", PF16) IGEMM 1 no → yes 8.319 ms 14.350 ms 0.58x"),
        (("--emulated", FP16_OFF, FP16_ON), ", PF16) IGEMM 1 no → yes"),
        (("--emulated", FP16_ON, FP16_OFF), ", F16) IGEMM 1 yes → no"),
    ):
        assert told in flat(sme2("report", "compare", *words).out)
    # Nothing has another name.
    text = sme2("report", "compare", "--emulated", FP16_ON, FP16_ON).out
    assert "operator  number  SME2\n\n" in text
    document = json.loads(sme2("report", "compare", FP16_OFF, FP16_ON, "--json").out)
    assert (document["before"], document["after"]) == ("A", "B")
    assert len(document["operators"]) == 7


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["analyze", "nowhere.etdump"], 2, "does not exist"),
        (["analyze", "."], 2, "no *.etdump file"),
        (["analyze", ".", "--etrecord", "x"], 2, "belongs to one ETDump"),
        (["analyze", "broken.etdump"], 2, "broken.etdump"),
        (["compare", ETDUMPS, FP16_ON], 2, "holds several ETDumps"),
        (["compare", "nowhere", FP16_ON], 2, "does not exist"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(
    words: list[Any], code: int, message: str, tmp_path: Path, monkeypatch: Any, sme2: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    if "broken.etdump" in words:
        Path("broken.etdump").write_bytes(b"not an etdump")
    printed = sme2("report", *words, code=code)
    assert message in printed.err
    assert printed.out == ""


def test_analysis_needs_neither_torch_nor_pandas() -> None:
    program = (
        "import sys; from pytest_sme2.cli.main import main; "
        f"code = main(['report', 'analyze', {str(FP16_ON)!r}]); "
        "heavy = {'torch', 'pandas', 'scipy', 'executorch', 'pytest'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=600)


@pytest.fixture
def emulated_run(tmp_path: Path) -> Path:
    """A run directory of an emulated run."""
    make_run_directory(tmp_path, "emulated")
    (tmp_path / "metrics.json").write_text('{"measured": {"emulated": true}}', "utf-8")
    return tmp_path


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "seen by its folder"])
@pytest.mark.parametrize("whole", [True, False], ids=["a run directory", "a file in it"])
def test_nothing_is_said_of_the_time_of_an_emulated_run(
    emulated_run: Path, whole: bool, recorded: bool, sme2: Command
) -> None:
    if not recorded:  # `sme2 advise` leaves such folders
        (emulated_run / "metrics.json").unlink()
    on, off = (emulated_run / f"emulated_sme2_{arm}" / "run.etdump" for arm in ("on", "off"))
    asked = emulated_run if whole else on
    text = sme2("report", "analyze", asked).out + sme2("report", "compare", off, on).out
    told = flat(text).replace("times of an emulated CPU say nothing about hardware", "")
    assert told != flat(text)
    assert "matrix operators on SME2: 2 of 3 (fp16)" in told
    for word in ("latency", "time", "median", "faster", "as fast as", "slower", " ms", " us", "%"):
        assert word not in told, word
    assert widest(text.replace(str(emulated_run), "")) <= WIDTH

    summary = json.loads(sme2("report", "analyze", asked, "--json").out)
    assert summary["timed"] is False
    findings = [line for found in summary["experiments"].values() for line in found["findings"]]
    assert not any("time" in line or "latency" in line for line in findings)
