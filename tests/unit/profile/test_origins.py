from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.errors import EtdumpError
from pytest_sme2.profile.categories import classify
from pytest_sme2.profile.origins import beside, keep_origins, kept_origins, match_modules
from pytest_sme2.results import Attribution, Operator
from pytest_sme2.trace.etrecord import read_attribution
from tests.support.profiles import ETDUMPS

ETRECORD = ETDUMPS.parent / "etrecords" / "toy.etrecord"


def test_what_is_kept_is_what_the_etrecord_says(tmp_path: Path) -> None:
    trace = tmp_path / "a.etdump"
    said: list[str] = []
    keep_origins(trace, ETRECORD, said.append)
    assert kept_origins(trace) == read_attribution(ETRECORD)
    assert not said


def test_without_an_etrecord_nothing_of_an_earlier_program_stays(tmp_path: Path) -> None:
    trace = tmp_path / "a.etdump"
    said: list[str] = []
    keep_origins(trace, ETRECORD, said.append)
    keep_origins(trace, tmp_path / "missing", said.append)
    assert kept_origins(trace) is None
    assert "stays unknown" in said[0]
    keep_origins(trace, ETRECORD, said.append)
    keep_origins(trace, None, said.append)
    assert kept_origins(trace) is None


@pytest.mark.parametrize("text", ["{}", "[]", '{"schema": 2}', '{"schema": 1, "aten": []}', "1e"])
def test_a_damaged_file_is_one_clear_error(text: str, tmp_path: Path) -> None:
    trace = tmp_path / "a.etdump"
    beside(trace).write_text(text)
    with pytest.raises(EtdumpError, match="run the model again"):
        kept_origins(trace)


def traced(*names: str) -> list[tuple[Operator, int]]:
    return [(classify(name), 0) for name in names]


CONVOLUTION = "Convolution (NHWC, PF32) IGEMM"
LINEAR = "Fully Connected (NC, PF32) GEMM"


def test_matrix_operators_of_a_delegate_get_the_modules_of_the_graph_in_its_order() -> None:
    found = Attribution(
        {}, {}, {}, {0: (("aten.convolution.default", "stem.0"), ("aten.linear.default", "head"))}
    )
    operators = traced("Transpose (ND, X32)", CONVOLUTION, "Clamp (NC)", LINEAR)
    assert match_modules(operators, found) == ("", "stem.0", "", "head")
    # A 1x1 convolution runs as Fully Connected.
    assert match_modules(traced(LINEAR, LINEAR), found) == ("stem.0", "head")


@pytest.mark.parametrize(
    "names", [(CONVOLUTION,), (CONVOLUTION, LINEAR, LINEAR), ("Batch Matrix Multiply", LINEAR)]
)
def test_nothing_is_claimed_where_number_or_kind_differ(names: tuple[str, ...]) -> None:
    found = Attribution(
        {}, {}, {}, {0: (("aten.convolution.default", "stem.0"), ("aten.linear.default", "head"))}
    )
    assert set(match_modules(traced(*names), found)) == {""}
    assert match_modules(traced(*names), None) == ("",) * len(names)


def test_the_modules_of_a_real_model_are_found() -> None:
    paths = {module for found in read_attribution(ETRECORD).matrix.values() for _, module in found}
    assert paths
    assert "" not in paths
