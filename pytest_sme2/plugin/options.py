"""The plugin's command-line options and ini values, and the one way to read them.

Registering them must cost next to nothing, so the functions that read their values are only
named here, and imported when there is a value.
"""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.targets.settings import DEVICES, POWER_MODES

if TYPE_CHECKING:
    from pytest_sme2.session.settings import Settings

PATH = "pathlib:Path"


class Option(NamedTuple):
    """One choice: its flag, the Settings field it fills, and how its text is read."""

    flag: str
    field: str
    metavar: str | None
    parse: str | None
    """``module:function`` within this package, or PATH; None for a switch."""
    help: str
    ini: bool = True
    """Whether the ini file may set it, under ``sme2_<field>``."""
    repeats: bool = False
    """Whether it may be given several times; the values are then one comma-separated list."""

    @property
    def destination(self) -> str:
        return f"sme2_{self.field}"

    def read(self, text: str) -> Any:
        """The value that a text stands for, or a UsageError that lists the choices."""
        if self.parse is None:
            return text
        if self.parse == PATH:
            return Path(text)
        module, _, function = self.parse.partition(":")
        return getattr(importlib.import_module(f"pytest_sme2.{module}"), function)(text)


OPTIONS: tuple[Option, ...] = (
    Option(
        "--device",
        "device",
        "DEVICE",
        "targets.settings:parse_device",
        f"where programs run: {', '.join(DEVICES)}. auto is this machine if it has "
        "SME2, else the SME2 emulator if there is one, else this machine without SME2.",
    ),
    Option(
        "--update-baselines",
        "update_baselines",
        None,
        None,
        "measure and write the baselines of what was measured, printing old and new values.",
        ini=False,
    ),
    Option(
        "--sme2-fresh",
        "fresh",
        None,
        None,
        "run everything on the emulator, also what the same emulator ran before; without it, such "
        "runs are taken from the cache.",
    ),
    Option(
        "--sme2-models",
        "models",
        "NAME[,NAME]",
        "system.choices:split_list",
        "only these models. All models known to the run are listed by `sme2 models`.",
        ini=False,
    ),
    Option(
        "--sme2-variants",
        "variants",
        "VARIANT[,VARIANT]",
        "export.variant:parse_variants",
        "only these variants, as in fp32,fp16,int8, each with an input size "
        "where the model takes one (fp16@256).",
    ),
    Option(
        "--threads",
        "threads",
        "N[,N]",
        "session.settings:parse_threads",
        "thread counts to run with; default 1.",
    ),
    Option(
        "--sme2-out",
        "out",
        "DIR",
        PATH,
        "the run directory for traces, logs, tables and reports; default sme2-out.",
    ),
    Option(
        "--sme2-report",
        "report",
        "FILE.html",
        "session.settings:parse_report",
        "write one HTML file with everything that was found; it needs no network.",
    ),
    Option(
        "--sme2-strict",
        "strict",
        None,
        None,
        "fail where a verdict is INCONCLUSIVE or MACHINE_CHANGED, or there is no baseline.",
    ),
    Option(
        "--baseline-dir",
        "baseline_dir",
        "DIR",
        PATH,
        "where baselines and limits.toml are kept; default baselines.",
    ),
    Option(
        "--budget",
        "budget_seconds",
        "TIME",
        "session.settings:parse_budget",
        "time for measuring one model and variant, as in 60s or 2m; default 30s. Ten pairs are "
        "measured even where they take longer.",
    ),
    Option(
        "--time-limit",
        "limit_seconds",
        "TIME",
        "session.settings:parse_limit",
        "give a measurement up after this long, and fail; default ten times --budget.",
    ),
    Option(
        "--against",
        "against",
        "REF",
        "session.reference:parse_against",
        "measure against REF in the same run, in interleaved pairs: a bundle (`sme2 bundle`), a "
        "folder of .pte files, or a version as in executorch==1.5.0.",
        ini=False,
    ),
    Option(
        "--github-benchmark-json",
        "github_benchmark_json",
        "FILE",
        PATH,
        "write the results for github-action-benchmark (customSmallerIsBetter).",
        ini=False,
    ),
    Option(
        "--bencher-json",
        "bencher_json",
        "FILE",
        PATH,
        "write the results in Bencher's metric format.",
        ini=False,
    ),
    Option(
        "--qemu",
        "qemu",
        "PATH",
        PATH,
        "the QEMU (user mode, 10.1 or newer) that --device=emulated uses.",
    ),
    Option(
        "--runner-on",
        "runner_on",
        "PATH",
        PATH,
        "an executor_runner of your own, built with SME2 on; needs --runner-off.",
    ),
    Option(
        "--runner-off",
        "runner_off",
        "PATH",
        PATH,
        "an executor_runner of your own, built with SME2 and SME off; needs --runner-on.",
    ),
    Option(
        "--weights",
        "weights",
        "FILE",
        PATH,
        "a state dict to export with; without it weights are random, with a fixed seed.",
        ini=False,
    ),
)

PHONE_OPTIONS: tuple[Option, ...] = (
    Option(
        "--serial",
        "serials",
        "SERIAL[,SERIAL]",
        "system.choices:split_list",
        "the phones to use with --device=android, by serial or host:port; may be given several "
        "times; default: ANDROID_SERIAL, else the only one attached.",
        repeats=True,
    ),
    Option(
        "--adb-server",
        "adb_server",
        "HOST:PORT",
        "targets.settings:checked_adb_server",
        "an adb server elsewhere; default: this machine's own.",
    ),
    Option(
        "--power-mode",
        "power_mode",
        "MODE",
        "targets.settings:parse_power_mode",
        f"the phone's settings while it measures: {', '.join(POWER_MODES)}. Whatever is "
        "changed is put back. Default keep.",
    ),
    Option(
        "--sme2-patience",
        "patience_seconds",
        "TIME",
        "session.settings:parse_patience",
        "how long a phone whose connection was lost may take to come back before it is retired "
        "and its work goes to another of its kind; default 60s.",
    ),
    Option(
        "--fixed-performance",
        "fixed_performance",
        None,
        None,
        "ask the phone for its fixed-performance mode, where it has one.",
    ),
    Option(
        "--cpus",
        "cpus",
        "CORES",
        "targets.settings:parse_cpus",
        "the phone's cores to run on: big, little, or numbers as in 4-7.",
    ),
    Option(
        "--device-bundle",
        "device_bundle",
        "PATH",
        PATH,
        "the self-contained runner for phones (`sme2 device-bundle`); default: made on the fly.",
    ),
    Option(
        "--sme2-fake-phone",
        "fake_phone",
        None,
        None,
        "with --device=android: a sandbox on this machine with a real adbd in place of a phone, "
        "to try a set-up. Its times mean nothing.",
        ini=False,
    ),
)
OPTIONS += PHONE_OPTIONS

# Limits that may be given for a run; the same names stand in limits.toml.
LIMITS = {
    "max_regression": ("--max-regression", "PERCENT", "tolerated slowdown, as in 3%%."),
    "min_speedup": ("--min-speedup", "FACTOR", "the least speedup by SME2, as in 1.5."),
    "max_speedup_loss": (
        "--max-speedup-loss",
        "PERCENT",
        "how much of the stored speedup may be lost; 10%% unless limits.toml says otherwise.",
    ),
    "min_coverage": (
        "--min-coverage",
        "PERCENT",
        "the least share of matrix operators on SME2 kernels, as in 90%%.",
    ),
}

RULES_INI = "sme2_categories"

MODEL_FOLDERS_INI = "sme2_models"


def add_options(parser: pytest.Parser) -> None:
    """Add all options under one heading."""
    group = parser.getgroup("sme2", "performance of ExecuTorch models on Arm with SME2")
    for option in OPTIONS:
        if option.parse is None:
            group.addoption(
                option.flag,
                dest=option.destination,
                action="store_true",
                default=None,
                help=option.help,
            )
        else:
            group.addoption(
                option.flag,
                dest=option.destination,
                action="append" if option.repeats else "store",
                metavar=option.metavar,
                default=None,
                help=option.help,
            )
        if option.ini:
            text = f"default of {option.flag}"
            if option.parse is None:
                parser.addini(option.destination, text, "bool", default=None)
            else:
                parser.addini(option.destination, text, "string", default=None)
    for name, (flag, metavar, text) in LIMITS.items():
        group.addoption(flag, dest=f"sme2_{name}", metavar=metavar, default=None, help=text)
    parser.addini(
        RULES_INI,
        "categories of your own operators, one rule a line: PATTERN = CATEGORY KIND",
        "linelist",
        default=None,
    )
    parser.addini(
        MODEL_FOLDERS_INI,
        "folders that hold model folders, one a line; default: models",
        "linelist",
        default=None,
    )


def _value(config: pytest.Config, option: Option) -> Any:
    """Command line over ini; None where neither speaks."""
    value = config.getoption(option.destination)
    if value is not None and option.repeats:
        value = ",".join(value)
    where = option.flag
    if value is None and option.ini:
        value = config.getini(option.destination)
        where = f"ini value {option.destination}"
    if value is None or option.parse is None:
        return value
    try:
        return option.read(value)
    except UsageError as error:
        raise pytest.UsageError(f"{where}: {error}") from None


def model_folders(config: pytest.Config) -> tuple[Path, ...]:
    """The folders named in the ini file, else ``models`` beside it where that exists."""
    named = config.getini(MODEL_FOLDERS_INI)
    base = config.inipath.parent if config.inipath else config.rootpath
    if named:
        return tuple(base / folder for folder in named)
    default = base / "models"
    return (default,) if default.is_dir() else ()


def refuse_misread_folder(config: pytest.Config) -> None:
    """A usage error where pytest read its configuration elsewhere because of a value of ours.

    It looks for its ini file before it knows the options of plugins, and takes an existing path
    after one for tests: `pytest --sme2-out /elsewhere` would run with another folder's settings.
    """
    here = config.invocation_params.dir
    chosen = config.getoption("rootdir") or config.getoption("inifilename")
    found = config.inipath is not None and config.inipath.parent in (here, *here.parents)
    if chosen or found or config.rootpath == here or hasattr(config, "workerinput"):
        return
    flags = {option.flag for option in OPTIONS if option.parse is not None}
    for flag, value in itertools.pairwise(map(str, config.invocation_params.args)):
        if flag in flags and (here / value).exists():
            raise pytest.UsageError(
                f"{flag} {value}: pytest took {value} for a folder of tests and read its "
                f"configuration there, not in {here}. Write {flag}={value}"
            )


def read_settings(config: pytest.Config) -> Settings:
    """The run's settings, or a usage error that names the option and the valid values."""
    chosen = {option.field: _value(config, option) for option in OPTIONS}
    given = {field: value for field, value in chosen.items() if value is not None}
    if ("runner_on" in given) != ("runner_off" in given):
        raise pytest.UsageError("--runner-on and --runner-off go together: give both, or none.")
    from pytest_sme2.session.settings import Settings

    return Settings(
        model_folders=model_folders(config),
        limits=_limits(config),
        rules=_rules(config),
        **given,
    )


def _limits(config: pytest.Config) -> dict[str, object]:
    """The limits of the command line, checked now so that a typing error costs no measurement."""
    given = {name: config.getoption(f"sme2_{name}") for name in LIMITS}
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen:
        from pytest_sme2.verdict.limits import resolve

        try:
            resolve("fp32", command_line=chosen)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
    return chosen


def _rules(config: pytest.Config) -> tuple[Any, ...]:
    lines = config.getini(RULES_INI)
    if not lines:
        return ()
    from pytest_sme2.profile.categories import parse_rules

    try:
        return tuple(parse_rules(lines))
    except UsageError as error:
        raise pytest.UsageError(f"ini value {RULES_INI}: {error}") from None


def anything_chosen(config: pytest.Config) -> bool:
    """Whether the user spoke to this plugin at all: if not, it stays out of the way."""
    if config.getini(MODEL_FOLDERS_INI) or config.getini(RULES_INI):
        return True
    if any(config.getoption(f"sme2_{name}") is not None for name in LIMITS):
        return True
    return any(
        config.getoption(option.destination) is not None
        or (option.ini and config.getini(option.destination) is not None)
        for option in OPTIONS
    )
