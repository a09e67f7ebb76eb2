"""What could not be made, and the error for the next test that asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_sme2.errors import (
    BuildError,
    ExportError,
    ModelError,
    NotMeasurableError,
    RunError,
    Sme2Error,
)

LASTING = (ModelError, ExportError, BuildError, RunError)
"""Not worth retrying."""


@dataclass(frozen=True)
class Failed:
    """In place of what could not be made."""

    error: Sme2Error

    @property
    def again(self) -> Sme2Error:
        """A model that cannot be exported fails one test; the others that need it are skipped."""
        if isinstance(self.error, (ModelError, ExportError)):
            return NotMeasurableError(f"It failed before: {str(self.error).splitlines()[0]}")
        return self.error
