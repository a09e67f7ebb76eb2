"""Settings for the tests that make up their own examples: a few by day, many at night."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

# How long an example takes says how busy the machine is, and nothing about the code.
for name, examples in (("day", 50), ("night", 300)):
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("night" if config.option.markexpr == "nightly" else "day")


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.config.option.markexpr == "nightly" and is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("nightly")
