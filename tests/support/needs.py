"""Marks for tests that need more than the base install."""

from importlib.util import find_spec

import pytest

needs_export = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("executorch") is None,
    reason="needs pytest-sme2[export]; the environment `tests` has it",
)
