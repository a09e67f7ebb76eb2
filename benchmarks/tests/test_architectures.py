"""What is changed by hand is changed in form alone."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.architectures import BY_HAND, ZOO
from pytest_sme2.export.imports import import_torchvision
from pytest_sme2.export.registry import discover
from tests.support.needs import needs_export

pytestmark = [needs_export, pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", discover((BY_HAND,)).names)
def test_models_changed_by_hand_answer_as_those_of_the_zoo(name: str) -> None:
    torch = pytest.importorskip("torch")
    import_torchvision()

    def answer(folder: Any) -> Any:
        torch.manual_seed(0)
        model = discover((folder,)).get(name).instantiate()
        network = model.get_eager_model().eval()
        torch.manual_seed(1)
        with torch.no_grad():
            return network(*model.get_example_inputs())

    torch.testing.assert_close(answer(BY_HAND), answer(ZOO), rtol=1e-4, atol=1e-5)
