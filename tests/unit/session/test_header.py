from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.session.bench import Bench
from pytest_sme2.session.header import header_lines
from pytest_sme2.session.settings import Settings
from tests.support.pretended_mac import PretendedMac


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
