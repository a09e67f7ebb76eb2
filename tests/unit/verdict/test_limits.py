from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.results.case import Bounds, Limits, Tolerance
from pytest_sme2.results.profile import Category
from pytest_sme2.verdict import limits


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str, name: str = "limits.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.mark.parametrize(
    ("parse", "known"),
    [
        (limits.parse_fraction, {"3%": 0.03, "3 %": 0.03, " 2.5%": 0.025, 0.03: 0.03, "0.03": 0.03,
                                 0: 0.0, 1: 1.0, "150%": 1.5}),
        (limits.parse_share, {"100%": 1.0}),
        (limits.parse_loss, {"99%": 0.99}),
        (limits.parse_speedup, {1.5: 1.5, "1.5x": 1.5, "2": 2.0, 3: 3.0}),
        (limits.parse_time, {"30 ms": 0.03, "2s": 2.0, "500us": 0.0005}),
        (limits.parse_bytes, {1024: 1024, "300 MB": 300_000_000, "256MiB": 2**28,
                              "1.5 gb": 1_500_000_000}),
    ],
)  # fmt: skip
def test_values(parse: Callable[[object], float], known: dict[object, float]) -> None:
    assert {value: parse(value) for value in known} == pytest.approx(known)


FULL = """
max_regression = "3%"
min_speedup = "1.5x"
max_speedup_loss = "5%"
min_coverage = 0.9
max_memory_growth = 0.2
max_memory_bytes = "300 MB"
max_size_growth = 0
max_load_growth = "50%"
max_cost_growth = "1%"
max_sustained_loss = "15%"
max_latency = "30 ms"
max_p95 = {1 = "40 ms", 4 = "15 ms"}

[shares.DATA_MOVEMENT]
max = "30%"

[shares.GEMM]
min = 0.1
max = 0.9

[tolerance.fp16]
max_abs = 0.01

[on_off_tolerance.int8]
max_rel = 0
min_sqnr_db = 40

[variant.fp16]
min_speedup = 2.5
max_latency.4 = "10 ms"
max_p95 = "20 ms"
[variant.fp16.shares.GEMM]
max = 0.5

[variant."fp16@256"]
min_speedup = 2.0
"""


def test_every_limit_can_be_given(write) -> None:
    found = limits.resolve("fp32", files=[write(FULL)])
    assert {name: getattr(found, name) for name in limits.SCALARS} == {
        "max_regression": 0.03, "min_speedup": 1.5,
        "max_speedup_loss": 0.05, "min_coverage": 0.9,
        "max_memory_growth": 0.2, "max_memory_bytes": 300_000_000, "max_size_growth": 0,
        "max_load_growth": 0.5, "max_cost_growth": 0.01, "max_sustained_loss": 0.15,
    }  # fmt: skip
    assert found.shares == {
        Category.DATA_MOVEMENT: Bounds(0.0, 0.3),
        Category.GEMM: Bounds(0.1, 0.9),
    }
    # What a tolerance does not mention stays as it was.
    assert found.tolerances["fp16"] == Tolerance(0.01, 5e-2, 35.0)
    assert found.on_off_tolerances["int8"] == Tolerance(None, 0.0, 40.0)


@pytest.mark.parametrize(
    ("variant", "speedup", "greatest", "latency", "p95"),
    [
        ("fp32", 1.5, 0.9, {"any": 0.03}, {"1": 0.04, "4": 0.015}),
        ("fp16", 2.5, 0.5, {"any": 0.03, "4": 0.01}, {"any": 0.02}),
        ("fp16@256", 2.0, 0.5, {"any": 0.03, "4": 0.01}, {"any": 0.02}),
        ("fp16@512", 2.5, 0.5, {"any": 0.03, "4": 0.01}, {"any": 0.02}),
    ],
)
def test_the_more_particular_table_wins(
    write,
    variant: str,
    speedup: float,
    greatest: float,
    latency: dict[str, float],
    p95: dict[str, float],
) -> None:
    found = limits.resolve(variant, files=[write(FULL)])
    assert found.min_speedup == speedup
    assert (found.max_latency, found.max_p95) == (latency, p95)
    assert found.shares[Category.GEMM].greatest == greatest


def test_command_line_over_model_over_default(write) -> None:
    default = write("max_regression = 0.05\nmin_speedup = 1.2\nmin_coverage = 0.5\n", "a.toml")
    model = write("min_speedup = 1.4\nmin_coverage = 0.6\n[variant.fp16]\nmin_speedup = 1.6\n")
    given = {"min_coverage": "80%"}
    found = limits.resolve("fp16", files=[default, model], command_line=given)
    assert (found.max_regression, found.min_speedup, found.min_coverage) == (0.05, 1.6, 0.8)


def test_without_any_file_the_defaults_hold(tmp_path: Path) -> None:
    found = limits.resolve("fp16", files=[tmp_path / "limits.toml"])
    assert found == limits.default_limits()
    assert found.max_regression == Limits().max_regression == 0.02
    assert found.min_speedup is None
    assert set(found.tolerances) == set(found.on_off_tolerances) == set(PRECISIONS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_regresion = 0.1", r"max_regresion: is not a limit. Choose one of: max_regression, "),
        ("max_regression = 3", r'max_regression: 3 is not a fraction; write "3%" or 0.03'),
        ("max_regression = '-3%'", "max_regression: '-3%' is not a fraction"),
        ("max_regression = nan", "max_regression: nan is not a fraction"),
        ("max_regression = '3x'", "max_regression: '3x' is not a fraction"),
        ("min_coverage = '101%'", "min_coverage: .* more than the whole"),
        ("max_sustained_loss = '100%'", "max_sustained_loss: .* would allow any loss"),
        ("min_speedup = true", "min_speedup: True is not a speedup"),
        ("min_speedup = 0", "min_speedup: 0 is not a speedup"),
        ("max_latency = '0 ms'", "max_latency: '0 ms' is not a time with its unit"),
        ("max_memory_bytes = 0", "max_memory_bytes: 0 is not a size"),
        ("max_memory_bytes = '300 MBit'", "max_memory_bytes: '300 MBit' is not a size"),
        ("shares = 3", r"shares: must be a table, as in \[shares\]"),
        ("[shares]\nGEMM = 3", r"shares.GEMM: must be a table, as in \[shares.GEMM\]"),
        ("[shares.CONVS]\nmax = 1", "shares.CONVS: is not a category. Choose one of: CONV, GEMM"),
        ("[shares.GEMM]\nmost = 1", "shares.GEMM.most: is not a bound. Choose one of: min, max"),
        ("[shares.GEMM]\nmax = 2", "shares.GEMM.max: 2 is not a fraction"),
        ("[shares.GEMM]\nmin = 0.5\nmax = 0.4", "shares.GEMM.min: 0.5 is more than max, 0.4"),
        ("[tolerance.fp8]\nmax_abs = 1", "tolerance.fp8: is not a precision. Choose one of: fp32"),
        ("[tolerance.fp16]\natol = 1", "tolerance.fp16.atol: is not a tolerance. Choose one of"),
        ("[tolerance.fp16]\nmax_abs = -1", "tolerance.fp16.max_abs: -1 is not a number of at"),
        ("[tolerance.fp16]\nmax_abs = '1 s'", "tolerance.fp16.max_abs: '1 s' is not a number"),
        ("max_latency = 30", 'max_latency: 30 is not a time with its unit; write "30 ms"'),
        ("[max_p95]\nall = '1 s'", "max_p95.all: is not a number of threads. Choose one of: any"),
        ("[tolerance.fp16]\nmax_abs = inf", "tolerance.fp16.max_abs: inf is not a number"),
        ("[variant.fp8]\nmin_speedup = 1", "variant.fp8: 'fp8' is not a variant. Choose one of"),
        ("[variant.int8]\nmin_sped = 1", "variant.int8.min_sped: is not a limit. Choose one of"),
        ("[variant.int8.variant.fp16]\n", "variant.int8.variant: is not a limit"),
        ("variant = 1", r"variant: must be a table, as in \[variant\]"),
        ("[variant]\nfp16 = 1", r"variant.fp16: must be a table, as in \[variant.fp16\]"),
        ("max_regression =", "cannot be read: it is not valid TOML"),
    ],
)
def test_a_mistake_names_the_file_the_key_and_the_choices(write, text: str, message: str) -> None:
    path = write(text)
    with pytest.raises(UsageError, match=message) as caught:
        limits.resolve("fp16", files=[path])
    assert str(caught.value).startswith(str(path))


def test_the_command_line_says_what_a_file_would() -> None:
    given = [
        "max-regression=4%", "max_latency.any = 30 ms", "max_latency.4=9ms", "max_latency.4=12ms",
        "shares.GEMM.max=50%", "tolerance.fp16.max_abs=0.5", "variant.fp16.min_speedup=2",
        "variant.int8.min_speedup=3",
    ]  # fmt: skip
    found = limits.resolve("fp16", command_line=limits.parse_limits(given))
    assert (found.max_regression, found.min_speedup) == (0.04, 2)
    assert found.max_latency == {"any": 0.03, "4": 0.012}
    assert found.shares[Category.GEMM].greatest == 0.5
    assert found.tolerances["fp16"].max_abs == 0.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("max_regression=3", "--sme2-limit: max_regression: '3' is not a fraction"),
        ("max_regresion=3%", "--sme2-limit: max_regresion: is not a limit. Choose one of: max_"),
        ("max_latency", "--sme2-limit: max_latency: '' is not a time"),
        ("variant=fp16", "--sme2-limit: variant: must be a table"),
        ("max_p95.4=9ms", "--sme2-limit max_p95.4=9ms: max_p95 has a value already"),
    ],
)
def test_mistakes_on_the_command_line_name_the_option(given: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        limits.parse_limits(["max_p95=1s", given])


def test_the_documentation_tells_the_truth(write) -> None:
    page = (Path(__file__).parents[3] / "docs" / "baselines.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    found = limits.resolve("fp16@256", files=[write(example)])
    assert (found.max_regression, found.min_speedup, found.min_coverage) == (0.03, 2.5, 0.9)
    for key in (*limits.SCALARS, *limits.BUDGETS):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{key}` |"))
        told = row.split("|")[2].strip().strip('`"')
        default = getattr(Limits(), key) or None
        assert (None if told == "none" else limits.parse_fraction(told)) == default
    for precision in PRECISIONS:
        row = next(line for line in page.splitlines() if line.startswith(f"| {precision} |"))
        for told, table in zip(
            row.split("|")[2:4], (limits.TOLERANCES, limits.ON_OFF_TOLERANCES), strict=True
        ):
            tolerance = table[precision]
            assert f"{tolerance.min_sqnr_db:g} dB" in told
            assert (tolerance.max_rel is None) == ("max_rel" not in told)
            assert tolerance.max_rel is None or f"`max_rel` {tolerance.max_rel:g}" in told


@pytest.mark.parametrize(
    "text",
    [
        f"max_regression = {'9' * 400}",
        f"max_regression = {'9' * 5000}",
        f"[shares.CONV]\nmin = {'[' * 900}",
        "[\n" * 5000,
        f"max_memory_bytes = '{'9' * 30} GB'",
        f"[tolerance.fp16]\nmax_abs = {'9' * 400}",
        f"{'a.' * 20_000}a = 1",
        "# a comment\n" * 100_000,
        "x = '\0'",
    ],
    ids=range(9),
)
def test_what_no_person_writes_is_an_error_like_any_other(tmp_path: Path, text: str) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"limits\.toml") as caught:
        limits.resolve("fp16", files=[path])
    assert len(str(caught.value)) <= 4000
