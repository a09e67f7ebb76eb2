"""Discovery, names, and what is said of a model that is broken."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_sme2.errors import ModelError, UsageError
from pytest_sme2.export.registry import ModelEntry, discover
from pytest_sme2.export.variant import Variant, parse_variant
from pytest_sme2.system.files import safe_name
from tests.support import Command

ROOT = Path(__file__).parents[3]

HOSTILE_NAMES = ["../x", "a b", "'", '"', ";rm -rf /", "<script>alert(1)</script>", "-n", "é"]

IMPORT = "from pytest_sme2 import register_model\n"
METHODS = "    def get_eager_model(self): ...\n    def get_example_inputs(self): ...\n"
# Importing it must fail the test: discovery has no business running it.
GOOD = """
raise RuntimeError("imported")
from pytest_sme2 import register_model

@register_model({name!r}, variants=("fp32", "fp16@32"))
class Model:
    pass
"""


def write_model(folder: Path, text: str, name: str = "model.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def only(folder: Path, text: str) -> ModelEntry:
    """The one model that this text registers."""
    (entry,) = discover([write_model(folder / "one", text)]).entries
    return entry


def test_this_repository_s_models_are_found_without_torch() -> None:
    script = (
        "import sys; from pathlib import Path; from pytest_sme2.export.registry import discover;"
        f"registry = discover([Path({str(ROOT / 'models')!r})]);"
        "assert not registry.problems, registry.problems;"
        "print(','.join(registry.names)); print({'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names, heavy = done.stdout.splitlines()
    assert {"toy_cnn", "mobilenet_v3_small"} <= set(names.split(","))
    assert heavy == "set()"


def test_a_literal_decorator_is_read_and_not_run(tmp_path: Path) -> None:
    entry = only(tmp_path, GOOD.format(name="one"))
    assert entry.variants == (Variant("fp32"), Variant("fp16", 32))
    assert entry.folder == tmp_path / "one"
    # Its own folder can be named, too.
    assert discover([tmp_path / "one", tmp_path]).names == ("one",)


EMULATED = (
    IMPORT
    + """
@register_model("net", variants=("fp32", "fp16"), emulated={emulated!r})
class Net: pass
"""
)


@pytest.mark.parametrize(
    ("emulated", "expected"),
    [(None, ["fp32", "fp16"]), (("fp32@64", "int8@32"), ["fp32@64", "int8@32"]), ((), [])],
)
def test_an_emulator_may_run_other_variants(
    tmp_path: Path, emulated: tuple[str, ...] | None, expected: list[str]
) -> None:
    entry = only(tmp_path, EMULATED.format(emulated=emulated))
    assert [str(variant) for variant in entry.defaults(emulated=True)] == expected
    assert [str(variant) for variant in entry.defaults(emulated=False)] == ["fp32", "fp16"]


@pytest.mark.parametrize(
    ("asked", "on_emulator", "on_device"),
    [
        ("fp32", ["fp32@64", "fp32@32"], ["fp32"]),
        ("int8", ["int8@32"], ["int8"]),
        # Not run there by default, but known: at the size of the first one that is.
        ("fp16", ["fp16@64"], ["fp16"]),
        ("fp16@7", ["fp16@7"], ["fp16@7"]),
        ("int4@7", ["int4@7"], ["int4@7"]),
        ("int4", [], []),
    ],
)
def test_precision_without_size_means_the_sizes_of_the_device(
    tmp_path: Path, asked: str, on_emulator: list[str], on_device: list[str]
) -> None:
    entry = only(tmp_path, EMULATED.format(emulated=("fp32@64", "fp32@32", "int8@32")))
    for emulated, expected in ((True, on_emulator), (False, on_device)):
        found = entry.resolve(parse_variant(asked), emulated=emulated)
        assert [str(variant) for variant in found] == expected


@pytest.mark.parametrize(
    "text",
    [
        "from pytest_sme2 import register_model as reg\n@reg('n')\nclass M: pass\n",
        "import pytest_sme2 as p\n@p.register_model(name='n')\nclass M: pass\n",
    ],
)
def test_the_decorator_may_have_another_name(tmp_path: Path, text: str) -> None:
    entry = only(tmp_path, text)
    assert (entry.name, entry.class_name) == ("n", "M")


def test_two_folders_may_call_their_helpers_alike(tmp_path: Path) -> None:
    text = IMPORT + "from part import name\n@register_model({!r})\nclass M:\n    name = name\n"
    for name in ("a", "b"):
        write_model(tmp_path / name, text.format(name) + METHODS)
        write_model(tmp_path / name, f"name = {name!r}\n", "part.py")
    classes = [entry.load() for entry in discover([tmp_path]).entries]
    assert [vars(each)["name"] for each in classes] == ["a", "b"]


def test_one_file_may_register_several_models(tmp_path: Path) -> None:
    write_model(
        tmp_path / "two",
        IMPORT + "@register_model('a')\n@register_model('b')\nclass First: pass\n"
        "@register_model('c')\nclass Second: pass\n",
    )
    registry = discover([tmp_path])
    assert sorted(registry.names) == ["a", "b", "c"]
    assert registry.get("c").class_name == "Second"


@pytest.mark.parametrize(
    ("text", "message", "trace"),
    [
        ("def broken(:\n", "SyntaxError", "def broken(:"),
        ("x = 1\n", "registers no class", ""),
        ("N = 'n'\n@register_model(N)\nclass M: pass\n", "line 3: register_model cannot", ""),
        ("class M: pass\nregister_model('n')(M)\n", "a class with literal arguments", ""),
        ("@register_model('')\nclass M: pass\n", "not a model name", ""),
        ("@register_model('a\\nb')\nclass M: pass\n", "not a model name", ""),
        ("@register_model('x', variants=('fp8',))\nclass M: pass\n", "'fp8' is not a variant", ""),
        ("@register_model('x', variants='fp16')\nclass M: pass\n", "a sequence of strings", ""),
        ("@register_model('x', colour='red')\nclass M: pass\n",
         "unexpected keyword argument 'colour'", ""),
    ],
    ids=[
        "syntax", "none", "variable", "call", "empty", "newline", "variant", "string", "keyword",
    ],
)  # fmt: skip
def test_broken_folder_is_reported_and_hides_no_other(
    tmp_path: Path, text: str, message: str, trace: str
) -> None:
    write_model(tmp_path / "broken", IMPORT + text)
    write_model(tmp_path / "fine", GOOD.format(name="fine"))

    registry = discover([tmp_path])

    assert registry.names == ("fine",)
    (problem,) = registry.problems
    assert problem.name == "broken"
    assert message in problem.message
    assert trace in problem.traceback
    with pytest.raises(ModelError, match=re.escape(message)):
        registry.get("broken")


@pytest.mark.parametrize("second", ["same", "SAME"])
def test_a_name_is_given_once(tmp_path: Path, second: str) -> None:
    write_model(tmp_path / "a", GOOD.format(name="same"))
    write_model(tmp_path / "b", GOOD.format(name=second))

    registry = discover([tmp_path])

    assert registry.names == ("same",)
    assert registry.get("same").folder == tmp_path / "a"
    (problem,) = registry.problems
    assert problem.name == second
    assert str(tmp_path / "a") in problem.message
    assert str(tmp_path / "b") == problem.source


def test_unknown_folders_and_names_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        discover([tmp_path / "nowhere"])
    write_model(tmp_path / "one", GOOD.format(name="one"))
    with pytest.raises(UsageError, match=r"'two' is not a model. Choose one of: one\."):
        discover([tmp_path]).get("two")
    with pytest.raises(UsageError, match=r"'on' is not a model. Did you mean one\?"):
        discover([tmp_path]).get("on")


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_stays_a_name(tmp_path: Path, name: str) -> None:
    assert only(tmp_path, GOOD.format(name=name)).name == name
    assert re.fullmatch(r"[A-Za-z0-9_=][A-Za-z0-9_=.@-]*", safe_name(name))


@given(st.text(min_size=1), st.text(min_size=1))
@example("=41", "A")
@example("a/b", "a=2Fb")
@example("x" * 500 + "1", "x" * 500 + "2")
@example("..", ".")
@example("net-fp16@64", "net-fp16=4064")
def test_file_names_of_different_names_differ(one: str, other: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_=][A-Za-z0-9_=.@-]{0,119}", safe_name(one))
    assert (safe_name(one) == safe_name(other)) == (one == other)


@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
def test_folder_name_that_is_not_utf8_can_be_loaded(tmp_path: Path) -> None:
    text = IMPORT + "@register_model('late')\nclass M:\n" + METHODS
    assert only(tmp_path / os.fsdecode(b"caf\xe9"), text).load().__name__ == "M"


def test_failing_model_shows_its_own_traceback(tmp_path: Path) -> None:
    entry = only(tmp_path, IMPORT + "1 / 0\n@register_model('late')\nclass M: pass\n")
    with pytest.raises(ModelError) as caught:
        entry.load()
    assert 'model.py", line 2' in str(caught.value)
    assert "registry.py" not in str(caught.value)


def test_a_class_that_does_not_keep_the_contract_is_named(tmp_path: Path) -> None:
    half = "class Half:\n    def get_eager_model(self): ...\n"
    entry = only(tmp_path, IMPORT + "@register_model('half')\n" + half)
    with pytest.raises(ModelError, match=r"Half lacks get_example_inputs\(\)"):
        entry.load()


def test_size_is_passed_to_a_class_that_takes_it(tmp_path: Path) -> None:
    makes = "    def __init__(self, size=8): self.size = size\n"
    head = IMPORT + "@register_model('net')\nclass Net:\n"
    sized, fixed = only(tmp_path / "a", head + makes + METHODS), only(tmp_path, head + METHODS)
    assert [vars(sized.instantiate(*size))["size"] for size in ((32,), ())] == [32, 8]
    with pytest.raises(UsageError, match="'@32' is not possible"):
        fixed.instantiate(32)


def test_the_command_lists_models_and_problems(tmp_path: Path, sme2: Command) -> None:
    write_model(tmp_path / "broken", "def broken(:\n")
    write_model(tmp_path / "fine", GOOD.format(name="<script> fine"))

    shown = sme2("models", "--models-folder", tmp_path, code=1).out
    assert "<script> fine" in shown
    assert "fp32,fp16@32" in shown
    assert "broken: 'broken'" in shown
    assert "    def broken(:" in shown

    data = json.loads(sme2("models", "--json", "--models-folder", tmp_path, code=1).out)
    assert [model["name"] for model in data["models"]] == ["<script> fine"]
    assert data["problems"][0]["name"] == "broken"
