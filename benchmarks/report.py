"""How large the report of fifty models is, how long it takes to write, and to open in a browser.

    python -m benchmarks.report [--cases 50] [--opens 5] [--json FILE]

Fifty cases of 200, 400 and 600 operators each way, about what vision models have, with medians,
verdicts and intervals, so that no chart and no table is empty. The page is opened in a real
headless Chromium from a file, from the call until it says that it is ready and has been painted
twice; of several openings the median counts, and each is of a page that the tab does not hold.
Limits: under 10 MB and 3 s.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims import Claim, finish
from benchmarks.many_cases import write_cases
from pytest_sme2.plugin.conclusion import conclude_run
from pytest_sme2.report.html import write_html
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode
from tests.support.chromium import browser, find_chromium

MOST_MEGABYTES = 10.0
MOST_SECONDS = 3.0


def open_seconds(page: Path, opens: int, profile: Path) -> list[float]:
    program = find_chromium()
    if program is None:
        raise SystemExit("There is no Chromium here. Get it with: sme2 provision --for tests")
    with browser(program, profile) as started:
        tab = started.page()
        tab.resize(1200, 900)
        seconds = []
        for number in range(opens):
            started_at = time.perf_counter()
            tab.open(page, f"#case-{number}")
            seconds.append(time.perf_counter() - started_at)
    if tab.errors:
        raise SystemExit(f"The page complained: {tab.errors[0]}")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--opens", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folders = list(write_cases(root / "out", arguments.cases))
        records = [(folder, read_record(folder)) for folder in folders]
        page = root / "report.html"
        started = time.process_time()
        write_html(page, records)
        html_seconds = time.process_time() - started
        started = time.process_time()
        lines, wrong = conclude_run(
            {record.id: str(folder) for folder, record in records},
            {record.id: encode(record.checks) for _, record in records},
            Settings(out=root / "out"),
        )
        conclusion_seconds = time.process_time() - started
        if wrong:
            raise SystemExit("\n".join(lines))
        megabytes = page.stat().st_size / 1e6
        opened = open_seconds(page, arguments.opens, root / "profile")
    models = f"the HTML report of {arguments.cases} models"
    return finish(
        [
            Claim("size", f"size of {models}", megabytes, "MB", limit=MOST_MEGABYTES),
            Claim(
                "open",
                f"{models} in Chromium, until painted",
                statistics.median(opened),
                "s",
                limit=MOST_SECONDS,
            ),
            Claim("write", f"writing {models}, CPU time", html_seconds, "s"),
            Claim(
                "conclude",
                f"writing every other file of {arguments.cases} models, CPU time",
                conclusion_seconds,
                "s",
            ),
        ],
        arguments.json,
        {"cases": arguments.cases, "open_seconds": opened},
    )


if __name__ == "__main__":
    sys.exit(main())
