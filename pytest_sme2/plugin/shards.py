"""Keeps what became of every test, and which tests were left to other machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sme2.errors import plain

if TYPE_CHECKING:
    from pytest_sme2.verdict.contract import Part

FOUND_KEY = "sme2_found"
"""Where a worker, which alone looks for tests, tells the controller what it found."""
# Of pytest-split and of pytest-shard: which shard this is, how many there are, and the first one.
_SHARDED = (("group", "splits", 1), ("shard_id", "num_shards", 0))
# With one of these, tests are missing because the user asked for that.
_CHOOSING = ("keyword", "markexpr", "deselect", "lf", "last_failed", "stepwise")


class ShardRecorder:
    """Follows one run; ``Collector`` asks it to write at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.found: list[str] = []
        self.tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before all other plugins, which may deselect tests."""
        if not any(getattr(self.config.option, name, None) for name in _CHOOSING):
            self.found = [item.nodeid for item in items]
        worker = getattr(self.config, "workeroutput", None)
        if worker is not None:
            worker[FOUND_KEY] = self.found

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        self.found = self.found or getattr(node, "workeroutput", {}).get(FOUND_KEY, [])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kept = self.tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        kept["seconds"] += report.duration
        if report.failed:
            kept["outcome"] = "failed" if report.when == "call" else "error"
        elif report.skipped and kept["outcome"] == "passed":
            kept["outcome"] = "skipped"
        else:
            return
        kept["message"] = plain(report.longreprtext or str(report.longrepr))

    def write(self, out: Path, exit_code: int, part: Part | None) -> None:
        from pytest_sme2.session.shard import SCHEMA, RanTest, Shard, write_shard

        number, of = self._place()
        write_shard(
            out,
            Shard(
                SCHEMA,
                exit_code,
                {name: RanTest(**facts) for name, facts in sorted(self.tests.items())},
                tuple(sorted(self.found)),
                number,
                of,
                part,
            ),
        )

    def _place(self) -> tuple[int | None, int | None]:
        """Which shard this is, and of how many."""
        for name, total, first in _SHARDED:
            number, of = (getattr(self.config.option, option, None) for option in (name, total))
            if isinstance(number, int) and isinstance(of, int) and of > 1:
                return number - first + 1, of
        return None, None
