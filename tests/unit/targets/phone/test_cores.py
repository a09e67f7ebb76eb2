"""Which cores a process on a phone is kept on."""

from __future__ import annotations

import pytest

from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.targets.phone.answers import parse_cores
from pytest_sme2.targets.phone.cores import (
    Core,
    check_choice,
    check_threads,
    cores_text,
    kinds,
    pick_cores,
)

WHERE = "/sys/devices/system/cpu/cpu"
CORES = tuple(
    Core(number, speed)
    for number, speed in enumerate((2_000_000, 2_000_000, 3_000_000, 3_000_000, 3_600_000))
)


def test_cores_that_a_shell_may_use() -> None:
    text = "".join(
        f"{WHERE}{number}/cpufreq/cpuinfo_max_freq:{speed}\n"
        for number, speed in ((10, 3), (0, 1), (1, 1), (4, 2))
    )
    assert [core.number for core in parse_cores(text)] == [0, 1, 4, 10]
    assert [core.number for core in parse_cores(f"{text}Cpus_allowed_list:\t0,3-9\n")] == [0, 4]
    assert parse_cores("") == ()


def test_kinds_go_from_fast_to_slow() -> None:
    assert kinds(CORES) == [(4,), (2, 3), (0, 1)]
    assert kinds(()) == []


@pytest.mark.parametrize(
    ("threads", "expected"), [(1, (4,)), (2, (4, 2)), (4, (4, 2, 3, 0)), (6, ())]
)
def test_more_threads_keep_the_faster_cores(threads: int, expected: tuple[int, ...]) -> None:
    assert pick_cores((), CORES, threads) == expected
    assert pick_cores((), (), threads) == ()


def test_a_fastest_kind_with_cores_to_spare_is_used_whole() -> None:
    assert pick_cores((), CORES[:4], 1) == (2, 3)
    assert pick_cores((), CORES[:4], 2) == (2, 3)


def test_big_and_little_are_the_fastest_and_the_slowest() -> None:
    assert pick_cores("big", CORES) == (4,)
    assert pick_cores("little", CORES, 2) == (0, 1)
    assert pick_cores("big", CORES[:2]) == (0, 1)
    assert pick_cores((2, 3), CORES) == (2, 3)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), ""),
        ((4, 2, 3), "4 at 3.60 GHz, 2-3 at 3.00 GHz"),
        ((0, 4), "4 at 3.60 GHz, 0 at 2.00 GHz"),
    ],
)
def test_cores_are_named_with_their_clocks(numbers: tuple[int, ...], text: str) -> None:
    assert cores_text(CORES, numbers) == text


def test_cores_of_unknown_clocks_are_numbers() -> None:
    assert cores_text([Core(number, 0) for number in (0, 2, 5)], (0, 2, 5)) == "0,2,5"


def test_a_device_that_has_too_few_cores_for_the_threads_says_so() -> None:
    check_threads(5, CORES)
    check_threads(99, ())
    with pytest.raises(UsageError, match=r"--threads 6: the device has 5 cores .* at most 5\."):
        check_threads(6, CORES)


def test_more_threads_than_cores_are_refused() -> None:
    message = (
        r"cpus=big means core 4 of this phone, which is too few for 2 threads\. Use --threads 1, "
        r"name 2 cores, or leave cpus out\."
    )
    with pytest.raises(UsageError, match=message):
        pick_cores("big", CORES, 2)
    with pytest.raises(UsageError, match=r"cpus means cores 2, 3 of this phone.*3 threads"):
        pick_cores((2, 3), CORES, 3)


def test_cores_that_are_not_there() -> None:
    with pytest.raises(UsageError, match=r"no core 8, 9 that a process may use\. It has 0, 1, 2"):
        check_choice((2, 8, 9), CORES)
    with pytest.raises(TargetError, match="does not report the speed"):
        check_choice("big", ())
    check_choice((2, 8, 9), ())
