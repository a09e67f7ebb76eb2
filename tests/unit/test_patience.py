from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.patience import Patience, run_patiently, slowness


def test_a_limit_is_spent_the_slower_the_busier_the_machine_is() -> None:
    assert slowness(lambda: (0.0, 0.0, 0.0)) >= 1
    assert slowness(lambda: (4000.0, 0.0, 0.0)) >= 4000 / 1024
    idle, busy = Patience(-1.0, lambda: 1.0), Patience(1.0, lambda: 1e9)
    assert idle.spent()
    assert not busy.spent()
    assert busy.left == pytest.approx(1.0)


def test_what_hangs_is_ended_and_what_ends_says_what_it_said() -> None:
    done = run_patiently([sys.executable, "-c", "print('said'); raise SystemExit(3)"], 600)
    assert (done.returncode, done.stdout) == (3, "said\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run_patiently([sys.executable, "-c", "import time; time.sleep(3600)"], -1)
