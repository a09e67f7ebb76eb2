"""What a case is run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.session.bench import Bench, header_lines
from pytest_sme2.session.settings import Settings
from tests.support.pretended_mac import PretendedMac


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


def test_a_macs_power_and_heat_are_shown_and_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PretendedMac(tmp_path, monkeypatch).power("Battery Power")
    bench = Bench(Settings(device="mac"), lambda: "run", lambda _: None)
    first, second, third = header_lines(bench)
    assert first.startswith("sme2: device mac (SME2, timing)")
    assert second == (
        "sme2: Apple M4, macOS 26.1, power battery, power mode normal, thermal pressure nominal"
    )
    assert third == "sme2: warning: it runs on battery: plug it in"
