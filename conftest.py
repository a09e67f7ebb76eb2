"""What the project's own tests need from the top folder: pytester, and no silent skips in CI."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

# A performance test is skipped where the device cannot vouch for what it asks; that is a result.
MAY_SKIP = "tests/performance/"
# Another environment runs the test.
REASON_THAT_STANDS = "the environment `lowest` runs this"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With SME2_NO_SKIPS, a test that is skipped for want of something fails instead."""
    report = yield
    if (
        os.environ.get("SME2_NO_SKIPS")
        # A run in another folder finds this file too, where the package lies in .tox beside it.
        and item.config.rootpath == Path(__file__).parent
        and report.skipped
        and not hasattr(report, "wasxfail")
        and not item.nodeid.startswith(MAY_SKIP)
        and REASON_THAT_STANDS not in str(report.longrepr)
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longrepr}"
    return report
