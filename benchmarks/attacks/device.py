"""A plugin of pytest: sessions of its run use a pretended device with a virtual clock.

What an attack changes about the device is in one variable of the environment, as JSON.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.attacks.stage import VARIABLE
from pytest_sme2.results.run import Arm
from tests.support.pretended_device import PretendedDevice, pretend, program

_TOY, _OTHER = program("toy"), program("other")
_MILLISECONDS = {Arm.ON: 30.0, Arm.OFF: 90.0}


def _install(chosen: dict[str, Any]) -> None:
    """``on`` and ``off``: how many times longer the program takes, which is another one then.

    ``inputs``: what the usual inputs are multiplied by. ``artifact``: other facts of the program.
    ``machine``: of the device.
    """
    slower = {arm: chosen.get(arm, 1.0) for arm in Arm}
    current = _TOY if set(slower.values()) == {1.0} and not chosen.get("other") else _OTHER
    if "inputs" in chosen:
        file = Path(f"input-{chosen['inputs']}.bin").absolute()
        values = np.random.default_rng(1).normal(size=current.inputs[0].shape)
        file.write_bytes((values * chosen["inputs"]).astype("<f4").tobytes())
        current = replace(current, input_files=(file,))
    times: dict[str, Mapping[Arm, float]] = {
        program.sha256: {arm: usual * 1e6 * by[arm] for arm, usual in _MILLISECONDS.items()}
        for program, by in ((_TOY, dict.fromkeys(Arm, 1.0)), (_OTHER, slower))
    }
    device = PretendedDevice(times, **{"seed": 2, **chosen.get("machine", {})})
    current = replace(current, **chosen.get("artifact", {}))
    pretend(SimpleNamespace(setattr=builtins.setattr), device, current, _TOY)


_install(json.loads(os.environ.get(VARIABLE, "{}")))
