"""Models that were made worse on purpose are caught on the emulator, without any clock.

Each is a copy of toy_cnn with one change, held against the baseline of the original.
"""

import shutil
from pathlib import Path

import pytest

from pytest_sme2.settings import cache_folder

CACHE = cache_folder()
TOY = Path(__file__).parents[2] / "models" / "toy_cnn"
SUITE = Path(__file__).parents[1] / "performance" / "test_structure.py"

BASELINE = "baselines/emulated/toy_cnn-fp32.json"
FORWARD = "        features = self.widen(self.stem(image))\n"

EXTRA_TRANSPOSES = FORWARD + (
    "        features = torch.cumsum(features.permute(0, 2, 3, 1), 1).permute(0, 3, 1, 2)\n"
)
FALLEN_OUT = FORWARD + "        features = torch.erf(features)\n"


@pytest.fixture(scope="module")
def made() -> list[str]:
    """The baseline of the original, once it was made."""
    return []


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, made: list[str]) -> Path:
    """A repository with the model, the structure suite and a baseline of the original."""
    monkeypatch.setenv("SME2_CACHE_DIR", str(CACHE))
    shutil.copytree(TOY, pytester.path / "models" / "toy_cnn")
    shutil.copy(SUITE, pytester.path)
    pytester.makeini("[pytest]\nsme2_models = models\nsme2_device = emulated\n")
    baseline = pytester.path / BASELINE
    if not made:
        run(pytester, "fp32", "--update-baselines").assert_outcomes(passed=6)
        made.append(baseline.read_text("utf-8"))
    baseline.parent.mkdir(parents=True, exist_ok=True)
    baseline.write_text(made[0], "utf-8")
    return pytester.path


def run(pytester: pytest.Pytester, variant: str, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(f"--sme2-variants={variant}", *arguments)


def rewrite(project: Path, old: str, new: str) -> None:
    model = project / "models" / "toy_cnn" / "model.py"
    text = model.read_text("utf-8")
    assert old in text
    model.write_text(text.replace(old, new), "utf-8")


def test_the_original_passes(project: Path, pytester: pytest.Pytester) -> None:
    run(pytester, "fp32").assert_outcomes(passed=6)


@pytest.mark.parametrize(
    ("forward", "operator"),
    [(EXTRA_TRANSPOSES, "native_call_cumsum.out"), (FALLEN_OUT, "native_call_erf.out")],
    ids=["permutes around an operator", "an operator XNNPACK does not take"],
)
def test_what_came_in_is_named(
    project: Path, pytester: pytest.Pytester, forward: str, operator: str
) -> None:
    rewrite(project, FORWARD, forward)
    result = run(pytester, "fp32")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    failed = [line for line in result.outlines if line.startswith("FAILED")]
    assert any("test_operators_are_those_of_the_baseline" in line for line in failed)
    assert any("test_nothing_falls_out_of_the_delegate" in line for line in failed)
    assert operator in result.stdout.str()
    result.stdout.fnmatch_lines(["*operators (on): REGRESSED*"])


def test_fp16_in_place_of_fp32_loses_coverage(project: Path, pytester: pytest.Pytester) -> None:
    # As if somebody had switched the precision of what the baseline is about.
    baseline = project / BASELINE
    text = baseline.read_text("utf-8").replace('"variant": "fp32"', '"variant": "fp16"')
    (baseline.parent / "toy_cnn-fp16.json").write_text(text, "utf-8")
    result = run(pytester, "fp16")
    result.stdout.fnmatch_lines(["*SME2 coverage*: REGRESSED*", "*Fully Connected (NC, F16) GEMM*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
