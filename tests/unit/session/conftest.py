from __future__ import annotations

import pytest

from tests.support.pretended_target import PretendedTarget, use


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> PretendedTarget:
    target = PretendedTarget()
    use(target, monkeypatch)
    return target
