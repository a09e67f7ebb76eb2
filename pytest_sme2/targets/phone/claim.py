"""A phone's own lease: a file on the phone that says which machine uses it.

Locks on this machine keep its processes apart (``leases.py``). A phone can be reached from several
machines, by a shared adb server or over the network, and only the phone itself is seen by all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import uuid
from pathlib import Path

from pytest_sme2.errors import BusyError, TargetError
from pytest_sme2.system.locks import user_name
from pytest_sme2.system.reading import json_value
from pytest_sme2.targets.phone.adb import AdbDevice, quote
from pytest_sme2.targets.phone.answers import OtherClaim, parse_claim

# Beside the folder that gets cleaned, so that cleaning does not remove it.
CLAIM = "/data/local/tmp/pytest-sme2-lease.json"
# A machine that is switched off cannot remove its claim. It renews it before every run.
IDLE_SECONDS = 900


class Claim:
    """This process's claim on one phone, made when this is created.

    ``lock`` is the lock file that this process holds for the phone. A claim that was made under the
    same lock is that of a process that has ended.

    Raises:
        BusyError: another machine uses the phone.
    """

    def __init__(self, device: AdbDevice, lock: Path) -> None:
        self.device = device
        status = lock.stat()
        self._place = f"{socket.gethostname()}:{status.st_dev}:{status.st_ino}"
        self.text = json.dumps(
            {
                "host": socket.gethostname(),
                "user": user_name(),
                "pid": os.getpid(),
                "lock": self._place,
                "token": uuid.uuid4().hex,
            }
        )
        self._make()

    def _make(self) -> None:
        for _ in range(3):
            other = self._try()
            if other is None:
                return
            known = read_claim(other.text)
            if known.get("lock") != self._place and other.idle_seconds < IDLE_SECONDS:
                raise BusyError(
                    f"{self.device.serial} is used by {holder(known)}; the last sign of that is "
                    f"{other.idle_seconds} s old. Wait for it. If it is gone: "
                    f"adb -s {self.device.serial} shell rm {CLAIM}"
                )
            self._remove(other.sha256)
        raise BusyError(
            f"{self.device.serial} is wanted by several machines at the same time. Run again."
        )

    def _try(self) -> OtherClaim | None:
        """None if the phone is ours now."""
        # With noclobber the shell makes the file only if there is none.
        done = self.device.shell(
            f"if (set -C; printf %s {quote([self.text])} > {CLAIM}) 2>/dev/null; then echo made; "
            f'else echo "$(date +%s) $(stat -c %Y {CLAIM}) $(sha256sum < {CLAIM})"; '
            f"head -c 1000 {CLAIM}; fi"
        )
        if done.text == "made\n":
            return None
        other = parse_claim(done.text)
        if other is None:
            problem = (done.error_text or done.text).partition("\n")[0]
            raise TargetError(
                f"{self.device.serial} cannot keep the file {CLAIM}: {problem}. "
                "Free space on the phone, and make sure that its shell may write there."
            )
        return other

    def _remove(self, sha256: str) -> None:
        """Remove the claim with this content, and no other that was made meanwhile."""
        aside = quote([f"{CLAIM}.{uuid.uuid4().hex}"])
        self.device.shell(
            f"mv {CLAIM} {aside} && {{ found=$(sha256sum < {aside}); "
            f'[ "${{found%% *}}" = {quote([sha256])} ] || mv {aside} {CLAIM}; }}; rm -f {aside}'
        )

    def renew(self) -> None:
        """Say that the phone is still used; raises BusyError if another machine has taken it."""
        ours = f'[ "$(cat {CLAIM})" = {quote([self.text])} ] && touch {CLAIM}'
        if self.device.shell(ours).code != 0:
            # Somebody may have removed it. Then it is made again.
            self._make()

    def release(self) -> None:
        """Remove it. A phone that cannot be reached keeps it until this machine comes again."""
        with contextlib.suppress(TargetError):
            self._remove(hashlib.sha256(self.text.encode()).hexdigest())


def read_claim(text: str) -> dict[str, object]:
    """What a claim says; nothing where somebody else wrote the file."""
    with contextlib.suppress(TargetError):
        known = json_value(text, CLAIM, remedy="", error=TargetError)
        if isinstance(known, dict):
            return known
    return {}


def holder(known: dict[str, object]) -> str:
    if not known:
        return "an unknown machine"
    user, host, pid = (str(known.get(name))[:40] for name in ("user", "host", "pid"))
    return f"{user} on {host} (process {pid})"
