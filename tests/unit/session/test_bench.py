"""What a case is run with."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sme2.session.bench import Bench
from pytest_sme2.session.settings import Settings


@pytest.mark.parametrize("runtime", [None, "1.5.0"])
def test_the_runner_is_of_the_version_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, runtime: str | None
) -> None:
    asked: list[Any] = []

    def wheel_runner(platform: str, *, executorch: str | None, progress: Any) -> str:
        asked.append(executorch)
        return "the runner"

    monkeypatch.setattr("pytest_sme2.runners.sme2.wheel_runner", wheel_runner)
    bench = Bench(Settings(device="auto", runtime=runtime), lambda: "run", lambda line: None)
    assert str(bench.runner) == "the runner"
    assert asked == [runtime]
