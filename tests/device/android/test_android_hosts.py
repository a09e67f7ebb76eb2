"""Phones on several computers: two adb servers, each with a network of its own, in one run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_sme2.fake_phone.lab import FakeLab
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.qemu import find_qemu
from tests.support.phones import add_models, leftovers, start_lab

PAGE = (Path(__file__).parents[3] / "docs" / "fleets.md").read_text("utf-8")
# pytester gives tests another home folder, so this is asked before.
CACHE = cache_folder()


def documented_conftest(phones: list[tuple[str, str]]) -> str:
    """The example of the documentation, with these phones."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (text,) = [block for block in blocks if "PHONES" in block]
    changed, count = re.subn(r"^PHONES = .*$", f"PHONES = {phones!r}", text, flags=re.MULTILINE)
    assert count == 1
    return changed


def test_one_run_uses_the_phones_of_two_computers(
    sme2_lab: FakeLab, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(CACHE))
    add_models(pytester.path / "models", ("alpha", "beta"))
    pytester.makepyfile("def test_evidence(sme2_gate): sme2_gate.check_evidence()")
    with start_lab(emulator=find_qemu().path) as other:
        phones = [
            lab.add(properties={"ro.product.model": f"Phone {number}"})
            for number, lab in enumerate((sme2_lab, other))
        ]
        # Neither can be reached but through its own server, and their names are the same.
        assert phones[0].serial == phones[1].serial
        servers = [(phone.lab.address, phone.serial) for phone in phones]
        pytester.makeconftest(documented_conftest(servers))
        words = ("--device=android", "-n", "2", "--sme2-out=out", "-p", "no:cacheprovider")
        done = pytester.runpytest_subprocess(*words, timeout=1800)
        done.assert_outcomes(passed=2)
        assert [leftovers(phone) for phone in phones] == [[], []]
    used = set()
    for path in (pytester.path / "out").rglob("metrics.json"):
        facts = json.loads(path.read_text("utf-8"))["measured"]["fingerprint"]["facts"]
        used.add(dict(facts)["model"].removeprefix("pytest-sme2 "))
    assert used == {"Phone 0", "Phone 1"}
