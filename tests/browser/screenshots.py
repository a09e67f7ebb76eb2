"""Takes the pictures of the README anew: ``python -m tests.browser.screenshots``.

The report is the sample report of the documentation. The terminal shows what pytest really prints,
with its colours, when the suite runs the smallest model on the emulator.
"""

from __future__ import annotations

import html
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from pytest_sme2.report.html import write_html
from pytest_sme2.session.run_directory import find_records, read_record
from tests.support.chromium import Browser, browser, find_chromium

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
# Without the header: it lists whatever plugins happen to be installed.
COMMAND = (
    *("pytest", "tests/performance", "--no-header", "-m", "structure or numerics"),
    *("--device=emulated", "--sme2-models=toy_cnn"),
)

_COLOURS = {"1": "bold", "31": "red", "32": "green", "33": "yellow"}
_TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #12161c; color: #d7dde5; }
pre { margin: 0; padding: 18px 20px; font: 13px/1.45 "DejaVu Sans Mono", Menlo, Consolas, monospace;
      display: inline-block; }
.bold { font-weight: 700; } .red { color: #ff7b72; } .green { color: #5fd38d; }
.yellow { color: #e3b341; } .prompt { color: #8b98a8; }
</style><pre>%s</pre><script>document.documentElement.dataset.ready = "yes";</script>"""


def coloured(text: str) -> str:
    """What a terminal makes of pytest's escape sequences, as markup."""
    parts = re.split(r"\x1b\[([0-9;]*)m", text)
    made = [html.escape(parts[0])]
    classes: list[str] = []
    for codes, words in zip(parts[1::2], parts[2::2], strict=True):
        for code in codes.split(";"):
            classes = [] if code in ("", "0") else [*classes, *filter(None, [_COLOURS.get(code)])]
        made.append(f'<span class="{" ".join(classes)}">{html.escape(words)}</span>')
    return "".join(made)


def run_pytest(out: Path) -> str:
    """All that pytest prints; one line for the files, whose place is nobody's business."""
    done = subprocess.run(
        [sys.executable, "-m", *COMMAND, "--color=yes", f"--sme2-out={out}"],
        cwd=ROOT,
        # As a first run shows it: nothing was run before.
        env={**os.environ, "COLUMNS": "80", "PYTEST_ADDOPTS": "--sme2-fresh"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.replace(f"{out}{os.sep}", "sme2-out/").replace(f"{ROOT}", "~/pytest-sme2")


def take_terminal(chromium: Browser, work: Path) -> None:
    page = chromium.page()
    prompt = f'<span class="prompt">$</span> {html.escape(shlex.join(COMMAND))}\n'
    file = work / "terminal.html"
    file.write_text(_TERMINAL % (prompt + coloured(run_pytest(work / "out"))), encoding="utf-8")
    page.open(file)
    width, height = page.evaluate(
        "(() => { const r = document.querySelector('pre').getBoundingClientRect();"
        " return [Math.ceil(r.width), Math.ceil(r.height)]; })()"
    )
    page.resize(width, height, scale=1.5)
    page.screenshot(IMAGES / "terminal.png", whole=False)


def take_report(chromium: Browser, work: Path) -> None:
    file = work / "report.html"
    folders = find_records(ROOT / "docs" / "sample")
    write_html(file, [(folder, read_record(folder)) for folder in folders])
    page = chromium.page()
    page.prefer("light")
    page.resize(1120, 1180)
    page.send("Emulation.setScrollbarsHidden", hidden=True)
    page.open(file)
    page.screenshot(IMAGES / "report.png", whole=False)


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit("There is no Chromium. Install it with `sme2 provision --for tests`.")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, browser(program, Path(name) / "profile") as made:
        take_report(made, Path(name))
        take_terminal(made, Path(name))


if __name__ == "__main__":
    main()
