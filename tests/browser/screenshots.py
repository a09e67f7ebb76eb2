"""Takes the pictures of the documentation anew: ``python -m tests.browser.screenshots``.

The reports are made from the runs in docs/sample. The terminal shows what pytest really prints,
with its colours, for a test of the smallest model on the emulator, with a flip put into it.
"""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
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
COMMAND = ("pytest", "--no-header", "--device=emulated", "--sme2-variants=fp32")
TEST = """def test_my_model(sme2_gate):
    sme2_gate.check_evidence()
    sme2_gate.check_coverage()
    sme2_gate.check_operators()
    sme2_gate.check_cost()
    sme2_gate.check_outputs()
"""
BEFORE, AFTER = "self.widen(self.stem(image))", "self.widen(self.stem(image).flip(-1))"
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


def make_project(folder: Path) -> Path:
    """A project with one model, whose file is returned, and one test."""
    model = folder / "models" / "toy_cnn" / "model.py"
    shutil.copytree(ROOT / "models" / "toy_cnn", model.parent)
    (folder / "test_my_models.py").write_text(TEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return model


def run_pytest(project: Path, width: int, code: int, *more: str) -> str:
    """All that pytest prints; the place of the files is nobody's business."""
    done = subprocess.run(
        [sys.executable, "-m", *COMMAND, "--color=yes", "-p", "no:cacheprovider", *more],
        cwd=project,
        env={**os.environ, "COLUMNS": str(width), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != code:
        raise AssertionError(f"the test did not end as expected: {done.stdout}{done.stderr}")
    return done.stdout.replace(f"{project}{os.sep}", "")


def take_terminal(chromium: Browser, work: Path) -> None:
    model = make_project(work / "project")
    run_pytest(work / "project", 80, 0, "--update-baselines")
    text = model.read_text("utf-8")
    if BEFORE not in text:
        raise AssertionError(f"{model} has no {BEFORE}")
    model.write_text(text.replace(BEFORE, AFTER), "utf-8")
    # Once unseen: the picture shows how long a run takes that finds its export in the cache.
    run_pytest(work / "project", 80, 1)
    page = chromium.page()
    prompt = f'<span class="prompt">$</span> {html.escape(shlex.join(COMMAND))}\n'
    file = work / "terminal.html"
    file.write_text(_TERMINAL % (prompt + coloured(run_pytest(work / "project", 80, 1))), "utf-8")
    page.open(file)
    width, height = page.evaluate(
        "(() => { const r = document.querySelector('pre').getBoundingClientRect();"
        " return [Math.ceil(r.width), Math.ceil(r.height)]; })()"
    )
    page.resize(width, height)
    page.screenshot(IMAGES / "terminal-80.png", whole=False)


def take_report(chromium: Browser, work: Path) -> None:
    file = work / "report.html"
    folders = find_records(ROOT / "docs" / "sample" / "failing")
    write_html(file, [(folder, read_record(folder)) for folder in folders])
    page = chromium.page()
    page.prefer("light")
    page.resize(1400, 900)
    page.send("Emulation.setScrollbarsHidden", hidden=True)
    page.open(file)
    page.screenshot(IMAGES / "report-failing.png", whole=False)


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit("There is no Chromium. Install it with `python -m tests.support.chromium`.")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, browser(program, Path(name) / "profile") as made:
        take_report(made, Path(name))
        take_terminal(made, Path(name))


if __name__ == "__main__":
    main()
