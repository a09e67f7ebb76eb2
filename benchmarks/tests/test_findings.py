"""The tables of results agree with the stored baselines."""

from __future__ import annotations

import pytest

from benchmarks.findings import HEADING, TABLES, Table, costs, summary, table


@pytest.mark.parametrize("one", TABLES, ids=lambda one: one.name)
def test_tables_agree_with_the_baselines(one: Table) -> None:
    text = one.path.read_text("utf-8")
    assert one.put(text) == text, "python -m benchmarks.findings --write, then read the page"


def test_every_model_is_counted() -> None:
    def ours(text: str) -> list[str]:
        # ExecuTorch's own examples run only when they are named.
        return [line for line in text.splitlines() if "executorch:" not in line]

    assert len(ours(costs())) == len(ours(table()))


def test_summary_has_one_row_per_real_model() -> None:
    rows = summary().splitlines()
    assert rows[0] == "| model | fp32 | fp16 | int8 | int8_dynamic | int4 |"
    assert "| `edgetam_image_encoder` | 81 of 81 | 2 of 81 | 81 of 81 |  |  |" in rows
    assert not [row for row in rows if "toy_cnn" in row]


def test_every_model_and_the_known_gap_are_in_it() -> None:
    rows = table().removeprefix(HEADING).splitlines()
    assert "| `edgetam_image_encoder` | `fp32@64` | 81 of 81 | 49 | 20 | 1 | 281 |" in rows
    assert "| `edgetam_image_encoder` | `fp16@64` | 2 of 81 | 49 | 128 | 28 | 389 |" in rows
    # Only the kernel census proves these: QP8 is a name that NEON kernels share.
    assert any(row.startswith("| `llama_block_decode` | `int8_dynamic` | 9 of 9 |") for row in rows)
    assert any(row.startswith("| `llama_block_decode` | `int4` | 2 of 9 |") for row in rows)
