"""Performance testing of ExecuTorch models on Arm CPUs with SME2, as a pytest plugin.

Importing this package is free: nothing heavier than the standard library is loaded here.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
