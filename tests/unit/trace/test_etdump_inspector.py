"""The reader against ExecuTorch's own: every event equal, on real dumps. Needs the export extra.

Where CI is set a missing extra fails; elsewhere it skips.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_sme2.trace.etdump import read_etdump
from tests.support import etdump_programs, recorded_runs
from tests.support.damaged_etdumps import DUMPS
from tests.support.inspector import assert_equal_to_inspector, by_signature, inspected

if not os.environ.get("CI"):
    pytest.importorskip("executorch")

# torch and torchao warn at import about matters of their own.
pytestmark = pytest.mark.filterwarnings("ignore")

REAL = sorted((*DUMPS.glob("*.etdump"), *DUMPS.parent.glob("edgetam/*.etdump")))


@pytest.fixture(scope="module")
def methods_program() -> bytes:
    return etdump_programs.export_methods()


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_stored_dumps(path: Path) -> None:
    assert_equal_to_inspector(path.read_bytes())


@pytest.mark.parametrize("name", recorded_runs.recorded())
def test_recorded_runs_of_real_architectures(name: str, tmp_path: Path) -> None:
    """Many delegate calls, portable kernels between them, quantized operators."""
    (dump,) = recorded_runs.unpack(name, tmp_path).glob("*.etdump")
    columns = assert_equal_to_inspector(dump.read_bytes())
    assert columns.runs


@pytest.mark.parametrize("runs", [1, 2, 100])
def test_runs_of_several_methods(methods_program: bytes, runs: int) -> None:
    data = etdump_programs.trace(methods_program, ["forward", "scale", "scale"] * runs)
    columns = assert_equal_to_inspector(data)
    assert columns.runs == 3 * runs
    assert columns.block_names.count("Default") == 2


def test_ten_thousand_runs(methods_program: bytes) -> None:
    data = etdump_programs.trace(methods_program, ["scale"] * 10_000)
    columns = read_etdump(data)
    assert columns.runs == 10_000
    assert by_signature(columns) == inspected(data)
