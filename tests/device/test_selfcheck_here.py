"""The real runner on this machine, measured against itself."""

from __future__ import annotations

import importlib.util
import json

import pytest

from pytest_sme2.cli.main import main

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("executorch") is None, reason="the runner is built from executorch"
)


def test_selfcheck_measures_real_processes(capsys):
    code = main(["doctor", "selfcheck", "--minutes", "0.1", "--json"])
    document = json.loads(capsys.readouterr().out)
    # A busy machine may leave the verdict open; it may not show one program slower than itself.
    assert code in {0, 3}
    assert document["false_alarms"] == 0
    first = document["measurements"][0]
    assert 5 <= first["runs"] <= 200
    assert first["pairs"][0]["reference_ns"] > 10_000
    assert first["pairs"][0]["interference"] > -0.05
