from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.errors import StorageError, UsageError
from pytest_sme2.export.variant import Variant, parse_variant
from pytest_sme2.results import PAIR, Arm
from pytest_sme2.session import settings
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.wording import split_list, split_patterns


@pytest.mark.parametrize(
    ("text", "variant"),
    [("fp32", Variant("fp32")), ("fp16@256", Variant("fp16", 256)), ("int8", Variant("int8"))],
)
def test_a_variant_is_read_and_printed_alike(text: str, variant: Variant) -> None:
    assert parse_variant(text) == variant
    assert str(variant) == text


@pytest.mark.parametrize("text", ["", "fp17", "fp16@", "fp16@0", "fp16@-1", "FP16", "fp16@256\n"])
def test_a_wrong_variant_lists_the_right_ones(text: str) -> None:
    with pytest.raises(UsageError, match="Choose one of: fp32, fp16, int8, int8_dynamic"):
        parse_variant(text)


@pytest.mark.parametrize(("text", "counts"), [("1", (1,)), ("1,2, 4", (1, 2, 4)), ("4,,1", (4, 1))])
def test_thread_counts(text: str, counts: tuple[int, ...]) -> None:
    assert settings.parse_threads(text) == counts


@pytest.mark.parametrize("text", ["", ",", "0", "-1", "two", "1.5", "1025", "²", "2,1,2"])
def test_wrong_thread_counts_say_what_is_right(text: str) -> None:
    with pytest.raises(UsageError, match=r"as in 1,2,4|2 is given twice in '2,1,2'"):
        settings.parse_threads(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("60", 60), ("1.5", 1.5), ("90s", 90), (" 2m ", 120), ("1 min", 60)]
)
def test_time_budgets(text: str, seconds: float) -> None:
    assert settings.parse_seconds(text, "a time budget") == seconds


@pytest.mark.parametrize("text", ["", "0", "0.5", "-1", "1h", "24.1m0", "86401", "1441m"])
def test_wrong_time_budgets_say_what_is_right(text: str) -> None:
    with pytest.raises(UsageError, match="as in 60s or 2m"):
        settings.parse_seconds(text, "a time budget")


def test_a_list_keeps_order_and_names_with_blanks() -> None:
    assert split_list(" b, a b ,,b,c;d") == ("b", "a b", "c;d")
    kind = "+1 Transpose (ND, X32) (on, delegated)"
    assert split_patterns(f"{kind}, version of *") == (kind, "version of *")


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "a b"))
    assert cache_folder() == tmp_path / "a b" / "pytest-sme2"
    monkeypatch.delenv("SME2_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder().name == "pytest-sme2"


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


def test_a_cache_in_somebody_elses_home_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def locked(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Path, "exists", locked)
    with pytest.raises(StorageError, match=r"Permission denied.*SME2_CACHE_DIR"):
        cache_folder()


def test_a_cache_in_nobodys_home_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", "~nobody-has-this-name/cache")
    with pytest.raises(
        StorageError, match=r"'~nobody-has-this-name/cache' cannot .* SME2_CACHE_DIR"
    ):
        cache_folder()


def test_arms() -> None:
    assert settings.parse_arms("off,on") == PAIR == settings.Settings().arms
    assert settings.parse_arms("off, sme1, on") == tuple(Arm)


@pytest.mark.parametrize("text", ["", "on", "sme1", "off,sme1", "on,off,sme2"])
def test_wrong_arms_say_what_is_right(text: str) -> None:
    with pytest.raises(UsageError, match=r"Give on,off \(the default\) or off,sme1,on"):
        settings.parse_arms(text)
