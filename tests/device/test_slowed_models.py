"""Models that were changed on purpose fail exactly the tests they should, without any clock.

Each is a copy of toy_cnn with one change, compared with the baseline of the original.
"""

import re
import shutil
from pathlib import Path

import pytest

from pytest_sme2.system.cache import cache_folder
from tests.support.gate_examples import edit_baseline
from tests.support.toy_project import export_here

CACHE = cache_folder()
TOY = Path(__file__).parents[2] / "models" / "toy_cnn"
SUITE = Path(__file__).parents[1] / "performance"

BASELINE = "baselines/emulated/toy_cnn-fp32.json"
ALL = 9
FORWARD = "        features = self.widen(self.stem(image))\n"
FUSED = "nn.BatchNorm2d(96), nn.ReLU()\n        )\n        self.depthwise"

OPERATORS = "test_operators_are_those_of_the_baseline"
DELEGATION = "test_nothing_falls_out_of_the_delegate"
KERNELS = "test_the_same_kernels_run"
COST = "test_an_inference_does_not_cost_more"
COVERAGE = "test_matrix_operators_stay_on_sme2_kernels"


@pytest.fixture(scope="module")
def made() -> list[str]:
    """The baseline of the original, once it was made."""
    return []


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, made: list[str]) -> Path:
    """A repository with the model, the suite without its timing, and the original's baseline."""
    monkeypatch.setenv("SME2_CACHE_DIR", str(CACHE))
    shutil.copytree(TOY, pytester.path / "models" / "toy_cnn")
    for name in ("test_structure.py", "test_numerics.py"):
        shutil.copy(SUITE / name, pytester.path)
    pytester.makeini("[pytest]\nsme2_models = models\nsme2_device = emulated\n")
    baseline = pytester.path / BASELINE
    if not made:
        run(pytester, "fp32", "--update-baselines=all").assert_outcomes(passed=ALL)
        made.append(baseline.read_text("utf-8"))
    baseline.parent.mkdir(parents=True, exist_ok=True)
    baseline.write_text(made[0], "utf-8")
    return pytester.path


def run(pytester: pytest.Pytester, variant: str, *arguments: str) -> pytest.RunResult:
    export_here(pytester.path / "models", variant)
    return pytester.runpytest_inprocess(f"--sme2-variants={variant}", *arguments)


def rewrite(project: Path, old: str, new: str) -> None:
    model = project / "models" / "toy_cnn" / "model.py"
    text = model.read_text("utf-8")
    assert text.count(old) == 1
    model.write_text(text.replace(old, new), "utf-8")


def failed(result: pytest.RunResult) -> set[str]:
    lines = (re.match(r"FAILED \S+::(\w+)", line) for line in result.outlines)
    return {line[1] for line in lines if line}


@pytest.mark.parametrize(
    ("old", "new", "tests", "words"),
    [
        # XNNPACK clamps within the convolution; what cannot be clamped is an operator of its own.
        pytest.param(
            FUSED,
            FUSED.replace("ReLU", "Hardswish"),
            {OPERATORS, KERNELS, COST},
            [
                "*+1 HardSwish*(ELEMENTWISE, activation, delegated)*",
                "*+ libexecutorch_backend_xnnpack.so+0x* (neon)",
            ],
            id="an activation that is not fused",
        ),
        pytest.param(
            FORWARD,
            FORWARD
            + "        features = torch.cumsum(features.permute(0, 2, 3, 1), 1)\n"
            + "        features = features.permute(0, 3, 1, 2)\n",
            {OPERATORS, DELEGATION, COST},
            ["*+1 native_call_cumsum.out (*portable)*"],
            id="permutes around an operator XNNPACK does not take",
        ),
    ],
)
def test_exactly_the_right_tests_fail(
    project: Path, pytester: pytest.Pytester, old: str, new: str, tests: set[str], words: list[str]
) -> None:
    rewrite(project, old, new)
    result = run(pytester, "fp32")
    assert failed(result) == tests
    result.assert_outcomes(passed=ALL - len(tests), failed=len(tests))
    result.stdout.fnmatch_lines_random(["*operators (on*): REGRESSED*", *words])


def test_fp16_in_place_of_fp32_loses_coverage(project: Path, pytester: pytest.Pytester) -> None:
    # As if somebody had switched the precision of what the baseline is about.
    baseline = project / BASELINE
    other = baseline.with_name("toy_cnn-fp16.json")
    shutil.copy(baseline, other)
    edit_baseline(other, lambda found: found.update(variant="fp16"))
    result = run(pytester, "fp16")
    assert COVERAGE in failed(result)
    result.stdout.fnmatch_lines(
        ["*SME2 coverage*: REGRESSED*", "*Fully Connected (NC, F16) GEMM*1x16x16x96 by 96x1x1x96*"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
