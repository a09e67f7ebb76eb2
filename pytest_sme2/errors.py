"""The errors a user can see. Every message says what is wrong, where, and what to do."""

from __future__ import annotations

import json

LONGEST_MESSAGE = 4000
SOURCE = " @ git+https://github.com/pytest-sme2/pytest-sme2"
"""Where pip gets the package; empty once a registry has it (`.ci/package.py --published`)."""


def install(extra: str = "") -> str:
    """The command that installs the package: pages and workflows say the same."""
    return f"pip install 'pytest-sme2{extra and f'[{extra}]'}{SOURCE}'"


def plain(text: str) -> str:
    r"""Text that a terminal only shows: what would move the cursor or worse becomes ``\u001b``.

    Names, answers of devices and words of files end up on terminals and in logs of CI systems.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else json.dumps(letter)[1:-1]
        for letter in text
    )


class Sme2Error(Exception):
    """The base class of all errors that this package raises on purpose.

    ``exit_code`` is what the ``sme2`` command returns for it: 1 a failed check, 2 a usage error
    or a damaged file, 3 something about the device or the environment.
    """

    exit_code = 3

    def __str__(self) -> str:
        r"""The message; a very long one is cut in the middle.

        Bytes of a file name that are not text are written as ``\udcff``, because a message must
        pass through logs and from one process to another.
        """
        text = plain(super().__str__())
        if len(text) <= LONGEST_MESSAGE:
            return text
        half = (LONGEST_MESSAGE - 50) // 2
        return f"{text[:half]} … ({len(text) - 2 * half} letters left out) … {text[-half:]}"


class UsageError(Sme2Error):
    """The user asked for something that does not exist or does not fit together."""

    exit_code = 2


class MissingExtraError(Sme2Error):
    """A stage needs a package of an optional extra."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: {install(extra)}"
        )
        self.package = package
        self.extra = extra


class ModelError(Sme2Error):
    """A model folder is broken, or a model misbehaves."""


class ExportError(Sme2Error):
    """A model could not be turned into a program."""


class BuildError(Sme2Error):
    """A runner could not be built or found."""


class TargetError(Sme2Error):
    """A device cannot be used, or was lost."""


class ConnectionLostError(TargetError):
    """The device or its adb server disappeared: try again from the start."""


class NotMeasurableError(TargetError):
    """The target cannot measure what a test needs; the test is skipped, with the reason."""


class DeviceGoneError(TargetError):
    """The device did not come back after its connection was lost; only another one can help."""


class DeviceTimeoutError(TargetError):
    """A command on the device did not finish in its time."""


class RunError(Sme2Error):
    """The runner failed on the device: crashed, hung, or refused its input."""


class FileError(Sme2Error):
    """A file that was given is damaged, or is of another kind."""

    exit_code = 2


class EtdumpError(FileError):
    """An ETDump file is truncated, corrupt, or not an ETDump."""


class ProgramError(FileError):
    """A ``.pte`` file is truncated, corrupt, or not a program."""


class ElfError(FileError):
    """A program or library is not an ELF file, or is damaged."""


class LibraryError(FileError):
    """A library, or an archive with libraries in it, is damaged, hostile or too large."""


class EvidenceError(Sme2Error):
    """The runs do not show SME2 on and off as requested."""

    exit_code = 1


class BaselineError(Sme2Error):
    """A baseline is corrupt, from a newer schema, or belongs to something else."""


class StorageError(Sme2Error):
    """A file or folder cannot be written: no room, no permission, no home."""


class BusyError(StorageError):
    """Another process holds a lock that this one needs."""


class BundleError(FileError):
    """A bundle is damaged, or is not a bundle."""


class Sme2Warning(UserWarning):
    """Something that the user should know, but that does not fail a test."""


LASTING = (ModelError, ExportError, BuildError, RunError)
"""Of a case: what would fail again."""
