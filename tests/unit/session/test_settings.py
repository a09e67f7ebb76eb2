from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.errors import StorageError, UsageError
from pytest_sme2.export.variant import Variant, parse_variant
from pytest_sme2.results.run import Arm
from pytest_sme2.session import settings
from pytest_sme2.system.cache import cache_folder


def parse_budget(text: str) -> float:
    return settings.parse_seconds(text, "a time budget")


@pytest.mark.parametrize(
    ("parse", "known"),
    [
        (parse_variant, {"fp32": Variant("fp32"), "fp16@256": Variant("fp16", 256)}),
        (settings.parse_threads, {"1": (1,), "1,2, 4": (1, 2, 4), "4,1": (4, 1)}),
        (parse_budget, {"60": 60, "1.5": 1.5, "90s": 90, " 2m ": 120, "1 min": 60}),
        (settings.parse_arms, {"off,on": settings.Settings().arms, "off, sme1, on": tuple(Arm)}),
    ],
)
def test_values(parse: Callable[[str], object], known: dict[str, object]) -> None:
    assert {text: parse(text) for text in known} == known


@pytest.mark.parametrize(
    ("ini", "found"),
    [
        ({"pytest.ini": "[pytest]"}, "baselines"),
        ({"pytest.ini": "[pytest]\nsme2_baseline_dir = perf/stored"}, "perf/stored"),
        ({"tox.ini": "[pytest]\nsme2_baseline_dir = a"}, "a"),
        ({"pyproject.toml": '[tool.pytest.ini_options]\nsme2_baseline_dir = "b"'}, "b"),
        ({}, "deep/er/baselines"),
    ],
)
def test_commands_look_for_baselines_where_pytest_does(
    ini: dict[str, str], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in ini.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert settings.Settings().baseline_folder == tmp_path / found
    named = settings.Settings(baseline_dir=Path("mine")).baseline_folder
    assert named == tmp_path / "deep" / "er" / "mine"
    assert settings.Settings(base=tmp_path).baseline_folder == tmp_path / "baselines"


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (("60s",), {"budget_seconds": 60}),
        (("60s,10m",), {"budget_seconds": 60, "limit_seconds": 600}),
        ((",10m",), {"limit_seconds": 600}),
        (("60s", ",5m"), {"budget_seconds": 60, "limit_seconds": 300}),
    ],
)
def test_a_budget_and_a_limit(texts: tuple[str, ...], found: dict[str, float]) -> None:
    assert settings.parse_budgets(texts) == found


@pytest.mark.parametrize(
    ("parse", "texts", "message"),
    [
        (parse_variant, ("", "fp17", "fp16@", "fp16@0", "fp16@-1", "FP16", "fp16@256\n"),
         "Choose one of: fp32, fp16, bf16, int8, int8_dynamic"),
        (settings.parse_threads,
         ("", ",", "1,,2", "4,", "0", "-1", "two", "1.5", "1025", "²"), "as in 1,2,4"),
        (settings.parse_threads, ("2,1,2",), "The thread count 2 is given twice in '2,1,2'"),
        (parse_budget, ("", "0", "0.5", "-1", "1h", "24.1m0", "86401", "1441m"),
         "as in 60s or 2m"),
        (settings.parse_arms, ("", "on", "sme1", "off,sme1", "on,off,sme2"),
         r"Give on,off \(the default\) or off,sme1,on"),
    ],
)  # fmt: skip
def test_what_is_wrong_says_what_is_right(
    parse: Callable[[str], object], texts: tuple[str, ...], message: str
) -> None:
    for text in texts:
        with pytest.raises(UsageError, match=message):
            parse(text)


def no_home(*words: object, **named: object) -> Path:
    raise RuntimeError("could not determine the home directory")


@pytest.mark.parametrize("answer", [lambda *_, **__: Path("~/.cache/pytest-sme2"), no_home])
def test_without_a_home_the_cache_must_be_named(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Path]
) -> None:
    """What platformdirs answers where the system knows no home for the user."""
    monkeypatch.delenv("SME2_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", answer)
    with pytest.raises(StorageError, match=r"no home folder.*SME2_CACHE_DIR"):
        cache_folder()


def test_a_cache_in_somebody_elses_or_nobodys_home_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def locked(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setenv("SME2_CACHE_DIR", "~nobody-has-this-name/cache")
    words = r"'~nobody-has-this-name/cache' cannot .* SME2_CACHE_DIR"
    with pytest.raises(StorageError, match=words):
        cache_folder()
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Path, "exists", locked)
    with pytest.raises(StorageError, match=r"Permission denied.*SME2_CACHE_DIR"):
        cache_folder()
