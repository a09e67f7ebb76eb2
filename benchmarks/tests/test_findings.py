"""The page on findings says what the stored baselines say."""

from __future__ import annotations

from benchmarks.findings import HEADING, PAGE, page, table


def test_the_table_is_that_of_the_baselines() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "python -m benchmarks.findings --write, then read the page"


def test_every_model_and_the_known_gap_are_in_it() -> None:
    rows = table().removeprefix(HEADING).splitlines()
    assert "| `edgetam_image_encoder` | `fp32@256` | 81 of 81 | 49 | 20 | 1 | 281 |" in rows
    assert "| `edgetam_image_encoder` | `fp16@128` | 2 of 81 | 49 | 128 | 28 | 389 |" in rows
    # Only the kernel census proves these: QP8 is a name that NEON kernels share.
    assert any(row.startswith("| `llama_block_decode` | `int8_dynamic` | 9 of 9 |") for row in rows)
    assert any(row.startswith("| `llama_block_decode` | `int4` | 2 of 9 |") for row in rows)
