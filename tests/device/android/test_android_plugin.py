"""`pytest --device=android` as a user types it, against real adbd devices."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.system.cache import cache_folder
from tests.support.phones import leftovers, settings_of
from tests.support.toy_project import export_here

REPOSITORY = Path(__file__).parents[3]
PROGRAM = REPOSITORY / "tests/data/programs/toy_fp16.pte"
NAMES = ("alpha", "beta", "gamma")
# pytester gives tests another home folder, so this is asked before.
CACHE = cache_folder()

TESTS = """
import pytest

def test_evidence(sme2_gate):
    sme2_gate.check_evidence()

def test_pair(sme2_pair):
    assert len(sme2_pair.on) == len(sme2_pair.off) == 1
"""


@pytest.fixture
def phones(sme2_lab: FakeLab) -> list[FakePhone]:
    return [sme2_lab.add() for _ in range(3)]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Three small programs and two tests."""
    # pytester moves HOME, and with it the cache.
    monkeypatch.setenv("SME2_CACHE_DIR", str(CACHE))
    for name in NAMES:
        shutil.copy(PROGRAM, pytester.path / f"{name}.pte")
    pytester.makeini("[pytest]\nsme2_models = *.pte\n")
    pytester.makepyfile(test_models=TESTS)
    return pytester


def options(lab: FakeLab, phones: list[FakePhone]) -> list[str]:
    named = [word for phone in phones for word in ("--sme2-serial", phone.serial)]
    return ["--device=android", *named, f"--sme2-phone=adb-server={lab.address}"]


def run(
    project: pytest.Pytester, lab: FakeLab, phones: list[FakePhone], *more: str
) -> pytest.RunResult:
    arguments = [*options(lab, phones), "-p", "no:cacheprovider", *more]
    return project.runpytest_inprocess(*arguments)


def records(out: Path) -> dict[str, dict[str, object]]:
    """What the run found out, by case, without what differs from run to run."""
    found = {}
    for path in sorted(out.rglob("metrics.json")):
        document = json.loads(path.read_text("utf-8"))
        measured = document["measured"]
        assert measured["fingerprint"]["target"] == "android"
        kept = ("structures", "agreements", "pte_sha256", "fingerprint", "evidence")
        found[document["id"]] = {name: measured[name] for name in kept}
    return found


def serials(out: Path) -> dict[str, str]:
    """By case, the phone it was measured on, from the run's manifests."""
    documents = [json.loads(path.read_text("utf-8")) for path in out.rglob("manifest.json")]
    return {document["case"]: document["device_state"]["serial"] for document in documents}


def test_three_phones_give_the_results_of_one(
    sme2_lab: FakeLab, phones: list[FakePhone], project: pytest.Pytester
) -> None:
    before = [settings_of(phone) for phone in phones]
    one = run(project, sme2_lab, phones[:1], "--sme2-out=one", "-k", "evidence")
    one.assert_outcomes(passed=3)
    three = run(project, sme2_lab, phones, "--sme2-out=three", "-k", "evidence", "-n", "auto")
    three.assert_outcomes(passed=3)
    three.stdout.fnmatch_lines(["*3 workers*"])
    manifests = [
        json.loads(path.read_text("utf-8")) for path in project.path.glob("one/**/manifest.json")
    ]
    states = [found["device_state"] for found in manifests]
    assert {(state["serial"], state["screen"]) for state in states} == {(phones[0].serial, "on")}
    # A case is a worker's, and a worker has a phone of its own.
    assert set(serials(project.path / "three")) == {f"{name}-as exported" for name in NAMES}
    found = records(project.path / "three")
    assert found == records(project.path / "one")
    assert len(found) == 3
    assert [settings_of(phone) for phone in phones] == before
    assert [leftovers(phone) for phone in phones] == [[], [], []]


@contextlib.contextmanager
def lost_while_working(phones: list[FakePhone]) -> Iterator[list[FakePhone]]:
    """The first phone that runs something loses its cable for good; which, is in the list."""
    killed: list[FakePhone] = []
    over = threading.Event()

    def kill() -> None:
        while not over.is_set():
            for phone in phones:
                if "sme2_runner" in str(phone.processes()):
                    phone.kill_adbd()
                    killed.append(phone)
                    return
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_a_lost_phone_fails_only_its_test(sme2_lab: FakeLab, project: pytest.Pytester) -> None:
    lonely, other = sme2_lab.add(), sme2_lab.add()
    project.makepyfile(
        test_models="""
        import pytest

        @pytest.mark.sme2(models="alpha")
        def test_first(sme2_session, sme2_model, sme2_target):
            print("SERIAL", sme2_target.serial)
            sme2_session.profile(sme2_model, sme2_session.bench.arms[0])

        @pytest.mark.sme2(models="beta")
        def test_second(sme2_pair, sme2_target):
            print("SERIAL", sme2_target.serial)
        """
    )
    with lost_while_working([lonely]):
        result = run(project, sme2_lab, [lonely, other], "--sme2-phone=patience=2s", "-rA")
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert f"SERIAL {lonely.serial}" in text
    assert f"SERIAL {other.serial}" in text
    assert "It did not come back within 2 s" in text
    assert "INTERNALERROR" not in text
    assert leftovers(other) == []


def test_one_of_several_that_cannot_be_reached_does_not_stop_the_others(
    sme2_lab: FakeLab, phones: list[FakePhone], project: pytest.Pytester
) -> None:
    phones[0].kill_adbd()
    result = run(project, sme2_lab, phones[:2], "--sme2-models=alpha", "--sme2-phone=patience=1s")
    result.assert_outcomes(passed=2)
    assert set(serials(project.path / "sme2-out").values()) == {phones[1].serial}


def test_a_single_one_that_cannot_be_reached_is_one_clear_failure(
    sme2_lab: FakeLab, phones: list[FakePhone], project: pytest.Pytester
) -> None:
    phones[0].kill_adbd()
    result = run(project, sme2_lab, phones[:1], "--sme2-models=alpha", "--sme2-phone=patience=1s")
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines([f"*Could not connect to {phones[0].serial}*"])


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """The project's own suite, models and baselines."""
    monkeypatch.setenv("SME2_CACHE_DIR", str(CACHE))
    for name in ("models/toy_cnn", "tests/performance"):
        shutil.copytree(REPOSITORY / name, pytester.path / name)
    (pytester.path / "baselines").symlink_to(REPOSITORY / "baselines")
    return pytester


def start_suite(suite: pytest.Pytester, variant: str, *arguments: str) -> pytest.RunResult:
    export_here(suite.path / "models", variant)
    return suite.runpytest_inprocess(
        "tests/performance", "--device=android", f"--sme2-variants={variant}", "--sme2-strict",
        "-p", "no:cacheprovider", *arguments,
    )  # fmt: skip


def test_the_suite_passes_and_leaves_the_phone_as_it_was(
    sme2_lab: FakeLab, suite: pytest.Pytester
) -> None:
    """Everything passes that a device without a clock can measure; nothing lacks a baseline but
    what no baseline of another device can tell.
    """
    phone = sme2_lab.add()
    before = settings_of(phone)
    chosen = options(sme2_lab, [phone])
    result = start_suite(suite, "fp16", *chosen)
    cases = list((suite.path / "sme2-out").rglob("metrics.json"))
    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed", "skipped"}
    result.stdout.fnmatch_lines(["*holds no baseline for*"])
    # Evidence, coverage, operators, delegation, size, and the outputs against two others.
    assert outcomes["passed"] == 7 * len(cases) > 0
    assert "NO_BASELINE" not in result.stdout.str()
    for path in cases:
        document = json.loads(path.read_text("utf-8"))
        assert document["measured"]["evidence"]["valid"]
        for arm in ("on", "off"):
            folder = path.parent / f"android_sme2_{arm}"
            assert (folder / "run.etdump").stat().st_size > 0
            assert (folder / "runner.log").stat().st_size > 0
            assert list((folder / "outputs").iterdir())
    assert settings_of(phone) == before
    assert leftovers(phone) == []
    # What is kept for the next run is in one place, and the next run adds nothing to it.
    kept = phone.files()
    assert all(f"{name}/".startswith("pytest-sme2/files/") for name in kept if "/" in name)
    assert [name for name in kept if "/" not in name] == ["pytest-sme2"]
    start_suite(suite, "fp16", *chosen, "-k", "operators_are").assert_outcomes(passed=1)
    assert phone.files() == kept


def test_a_test_of_the_suite_passes_on_a_fake_phone(suite: pytest.Pytester) -> None:
    start_suite(suite, "fp32", "--sme2-phone=fake", "-k", "operators_are").assert_outcomes(passed=1)
