"""``sme2 doctor``: what is installed, which devices are usable, and why not. This machine and a
phone are also tried out with a small program, SME2 on and off. What was found is written into one
file.

It is what to run first on a new machine or phone, and what to send in from one that we do not have.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import json
import platform
import shlex
import statistics
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from pytest_sme2 import __version__
from pytest_sme2.cli.commands.init import SETTINGS, STRANGERS
from pytest_sme2.cli.options import Arguments, chosen, shared
from pytest_sme2.errors import Sme2Error, UsageError, install, plain
from pytest_sme2.export.registry import EXTRA_OF_PACKAGE
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import PAIR, Arm, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sdk import find_pip
from pytest_sme2.session.device import HeldDevice, choose_target, sme_word
from pytest_sme2.session.options import DEVICE
from pytest_sme2.session.settings import Settings
from pytest_sme2.system import platforms
from pytest_sme2.system.cache import find_cache
from pytest_sme2.system.files import write_text
from pytest_sme2.system.provision import provision
from pytest_sme2.system.terminal import say
from pytest_sme2.targets.base import Target
from pytest_sme2.targets.local import LocalTarget, sme_vector_bits
from pytest_sme2.targets.settings import DEVICES
from pytest_sme2.timing.processes import selfcheck_artifact
from pytest_sme2.trace.etdump import read_etdump

RUNS, WARMUP = 50, 5
LEAST_PERFORMANCE_SHARE = 0.99


def _try_out(settings: Settings, folder: Path, *, thorough: bool) -> dict[str, Any]:
    """A small program with SME2 on and off; ``thorough``: all that one would try by hand."""
    from pytest_sme2.targets.phone.target import AndroidTarget, phone_facts

    bench = HeldDevice(settings, say)
    try:
        target = bench.target
        found = _try_runs(target, bench.runner, folder)
        if isinstance(target, AndroidTarget):
            found["machine"] = phone_facts(target)
            if thorough:
                from pytest_sme2.session.thorough import Trial

                artifact, place = selfcheck_artifact(), folder / "thorough"
                trial = Trial(bench, target, artifact, place, say, found["proven"])
                found["steps"] = [asdict(step) for step in trial.run()]
            found["problems"] += [f"The phone {event}." for event in target.events]
        elif isinstance(target, LocalTarget):
            found["machine"] = describe(target)
            warnings = platforms.read_power().warnings if target.name == "mac" else ()
            found["problems"] += [f"{text[0].upper()}{text[1:]}." for text in warnings]
        return found
    finally:
        bench.close()


def _try_runs(target: Target, runner: Runner, folder: Path) -> dict[str, Any]:
    """What both arms did; one inference each where times mean nothing."""
    able = target.capabilities()
    runs: dict[Arm, Run] = {}
    profiles: dict[Arm, Profile] = {}
    warmup, count = (WARMUP, RUNS) if able.timing else (0, 1)
    sme1 = able.sme1 and not able.timing
    for arm in PAIR if able.switches else (Arm.OFF,):
        say(f"running with SME2 {arm}")
        request = RunRequest(selfcheck_artifact(), arm, warmup=warmup, runs=count, sme1=sme1)
        runs[arm] = target.run(runner, request, folder / f"timed_{arm}")
        traced = replace(request, warmup=0, runs=1, traced=True)
        etdump = target.run(runner, traced, folder / f"traced_{arm}").etdump
        profiles[arm] = build_profiles(read_etdump(etdump or folder))[0]
    problems = [] if able.switches else [f"Only the off arm was run: {able.reason}"]
    evidence, proven = "none: it takes both arms", None
    if able.switches:
        found = check_pair(
            profiles[Arm.ON],
            profiles[Arm.OFF],
            effective_on=runs[Arm.ON].sme2_effective,
            effective_off=runs[Arm.OFF].sme2_effective,
            sme1=able.sme1,
        )
        evidence, proven = found.message, found.valid
        problems += [] if found.valid else [found.message]
    arms = {str(arm): _of_arm(run, profiles[arm]) for arm, run in runs.items()}
    for name, said in arms.items():
        share = said["performance_share"]
        if share is not None and share < LEAST_PERFORMANCE_SHARE:
            problems.append(
                f"With SME2 {name}, {1 - share:.0%} of the CPU time was on efficiency cores. Stop "
                "what else runs on the machine."
            )
    return {
        "device": target.name,
        "machine": {},
        "executorch": runner.executorch,
        "runner_sha256": runner.sha256,
        "arms": arms,
        "evidence": evidence,
        "proven": proven,
        "problems": problems,
        "steps": [],
    }


def _of_arm(run: Run, profile: Profile) -> dict[str, Any]:
    """None where something is not known, or means nothing."""
    cores = run.cores
    return {
        "median_us": None if run.emulated else statistics.median(run.wall_ns) / 1e3,
        "sme2_seen": run.sme2_effective,
        "vector_bits": run.vector_bits,
        "matrix_operators": profile.coverage.matrix_operators,
        "sme2_operators": profile.coverage.sme2_operators,
        "performance_share": None if cores is None else 1 - cores.efficiency_share,
        "energy_nj": None if cores is None else cores.energy_nj // len(run.wall_ns),
        "cpu_features": run.cpu_features,
    }


def describe(target: LocalTarget) -> dict[str, str]:
    """The chip, the system, and what may slow them down."""
    mac = target.name == "mac"
    bits = platforms.vector_bits() if mac else sme_vector_bits()
    facts = {**dict(target.fingerprint().facts), **target.conditions()}
    if mac:
        facts["os"] = f"macOS {platforms.macos_version()}"
        facts["virtual machine"] = "yes" if platforms.is_virtual_machine() else "no"
    facts["SME vector length"] = f"{bits} bits" if bits else "unknown"
    return facts


EXAMPLE = "sme2 doctor --device emulated"

# The devices that are run, not only looked for.
TRIED_OUT = ("mac", "linux", "android")

ARGUMENTS: Arguments = {
    "--out FILE": (
        "with --device mac, linux or android, which are tried out: where the result goes "
        "(default: sme2-doctor-DEVICE.json)"
    ),
    "--thorough": (
        "with --device android: also try for an hour what somebody would try by hand, and pack all "
        "of it into one archive"
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
    if arguments.thorough and settings.device != "android":
        raise UsageError("--thorough is for phones: sme2 doctor --device android --thorough.")
    with tempfile.TemporaryDirectory(prefix="sme2-doctor-") as folder:
        return _examine(arguments, settings, Path(folder))


def _examine(arguments: argparse.Namespace, settings: Settings, folder: Path) -> int:
    device, found = settings.device, _look(settings)
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
    if usable and device in TRIED_OUT:
        # A machine on which it fails is the one whose file is wanted most.
        try:
            tried = _try_out(settings, folder, thorough=arguments.thorough)
        except Sme2Error as error:
            tried = {"proven": False, "problems": [str(error)]}
        report["machine"], usable = tried, tried["proven"] is not False
        tell([f"--device={device}, tried out", *_section(tried)])
    report["usable"] = usable
    if "machine" in report:
        out = arguments.out or Path(f"sme2-doctor-{device}.json")
        # The report is made to be sent, so it must not name the user.
        text = json.dumps(report, indent=2).replace(str(Path.home()), "~")
        write_text(out, text + "\n")
        out = _packed(out, folder) if arguments.thorough else out
        tell(["", f"All of this is in {out}. Please send it in if anything looks wrong."])
    if arguments.json:
        print(json.dumps(report, indent=2))
    return 0 if usable else 1


def _look(settings: Settings) -> dict[str, list[Fact]]:
    tools = (
        Fact(
            part.name,
            part.found is not None,
            part.found or f"{part.cost}. {part.remedy}",
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
        ],
        "devices": [
            _fact(
                f"--device={name}",
                functools.partial(_capabilities, replace(settings, device=name)),
            )
            for name in DEVICES
        ],
    }


def _packed(report: Path, folder: Path) -> Path:
    """The report with what the runs left, in one file that does not name the user either."""
    out = report.with_suffix(".zip")
    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*"))}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in {Path(report.name): report, **files}.items():
            if path.suffix in (".json", ".log"):
                text = path.read_text("utf-8", "replace").replace(str(Path.home()), "~")
                archive.writestr(name.as_posix(), text)
    return out


def _section(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _values({name: value for name, value in found.items() if name not in _APART})
    if found.get("steps"):
        from pytest_sme2.session.thorough import Step

        yield from (plain(str(Step(**step))) for step in found["steps"])
    problems = [f"  no  {plain(problem)}" for problem in found["problems"]]
    yield from problems or ["  ok  no problems found"]


_APART = ("problems", "steps")


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
