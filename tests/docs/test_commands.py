"""Every command in README, docs, skills and the CI file exists, with every option it is given."""

from __future__ import annotations

import argparse
import functools
import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.cli import main as cli
from pytest_sme2.errors import UsageError
from pytest_sme2.plugin.options import long_name
from pytest_sme2.session.options import OPTIONS
from pytest_sme2.system.files import read_toml
from tests.docs.pages import (
    NOT_RUN,
    PAGES,
    ROOT,
    SHELLS,
    Block,
    blocks,
    commands,
    inline_commands,
    shell_lines,
)

WORKFLOW = ROOT / "docs" / "ci" / "github-actions.yml"
MAC_WORKFLOW = ROOT / "docs" / "ci" / "mac.yml"
# Of pytest-split, which is not installed here; tests/beside uses it.
SHARDING = ("--splits", "--group")
_EXTRA = re.compile(r"pytest-sme2\[([^\]]+)\]")


@functools.cache
def pytest_options() -> frozenset[str]:
    """The options that pytest knows here, as its help lists them."""
    text = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    shown = re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", text)
    ours = (long_name(option.flag) for option in OPTIONS)
    return frozenset([*shown, *ours, *SHARDING])


def subparser(name: str) -> argparse.ArgumentParser:
    return cli.fill_parser(argparse.ArgumentParser(), name)


def flag_of(word: str) -> str:
    return word.partition("=")[0]


def sme2_problem(words: list[str], *, whole: bool) -> str | None:
    if len(words) == 1 or words[1].startswith("-") or words[1] == "COMMAND":
        return None
    name, arguments = words[1], words[2:]
    if name == "help":
        return None if words[2:] in ([], ["devices"]) else f"sme2 help does not know {words[2:]}"
    if " ".join(words[1:3]) in cli.COMMANDS:
        name, arguments = " ".join(words[1:3]), words[3:]
    if name not in cli.COMMANDS:
        return f"there is no command sme2 {name}"
    parser = subparser(name)
    known = {flag for action in parser._actions for flag in action.option_strings}
    unknown = [word for word in arguments if word.startswith("-") and flag_of(word) not in known]
    if unknown:
        return f"sme2 {name} has no {', '.join(unknown)}"
    if whole and "--help" not in arguments:
        try:
            parser.parse_args(arguments)
        except SystemExit:
            return f"sme2 {name} does not accept {arguments}"
    return None


def pytest_problem(words: list[str]) -> str | None:
    parsers = {option.flag: option.read for option in OPTIONS if option.flag != "--against"}
    for word, following in itertools.pairwise([*words[1:], ""]):
        if not word.startswith("-"):
            continue
        flag, equals, value = word.partition("=")
        if flag not in pytest_options():
            return f"pytest has no {flag}"
        parse = parsers.get(flag)
        if parse is not None and (equals or following) and flag != "--update-baselines":
            try:
                parse(value if equals else following)
            except UsageError as error:
                return f"{flag}: {error}"
    return None


def pip_problem(words: list[str]) -> str | None:
    known = read_toml(ROOT / "pyproject.toml", remedy="")["project"]["optional-dependencies"]
    for word in words:
        for extras in _EXTRA.findall(word):
            for extra in extras.split(","):
                if extra not in known:
                    return f"there is no extra {extra!r}"
    return None


def python_problem(words: list[str]) -> str | None:
    if words[1:2] == ["-m"]:
        place = ROOT.joinpath(*words[2].split("."))
        files = (place.with_suffix(".py"), place / "__main__.py")
        if words[2] != "venv" and not any(file.is_file() for file in files):
            return f"there is no module {words[2]}"
    elif not (ROOT / words[1]).is_file():
        return f"there is no file {words[1]}"
    return None


def tox_problem(words: list[str]) -> str | None:
    known = re.findall(r"^\[testenv:(.+)\]$", (ROOT / "tox.ini").read_text("utf-8"), re.MULTILINE)
    for flag, names in itertools.pairwise(words):
        unknown = [name for name in names.split(",") if name not in known]
        if flag == "-e" and unknown:
            return f"there is no tox environment {unknown[0]!r}"
    return None


def problem_of(words: list[str], *, whole: bool = True) -> str | None:
    """What is wrong with a command, as far as that can be told without running it."""
    program = words[0].rpartition("/")[2]
    if program == "sme2":
        return sme2_problem(words, whole=whole)
    others = {
        "pytest": pytest_problem,
        "pip": pip_problem,
        "python": python_problem,
        "python3": python_problem,
        "tox": tox_problem,
    }
    return others[program](words) if program in others else None


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks(page)]


def typed(page: Path) -> Iterator[tuple[Block, list[str]]]:
    """The commands of a page's blocks."""
    for block in blocks(page):
        if block.language in SHELLS:
            for line in shell_lines(block):
                yield from ((block, words) for words in commands(line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path) -> None:
    problems = [
        f"{block}: {problem}" for block, words in typed(page) if (problem := problem_of(words))
    ]
    problems += [
        f"{' '.join(words)!r}: {problem}"
        for words in inline_commands(page)
        if (problem := problem_of(words, whole=False))
    ]
    assert problems == []


def test_blocks_say_what_they_are() -> None:
    """A command in a block without a language would be checked by nobody."""
    assert [
        str(block)
        for block in all_blocks()
        if not block.language and re.match(r"\$? *(sme2|pytest|python3?|pip) ", block.text)
    ] == []


def test_every_command_is_run_or_says_why_not() -> None:
    for block in all_blocks():
        # A directive of Sphinx has arguments instead.
        for flag in () if block.language.startswith("{") else block.flags:
            known = ("run", "suite", "check")
            assert flag in known or flag.startswith(("file=", "not-run=")), str(block)
        if block.language in SHELLS:
            run = "run" in block.flags
            assert run != (block.not_run is not None), f"{block}: add run, or not-run=REASON"
            assert run or block.not_run in NOT_RUN, f"{block}: {block.not_run} is not a reason"


def test_the_ci_script_runs_the_readme_s_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    told = [block for block in blocks(ROOT / "README.md") if block.not_run == "ci"]
    environments = [re.findall(r"start\.py (\w+)", block.text) for block in told]
    assert environments == [["suite"], ["tests"]]
    for (name,) in environments:
        assert re.search(
            rf"run (-q )?(--skip-pkg-install )?-e (\w+,)*{name}( -- .*)?$", script, re.MULTILINE
        )


@pytest.mark.parametrize("workflow", [WORKFLOW, MAC_WORKFLOW], ids=lambda path: path.stem)
def test_a_workflow_is_whole_and_its_commands_exist(workflow: Path) -> None:
    yaml = pytest.importorskip("yaml")
    document = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    # YAML takes the key `on` for a boolean.
    assert set(document) == {"name", True, "permissions", "jobs"}
    programs = []
    for job in document["jobs"].values():
        assert job["runs-on"]
        uses = [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step]
        assert {"actions/checkout", "actions/upload-artifact"} <= set(uses)
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            for words in commands(step.get("run", "true")):
                programs.append(words[0].rpartition("/")[2])
                assert problem_of(words) is None, words
    assert {"pip", "sme2", "pytest"} <= set(programs)
    assert "--junit-xml=junit.xml" in workflow.read_text()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_shell_blocks_are_valid_shell() -> None:
    for block in all_blocks():
        if block.language == "bash":
            done = subprocess.run(
                ["bash", "-n"], input=block.text, text=True, capture_output=True, check=False
            )
            assert done.returncode == 0, f"{block}: {done.stderr}"
