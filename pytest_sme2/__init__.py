"""Performance testing of ExecuTorch models on Arm CPUs with SME2, as a pytest plugin.

Importing this package is free: nothing heavier than the standard library is loaded here, and
``register_model`` is fetched only where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_sme2.export.registry import register_model

__version__ = "0.1.0"

__all__ = ["__version__", "register_model"]


def __getattr__(name: str) -> object:
    if name == "register_model":
        from pytest_sme2.export.registry import register_model

        return register_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
