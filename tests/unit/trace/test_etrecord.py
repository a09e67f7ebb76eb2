"""ETRecords as data: what they say, and that nothing in them is run."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import EtdumpError
from pytest_sme2.results.run import Frame
from pytest_sme2.session.analysis import analyze_file
from pytest_sme2.trace.etrecord import read_attribution
from tests.support import ETDUMPS

ETRECORDS = ETDUMPS.parent / "etrecords"
# The two belong together: see tests/support/etrecord_program.py.
ETDUMP, ETRECORD = ETRECORDS / "toy.etdump", ETRECORDS / "toy.etrecord"
PROGRAM = "edge_dialect_exported_program/forward"
UPSTREAM = Path(__file__).parents[3] / "docs/upstream/executorch-etrecord-sympify/reproduce.py"


def changed(path: Path, **changes: Callable[[Any], Any]) -> Path:
    """The ETRecord with some of its documents changed; None leaves one out."""
    with zipfile.ZipFile(ETRECORD) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    for key, change in changes.items():
        name = PROGRAM if key == "program" else key
        document = change(json.loads(entries.pop(name) or "null"))
        if document is not None:
            entries[name] = json.dumps(document).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def test_calls_carry_their_aten_operators_and_modules() -> None:
    profile = analyze_file(ETDUMP, etrecord=ETRECORD).profile
    by_label = {member.label: member for member in profile.operators}
    conv = next(member for label, member in by_label.items() if label.startswith("Convolution"))
    assert conv.aten.count("aten.convolution.default") == 2
    assert conv.modules == ("first", "pointwise")
    assert by_label["native_call_cumsum.out"].aten == ("aten.cumsum.default",)
    assert profile.operators[-1].modules == ("last",)


def test_code_in_the_file_is_not_run(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("reproduce", UPSTREAM)
    upstream = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(upstream)
    evil, mark = tmp_path / "evil.etrecord", tmp_path / "code-was-run"
    upstream.write_evil(ETRECORD, evil, mark)
    assert read_attribution(evil) == read_attribution(ETRECORD)
    assert not mark.exists()


@pytest.mark.parametrize(("graph", "method"), [("", "forward"), ("/decode", "decode")])
def test_older_versions_have_one_method_and_others_a_graph_for_each(
    tmp_path: Path, graph: str, method: str
) -> None:
    other = tmp_path / "other.etrecord"
    with zipfile.ZipFile(ETRECORD) as archive, zipfile.ZipFile(other, "w") as target:
        for name in archive.namelist():
            text = archive.read(name)
            if name == "debug_handle_map":
                text = text.replace(b'"forward"', f'"{method}"'.encode())
            target.writestr(name.replace("program/forward", f"program{graph}"), text)
    assert read_attribution(other, method) == read_attribution(ETRECORD)
    with pytest.raises(EtdumpError, match="not an ETRecord that can be read"):
        read_attribution(other, "another")


def test_nodes_without_a_module_or_an_operator(tmp_path: Path) -> None:
    def change(program: Any) -> Any:
        nodes = program["graph_module"]["graph"]["nodes"]
        nodes[0]["metadata"]["nn_module_stack"] = "a,first[0],torch.F(int, str);b,x(1, 2).y,T"
        del nodes[1]["metadata"]["debug_handle"]
        del nodes[2]["metadata"]["nn_module_stack"]
        nodes[3]["target"] = "_operator.getitem"
        nodes[4]["target"] = "torch.ops.my.op.default"
        return program

    found = read_attribution(changed(tmp_path / "a.etrecord", program=change))
    assert found.modules[0] == ("x(1, 2).y",)
    assert found.aten[0] == ("aten.convolution.default", "aten.convolution.default")
    assert 1 not in found.aten
    assert found.aten[2] == ("my.op.default",)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"program": lambda document: None}, "no edge program"),
        ({"debug_handle_map": lambda document: None}, "no debug handles"),
        ({"debug_handle_map": lambda document: {"other": {}}}, "KeyError"),
        ({"debug_handle_map": lambda document: {"forward": {"x": 1}}}, "ValueError"),
        ({"debug_handle_map": lambda document: {"forward": {"1": 1.5}}}, "TypeError"),
        ({"debug_handle_map": lambda document: {"forward": [1]}}, "AttributeError"),
        ({"program": lambda document: []}, "TypeError"),
        ({"program": lambda document: {"graph_module": {}}}, "KeyError"),
    ],
)
def test_damage_is_one_error_with_a_remedy(
    tmp_path: Path, changes: dict[str, Callable[[Any], Any]], problem: str
) -> None:
    with pytest.raises(EtdumpError, match=rf"a\.etrecord.*{problem}.*was exported") as caught:
        read_attribution(changed(tmp_path / "a.etrecord", **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"this is not an ETRecord", ETRECORD.read_bytes()[:-30]])
def test_what_is_not_an_archive(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.etrecord"
    path.write_bytes(data)
    with pytest.raises(EtdumpError, match=r"a\.etrecord.*is not an ETRecord"):
        read_attribution(path)
    with pytest.raises(EtdumpError, match=r"cannot be read: No such file"):
        read_attribution(tmp_path / "b.etrecord")


def test_a_place_is_the_innermost_line_and_the_way_to_it_is_the_users_own(tmp_path: Path) -> None:
    lines = ("/u/a.py", 45, "forward"), ("/u/a.py", 35, "scan"), ("/x/site-packages/b.py", 8, "act")
    inner = ("/x/site-packages/torch/nn/functional.py", 9, "gelu")
    trace = "\n".join(
        f'  File "{f}", line {n}, in {name}\n    code{n}' for f, n, name in (*lines, inner)
    )

    def change(program: Any) -> Any:
        for node in program["graph_module"]["graph"]["nodes"]:
            node["metadata"]["stack_trace"] = trace
        return program

    found = read_attribution(changed(tmp_path / "a.etrecord", program=change)).origins[1]
    assert (found.file, found.line, found.code) == ("/x/site-packages/b.py", 8, "code8")
    assert found.way == (Frame(*lines[0]), Frame(*lines[1]))


def test_the_origin_of_an_operator_is_its_line_in_the_model() -> None:
    found = read_attribution(ETRECORDS / "toy.etrecord").origins
    cumsum = next(origin for origin in found.values() if origin.written == "aten.cumsum")
    assert (cumsum.module_type, cumsum.file, cumsum.line) == ("Toy", "etrecord_program.py", 27)
    assert "torch.cumsum" in cumsum.code
    assert not cumsum.constant
