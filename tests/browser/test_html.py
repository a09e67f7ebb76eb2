"""The HTML report in a real browser: what it shows, does, and does not let happen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.report.html import Case, write_html
from pytest_sme2.results.case import Check
from pytest_sme2.results.evidence import Counts, InferenceCost
from pytest_sme2.results.run import Arm, OperatorShapes
from pytest_sme2.results.timing import Estimate, Outcome
from pytest_sme2.session.run_directory import find_records, read_record
from tests.support.chromium import Page
from tests.support.records import changed, stored_dumps, toy_run, write_case

SAMPLES = Path(__file__).parents[2] / "docs" / "sample"
WIDER_THAN_THEIR_PLACE = """[...document.querySelectorAll('.scroll')]
  .filter(each => each.scrollWidth > each.clientWidth + 1).length"""
ROWS = (
    "[...document.querySelectorAll('#{} tbody tr')]"
    ".map(row => [...row.cells].map(cell => cell.innerText))"
)


def rows(page: Page, table: str) -> Any:
    return page.evaluate(ROWS.format(table))


def choose(page: Page, identity: str, value: str) -> None:
    page.evaluate(
        f"(() => {{ const e = document.getElementById({identity!r}); e.value = {value!r};"
        "e.dispatchEvent(new Event('input', {bubbles: true}));"
        "e.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def sort_by(page: Page, table: str, title: str) -> None:
    page.evaluate(
        f"[...document.querySelectorAll('#{table} th button')]"
        f".find(button => button.textContent === {title!r}).click()"
    )


def look_at_everything(page: Page) -> None:
    """Scroll past all charts, so that each is drawn."""
    page.evaluate(
        """(async () => {
          for (let y = 0; y < document.documentElement.scrollHeight; y += 400) {
            scrollTo(0, y);
            await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
          }
        })()"""
    )


def shown(page: Page, tmp_path: Path, *cases: Path | Case) -> str:
    """All that the page says about these cases."""
    path = tmp_path / "report.html"
    entries = [(case, read_record(case)) if isinstance(case, Path) else case for case in cases]
    write_html(path, entries)
    page.open(path)
    look_at_everything(page)
    return str(page.evaluate("document.body.innerText"))


def test_everything_is_drawn_without_a_complaint(page: Page, timed_report: Path) -> None:
    page.open(timed_report)
    # Before they are scrolled to.
    page.wait_for(
        "[...document.querySelectorAll('figure')].every(f => f.querySelector('svg.main-svg'))"
    )
    assert page.evaluate("scrollY") == 0
    captions = page.evaluate("[...document.querySelectorAll('figcaption')].map(c => c.innerText)")
    text = "\n".join(captions)
    for chart in (
        "Latency, SME2 off and on",
        "Speedup by SME2",
        "Costliest operators, SME2 on",
        "Where the time went: SME2, NEON, portable",
        "Time by category",
        "Shares by category",
        "Process medians",
        "Timeline of one inference",
    ):
        assert chart in text
    headings = page.evaluate("[...document.querySelectorAll('h2, h3')].map(h => h.innerText)")
    assert {"All models", "Best number of threads", "Kernel census", "How to reproduce"} <= {
        *headings
    }
    assert headings.index("Checks against the baseline") < headings.index("Operators")
    text = page.evaluate("document.body.innerText")
    assert "Weights are random" in text
    assert "the bottleneck is CONV on both sides" in text
    assert "Noise floor 0.2 %, smallest detectable difference 1.1 %" in text
    figures = page.evaluate("document.querySelector('#case-body > details').textContent")
    assert "SME2 on1010.000 ms9.980 ms10.020 ms" in figures
    names = page.evaluate(
        "[...document.querySelectorAll('#overview-charts figure:last-of-type .legendtext')]"
        ".map(text => text.textContent)"
    )
    assert names == ["SME2", "NEON", "portable"], "bars have the colour of what ran"


def test_an_emulated_report_shows_no_latency_and_says_why(
    page: Page, emulated_report: Path
) -> None:
    page.open(emulated_report)
    look_at_everything(page)
    text = page.evaluate("document.body.innerText")
    last = page.evaluate("document.querySelector('main > section:last-of-type').innerText")
    assert "emulated time says nothing about hardware" in last
    assert "Latency, SME2" not in text
    assert not page.evaluate(r"/\d (ms|µs)\b/.test(document.body.innerText)")
    assert "Operators by category" in text


def test_tables_sort_both_ways(page: Page, timed_report: Path) -> None:
    page.open(timed_report)
    shares = [float(row[-1].rstrip(" %")) for row in rows(page, "operator-table")]
    assert shares == sorted(shares, reverse=True)
    sort_by(page, "operator-table", "share")
    shares = [float(row[-1].rstrip(" %")) for row in rows(page, "operator-table")]
    assert shares == sorted(shares)
    sort_by(page, "operator-table", "operator")
    names = [row[1] for row in rows(page, "operator-table")]
    assert names == sorted(names, key=str.lower)
    assert page.evaluate(
        "document.querySelector('#operator-table th[aria-sort]').innerText"
    ).startswith("operator")
    sort_by(page, "overview-table", "model")
    sort_by(page, "overview-table", "model")
    assert [row[0] for row in rows(page, "overview-table")] == ["toy-int8", "toy-fp32", "toy-fp16"]


def test_operators_are_filtered(page: Page, timed_report: Path) -> None:
    page.open(timed_report)
    everything = rows(page, "operator-table")
    choose(page, "operator-ran", "portable")
    portable = rows(page, "operator-table")
    assert portable
    assert {row[2] for row in portable} == {"portable"}
    assert len(portable) < len(everything)
    choose(page, "operator-ran", "")
    choose(page, "operator-sme2", "no")
    assert [row[2].split() for row in rows(page, "operator-table")] == [["NEON", "missed", "SME2"]]
    choose(page, "operator-sme2", "")
    choose(page, "operator-search", "CONVOLUTION")
    found = rows(page, "operator-table")
    assert found
    assert all("Convolution" in row[1] for row in found)
    choose(page, "operator-arm", "off")
    assert all("PF16" not in row[1] for row in rows(page, "operator-table"))
    choose(page, "operator-search", "no operator is called so")
    assert rows(page, "operator-table") == []
    assert page.evaluate("document.getElementById('operator-count').innerText").startswith("0 of ")


def test_another_model_is_shown_when_chosen(page: Page, timed_report: Path) -> None:
    page.open(timed_report)
    choose(page, "case-choice", "2")
    assert page.evaluate("document.querySelector('#case-body h3').innerText") == "toy-int8"
    page.evaluate("[...document.querySelectorAll('#overview-table button.open')][1].click()")
    assert page.evaluate("document.querySelector('#case-body h3').innerText") == "toy-fp32"
    assert page.evaluate("location.hash") == "#case-1"
    page.open(timed_report, "#case-2")
    assert page.evaluate("document.querySelector('#case-body h3').innerText") == "toy-int8"


BACKGROUND = "getComputedStyle(document.body).backgroundColor"
CHART_TEXT = "getComputedStyle(document.querySelector('figure .xtick text')).fill"


def test_dark_follows_the_system_and_the_button(page: Page, timed_report: Path) -> None:
    page.open(timed_report)
    look_at_everything(page)
    light = page.evaluate(BACKGROUND), page.evaluate(CHART_TEXT)
    page.prefer("dark")
    page.wait_for(f"{BACKGROUND} !== {light[0]!r}")
    page.wait_for(f"{CHART_TEXT} !== {light[1]!r}")
    page.evaluate("document.getElementById('theme').click()")
    assert (page.evaluate(BACKGROUND), page.evaluate(CHART_TEXT)) == light
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate(BACKGROUND) != light[0]


@pytest.mark.parametrize("report", ["timed_report", "emulated_report", "hostile_report"])
def test_a_narrow_window_needs_no_sideways_scrolling(
    page: Page, report: str, request: pytest.FixtureRequest
) -> None:
    page.resize(360, 740, mobile=True)
    page.open(request.getfixturevalue(report))
    look_at_everything(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    outside = """[...document.querySelectorAll('figure, .note, pre, .facts, select, input')]
      .filter(each => each.getBoundingClientRect().right > innerWidth + 1).length"""
    assert page.evaluate(outside) == 0
    cells = """[...document.querySelectorAll('td')].filter(cell =>
      getComputedStyle(cell).display !== 'none' &&
      cell.getBoundingClientRect().right > innerWidth + 1).length"""
    assert page.evaluate(cells) == 0
    assert page.evaluate(WIDER_THAN_THEIR_PLACE) == 0
    label = "getComputedStyle(document.querySelector('#overview-table td'), '::before').content"
    assert page.evaluate(label) == '"model"'


def test_everything_is_reached_with_the_keyboard(page: Page, timed_report: Path) -> None:
    page.open(timed_report)
    reached = []
    for _ in range(12):
        page.press("Tab", 9)
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.innerText")
        )
    assert reached[0] == "Skip to the overview"
    assert reached[1] == "theme"
    assert "model" in [text.strip() for text in reached]
    page.evaluate("document.querySelector('#overview-table th button').focus()")
    page.press("Enter", 13)
    assert page.evaluate("document.querySelector('#overview-table th').getAttribute('aria-sort')")


def test_every_control_and_chart_has_a_name(page: Page, timed_report: Path) -> None:
    page.open(timed_report)
    nameless = """[...document.querySelectorAll('select, input, button')].filter(each =>
      !each.innerText?.trim() && !each.labels?.length && !each.getAttribute('aria-label')).length"""
    assert page.evaluate(nameless) == 0
    assert (
        page.evaluate("document.querySelectorAll('figure [role=img]:not([aria-label])').length")
        == 0
    )


def test_paper_is_white_and_narrow_whatever_the_screen_is(
    page: Page, timed_report: Path, tmp_path: Path
) -> None:
    page.prefer("dark")
    page.open(timed_report)
    pdf = page.print_to(tmp_path / "report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    look_at_everything(page)
    dark = page.evaluate(BACKGROUND), page.evaluate(CHART_TEXT)
    # As a browser does when the user prints.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.prefer("dark", media="print")
    page.resize(718, 1000)  # A4 between its margins
    assert page.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
    assert page.evaluate(CHART_TEXT) == "rgb(27, 31, 36)"
    beyond = (
        "[...document.querySelectorAll('figure, figure svg, pre, .facts, td')].filter({}).length"
    )
    assert page.evaluate(beyond.format("e => e.getBoundingClientRect().right > 719")) == 0
    shown = "e => getComputedStyle(e).display !== 'none'"
    assert page.evaluate(f"[...document.querySelectorAll('.controls')].filter({shown}).length") == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.prefer("dark")
    page.resize(1200, 900)
    page.wait_for(f"{BACKGROUND} === {dark[0]!r}")
    page.wait_for(f"{CHART_TEXT} === {dark[1]!r}")


def test_an_interval_that_says_nothing_is_left_out(page: Page, tmp_path: Path) -> None:
    """Too few pairs give no interval: their number stands there instead."""
    few = Estimate(2.0, 0.0, math.inf, 0.98, 3)
    folder = write_case(tmp_path, "toy", "fp32", stored_dumps("toy_fp32"), speedup=few)
    text = shown(page, tmp_path, folder)
    assert "2.00x (3 pairs)" in text
    assert "[0.00" not in text


def test_what_a_token_takes_is_told(page: Page, tmp_path: Path) -> None:
    folder = write_case(tmp_path, "toy", "fp32", stored_dumps("toy_fp32"))
    cost = InferenceCost("max", 512, (), (), runtime=Counts(instructions=700), setup=Counts())
    shown(page, tmp_path, (folder, changed(read_record(folder), tokens=7, costs={Arm.ON: cost})))
    text = page.evaluate("document.body.innerText")
    assert "Instructions per token: SME2 on 100." in text
    assert "Tokens per second: SME2 off 350.0, SME2 on 700.0." in text


def test_a_model_that_could_not_be_exported_is_shown(page: Page, tmp_path: Path) -> None:
    """Nothing of it was measured; the page must not stop there, and names it first."""
    failed = Check("export", Outcome.FAILED, "Model 'lost' cannot be exported as fp32: no weights.")
    lost = write_case(tmp_path / "b", "lost", "fp32", {}, checks=(failed,), costs={}, kernels={})
    text = shown(page, tmp_path, *toy_run(tmp_path / "a")[:1], lost)
    assert "lost" in rows(page, "overview-table")[0][0]
    assert "cannot be exported as fp32" in text


def test_the_same_model_on_two_devices_has_two_labels(page: Page, tmp_path: Path) -> None:
    emulated = toy_run(tmp_path / "b", emulated=True)[:1]
    shown(page, tmp_path, *toy_run(tmp_path / "a")[:1], *emulated)
    labels = page.evaluate("[...document.querySelectorAll('.ytick text')].map(e => e.textContent)")
    assert {"toy-fp16 on linux", "toy-fp16 on emulated"} <= set(labels)


def test_hostile_names_do_not_execute(page: Page, hostile_report: Path) -> None:
    page.evaluate("window.alert = () => { throw new Error('executed'); }")
    page.open(hostile_report)
    look_at_everything(page)
    for case in ("1", "0"):
        choose(page, "case-choice", case)
        look_at_everything(page)
    assert (
        page.evaluate("document.querySelectorAll('main img, main iframe, main script').length") == 0
    )
    assert page.evaluate("document.querySelectorAll('script').length") == 3
    text = page.evaluate("document.body.innerText")
    assert "<img src=x onerror=alert(1)>" in text


HEADLINE = "document.getElementById('headline').innerText"


def test_the_headline_answers_first(page: Page, timed_report: Path) -> None:
    page.open(timed_report)
    assert page.evaluate(HEADLINE).split() == [
        *("11.1", "%", "slower,", "limit", "2", "%", "x.flip(-1)", "at", "net.py:8", "toy-fp16"),
        *("1", "failed", "2", "not", "checked"),
    ]
    tiles = page.evaluate("[...document.querySelectorAll('#answers dt')].map(e => e.innerText)")
    assert tiles[:1] == ["matrix operators on SME2"]
    answers = page.evaluate("document.getElementById('answers-list').innerText")
    assert "2 of 3\nmatrix operators" in answers
    assert "2.00x [1.97, 2.03]\nspeedup by SME2" in answers
    assert "net.py:8" in page.evaluate("document.getElementById('failed-list').innerText")
    assert page.evaluate("document.getElementById('next').innerText").startswith("sme2 run toy")
    below = page.evaluate("document.getElementById('subtitle').innerText")
    assert "2025-01-01 00:00:00 UTC" in below
    assert "linux (Neoverse-V3)" in below
    assert "pytest-sme2 " in below
    # Failing first, its reason beside the verdict, and shown below.
    first, *_ = rows(page, "overview-table")
    assert first[:3] == ["toy-fp16", "REGRESSED", "11.1 % slower, limit 2 %"]
    assert page.evaluate("document.querySelector('#case-body h3').innerText") == "toy-fp16"
    assert "REGRESSED: 11.1 % slower" in page.evaluate("document.querySelector('.why').innerText")


@pytest.mark.parametrize("run", ["emulated", "failing"])
@pytest.mark.parametrize("width", [700, 900, 1000, 1400])
def test_in_a_small_window_no_table_scrolls_sideways(
    page: Page, tmp_path: Path, run: str, width: int
) -> None:
    """The widest tables there are: every column of the cost, and long reasons."""
    folders = find_records(SAMPLES / run)
    report = tmp_path / "report.html"
    write_html(report, [(folder, read_record(folder)) for folder in folders])
    page.resize(width, 900)
    page.open(report)
    assert page.evaluate(WIDER_THAN_THEIR_PLACE) == 0


def test_operators_show_their_module_and_shapes(page: Page, tmp_path: Path) -> None:
    folder = write_case(tmp_path, "toy", "fp32", stored_dumps("toy_fp32"))
    record = read_record(folder)
    shapes = OperatorShapes("convolution", ((1, 8, 8, 3), (16, 3, 3, 3)), (1, 8, 8, 16))
    profiles = {
        arm: replace(
            profile,
            operators=tuple(
                replace(member, module=f"layers.{member.index}", shapes=shapes)
                for member in profile.operators
            ),
        )
        for arm, profile in record.measured.profiles.items()
    }
    shown(page, tmp_path, (folder, changed(record, profiles=profiles)))
    for row in rows(page, "operator-table"):
        assert row[2:4] == [f"layers.{row[0]}", "1x8x8x3 by 16x3x3x3 to 1x8x8x16"]
    choose(page, "operator-search", "layers.1")
    assert {row[2] for row in rows(page, "operator-table")} >= {"layers.1"}


def test_fifty_models_open_in_time(page: Page, large_report: Path) -> None:
    assert large_report.stat().st_size < 10_000_000
    # The best of three: a cache that others fill makes it slower, and nothing makes it faster.
    assert min(page.open(large_report, f"#case-{number}") for number in range(3)) < 3.0
    assert len(rows(page, "overview-table")) == 50
