from __future__ import annotations

from pytest_sme2.profile.splits import transposes
from tests.support.profiles import profile_of, real

CONV = ("Convolution (NHWC, F16) IGEMM #1", 50_000)
ADD = ("Add (ND) #1", 1_000)


def transpose(number: int, ns: int = 10_000) -> tuple[str, int]:
    return (f"Transpose (ND, X16) #{number}", ns)


def test_chains_know_what_they_stand_between() -> None:
    profile = profile_of([CONV, transpose(1), transpose(2, 5_000), ADD, transpose(3)])
    first, second = transposes(profile)
    assert [member.label for member in first.operators] == [transpose(1)[0], transpose(2)[0]]
    assert first.before is profile.operators[0]
    assert first.after is profile.operators[3]
    assert second.after is None


def test_a_real_program_changes_layout_on_its_way_in_and_out() -> None:
    chains = transposes(real("cpp_toy_fp16_on"))
    assert [chain.before is None for chain in chains] == [True, False]
