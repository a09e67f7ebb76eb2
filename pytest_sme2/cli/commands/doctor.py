"""``sme2 doctor``: what is installed, which devices are usable, and why not. This machine and a
phone are also tried out, and what was found is written into one file.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import platform
import shlex
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pytest_sme2 import __version__
from pytest_sme2.cli.commands.init import SETTINGS, STRANGERS
from pytest_sme2.cli.options import Arguments, chosen, shared
from pytest_sme2.errors import Sme2Error, install, plain
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE
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
from pytest_sme2.system.wording import count
from pytest_sme2.targets.local import this_machine
from pytest_sme2.targets.settings import DEVICES

EXAMPLE = "sme2 doctor --device emulated"

# The devices that are run, not only looked for.
TRIED_OUT = ("mac", "linux", "android")

ARGUMENTS: Arguments = {
    "--out FILE": (
        "with --device mac, linux or android, which are tried out: where the result goes "
        "(default: sme2-doctor-DEVICE.json)"
    ),
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
    settings = Settings(**chosen(arguments))
    device = settings.device
    tools = (
        Fact(
            part.name,
            part.found is not None,
            f"{part.found or f'{part.cost}. {part.remedy}'} {part.warning}".rstrip(),
        )
        for part in provision(lambda _: None, check=True)
    )
    found = {
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
    usable = next(fact.ok for fact in found["devices"] if fact.what == f"--device={device}")
    report: dict[str, Any] = {
        heading: [fact._asdict() for fact in facts] for heading, facts in found.items()
    }
    report |= {"cache": str(find_cache()), "usable": usable}

    def tell(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    for heading, facts in found.items():
        tell(heading)
        for fact in facts:
            tell(f"  {'ok' if fact.ok else 'no':2}  {fact.what}: {fact.detail}")
    tell(f"cache\n      {find_cache()}")
    if usable and device in TRIED_OUT:
        # A machine on which it fails is the one whose file is wanted most.
        try:
            tried = _try_out(settings)
            report["machine"] = dataclasses.asdict(tried)
            told, usable = format_check(tried), tried.proven is not False
        except Sme2Error as error:
            report["machine"] = {"problems": [str(error)]}
            told, usable = f"  no  {error}", False
        report["usable"] = usable
        out = arguments.out or Path(f"sme2-doctor-{device}.json")
        # The report is made to be sent, so it must not name the user.
        text = json.dumps(report, indent=2).replace(str(Path.home()), "~")
        write_text(out, text + "\n")
        tell(f"{told}\n\nAll of this is in {out}. Please send it in if anything looks wrong.")
    if arguments.json:
        print(json.dumps(report, indent=2))
    return 0 if usable else 1


def _try_out(settings: Settings) -> MachineCheck:
    with tempfile.TemporaryDirectory(prefix="sme2-doctor-") as folder:
        if settings.device == "android":
            bench = Bench(settings, lambda: uuid.uuid4().hex, say)
            return check_phone(bench, Path(folder), say)
        return check_this_machine(this_machine(), Path(folder), say)


def format_check(check: MachineCheck) -> str:
    what = "the phone" if check.device == "android" else "this machine"
    lines = [f"{what}, as --device={check.device}"]
    lines += [f"      {name}: {plain(value)}" for name, value in sorted(check.machine.items())]
    lines.append(f"ten convolutions in fp32, with ExecuTorch {check.executorch}")
    for arm, found in check.arms.items():
        share, energy, time = found.performance_share, found.energy_nj, found.median_us
        matrix = count(found.matrix_operators, "matrix operator")
        parts = [
            "emulated, so its time means nothing" if time is None else f"{time:.1f} us",
            f"{found.sme2_operators} of {matrix} on SME2 kernels",
            f"performance cores: {'unknown' if share is None else f'{share:.1%} of CPU time'}",
        ]
        parts += [] if energy is None else [f"{energy / 1e3:.1f} uJ"]
        lines.append(f"      SME2 {arm}: {'; '.join(parts)}")
    lines.append(f"      evidence: {check.evidence}")
    problems = [f"  no  {plain(problem)}" for problem in check.problems]
    return "\n".join([*lines, *(problems or ["  ok  no problems found"])])
