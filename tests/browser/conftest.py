"""A browser for the whole session, and reports to look at in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.report.html import page as html_page
from pytest_sme2.report.html import report_document, write_html
from pytest_sme2.results.case import Check
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import read_record
from tests.support.chromium import Browser, Page, browser, find_chromium
from tests.support.etdump_builder import build_etdump
from tests.support.gate_examples import frontier
from tests.support.profiles import run_of
from tests.support.records import HOSTILE, stored_dumps, toy_run, write_case


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        message = "no Chromium: install it with `python -m tests.support.chromium`"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with browser(program, tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A tab of a desktop's size, in light colours; whatever it complained about fails the test."""
    tab = chromium.page()
    tab.resize(1200, 900)
    tab.prefer("light")
    yield tab
    assert tab.errors == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in tab.requests)


@pytest.fixture(scope="session")
def timed_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three variants on hardware, one of them slower, with several numbers of threads."""
    root = tmp_path_factory.mktemp("timed")
    check = Check(
        "latency (on)", Outcome.REGRESSED, "Slower.", 9e6, 1e7, "ns", (1.1, 1.12), 0.02, ("a",),
        "`x.flip(-1)` at net.py:8",
    )  # fmt: skip
    entries = []
    for number, folder in enumerate(toy_run(root)):
        record = read_record(folder)
        if number == 0:
            measured = replace(record.measured, frontier=frontier())
            record = replace(record, checks=(check,), measured=measured)
        entries.append((folder, record))
    write_html(root / "report.html", entries)
    return root / "report.html"


@pytest.fixture(scope="session")
def emulated_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("emulated")
    cases = [(folder, read_record(folder)) for folder in toy_run(root, emulated=True)]
    write_html(root / "report.html", cases)
    return root / "report.html"


@pytest.fixture(scope="session")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every name there is tries to become markup or code."""
    root = tmp_path_factory.mktemp("hostile")
    dump = build_etdump([run_of([[(HOSTILE, 9_000), ("Add (ND)", 2_000)]])])
    check = Check(HOSTILE, Outcome.REGRESSED, HOSTILE, details=(HOSTILE,), where=HOSTILE)
    folders = [
        write_case(root, HOSTILE, "fp16", dict.fromkeys(Arm, dump), checks=(check,)),
        write_case(root, "__proto__", "fp32", stored_dumps("toy_fp32"), weights=HOSTILE),
    ]
    write_html(root / "report.html", [(folder, read_record(folder)) for folder in folders])
    return root / "report.html"


@pytest.fixture(scope="session")
def large_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty models of five hundred operators."""
    root = tmp_path_factory.mktemp("large")
    names = ("Convolution (NHWC, PF32) IGEMM", "Transpose (ND, X32)", "Add (ND)", "Clamp (NC)")
    calls = [[(f"{names[number % 4]} #{number}", 5_000) for number in range(500)]]
    dump = build_etdump([run_of(calls)])
    folder = write_case(root, "model", "fp32", dict.fromkeys(Arm, dump))
    document = report_document([(folder, read_record(folder))])
    (case,) = document["cases"]
    document["cases"] = [{**case, "id": f"model{number}-fp32"} for number in range(50)]
    path = root / "report.html"
    path.write_text(html_page(document), encoding="utf-8")
    return path
