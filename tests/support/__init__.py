from collections.abc import Callable
from pathlib import Path
from typing import Any

HANGS = 7200
"""Seconds after which something hangs; where many work, minutes become an hour."""
ETDUMPS = Path(__file__).parents[1] / "data" / "etdumps"
Command = Callable[..., Any]
"""Runs a command of ``sme2``: its words in, what it printed out; ``code`` is its exit code."""
