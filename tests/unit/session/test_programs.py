"""Cases of programs without model code: one for each file, with a reason where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.errors import ProgramError, UsageError
from pytest_sme2.export.registry import Registry
from pytest_sme2.results.run import AS_EXPORTED, Fingerprint, TensorSpec
from pytest_sme2.session.cases import (
    Case,
    check_names,
    chosen_programs,
    program_case,
    program_cases,
    select_cases,
)
from pytest_sme2.session.run_directory import run_command
from pytest_sme2.session.settings import Settings
from pytest_sme2.verdict.baselines import baseline_path

PROGRAMS = Path(__file__).parents[2] / "data" / "programs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("toy_fp16.pte", "toy_int8.pte"):
        shutil.copy(PROGRAMS / name, tmp_path)
    return tmp_path


def altered(name: str, old: bytes, new: bytes) -> bytes:
    content = (PROGRAMS / name).read_bytes()
    assert old in content
    assert len(old) == len(new)
    return content.replace(old, new)


def run_again(case: Case) -> str:
    return run_command(case, Settings(model_folders=(Path("models"),)), "emulated")


def reasons(pattern: str) -> dict[str, str | None]:
    return {case.model: case.problem for case in program_cases([pattern], (1,))}


def test_every_program_is_a_case_and_an_odd_one_has_its_reason(folder: Path) -> None:
    whole = (PROGRAMS / "toy_int8.pte").read_bytes()
    other = altered("toy_int8.pte", b"XnnpackBackend", b"CoreML_Backend")
    odd = {
        "cut": (whole[: len(whole) // 2], "the file was cut off"),
        "empty": (b"", "the file is empty"),
        "newer": (whole[:4] + b"ET13" + whole[8:], "the identifier ET12 is missing"),
        "other": (other, "needs CoreML_Backend, which the runner does not have"),
    }
    for name, (content, _) in odd.items():
        (folder / f"{name}.pte").write_bytes(content)

    cases = program_cases([str(folder / "*.pte")], (1,))
    found = {case.model: case.problem for case in cases}

    assert {case.variant_name for case in cases} == {AS_EXPORTED}
    assert [case.id for case in cases][1] == "empty-broken"
    assert list(found) == ["cut", "empty", "newer", "other", "toy_fp16", "toy_int8"]
    assert found["toy_fp16"] is None
    assert found["toy_int8"] is None
    for name, (_, reason) in odd.items():
        assert str(folder / f"{name}.pte") in str(found[name])
        assert reason in str(found[name])


def test_every_method_is_a_case_and_forward_keeps_the_name_of_the_program(tmp_path: Path) -> None:
    net = Path(shutil.copy(PROGRAMS / "methods.pte", tmp_path / "net.pte"))
    (tmp_path / "phases.pte").write_bytes(altered("methods.pte", b"forward", b"prefill"))

    cases = {case.id: case for case in program_cases([str(tmp_path / "*.pte")], (1,))}

    assert {case_id: case.method for case_id, case in cases.items()} == {
        "net-as exported": "forward",
        "net:scale-as exported": "scale",
        "phases:prefill-as exported": "prefill",
        "phases:scale-as exported": "scale",
    }
    for case in cases.values():
        assert (case.program.method, case.program.model) == (case.method, case.model)
    assert program_case(net).id == "net-as exported"
    again = program_case(net, method="scale")
    assert again.id == "net:scale-as exported"
    assert run_again(again) == f"sme2 run {net} --method scale --device emulated"
    path = baseline_path(tmp_path, again.model, AS_EXPORTED, Fingerprint("emulated", ()))
    assert path.name == "net=3Ascale-as-exported.json"


def test_a_method_that_is_not_there_is_a_usage_error_that_names_the_others(tmp_path: Path) -> None:
    phases = tmp_path / "phases.pte"
    phases.write_bytes(altered("methods.pte", b"forward", b"prefill"))
    with pytest.raises(UsageError, match=r"no method 'decode'. It has: prefill, scale"):
        program_case(phases, method="decode")
    with pytest.raises(UsageError, match=r"several methods. Choose one with --method: prefill, sc"):
        program_case(phases)


def test_inputs_and_expected_outputs_are_taken_from_beside_the_program(folder: Path) -> None:
    program = folder / "toy_fp16.pte"
    case = program_case(program, method="forward")
    # A program of one method names none.
    assert (case.id, case.method, case.program.method) == ("toy_fp16-as exported", None, None)
    plain = case.program
    assert (plain.variant, plain.input_files, plain.reference_files) == (AS_EXPORTED, (), ())
    assert plain.inputs == (TensorSpec("float16", (1, 3, 16, 16)),)

    given = folder / "toy_fp16.input_0.bin"
    given.write_bytes(np.zeros((1, 3, 16, 16), "float16").tobytes())
    expected = folder / "toy_fp16.reference_0.bin"
    expected.write_bytes(np.zeros((1, 10), "float16").tobytes())
    # Two programs are here, so this is nobody's.
    (folder / "input_0.bin").write_bytes(b"")
    found = program_case(program).program
    assert (found.input_files, found.reference_files) == ((given,), (expected,))
    other = program_case(folder / "toy_int8.pte").program
    assert other.input_files == ()
    alone = folder / "alone"
    alone.mkdir()
    (alone / "input_0.bin").write_bytes(bytes(1536))
    only = program_case(Path(shutil.copy(program, alone))).program
    assert only.input_files == (alone / "input_0.bin",)

    given.write_bytes(b"1")
    with pytest.raises(ProgramError, match=r"toy_fp16\.input_0\.bin has 1 bytes.*have 1536 bytes"):
        program_case(program)


def test_files_of_one_name_are_told_apart_by_their_folders(folder: Path) -> None:
    for part in ("phone", "tablet"):
        (folder / part).mkdir()
        shutil.copy(PROGRAMS / "toy_fp16.pte", folder / part)
    cases = program_cases([str(folder / "*" / "*.pte"), str(folder / "*.pte")], (1, 2))
    names = [case.model for case in cases if case.threads == 1]
    assert names == ["toy_fp16", "tablet/toy_fp16", f"{folder.name}/toy_fp16", "toy_int8"]
    assert len({case.id for case in cases}) == 8
    assert all(case.program is not None and case.program.model == case.model for case in cases)


def test_what_is_not_there_is_a_usage_error_and_a_name_may_have_brackets(tmp_path: Path) -> None:
    odd = shutil.copy(PROGRAMS / "toy_fp16.pte", tmp_path / "a[1].pte")
    assert list(reasons(str(odd))) == ["a[1]"]
    (tmp_path / "a[1].pte").unlink()
    with pytest.raises(UsageError, match="There is no program"):
        program_cases([str(tmp_path / "*.pte")], (1,))
    with pytest.raises(UsageError, match="There is no program"):
        program_case(tmp_path / "none.pte")


def chosen(folder: Path, *models: str, **narrowed: tuple[str, ...]) -> list[str]:
    settings = Settings(models=models, programs=(str(folder / "*.pte"),))
    programs = chosen_programs(settings)
    check_names(Registry(()), programs, settings)
    cases = select_cases(Registry(()), programs, settings, emulated=True, **narrowed)
    return [case.model for case in cases]


def test_programs_are_chosen_like_models(folder: Path) -> None:
    assert chosen(folder) == ["toy_fp16", "toy_int8"]
    assert chosen(folder, "toy_int8") == ["toy_int8"]
    assert chosen(folder, str(folder / "toy_fp16.pte")) == ["toy_fp16"]
    assert chosen(folder, models=("toy_int8",)) == ["toy_int8"]
    # They have no variants to choose from.
    assert chosen(folder, variants=("fp32",)) == []
    with pytest.raises(UsageError, match="'nothing' is not a model"):
        chosen(folder, "nothing")


def test_the_command_that_runs_a_program_again_names_the_file(folder: Path) -> None:
    program, cut = folder / "toy_fp16.pte", folder / "cut.pte"
    whole = f"sme2 run {program} --device emulated --threads 2"
    assert run_again(program_case(program, 2)) == whole
    cut.write_bytes(b"")
    (case,) = program_cases([str(cut)], (1,))
    assert run_again(case) == f"sme2 run {cut} --device emulated"
