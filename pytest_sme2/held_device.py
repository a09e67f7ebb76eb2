"""The device a run works on: chosen when first needed, exchanged when it dies or another is asked.

What is measured on it is the business of ``session.py``; how a phone is leased, of ``targets``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pytest_sme2.errors import (
    ConnectionLostError,
    DeviceGoneError,
    NoDeviceLeftError,
    TargetError,
    UnvouchedError,
)
from pytest_sme2.targets.retry import Leased

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_sme2.results import Fingerprint
    from pytest_sme2.settings import Settings
    from pytest_sme2.targets.base import Target

# What of a fingerprint may name the chip.
_CHIP = ("soc", "cpu", "model")


class HeldDevice:
    """One device at a time, for the whole of a worker's run."""

    def __init__(self, settings: Settings, run: Callable[[], str], say: Callable[[str], None]):
        """``run`` names the run, so that its workers share their phones."""
        self.settings = settings
        self.soc: str | None = None
        """What the running test asks for; None: any device will do."""
        self._run = run
        self._say = say
        self._target: Target | None = None
        self._prepared = False
        self._gone: list[Leased] = []

    @property
    def chosen(self) -> Target:
        """The target as it was chosen; nothing is changed on it yet."""
        if self._target is None:
            self._target = self._choose()
        return self._target

    @property
    def prepared(self) -> Target:
        """The target, ready to run. One of several phones that cannot be reached is passed over."""
        while not self._prepared:
            target = self.chosen
            try:
                target.prepare()
            except ConnectionLostError as error:
                self._retire(error)
            else:
                self._prepared = True
        return self.chosen

    def ask_for(self, soc: str | None) -> bool:
        """From now on a device whose chip's name holds ``soc``; whether that is a change."""
        if soc == self.soc:
            return False
        self.soc = soc
        if soc is not None and self._target is not None and not _has_chip(self._target, soc):
            # Given back first: two workers that wait for each other's phone would wait for ever.
            try:
                self._target.restore()
            except ConnectionLostError as error:
                self._retire(error)
            self._target, self._prepared = None, False
        return True

    def replace(self, error: DeviceGoneError) -> None:
        """Another device of the same kind in place of one that died, or the error."""
        like = self.chosen.fingerprint()
        self._retire(error)
        self._say(f"{error} Its work goes to another device of its kind.")
        try:
            self._target = self._choose(like)
        except TargetError as none:
            raise TargetError(f"{error} No other of its kind could take over. {none}") from error

    def close(self) -> None:
        """Leave every device as it was found, also those that were given up, if they are back."""
        held, self._target, self._prepared = self._target, None, False
        gone, self._gone = self._gone, []
        try:
            if held is not None:
                held.restore()
        finally:
            for target in gone:
                target.patience_seconds = 1.0
                with contextlib.suppress(TargetError):
                    target.restore()

    def _choose(self, like: Fingerprint | None = None) -> Target:
        from pytest_sme2.targets import choose_target

        try:
            target = choose_target(
                self.settings, run=self._run(), soc=self.soc, like=like, progress=self._say
            )
        except NoDeviceLeftError as error:
            if self.soc is None or like is not None or error.retired:
                raise
            raise UnvouchedError(f"no device has a chip named like {self.soc!r}. {error}") from None
        if self.soc is not None and not _has_chip(target, self.soc):
            target.restore()
            raise UnvouchedError(
                f"it asks for a chip named like {self.soc!r}, and {target.name} is another"
            )
        return target

    def _retire(self, error: TargetError) -> None:
        target = self._target
        if not isinstance(target, Leased) or target.lease is None:
            raise error
        target.lease.retire(str(error))
        self._gone.append(target)
        self._target, self._prepared = None, False


def _has_chip(target: Target, soc: str) -> bool:
    facts = dict(target.fingerprint().facts)
    return any(soc.lower() in facts.get(name, "").lower() for name in _CHIP)
