"""Which plugins runs of pytest inside of tests have."""

from __future__ import annotations

import functools
from importlib.metadata import entry_points

_WANTED = ("benchmark", "sme2", "xdist", "xdist.looponfail")


@functools.cache
def without_other_plugins() -> str:
    """What leaves out other plugins: they may order tests anew, and take long to import."""
    installed = {entry.name for entry in entry_points(group="pytest11")}
    return " ".join(f"-p no:{name}" for name in sorted(installed.difference(_WANTED)))
