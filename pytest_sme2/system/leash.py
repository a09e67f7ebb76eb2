"""Ends programs whose starter was killed: nobody is left then who could do it."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import threading

# Reads "+ GROUP" and "- GROUP" until the writer is gone, and then ends the groups that are left.
# In the shell, because it must outlive this process, cost nothing, and be there on every system.
_SHELL = """
while read -r sign group; do
  if [ "$sign" = + ]; then
    set -- "$@" "$group"
  else
    for each; do shift; [ "$each" = "$group" ] || set -- "$@" "$each"; done
  fi
done
for each; do kill -9 "-$each"; done
"""


class _Leash:
    """One shell for all programs of this process, started with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._groups: set[int] = set()

    def tie(self, group: int) -> None:
        """End this process group when this process ends, however it does."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+ {group}\n")

    def untie(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._tell(f"- {group}\n")

    def _tell(self, line: str) -> None:
        if self._shell is not None and self._owner == os.getpid():
            with contextlib.suppress(BrokenPipeError):
                self._write(line)
                return
            # Somebody ended it; another one takes over what runs.
            self._let_go()
        # Without a shell a program is as free as it would be without this module.
        with contextlib.suppress(OSError):
            self._start()
            self._write("".join(f"+ {group}\n" for group in self._groups))

    def _start(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )
        self._owner = os.getpid()
        atexit.register(self._let_go)

    def _write(self, text: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            os.write(self._shell.stdin.fileno(), text.encode())

    def _let_go(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None and self._owner == os.getpid():
            with contextlib.suppress(OSError):
                shell.communicate()
        atexit.unregister(self._let_go)


_leash = _Leash()
tie, untie = _leash.tie, _leash.untie
