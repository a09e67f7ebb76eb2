"""The plugin's command-line options and ini values, and the one way to read them.

``names.py`` registers them, which must be fast. So the functions that read the values are only
named here, and imported when there is a value.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.system.files import is_program
from pytest_sme2.targets.settings import DEVICES, POWER_MODES

if TYPE_CHECKING:
    from pytest_sme2.session.settings import Settings

PATH = "pathlib:Path"


class Option:
    """One choice: its flag, the Settings field it fills, and how its text is read.

    A plain class: making a dataclass or a named tuple would be a noticeable part of what the
    plugin costs a run that does not use it.
    """

    def __init__(
        self,
        flag: str,
        field: str,
        metavar: str | None,
        parse: str | None,
        help: str,  # noqa: A002 - the word that argparse uses
        *,
        ini: bool = True,
        repeats: bool = False,
    ) -> None:
        """Describe one option.

        Args:
            flag: as it is typed.
            field: of Settings.
            metavar: the value's name in the help text; None for a switch.
            parse: ``module:function`` within this package, or PATH; None for a switch.
            help: what it does.
            ini: whether the ini file may set it, under ``sme2_<field>``.
            repeats: whether it may be given several times; the values are then one
                comma-separated list.
        """
        self.flag = flag
        self.field = field
        self.metavar = metavar
        self.parse = parse
        self.help = help
        self.ini = ini
        self.repeats = repeats

    @property
    def destination(self) -> str:
        return f"sme2_{self.field}"

    def read(self, text: str) -> Any:
        """The value of a text, or a UsageError that lists the choices."""
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
        f"where to run programs: {', '.join(DEVICES)}. auto is this machine if it has "
        "SME2, else the SME2 emulator if there is one, else this machine without SME2.",
    ),
    Option(
        "--update-baselines",
        "update_baselines",
        None,
        None,
        "measure, write the baselines, and print old and new values.",
        ini=False,
    ),
    Option(
        "--sme2-dry-run",
        "dry_run",
        None,
        None,
        "as --update-baselines, but write no baseline: only say what would change.",
        ini=False,
    ),
    Option(
        "--sme2-accept",
        "accept",
        "PATTERN[,PATTERN]",
        "system.choices:split_patterns",
        "with --update-baselines: store only the cases whose changes all match a pattern, as in "
        "'+1 Transpose*,version of *,instructions*'.",
        ini=False,
    ),
    Option(
        "--force-update-baselines",
        "force_update",
        None,
        None,
        "as --update-baselines, and store also what was measured while the machine was busy.",
        ini=False,
    ),
    Option(
        "--require-sme2",
        "require_sme2",
        None,
        None,
        "fail if the device has no SME2, instead of skipping what needs it.",
    ),
    Option("--sme2-fresh", "fresh", None, None, "ignore cached emulator runs."),
    Option(
        "--sme2-cpu",
        "emulated_cpu",
        "NAME[:BITS]",
        "system.qemu:checked_cpu",
        "the CPU to emulate: strict (default; no real one with SME2 can do less), apple-m4, "
        "arm-c1 or sme1 (SME without SME2); BITS is the length of its streaming vectors: 128, 256 "
        "or 512 (default).",
    ),
    Option(
        "--sme2-arms",
        "arms",
        "ARM,ARM[,ARM]",
        "session.settings:parse_arms",
        "what to run on the emulator: on,off (default), or off,sme1,on. sme1 hides SME2 and keeps "
        "SME, as on a chip without SME2.",
    ),
    Option(
        "--sme2-no-cost",
        "no_cost",
        None,
        None,
        "do not count executed instructions on the emulator; the first run of a model is then "
        "about four times faster.",
    ),
    Option(
        "--sme2-models",
        "models",
        "NAME[,NAME]",
        "system.choices:split_list",
        "only these models; `sme2 models` lists all. A path that ends in .pte, or a pattern of "
        "such paths, is run as it is.",
        ini=False,
    ),
    Option(
        "--sme2-variants",
        "variants",
        "VARIANT[,VARIANT]",
        "export.variant:parse_variants",
        "only these variants, for example fp32,fp16,int8; with an input size if the model takes "
        "one (fp16@256).",
    ),
    Option(
        "--sme2-methods",
        "methods",
        "METHOD[,METHOD]",
        "system.choices:split_list",
        "only these methods of programs (.pte) that have several; default: each is a case.",
        ini=False,
    ),
    Option(
        "--threads",
        "threads",
        "N[,N]",
        "session.settings:parse_threads",
        "numbers of threads; default 1.",
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
        "write one HTML file with all results; it needs no network.",
    ),
    Option(
        "--sme2-comment",
        "comment",
        "FILE.md",
        PATH,
        "write a comment for a pull request: the verdict in one line, and a small table.",
        ini=False,
    ),
    Option(
        "--sme2-strict",
        "strict",
        None,
        None,
        "fail if a verdict is INCONCLUSIVE or MACHINE_CHANGED, if a baseline is missing, if "
        "nothing was compared, or if a line of the contract (contract.txt, beside the baselines) "
        "was not.",
    ),
    Option(
        "--baseline-dir",
        "baseline_dir",
        "DIR",
        PATH,
        "the folder of baselines and limits.toml; default baselines.",
    ),
    Option(
        "--budget",
        "budget_seconds",
        "TIME",
        "session.settings:parse_budget",
        "time for measuring one model and variant, as in 60s or 2m; default 30s. Ten pairs are "
        "measured even where they take longer. What would fail without being certain gets up to "
        "three times as long.",
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
        "compare with REF in the same run, in interleaved pairs: a bundle (`sme2 bundle`), a "
        "folder of .pte files, or a version such as executorch==1.5.0.",
        ini=False,
    ),
    Option(
        "--sme2-history",
        "history",
        "DIR",
        PATH,
        "add a small record of each case to this folder; `sme2 history DIR` shows what changed.",
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
        "the QEMU for --device=emulated (user mode, 10.1 or newer).",
    ),
    Option(
        "--runner-on",
        "runner_on",
        "PATH",
        PATH,
        "your own executor_runner, built with SME2 on; needs --runner-off.",
    ),
    Option(
        "--runner-off",
        "runner_off",
        "PATH",
        PATH,
        "your own executor_runner, built with SME2 and SME off; needs --runner-on.",
    ),
    Option(
        "--weights",
        "weights",
        "FILE",
        PATH,
        "a state dict for the export; default: random weights with a fixed seed.",
        ini=False,
    ),
)

PHONE_OPTIONS: tuple[Option, ...] = (
    Option(
        "--serial",
        "serials",
        "SERIAL[,SERIAL]",
        "system.choices:split_list",
        "the phones for --device=android, by serial or host:port; may be repeated; default: "
        "ANDROID_SERIAL, else the only attached phone.",
        repeats=True,
    ),
    Option(
        "--adb-server",
        "adb_server",
        "HOST:PORT",
        "targets.settings:checked_adb_server",
        "another adb server; default: the one of this machine.",
    ),
    Option(
        "--power-mode",
        "power_mode",
        "MODE",
        "targets.settings:parse_power_mode",
        f"the phone's settings during a measurement: {', '.join(POWER_MODES)}; restored "
        "afterwards; default keep.",
    ),
    Option(
        "--sme2-patience",
        "patience_seconds",
        "TIME",
        "session.settings:parse_patience",
        "how long to wait for a lost phone before another phone of the same kind takes over its "
        "work; default 60s.",
    ),
    Option(
        "--fixed-performance",
        "fixed_performance",
        None,
        None,
        "ask the phone for its fixed-performance mode, if it has one.",
    ),
    Option(
        "--max-celsius",
        "max_celsius",
        "DEGREES",
        "targets.settings:parse_celsius",
        "wait until the phone's CPU and skin are cooler than this; default: only Android's thermal "
        "status counts.",
    ),
    Option(
        "--cpus",
        "cpus",
        "CORES",
        "targets.settings:parse_cpus",
        "the cores of the phone to run on: big, little, or numbers such as 4-7.",
    ),
    Option(
        "--device-bundle",
        "device_bundle",
        "PATH",
        PATH,
        "the self-contained runner for phones (`sme2 bundle --phone`); default: made when needed.",
    ),
    Option(
        "--sme2-fake-phone",
        "fake_phone",
        None,
        None,
        "with --device=android: use a sandbox with a real adbd instead of a phone, to try a "
        "set-up. Its times mean nothing.",
        ini=False,
    ),
)
OPTIONS += PHONE_OPTIONS

# Limits of a run; limits.toml has the same names.
LIMITS = {
    "max_regression": ("--max-regression", "PERCENT", "allowed slowdown, for example 3%%."),
    "min_speedup": ("--min-speedup", "FACTOR", "minimum speedup by SME2, for example 1.5."),
    "max_speedup_loss": (
        "--max-speedup-loss",
        "PERCENT",
        "how much of the stored speedup may be lost; default 10%%.",
    ),
    "min_coverage": (
        "--min-coverage",
        "PERCENT",
        "minimum share of matrix operators on SME2 kernels, for example 90%%.",
    ),
    "max_cost_growth": (
        "--max-cost-growth",
        "PERCENT",
        "how much the executed instructions may grow on the emulator; default 0.05%%.",
    ),
}

RULES_INI = "sme2_categories"

MODEL_FOLDERS_INI = "sme2_models"

LONG_NAMES_INI = "sme2_long_options"


def _value(config: pytest.Config, option: Option) -> Any:
    """The command line's value, else the ini file's, else None."""
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
    """The folders named in the ini file, else ``models`` beside it if that exists."""
    named = config.getini(MODEL_FOLDERS_INI)
    base = _base(config)
    if named:
        return tuple(base / folder for folder in named if not is_program(folder))
    default = base / "models"
    return (default,) if default.is_dir() else ()


def program_patterns(config: pytest.Config) -> tuple[str, ...]:
    """The programs that the ini file names beside the folders of models."""
    named = config.getini(MODEL_FOLDERS_INI) or ()
    return tuple(str(_base(config) / name) for name in named if is_program(name))


def _base(config: pytest.Config) -> Path:
    return config.inipath.parent if config.inipath else config.rootpath


def read_settings(config: pytest.Config) -> Settings:
    """The run's settings, or a usage error that names the option and the valid values."""
    chosen = {option.field: _value(config, option) for option in OPTIONS}
    given = {field: value for field, value in chosen.items() if value is not None}
    if ("runner_on" in given) != ("runner_off" in given):
        raise pytest.UsageError("Give both --runner-on and --runner-off, or neither.")
    if given.get("force_update") or given.get("dry_run"):
        given["update_baselines"] = True
    if "accept" in given and not given.get("update_baselines"):
        raise pytest.UsageError("--sme2-accept needs --update-baselines or --sme2-dry-run.")
    from pytest_sme2.session.settings import Settings

    return Settings(
        model_folders=model_folders(config),
        programs=program_patterns(config),
        limits=_limits(config),
        rules=_rules(config),
        **given,
    )


def _limits(config: pytest.Config) -> dict[str, object]:
    """The limits of the command line, checked early so that a typing error costs no time."""
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
    """Whether the user chose anything of this plugin; if not, it does nothing."""
    if config.getini(MODEL_FOLDERS_INI) or config.getini(RULES_INI):
        return True
    if any(config.getoption(f"sme2_{name}") is not None for name in LIMITS):
        return True
    return any(
        config.getoption(option.destination) is not None
        or (option.ini and config.getini(option.destination) is not None)
        for option in OPTIONS
    )
