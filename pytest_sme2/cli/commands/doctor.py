"""``sme2 doctor``: what is installed, which devices are usable, and why not. This machine and a
phone are also tried out, and with ``--minutes`` compared with themselves: is it quiet enough? What
was found is written into one file.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import math
import platform
import shlex
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pytest_sme2 import __version__
from pytest_sme2.cli.commands.init import SETTINGS, STRANGERS
from pytest_sme2.cli.options import Arguments, chosen, progress, shared
from pytest_sme2.errors import Sme2Error, TargetError, UsageError, install, plain
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE
from pytest_sme2.results import Arm, Outcome, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.bench import Bench, sme_word
from pytest_sme2.session.device import choose_target
from pytest_sme2.session.machine_check import MachineCheck, check_phone, check_this_machine
from pytest_sme2.session.options import DEVICE
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.cache import find_cache
from pytest_sme2.system.confine import is_isolated, run_confined
from pytest_sme2.system.files import write_text
from pytest_sme2.system.pip import find_pip
from pytest_sme2.system.provision import provision
from pytest_sme2.system.terminal import say
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.local import this_machine
from pytest_sme2.targets.settings import DEVICES
from pytest_sme2.timing.arms import starter_on
from pytest_sme2.timing.selfcheck import SAME, SelfCheck, check_machine, selfcheck_artifact

EXAMPLE = "sme2 doctor --device emulated"

# The devices that are run, not only looked for.
TRIED_OUT = ("mac", "linux", "android")

ARGUMENTS: Arguments = {
    "--out FILE": (
        "with --device mac, linux or android, which are tried out: where the result goes "
        "(default: sme2-doctor-DEVICE.json)"
    ),
    "--minutes": {
        "type": float,
        "metavar": "N",
        "help": "also compare a program with itself for so long: how noisy is the device? Without "
        "--device: this machine",
    },
    **shared(*DEVICE),
}


class Fact(NamedTuple):
    what: str
    ok: bool
    detail: str


def _fact(what: str, look: Callable[[], str]) -> Fact:
    try:
        return Fact(what, True, look())
    except Sme2Error as error:
        return Fact(what, False, str(error))


def _package(name: str, extra: str) -> Fact:
    try:
        return Fact(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Fact(name, False, f"not installed; {install(extra)}")


def start_of_pytest() -> str:
    """Its version, and how to start it sooner where nobody has said so yet."""
    version = importlib.metadata.version("pytest")
    installed = {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}
    unwanted = [f"-p no:{name}" for name in STRANGERS if name in installed]
    settings = [
        path.read_text("utf-8", "replace") for path in map(Path, SETTINGS) if path.is_file()
    ]
    if all(any(words in text for text in settings) for words in unwanted):
        return version
    return (
        f"{version}; it begins in half the time with addopts = {' '.join(unwanted)} in its ini "
        "file, where no test needs these plugins, which ExecuTorch's dependencies bring"
    )


def _confined() -> str:
    """Limits hold everywhere; a network of its own needs the system's permission."""
    limits = "read with limits of time, memory and disk"
    if run_confined(is_isolated):
        return f"{limits}, and without network"
    return f"{limits}; with network, since this system allows no namespaces"


def _capabilities(settings: Settings) -> str:
    target = choose_target(settings, wait_seconds=1)
    try:
        able = target.capabilities()
    finally:
        # Release the phone: the next user may be this process.
        with contextlib.suppress(Sme2Error):
            target.restore()
    parts = [f"is {target.name}"] if settings.device == "auto" else []
    parts += [sme_word(able), "timing" if able.timing else "no timing", able.reason]
    return "; ".join(filter(None, parts))


def run(arguments: argparse.Namespace) -> int:
    minutes: float | None = arguments.minutes
    if minutes is not None and not (math.isfinite(minutes) and minutes > 0):
        raise UsageError("--minutes takes a number above 0, as in --minutes 2.")
    # `auto` would prefer an emulator with SME2, whose times are worth nothing.
    settings = Settings(
        **chosen(arguments, **({} if minutes is None else {"device": this_machine().name}))
    )
    device = settings.device
    found = _look(settings)
    usable = next(fact.ok for fact in found["devices"] if fact.what == f"--device={device}")
    report: dict[str, Any] = {
        heading: [fact._asdict() for fact in facts] for heading, facts in found.items()
    }
    report["cache"] = str(find_cache())

    def tell(lines: Iterable[str]) -> None:
        if not arguments.json:
            print("\n".join(lines), flush=True)

    for heading, facts in found.items():
        marks = (f"  {'ok' if fact.ok else 'no':2}  {fact.what}: {fact.detail}" for fact in facts)
        tell([heading, *marks])
    tell(["cache", f"      {find_cache()}"])
    code = 0
    if usable and device in TRIED_OUT:
        # A machine on which it fails is the one whose file is wanted most.
        try:
            tried = _try_out(settings)
            report["machine"], usable = dataclasses.asdict(tried), tried.proven is not False
        except Sme2Error as error:
            report["machine"], usable = {"problems": [str(error)]}, False
        tell([f"--device={device}, tried out", *_section(report["machine"])])
    if minutes is not None:
        noise = _measure_noise(settings, minutes)
        code = noise_code(noise)
        report["noise"] = noise_document(noise)
        tell([f"--device={device}, compared with itself", *_section(report["noise"])])
    report["usable"] = usable
    if "machine" in report or "noise" in report:
        out = arguments.out or Path(f"sme2-doctor-{device}.json")
        # The report is made to be sent, so it must not name the user.
        text = json.dumps(report, indent=2).replace(str(Path.home()), "~")
        write_text(out, text + "\n")
        tell(["", f"All of this is in {out}. Please send it in if anything looks wrong."])
    if arguments.json:
        print(json.dumps(report, indent=2))
    return code if usable else 1


def _look(settings: Settings) -> dict[str, list[Fact]]:
    tools = (
        Fact(
            part.name,
            part.found is not None,
            f"{part.found or f'{part.cost}. {part.remedy}'} {part.warning}".rstrip(),
        )
        for part in provision(lambda _: None, check=True)
    )
    return {
        "installed": [
            Fact("pytest-sme2", True, __version__),
            Fact("Python", True, f"{platform.python_version()}, {platform.platform()}"),
            _fact("pytest", start_of_pytest),
            *(_package(*known) for known in EXTRA_OF_PACKAGE.items()),
        ],
        "tools": [
            *tools,
            # It downloads ExecuTorch for another platform than this one.
            _fact("pip", lambda: shlex.join(find_pip("ExecuTorch for an emulated device"))),
            _fact("files of others", _confined),
        ],
        "devices": [
            _fact(
                f"--device={name}",
                functools.partial(_capabilities, dataclasses.replace(settings, device=name)),
            )
            for name in DEVICES
        ],
    }


def _try_out(settings: Settings) -> MachineCheck:
    with tempfile.TemporaryDirectory(prefix="sme2-doctor-") as folder:
        if settings.device == "android":
            bench = Bench(settings, lambda: uuid.uuid4().hex, say)
            return check_phone(bench, Path(folder), say)
        return check_this_machine(this_machine(), Path(folder), say)


def _measure_noise(settings: Settings, minutes: float) -> SelfCheck:
    """A/A: any difference that is found is a false alarm."""
    target = choose_target(settings)
    able = target.capabilities()
    if not able.timing:
        raise TargetError(
            f"The device {target.name!r} cannot measure time: {able.reason} "
            "Choose another with --device."
        )
    runner = wheel_runner(target.platform, progress=say)
    with tempfile.TemporaryDirectory(prefix="sme2-doctor-") as folder, progress() as tell:
        try:
            target.prepare()
            request = RunRequest(selfcheck_artifact(), Arm.ON if able.switches else Arm.OFF)
            # Both labels stand for the very same thing, and only their files are apart.
            jobs = {label: Job(runner, request, Path(folder) / label) for label in SAME}
            starter = starter_on(target, jobs)
            return check_machine(starter, target.name, seconds=60 * minutes, progress=tell)
        finally:
            target.restore()


def noise_code(noise: SelfCheck) -> int:
    """1 for a false alarm, 3 for a machine on which most verdicts stay open."""
    if noise.false_alarms:
        return 1
    return 3 if 2 * noise.count(Outcome.INCONCLUSIVE) >= len(noise.measurements) else 0


def noise_document(noise: SelfCheck) -> dict[str, Any]:
    """Everything, raw process medians included."""
    return {
        **dataclasses.asdict(noise),
        "verdicts": len(noise.measurements),
        "pairs": noise.pairs,
        "dropped_for_interference": noise.dropped,
        "noise_floor": noise.noise_floor,
        "smallest_detectable": list(noise.detectable),
        "false_alarms": noise.false_alarms,
        "false_improvements": noise.count(Outcome.IMPROVED),
        "inconclusive": noise.count(Outcome.INCONCLUSIVE),
        "problems": list(noise.advice),
    }


def _section(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _values({name: value for name, value in found.items() if name not in _APART})
    problems = [f"  no  {plain(problem)}" for problem in found["problems"]]
    yield from problems or ["  ok  no problems found"]


_APART = ("problems", "measurements")


def _values(found: Mapping[str, Any], indent: str = "      ") -> Iterator[str]:
    """What is known of it, one value a line; what has parts, with a heading."""
    for key, value in found.items():
        name = key.replace("_", " ")
        if isinstance(value, Mapping):
            yield f"{indent}{name}"
            yield from _values(value, f"{indent}  ")
        elif value is not None:
            values = value if isinstance(value, (list, tuple)) else [value]
            texts = (f"{one:.4g}" if isinstance(one, float) else str(one) for one in values)
            yield plain(f"{indent}{name}: {', '.join(texts)}")
