"""No unquoted word in a phone's shell: held by reading the package's own code.

That no program is started through a shell of this machine is ruff's to see (S602, S604, S605).
"""

from __future__ import annotations

import ast
import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.runners.base import ProcessFiles
from pytest_sme2.targets.phone.adb import quote
from pytest_sme2.targets.phone.processes import RUN_MARK, PhoneRun, _kill

ROOT = Path(__file__).parents[3]
PACKAGE = sorted((ROOT / "pytest_sme2").rglob("*.py"))

# These make whole scripts, and their own tests hold them to it; see the end of this file.
SCRIPTS = {"started.script", "process.tail", "_kill", "_showing", "read_cores_under_load"}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def unquoted(source: str) -> list[str]:
    """Every command for a phone that holds something that was not quoted."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for call in calls(function):
            match call.func:
                case (
                    ast.Attribute(attr="shell")
                    | ast.Attribute(attr="check", value=ast.Attribute(attr="device"))
                ) if not is_quoted(call.args[0], function):
                    found.append(f"{call.lineno}: {ast.unparse(call.args[0])}")
    return found


def is_quoted(node: ast.expr, function: ast.FunctionDef) -> bool:
    """A vector of words, which is quoted on its way, or text of our own with quoted words in it."""
    match node:
        case ast.Constant() | ast.List() | ast.Tuple():
            return True
        case ast.JoinedStr():
            return all(is_quoted(part, function) for part in node.values)
        case ast.FormattedValue():
            return is_quoted(node.value, function)
        case ast.Call(func=ast.Attribute(attr="join", value=ast.Constant()), args=[words]):
            return isinstance(words, ast.GeneratorExp) and is_quoted(words.elt, function)
        case ast.Call(func=called):
            return ast.unparse(called) in {"quote", "list", "_put_back", *SCRIPTS}
        case ast.Name() if node.id.isupper():
            return True
        case ast.Name():
            values = [
                statement.value
                for statement in ast.walk(function)
                if isinstance(statement, ast.Assign)
                and [ast.unparse(target) for target in statement.targets] == [node.id]
            ]
            return bool(values) and all(is_quoted(value, function) for value in values)
    return False


def test_every_word_for_a_phone_is_quoted() -> None:
    assert len(PACKAGE) > 100
    for path in PACKAGE:
        source = path.read_text(encoding="utf-8")
        # adb.py has the one place where a vector is quoted and text is sent as it is.
        if path.name != "adb.py" and ("shell" in source or "device.check" in source):
            assert unquoted(source) == [], path
            # Nobody goes past AdbDevice.shell.
            assert not any(word in source for word in ("shell,v2", '"exec:')), path


@pytest.mark.parametrize(
    "command",
    [
        "name",
        "f'rm {name}'",
        "'rm ' + name",
        "'rm {}'.format(name)",
        "'rm %s' % name",
        "' '.join(names)",
        "'; '.join(f'rm {name}' for name in names)",
        "shlex.quote(name)",
        "local",
        "str(name)",
    ],
)
def test_an_unquoted_word_would_be_found(command: str) -> None:
    body = "local = f'rm {name}'\n    self.device."
    for method in ("shell", "check"):
        assert unquoted(f"def act(self, name, names):\n    {body}{method}({command})\n")
    assert not unquoted(f"def act(self, name):\n    {body}shell(['rm', name])\n")


NASTY = ["a b", "a;reboot", "$(reboot)", "`reboot`", "a'b", 'a"b', "a\nb", "*", "~", "", "ä b"]


def test_a_quoted_word_is_one_word_to_a_shell() -> None:
    command = ["sh", "-c", quote(["printf", "%s|", *NASTY, "end"])]
    done = subprocess.run(command, capture_output=True, timeout=600, check=True)
    assert done.stdout.decode() == "|".join([*NASTY, "end", ""])


@pytest.mark.parametrize("word", NASTY)
@pytest.mark.parametrize("field", ["name", "place", "home", "result"])
def test_a_run_has_no_place_that_needs_quotes(field: str, word: str) -> None:
    facts = {"name": "n", "place": "/p", "home": "/h", "result": "/p/r", field: word}
    files = ProcessFiles(
        model="m", inputs=(), result=facts.pop("result"), etdump=None, outputs=None
    )
    # The fields beside these do not matter here.
    others = {
        entry.name: 1
        for entry in dataclasses.fields(PhoneRun)
        if entry.name not in (*facts, "command", "files")
    }
    with pytest.raises(ValueError, match="is not a file name of a run on a phone"):
        PhoneRun(**facts, command=("true",), files=files, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", NASTY)
def test_what_is_looked_for_on_a_phone_is_one_word(word: str) -> None:
    command = _kill(word)
    mark = quote([f"{RUN_MARK}={word}"])
    assert f"grep -l {mark} /proc/" in command
