"""The hooks a conftest.py may implement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_sme2.results import CaseResult, Check, Limits


@pytest.hookspec(firstresult=True)
def pytest_sme2_limits(
    config: pytest.Config, model: str, variant: str, limits: Limits
) -> Limits | None:
    """Override the limits of one model and variant; the first answer that is not None counts.

    The limits passed in are those of the command line, the model's ``limits.toml`` and the
    defaults, already resolved::

        import dataclasses

        def pytest_sme2_limits(model, variant, limits):
            if variant == "int8":
                return dataclasses.replace(limits, max_regression=0.05)
    """


def pytest_sme2_checks(
    config: pytest.Config, measured: CaseResult, limits: Limits
) -> Sequence[Check] | None:
    """Add metrics of your own: the suite judges them, and so does ``sme2_gate.check_custom()``.

    For example, a budget for portable operators::

        from pytest_sme2 import Check, Executor, Outcome

        def pytest_sme2_checks(measured):
            portable = measured.structures[measured.arm].executed_by(Executor.PORTABLE)
            verdict = Outcome.PASS if portable <= 2 else Outcome.REGRESSED
            return [Check("portable operators", verdict, f"{portable} of at most 2 fell back.")]
    """
