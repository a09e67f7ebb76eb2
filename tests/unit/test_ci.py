"""What CI installs and audits: the locks hold to the ranges, and the audit never pretends."""

from __future__ import annotations

import ast
import configparser
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
CI = ROOT / ".ci"
PACKAGE = ROOT / "pytest_sme2"
TESTS = ROOT / "tests" / "unit"
LOCKS = ("requirements.txt", "lowest.txt")
# Pinned in .ci/run, since its file differs from machine to machine.
UNHASHED = {"torch"}
OURSELVES = {"pytest-sme2"}


def pins(lock: str) -> dict[str, list[tuple[str, Marker | None, list[str]]]]:
    """Name to its versions, each with where it applies and its hashes."""
    found: dict[str, list[tuple[str, Marker | None, list[str]]]] = {}
    text = (CI / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        head, *hashes = line.split("--hash=")
        requirement = Requirement(head)
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", line
        found.setdefault(canonicalize_name(requirement.name), []).append(
            (specifier.version, requirement.marker, [value.strip() for value in hashes])
        )
    return found


def here(lock: str) -> dict[str, str]:
    """Name to the one version for this Python and machine."""
    chosen: dict[str, str] = {}
    for name, entries in pins(lock).items():
        versions = [version for version, marker, _ in entries if not marker or marker.evaluate()]
        assert len(versions) <= 1, name
        if versions:
            chosen[name] = versions[0]
    return chosen


DOCUMENT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
METADATA: dict[str, Any] = DOCUMENT["project"]
PROJECT: dict[str, list[str]] = {
    "base": METADATA["dependencies"],
    "build-system": DOCUMENT["build-system"]["requires"],
    **METADATA["optional-dependencies"],
}


def tox_requirements() -> dict[str, list[str]]:
    """What each environment that CI uses installs by name."""
    tox = tox_settings()
    found = {"tox": tox["tox"]["requires"].split("\n")}
    (environments,) = re.findall(r"--notest -e (\S+)", (CI / "run").read_text(encoding="utf-8"))
    for section in ("tests", *(f"testenv:{name}" for name in environments.split(","))):
        lines = tox[section].get("deps", "").split("\n")
        found[section] = [line for line in lines if line and not line.startswith("{")]
    return {section: [line for line in lines if line] for section, lines in found.items()}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash_and_no_place_of_origin(lock: str) -> None:
    for name, entries in pins(lock).items():
        for version, _, hashes in entries:
            assert hashes, f"{name} {version}"
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes)
    text = (CI / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert "index-url" not in text
    assert "#    .ci/lock" in text


def test_the_lock_meets_every_range() -> None:
    locked = here("requirements.txt")
    groups = {**PROJECT, **tox_requirements()}
    # Of no use but to look at a graph, and large: only the nightly tests install it.
    del groups["see"]
    for group, lines in groups.items():
        for requirement in map(Requirement, lines):
            name = canonicalize_name(requirement.name)
            elsewhere = requirement.marker is not None and not requirement.marker.evaluate()
            if elsewhere or name in UNHASHED | OURSELVES:
                continue
            assert name in locked, f"{group}: {requirement} is not in the lock. Run .ci/lock"
            assert requirement.specifier.contains(locked[name], prereleases=True), (
                f"{group}: {requirement}, but the lock has {locked[name]}. Run .ci/lock"
            )


def test_the_lowest_lock_holds_the_lowest_versions() -> None:
    locked = here("lowest.txt")
    lines = (ROOT / "tests" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    for requirement in (Requirement(line) for line in lines if not line.startswith("#")):
        name = canonicalize_name(requirement.name)
        if name == "tomli" and sys.version_info >= (3, 11):
            continue
        assert requirement.specifier.contains(locked[name]), f"{requirement}. Run .ci/lock"
    for requirement in map(Requirement, tox_requirements()["tests"]):
        assert canonicalize_name(requirement.name) in locked, f"{requirement}. Run .ci/lock"


def tox_settings() -> configparser.ConfigParser:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    return tox


def test_what_uses_a_dependency_is_run_with_its_oldest_version() -> None:
    """A module that starts to import one needs a test that is named in tox.ini."""
    lines = (ROOT / "tests" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    named = {Requirement(line).name for line in lines if not line.startswith("#")}
    modules = {{"pytest-xdist": "xdist"}.get(name, name.replace("-", "_")) for name in named}
    users = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if path.parent != PACKAGE and modules & {name.partition(".")[0] for name in imported(path)}
    }
    assert len(users) > 20
    tests = [ROOT / name for name in tox_settings()["lowest"]["files"].split()]
    assert not [path for path in tests if not path.exists()]
    files = [path for test in tests for path in (test.glob("*.py") if test.is_dir() else [test])]
    named_after = {
        TESTS.joinpath(*user.split(".")[1:-1], f"test_{user.split('.')[-1]}.py") for user in users
    }
    assert {path for path in named_after if path.exists()} <= {*files}, "name them under [lowest]"
    reached = {name for path in files for name in imported(path)}
    # These are started whole: by a pytest in tests/plugin, by `main`, and by the reader of traces.
    whole = ("pytest_sme2.plugin.", "pytest_sme2.cli.commands.", "pytest_sme2.results.run")
    missed = {name for name in users - reached if not name.startswith(whole)}
    assert not missed, "name a test of each under [lowest] in tox.ini"


def imported(path: Path) -> set[str]:
    """What a file imports anywhere in it: modules, and what may be one within them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_the_guide_names_environments_that_exist_and_all_that_run_tests() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = {*re.findall(r"\w+", " ".join(re.findall(r"tox run -e ([\w,]+)", guide)))}
    tox = tox_settings()
    assert named <= {name.removeprefix("testenv:") for name in tox.sections()}
    runs = {
        name.removeprefix("testenv:")
        for name in tox.sections()
        if name.startswith("testenv:") and "pytest" in tox[name].get("commands", "")
    }
    assert runs <= named


def test_every_test_runs_in_an_environment() -> None:
    """What one leaves out by a mark, another one asks for."""
    tox = tox_settings()
    assert '-m "not nightly"' in tox["testenv:tests"]["commands"]
    assert "-m nightly" in tox["testenv:nightly"]["commands"]
    folders = re.findall(r"(?:tests|benchmarks)/\w+", tox["testenv:tests"]["commands"])
    asked = re.findall(r"(?:tests|benchmarks)/\w+", tox["testenv:nightly"]["commands"])
    marked = {
        "/".join(path.relative_to(ROOT).parts[:2])
        for folder in folders
        for path in (ROOT / folder).rglob("test_*.py")
        if "pytest.mark.nightly" in path.read_text(encoding="utf-8") and path != Path(__file__)
    }
    assert marked <= {*asked} <= {*folders}


def test_torch_is_pinned_where_ci_runs() -> None:
    (version,) = re.findall(r"torch==(\S+)", (CI / "run").read_text(encoding="utf-8"))
    (wanted,) = [line for line in PROJECT["export"] if line.startswith("torch>")]
    assert Requirement(wanted).specifier.contains(version)
    locked = pins("requirements.txt")
    assert not {name for name in locked if name.startswith(("torch-", "nvidia-", "cuda-"))}
    assert "torch" not in locked


def test_ci_installs_by_the_locks_alone() -> None:
    text = (CI / "run").read_text(encoding="utf-8")
    for lock in LOCKS:
        assert (CI / lock).is_file()
        assert lock.removesuffix(".txt") in text
    assert "--require-hashes" in text
    assert "UV_NO_INDEX=1" in text
    assert "--no-index" in text
    # Installing is done before anything is run, and nothing is installed after it.
    runs = [line for line in text.splitlines() if '"$tox" run' in line]
    assert "--notest" in runs[0]
    assert runs[1:]
    assert all("--skip-pkg-install" in line for line in runs[1:])


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, CI / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FINE = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("dependencies", "code", "says"),
    [
        ([FINE], 0, "No advisory names any of the 1 pinned packages"),
        ([FINE, BAD], 1, "b 2: PYSEC-1, fixed in 3"),
        ([BAD, SKIPPED], 1, "1 advisories for 1 pinned packages"),
        ([FINE, SKIPPED], 3, r"NOT AUDITED: .* 1 of 2 pinned packages \(c\)"),
        ([SKIPPED], 3, "NOT AUDITED"),
        ([], 3, "NOT AUDITED"),
    ],
)
def test_what_an_audit_comes_to(dependencies: list[object], code: int, says: str) -> None:
    found, lines = load("audit").judge({"dependencies": dependencies})
    assert found == code
    assert re.search(says, "\n".join(lines))
