"""Finding llvm-mca, and what is said where there is none that will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.system import llvm_mca
from pytest_sme2.system.llvm_mca import LlvmMca, find_llvm_mca


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("LLVM version 19.1.7", "LLVM 19, which models no core with SME"),
        ("hello", "is not llvm-mca"),
        ("LLVM version 23.1.4", "which reads machine code for llvm-mca, is missing"),
    ],
)
def test_one_that_will_not_do_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, message: str
) -> None:
    program(tmp_path / "bin", "llvm-mca", f"echo '{said}'")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(TargetError, match=message) as caught:
        find_llvm_mca(tmp_path)
    assert "sme2 provision --for bound" in str(caught.value)


def test_none_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TargetError, match=r"No llvm-mca was found\. Run `sme2 provision"):
        find_llvm_mca(tmp_path)


@pytest.mark.parametrize("answer", ["{}", "no JSON", '{"CodeRegions": [{"Name": "0"}]}'])
def test_an_answer_of_another_form_is_an_error(tmp_path: Path, answer: str) -> None:
    program(tmp_path, "mca", f"echo '{answer}'")
    program(tmp_path, "mc", r"printf '\tudf #0\n\tnop\n'")
    broken = LlvmMca((str(tmp_path / "mca"),), (str(tmp_path / "mc"),), "23.1.4")
    with pytest.raises(TargetError, match="cannot be read"):
        broken.model({"first": (0xD503201F,)})


def test_one_that_fails_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    program(tmp_path, "mc", "echo 'error: no such target' >&2; exit 1")
    broken = LlvmMca(("unused",), (str(tmp_path / "mc"),), "23.1.4")
    with pytest.raises(TargetError, match="mc failed: error: no such target"):
        broken.model({"first": (0xD503201F,)})


def real() -> LlvmMca:
    try:
        return find_llvm_mca()
    except TargetError as error:
        pytest.skip(str(error))


def test_blocks_are_modelled_one_by_one() -> None:
    add, outer_product, unknown = 0x8B010000, 0x80812000, 0xFFFFFFFF
    found = real().model(
        {"chain": (add,) * 4, "tile": (outer_product, unknown), "none": (unknown,)}
    )
    assert set(found) == {"chain", "tile"}
    # Each addition needs the one before it.
    assert found["chain"].cycles == pytest.approx(4, abs=0.2)
    assert found["chain"].instructions == 4
    # What it does not know is left out, and not said to be modelled.
    assert found["tile"].instructions == 1
    assert found["tile"].cycles > 0


def test_more_blocks_than_marks_are_modelled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_mca, "_MOST_BLOCKS", 2)
    found = real().model({str(count): (0x8B010000,) * count for count in (1, 2, 3)})
    assert [round(found[name].cycles) for name in ("1", "2", "3")] == [1, 2, 3]
