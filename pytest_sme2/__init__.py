"""Performance testing of ExecuTorch models on Arm CPUs with SME2, as a pytest plugin.

The names in ``__all__`` are the public interface; nothing else is promised. Importing this
package is free: each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_sme2.errors import Sme2Error, Sme2Warning
    from pytest_sme2.export.imports import import_torchvision
    from pytest_sme2.export.registry import register_model
    from pytest_sme2.export.sequences import Generation
    from pytest_sme2.export.variant import Variant
    from pytest_sme2.export.weights import settle_batch_norms
    from pytest_sme2.fake_phone.lab import FakeLab, FakePhone, fake_target
    from pytest_sme2.profile.build import profile_frames
    from pytest_sme2.profile.compare import compare
    from pytest_sme2.results.case import Bounds, CaseResult, Check, Limits, Tolerance
    from pytest_sme2.results.evidence import KernelCensus, KernelFamily, Pair
    from pytest_sme2.results.profile import Category, Comparison, Coverage, Executor, Profile
    from pytest_sme2.results.run import Arm, Artifact, Columns, Fingerprint, Run, RunRequest, Turn
    from pytest_sme2.results.timing import Outcome
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.runners.sme2 import Sme2Runner, wheel_runner
    from pytest_sme2.session.analysis import Analysis, analyze_file
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.device import choose_target
    from pytest_sme2.session.gate import Gate
    from pytest_sme2.session.session import Session
    from pytest_sme2.session.settings import Reference, Settings
    from pytest_sme2.targets.base import Target
    from pytest_sme2.targets.phone.target import AndroidTarget
    from pytest_sme2.trace.etdump import read_etdump

__version__ = "0.1.0"

__all__ = [
    "Analysis", "AndroidTarget", "Arm", "Artifact", "Bounds", "Case", "CaseResult", "Category",
    "Check", "Columns", "Comparison", "Coverage", "Executor", "FakeLab", "FakePhone",
    "Fingerprint", "Gate", "Generation", "KernelCensus", "KernelFamily", "Limits", "Outcome",
    "Pair", "Profile", "Reference", "Run", "RunRequest", "Runner", "Session", "Settings",
    "Sme2Error", "Sme2Runner", "Sme2Warning", "Target", "Tolerance", "Turn", "Variant",
    "__version__", "analyze_file", "choose_target", "compare", "fake_target", "import_torchvision",
    "profile_frames", "read_etdump", "register_model", "settle_batch_norms", "wheel_runner",
]  # fmt: skip

_MODULES = {
    "errors": "Sme2Error Sme2Warning",
    "export.imports": "import_torchvision",
    "export.weights": "settle_batch_norms",
    "export.registry": "register_model",
    "export.sequences": "Generation",
    "export.variant": "Variant",
    "fake_phone.lab": "FakeLab FakePhone fake_target",
    "profile.build": "profile_frames",
    "profile.compare": "compare",
    "results.case": "Bounds CaseResult Check Limits Tolerance",
    "results.evidence": "KernelCensus KernelFamily Pair",
    "results.profile": "Category Comparison Coverage Executor Profile",
    "results.run": "Arm Artifact Columns Fingerprint Run RunRequest Turn",
    "results.timing": "Outcome",
    "runners.base": "Runner",
    "runners.sme2": "Sme2Runner wheel_runner",
    "session.analysis": "Analysis analyze_file",
    "session.cases": "Case",
    "session.device": "choose_target",
    "session.gate": "Gate",
    "session.session": "Session",
    "session.settings": "Reference Settings",
    "targets.base": "Target",
    "targets.phone.target": "AndroidTarget",
    "trace.etdump": "read_etdump",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value: object = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return __all__
