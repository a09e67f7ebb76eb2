"""What a phone is, and what it lets a shell do: for somebody who sees it for the first time."""

from __future__ import annotations

from pytest_sme2.errors import ConnectionLostError, DeviceTimeoutError, TargetError
from pytest_sme2.targets.phone.answers import parse_page_size, parse_parts
from pytest_sme2.targets.phone.silicon import kinds
from pytest_sme2.targets.phone.target import AndroidTarget

# Every part may be missing or forbidden on a phone.
_READ = (
    "getconf PAGE_SIZE || grep -m1 KernelPageSize /proc/self/smaps",
    "getenforce",
    "cat /proc/self/attr/current",
    "id",
)
_READ_ALL = "; echo ==; ".join(f"{{ {part}; }} 2>/dev/null" for part in _READ)


def phone_facts(target: AndroidTarget) -> dict[str, str]:
    """Facts of a prepared phone, in words."""
    # Android ends the name of a domain with a zero byte.
    said = target.device.shell(_READ_ALL).text.replace("\0", "")
    page, selinux, domain, user = (part.strip()[:200] for part in parse_parts(said, len(_READ)))
    known, heat = target.properties, target.thermometer.read()
    facts = {
        "Android": f"{known.get('ro.build.version.release') or '?'}, "
        f"{known.get('ro.build.fingerprint') or 'an unknown build'}",
        "SELinux": f"{selinux or 'unknown'}{f' ({domain})' if domain else ''}",
        "SME vector length": "unknown" if target.vector is None else f"{target.vector} bits",
        "SoC": target.soc,
        "cores": _cores(target),
        "heat": str(heat) if heat.status is not None else "Android's thermal status cannot be read",
        "kernel": target.silicon.kernel,
        "model": dict(target.fingerprint().facts)["model"],
        "page size": parse_page_size(page),
        "serial": target.serial,
        "shell": user or "unknown",
        "storage": f"{target.storage.free_bytes() / 1e6:.0f} MB free in /data/local/tmp",
        **_power(target),
    }
    return dict(sorted(facts.items()))


def _cores(target: AndroidTarget) -> str:
    speeds = {core.number: core.max_khz for core in target.cores}
    said = []
    for kind in kinds(target.cores):
        mask = f"{sum(1 << core for core in kind):x}"
        pinned = target.device.shell(["taskset", mask, "true"]).code == 0
        numbers = ",".join(map(str, kind))
        word = "can be pinned" if pinned else "cannot be pinned"
        said.append(f"{numbers} at {speeds[kind[0]] / 1000:.0f} MHz ({word})")
    return f"{target.silicon.cores()}; " + ("; ".join(said) or "their speeds cannot be read")


def _power(target: AndroidTarget) -> dict[str, str]:
    """What can be set, tried out: a mode is switched on and everything restored."""
    power = target.power
    try:
        power.apply("boost", fixed_performance=True)
        fixed = power.fixed_performance
        power.restore()
        settings = "can be read, changed and restored"
    except (ConnectionLostError, DeviceTimeoutError):
        raise
    except TargetError as error:
        settings, fixed = str(error), False
    # As it was prepared.
    power.apply(target.power_mode, fixed_performance=target.wants_fixed_performance)
    awake = target.device.shell("dumpsys power | grep -m1 mStayOn=").text.strip()
    return {
        "power settings": settings,
        "fixed-performance mode": "can be set" if fixed else "not on this phone",
        "stays awake": awake.removeprefix("mStayOn=") or "unknown",
    }
