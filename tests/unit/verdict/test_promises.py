"""What a tensor may differ by and still be the accepted one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.results import AS_EXPORTED, Sample
from pytest_sme2.verdict.numerics import sample
from pytest_sme2.verdict.promises import same_sample


@pytest.mark.parametrize(
    ("name", "variant", "still_the_same", "another"),
    [
        ("input 0", "int8", 1e-6, 1e-2),
        ("reference 0", "int8", 1e-5, 0.01),
        ("reference 0", "fp16@64", 2e-3, 0.05),
        ("output 0", "fp32", 1e-5, 1e-3),
        ("output 1", "fp16", 2e-3, 0.05),
        ("output 0", "int8@128", 0.05, 0.3),
        ("output 0", AS_EXPORTED, 1e-5, 1e-3),
    ],
)
def test_the_tolerance_is_that_of_the_tensor(
    name: str, variant: str, still_the_same: float, another: float, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    values, noise = generator.standard_normal((2, 1000))

    def sampled(share: float) -> Sample:
        path = tmp_path / "tensor.bin"
        path.write_bytes((values + share * noise).astype("<f4").tobytes())
        return sample(path, "float32", [1000], name)

    assert same_sample(name, sampled(0), sampled(still_the_same), variant)
    assert not same_sample(name, sampled(0), sampled(another), variant)
