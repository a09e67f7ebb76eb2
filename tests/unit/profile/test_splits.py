from __future__ import annotations

from pytest_sme2.profile.splits import transposes
from tests.support.profiles import Call, profile_of, real

CONV = ("Convolution (NHWC, F16) IGEMM #1", 50_000)
ADD = ("Add (ND) #1", 1_000)
CONVERT = ("Convert (NC) #1", 1_000)


def transpose(number: int, ns: int = 10_000) -> tuple[str, int]:
    return (f"Transpose (ND, X16) #{number}", ns)


def borders(*calls: Call) -> list[str]:
    return [chain.border for chain in transposes(profile_of(*calls))]


def test_chains_know_what_they_stand_between() -> None:
    profile = profile_of([CONV, transpose(1), transpose(2, 5_000), ADD, transpose(3)])
    first, second = transposes(profile)
    assert [member.label for member in first.operators] == [transpose(1)[0], transpose(2)[0]]
    assert first.before is profile.operators[0]
    assert first.after is profile.operators[3]
    assert second.after is None
    assert (first.border, second.border) == ("", "output")


def test_where_a_delegate_begins_and_ends() -> None:
    assert borders([transpose(1), CONV]) == ["input"]
    assert borders([CONV, transpose(1)]) == ["output"]
    assert borders([CONV, transpose(1), ADD]) == [""]
    assert borders([CONV, transpose(1)], [transpose(2), ADD]) == ["both"]
    assert borders([CONV], ("permute_copy.out", 5), [ADD]) == ["both"]
    assert borders(("mm.out", 5), ("permute_copy.out", 5), ("exp.out", 5)) == [""]
    assert borders(("permute_copy.out", 5), [CONV]) == ["input"]


def test_a_conversion_between_chain_and_border_is_looked_past() -> None:
    assert borders([CONVERT, transpose(1), CONV]) == ["input"]
    assert borders([CONV, transpose(1), CONVERT]) == ["output"]
    assert borders([CONV, CONVERT, transpose(1), CONVERT, ADD]) == [""]


def test_a_real_program_changes_layout_on_its_way_in_and_out() -> None:
    chains = transposes(real("cpp_toy_fp16_on"))
    assert [chain.border for chain in chains] == ["input", "output"]
