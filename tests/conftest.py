"""What every test may use."""

from __future__ import annotations

# A run inside a test forgets, when it ends, the modules that it was the first to import. What was
# made of cattrs stays, and does not know the errors of a second import.
import cattrs  # noqa: F401

pytest_plugins = ["pytester"]
