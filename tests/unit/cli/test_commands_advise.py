from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.cli.commands.advise import _shown, is_open, ranked
from pytest_sme2.profile.beside import keep_shapes
from pytest_sme2.results.evidence import Counts, InferenceCost
from pytest_sme2.results.profile import Cost, Finding, Topic
from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import SCHEMA, CaseRecord, write_record
from pytest_sme2.session.trials import Ran, Trial
from tests.support import ETDUMPS, Command, recorded_runs
from tests.support.gate_examples import emulated
from tests.support.profiles import profile_of


def advice(sme2: Command, model: str, folder: Path, *more: str) -> str:
    return " ".join(sme2("advise", model, "--run", folder, *more).out.split())


def test_what_a_run_directory_holds_is_named(tmp_path: Path, sme2: Command) -> None:
    sme2("advise", "net", "--run", tmp_path / "missing", code=2)
    assert "holds no run of 'net'" in sme2("advise", "net", "--run", tmp_path, code=2).err


def test_an_earlier_emulated_run_recommends_no_data_type(tmp_path: Path, sme2: Command) -> None:
    for variant in ("fp16", "fp32"):
        folder = tmp_path / variant
        folder.mkdir()
        shutil.copy(ETDUMPS / f"cpp_mobile_{variant}_on.etdump", folder / "on.etdump")
        found = replace(emulated(), model="net", variant=variant, kernels={})
        etdumps = {Arm.ON: "on.etdump"}
        keep_shapes(folder / "on.etdump", ETDUMPS.parent / "programs" / "mobile_fp16.pte", print)
        write_record(folder, CaseRecord(SCHEMA, f"net-{variant}", found, None, (), etdumps))

    shown = advice(sme2, "net", tmp_path)
    assert "counts cannot tell: the same outer product takes 1 to 5 cycles" in shown
    assert "A device can: sme2 advise net --device android" in shown
    assert "fp16 2/11 - - 0" in shown
    assert "not on SME2: Fully Connected (NC, F16) GEMM: 9 operators in fp16 (1x16x16x8 by" in shown
    assert "Kernel matrix of ExecuTorch 1.5.1: convolution 1x1, fp16" in shown
    assert "dynamic int8. 1x1 convolutions: ExecuTorch stores" in shown
    assert "what an operator costs in time is not known" in shown
    assert "% of the time" not in shown

    document = json.loads(advice(sme2, "net", tmp_path, "--json"))
    assert document["timed"] is False
    assert [entry["variant"] for entry in document["variants"]] == ["fp16", "fp32"]
    (missed,) = (
        finding for finding in document["variants"][0]["findings"] if finding["topic"] == "missed"
    )
    assert missed["cost"] == {"operators": 9, "share": pytest.approx(9 / 23), "of": "operators"}


def test_advice_quotes_the_kernel_matrix(sme2: Command) -> None:
    sample = Path(__file__).parents[3] / "docs" / "sample" / "emulated"
    assert "convolution 1x1, fp16, 256 rows" in advice(sme2, "toy_cnn", sample)
    document = json.loads(advice(sme2, "toy_cnn", sample, "--json"))
    assert any("NEON" in entry["evidence"] for entry in document["advice"])


def test_what_saves_stands_first_and_what_does_not_has_no_remedy() -> None:
    profile, portable = profile_of(("native_call_silu.out", 10)), Topic.PORTABLE
    found = (
        Finding(portable, "arange", Cost(2, 0.5, "instructions"), "write it", rewrite="form"),
        Finding(portable, "SiLU", Cost(1, 0.3, "instructions"), "write it", rewrite="silu"),
        Finding(portable, "GELU", Cost(1, 0.2, "instructions"), "write it", rewrite="gelu"),
        Finding(portable, "cumsum", Cost(1, 0.1, "instructions"), "write it", rewrite="form"),
        Finding(Topic.MISSED, "Conv", Cost(1, 0.05, "instructions"), "try int8"),
        Finding(Topic.MISSED, "Row", Cost(1, 0.006, "instructions"), "measure it"),
    )

    def ran(amount: int, *left: Finding) -> Ran:
        counts = Counts(instructions=amount)
        return Ran(profile, InferenceCost("max", 512, (), (), counts, Counts()), left)

    before, rest = ran(1000, *found), replace(found[3], cost=Cost(1, 0.05, "instructions"))
    saved = {
        "silu": ran(750),
        "gelu": ran(1100),
        "form": ran(900, found[0], rest),
    }
    trials = [Trial((name,), before, after) for name, after in saved.items()]
    items = ranked({"fp32": before}, {"fp32": trials})
    assert [
        (entry.what.rpartition(": ")[2], is_open(entry), list(tried)) for entry, tried in items
    ] == [
        ("SiLU", True, ["fp32"]),
        ("cumsum", True, ["fp32"]),
        ("Conv", True, []),
        ("arange", False, []),
        ("GELU", False, ["fp32"]),
        # It costs too little to lead.
        ("Row", True, []),
    ]
    (first, *_) = ranked({"fp32": before}, {})
    assert first[0].what.endswith("arange")


def test_what_is_computed_in_vain_stands_after_what_saves_and_only_what_ran_is_compared() -> None:
    def ran(amount: int, *unused: str) -> Ran:
        counts = Counts(instructions=amount)
        cost = InferenceCost("max", 512, (), (), counts, Counts())
        return Ran(profile_of(("native_call_silu.out", 10)), cost, found, unused=unused)

    found = tuple(
        Finding(Topic.PORTABLE, name, Cost(1, 0.4, "instructions"), "write it", rewrite=rewrite)
        for name, rewrite in (("SiLU", "silu"), ("Conv", ""))
    )
    variants = {"fp32": ran(1000), "fp16": ran(800)}
    saved = ran(600, "87% of the work changes no output; compute the others alone")
    trials = {
        "fp32": [Trial(("silu",), variants["fp32"], saved)],
        "fp16": [Trial(("silu",), variants["fp16"], ran(900))],
    }
    items = [entry for entry, _ in ranked(variants, trials)]
    assert [entry.what.rpartition(": ")[2] for entry in items] == [
        "SiLU",
        "87% of the work changes no output",
        "Conv",
    ]
    assert (items[1].remedy, is_open(items[1])) == ("compute the others alone", True)
    # What costs more when it is rewritten is not shown as a choice.
    assert list(_shown(variants, trials)) == ["fp32", "fp16", "fp32 rewritten"]
    assert list(_shown({"fp32": ran(1000)}, {})) == ["fp32"]


def test_a_single_row_on_sme2_is_to_be_measured(tmp_path: Path, sme2: Command) -> None:
    recorded_runs.unpack("gru-fp16", tmp_path)
    printed = advice(sme2, "gru", tmp_path)
    assert "matrix operators on SME2 with a single row: 9 operators, 18.1 % of" in printed
    assert "XNNPACK#10719 measured packed SME2 kernels with one row at 1.4 to 3 times" in printed
