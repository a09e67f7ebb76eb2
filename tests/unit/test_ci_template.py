"""The workflow that users copy: nobody else's code runs on their machines."""

import plistlib
import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "ci"
WORKFLOW = FOLDER / "github-actions.yml"
MAC_WORKFLOW = FOLDER / "mac.yml"


def job(name: str) -> str:
    found = re.search(rf"^  {name}:\n(.*?)(?=^  \w+:\n|\Z)", WORKFLOW.read_text(), re.M | re.S)
    assert found is not None
    return found[1]


def test_forks_do_not_run_on_a_machine_of_ones_own() -> None:
    timing = job("timing")
    assert "self-hosted" in timing
    condition = " ".join(timing.partition("if: >-")[2].partition("runs-on")[0].split())
    assert condition == (
        "vars.SME2_MACHINE != '' && (github.event_name != 'pull_request' "
        "|| github.event.pull_request.head.repo.full_name == github.repository)"
    )
    assert "self-hosted" not in job("structure")
    assert "pull_request_target" not in WORKFLOW.read_text()


def test_nothing_that_waits_is_cancelled() -> None:
    assert not re.search(r"^\s*concurrency:", WORKFLOW.read_text(), re.M)


def test_the_cache_has_a_bound() -> None:
    assert re.search(r"SME2_CACHE_LIMIT: \d+ GB", job("structure"))


def test_creep_on_main_fails() -> None:
    timing = job("timing")
    assert "--sme2-history=../sme2-history" in timing
    assert re.search(
        r"if: github.ref == 'refs/heads/main'\n +run: .*sme2 history .*--fail-on", timing
    )


def test_nobody_elses_code_runs_on_a_mac_of_ones_own() -> None:
    text = MAC_WORKFLOW.read_text()
    assert "self-hosted" in text
    assert not re.search(r"^\s*(pull_request|concurrency)", text, re.M)


def test_a_runner_on_a_mac_is_not_a_background_job() -> None:
    agent = plistlib.loads((FOLDER / "actions.runner.plist").read_bytes())
    assert agent["ProcessType"] == "Interactive"
