"""The benchmark of culprits: who is guilty, and who is named."""

from __future__ import annotations

import importlib

import pytest

from tests.support.profiles import profile_of


@pytest.fixture
def culprits():
    return importlib.import_module("benchmarks.culprits")


CONV, TRANSPOSE = "Convolution (NHWC, F32) IGEMM", "Transpose (ND, X32) Transpose"


def pairs(before, after, count=20):
    return [(profile_of(before), profile_of(after)) for _ in range(count)]


def test_the_culprit_is_told_from_an_innocent_operator(culprits):
    slower = pairs([(CONV, 1000), (TRANSPOSE, 100)], [(CONV, 2000), (TRANSPOSE, 100)])
    guilty = culprits.Regression("a convolution", ("Convolution",), {}, {})
    innocent = culprits.Regression("a transpose", ("Transpose",), {}, {})
    found = culprits.record(guilty, slower)
    assert found["right"]
    assert found["innocent"] == []
    found = culprits.record(innocent, slower)
    assert not found["right"]
    assert len(found["innocent"]) == 1
    assert "Convolution" in found["innocent"][0]


def test_added_operators_are_named_by_structure(culprits):
    more = pairs([(CONV, 1000)], [(CONV, 1000), (TRANSPOSE, 1)])
    found = culprits.record(culprits.Regression("it", ("Transpose",), {}, {}), more)
    assert [line.startswith("+1 Transpose") for line in found["named"]["structure"]] == [True]
    assert found["right"]


def test_an_innocent_operator_misses_the_limit(culprits):
    entry = {"equal": True, "right": False, "innocent": ["Transpose"]}
    claims = {claim.key: claim for claim in culprits.claims([entry])}
    assert claims["innocent"].met is False
    assert claims["regressions"].value == 0
