"""What an emulated program sees of the machine it runs on: the same everywhere.

QEMU in user mode passes most questions on to the host. A library that asks for caches, cores or the
name of the CPU would then choose by the host's answer, and count differently from machine to
machine. QEMU looks for a file in the folder of its option ``-L`` first, so that stands in for such
files. ``/proc/cpuinfo`` is QEMU's own already.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pytest_sme2.system.cache import cache_folder, working_folder
from pytest_sme2.system.locks import locked
from pytest_sme2.system.processes import BASIC_ENVIRONMENT

_CPU = "sys/devices/system/cpu"
# One core without caches that are told of. The CPU is QEMU's "max" (implementer 0, part 0x051).
FILES: dict[str, str] = {
    f"{_CPU}/possible": "0\n",
    f"{_CPU}/present": "0\n",
    f"{_CPU}/online": "0\n",
    f"{_CPU}/kernel_max": "255\n",
    f"{_CPU}/cpu0/regs/identification/midr_el1": "0x00000000000f0510\n",
    f"{_CPU}/cpu0/topology/physical_package_id": "0\n",
    f"{_CPU}/cpu0/topology/cluster_cpus_list": "0\n",
    f"{_CPU}/cpu0/topology/core_siblings_list": "0\n",
    f"{_CPU}/cpu0/topology/package_cpus_list": "0\n",
    f"{_CPU}/cpu0/cpufreq/cpuinfo_max_freq": "1000000\n",
    f"{_CPU}/cpu0/cpufreq/cpuinfo_min_freq": "1000000\n",
    "sys/devices/soc0/image_version": "\n",
    # Nothing of the host's is loaded into it. An Arm machine may name a library here.
    "etc/ld.so.preload": "",
}
# Symbols are looked up when a library is loaded, not when one is first called in an inference.
_VARIABLES = ("LD_BIND_NOW=1",)
# What is set for this process or for QEMU itself, and is not meant for the program.
_HIDDEN = (*BASIC_ENVIRONMENT, "GLIBC_TUNABLES")
_SEED = "1"


def guest_options(cache: Path | None = None) -> tuple[str, ...]:
    """The options of QEMU that pin what the program sees."""
    return (
        *("-L", str(guest_root(cache))),
        *("-seed", _SEED),
        *("-U", ",".join(_HIDDEN)),
        *("-E", ",".join(_VARIABLES)),
    )


def guest_root(cache: Path | None = None) -> Path:
    """The folder with the files that stand in for the host's; made where it is missing."""
    digest = hashlib.sha256(json.dumps(FILES, sort_keys=True).encode()).hexdigest()[:12]
    folder = (cache or cache_folder()) / "tools" / f"guest-{digest}"
    if not folder.exists():
        with locked(folder.with_name(f"{folder.name}.lock"), "making the emulator's files"):
            if not folder.exists():
                with working_folder(folder) as temporary:
                    for name, text in FILES.items():
                        (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                        (temporary / name).write_text(text, encoding="ascii")
                    temporary.rename(folder)
    return folder
