"""What README, docs and skills tell people to type: blocks, commands. Runs nothing.

A fence's info string says what a block is: ```bash is a command, ```console a command and what it
prints, and after the language may stand

    run             it can run anywhere, and is run by the tests
    suite           it runs in the project's own source, not in a project of the reader's
    not-run=REASON  it is not run by these tests, for one of the reasons below
    file=PATH       it is a file to write, not to run
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Built documentation may lie there, too.
PAGES = (
    ROOT / "README.md",
    *(ROOT / f"{name}.md" for name in ("AGENTS", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / ".github").glob("*TEMPLATE/*.yml")),
    ROOT / ".github" / "pull_request_template.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "skills").glob("*.md")),
)
SHELLS = ("bash", "console")
NOT_RUN = {
    "ci": "the CI script runs it, from nothing, and with it all tests there are",
    "installs": "it installs this package; test_stranger.py types it in an empty home",
    "device": "it needs a phone; tests/device/android does the same on a real adbd",
    "mac": "it needs a Mac; tests/device/mac does the same with a Mac's binaries",
    "source": "it needs ExecuTorch's source tree, and an hour; tests/device builds a stand-in",
    "long": "it needs minutes to hours of an idle machine; tests/unit runs it with less",
    "elsewhere": "another page, a playbook or tests/plugin runs the same with names of its own",
}
"""Why a command is not run here."""
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>.*)$")
_INLINE = re.compile(r"(?<!`)`((?:sme2|pytest) [^`]+)`(?!`)")
_SEPARATORS = frozenset({"&&", "||", "|", ";", "&"})
_REDIRECTIONS = frozenset({">", ">>", "<"})


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    language: str
    flags: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        """Where the block is to be written."""
        return self._value("file=")

    @property
    def not_run(self) -> str | None:
        """Why it is not run."""
        return self._value("not-run=")

    def _value(self, prefix: str) -> str | None:
        found = (flag for flag in self.flags if flag.startswith(prefix))
        return next((flag.removeprefix(prefix) for flag in found), None)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    start, info, closing, body = 0, "", "", list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        match = _FENCE.match(line)
        if closing:
            if line.strip() == closing:
                language, *flags = info.split() or [""]
                found.append(Block(page, start, language, tuple(flags), "\n".join(body) + "\n"))
                closing = ""
            else:
                body.append(line)
        elif match:
            start, info, closing, body = number, match["info"].strip(), match["ticks"], []
    assert not closing, f"{page}: the block of line {start} has no end"
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^ *(`{3,}).*?^ *\1$", "", text, flags=re.MULTILINE | re.DOTALL)


def shell_lines(block: Block) -> Iterator[str]:
    """The lines to type, continued ones joined."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if block.language == "console":
            if line.startswith("$ "):
                yield line[2:]
        elif line.strip() and not line.lstrip().startswith("#"):
            yield line


def commands(line: str) -> Iterator[list[str]]:
    """The single commands of a shell line, without redirections and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in lexer:
        if skip:
            skip = False
        elif word in _SEPARATORS:
            yield words
            words = []
        elif word in _REDIRECTIONS:
            skip = True
        else:
            words.append(word)
    if words:
        yield words


def inline_commands(page: Path) -> Iterator[list[str]]:
    """Commands that are named in a sentence: they may be cut short, but not made up."""
    for text in _INLINE.findall(prose(page)):
        yield shlex.split(" ".join(text.split()))
