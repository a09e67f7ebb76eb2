"""What every test may use."""

from __future__ import annotations

# A run inside this process forgets what it has imported, and numpy cannot be imported twice.
import pytest_sme2.plugin.conclusion
import pytest_sme2.session.session  # noqa: F401

pytest_plugins = ["pytester"]
