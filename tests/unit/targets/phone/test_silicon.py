"""What a phone shows of SME2, and its cores."""

from __future__ import annotations

import pytest

from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.targets.phone.answers import (
    Core,
    Silicon,
    check_threads,
    cores_text,
    kinds,
    parse_cores,
    parse_silicon,
    pick_cores,
)


def cpuinfo(*cores: tuple[str, str]) -> str:
    return "".join(
        f"processor\t: {index}\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
        f"CPU part\t: {part}\n\n"
        for index, (features, part) in enumerate(cores)
    )


def test_only_what_every_core_has_counts() -> None:
    text = cpuinfo(("fp sme sme2", "0xd8c"), ("fp sme", "0xd8b"))
    found = parse_silicon(f"6.6.30-android15\n==\n{text}==\nCONFIG_ARM64_SME=y\n")
    assert found == Silicon(
        "6.6.30-android15", ("fp", "sme"), ("0x41:0xd8c", "0x41:0xd8b"), "CONFIG_ARM64_SME=y"
    )
    assert (found.sme, found.sme2, found.hidden) == (True, False, False)
    assert found.cores() == "1x C1-Ultra, 1x C1-Pro"
    assert parse_silicon("") == Silicon()


@pytest.mark.parametrize(
    ("core", "config", "expected"),
    [
        (("fp sme", "0xd05"), "", "its SoC (X) has SME, but not SME2."),
        (
            ("fp", "0xd05"),
            "# CONFIG_ARM64_SME is not set",
            "its kernel hides SME: it is built without CONFIG_ARM64_SME. Whether its SoC (X) has "
            "SME2 cannot be seen.",
        ),
        (
            ("fp", "0xd8c"),
            "",
            "its SoC (X) has cores with SME2 (C1-Ultra), but its kernel does not show SME2. Ask "
            "for a newer system.",
        ),
        (("fp", "0xd05"), "CONFIG_ARM64_SME=y", "its kernel shows no SME2 on its SoC (X)."),
    ],
)
def test_why_there_is_no_sme2(core: tuple[str, str], config: str, expected: str) -> None:
    found = parse_silicon(f"6.1.0\n==\n{cpuinfo(core)}==\n{config}\n")
    name = "C1-Ultra" if core[1] == "0xd8c" else f"0x41:{core[1]}"
    assert found.missing_sme2("X") == (
        f"{expected} Kernel 6.1.0; cores 1x {name}; flags {core[0]}."
    )


@pytest.mark.parametrize(
    ("soc", "expected"),
    [
        ("Mediatek MT6993", "(Mediatek MT6993) has SME2, but its kernel does not show it. Ask for"),
        ("Samsung s5e9965", "has SME2, but"),
        ("Google Tensor G5", "has no SME2, with any system."),
        ("QTI SM8850", "has no SME2, with any system."),
        ("Google Tensor G6", "its kernel shows no SME2 on its SoC (Google Tensor G6)."),
    ],
)
def test_a_chip_that_is_known_by_its_name(soc: str, expected: str) -> None:
    assert expected in Silicon().missing_sme2(soc)


def test_a_silent_phone_is_reported_as_unknown() -> None:
    said = "its kernel shows no SME2 on its SoC (X). Kernel unknown; cores unknown; no flags."
    assert Silicon().missing_sme2("X") == said


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
    ("choice", "cores", "threads", "expected"),
    [
        # More threads keep the faster cores.
        *(((), CORES, 1, (4,)), ((), CORES, 2, (4, 2)), ((), CORES, 4, (4, 2, 3, 0))),
        *(((), CORES, 6, ()), ((), (), 1, ())),
        # A fastest kind with cores to spare is used whole.
        *(((), CORES[:4], 1, (2, 3)), ((), CORES[:4], 2, (2, 3))),
        ("big", CORES, 1, (4,)),
        ("little", CORES, 2, (0, 1)),
        ("big", CORES[:2], 1, (0, 1)),
        ((2, 3), CORES, 1, (2, 3)),
    ],
)
def test_which_cores_are_picked(
    choice: str | tuple[int, ...], cores: tuple[Core, ...], threads: int, expected: tuple[int, ...]
) -> None:
    assert pick_cores(choice, cores, threads) == expected


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
        pick_cores((2, 8, 9), CORES)
    with pytest.raises(TargetError, match="does not report the speed"):
        pick_cores("big", ())
    pick_cores((2, 8, 9), ())
