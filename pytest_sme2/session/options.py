"""The one table of options: pytest's and the commands' are made from it, and read the same way.

Nothing here imports what reads the values: pytest registers the options in every run, also in those
that use none, which must be fast. So the functions are only named.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.targets.settings import DEVICES

PATH = "pathlib:Path"
SWITCH = ""


class Option:
    """One choice: its flag, how its text is read, and what of Settings it fills.

    A plain class: making a dataclass or a named tuple would be a noticeable part of what the
    plugin costs a run that does not use it.
    """

    def __init__(
        self,
        flag: str,
        field: str,
        metavar: str,
        parse: str,
        help: str,  # noqa: A002 - the word that argparse uses
        *,
        ini: bool = True,
        repeats: bool = False,
        bare: bool = False,
    ) -> None:
        """Describe one option.

        Args:
            flag: of pytest; a command's has no ``sme2-``.
            field: of Settings; empty where the value is a dict of fields.
            metavar: the value's name in the help text; SWITCH if there is none.
            parse: ``module:function`` within this package, or PATH; SWITCH for True.
            help: what it does.
            ini: whether the ini file may set it.
            repeats: whether it may be given several times; ``parse`` then takes the list.
            bare: whether it may have no value, which is then empty.
        """
        self.flag, self.field, self.metavar, self.parse = flag, field, metavar, parse
        self.help, self.ini, self.repeats, self.bare = help, ini, repeats, bare

    @property
    def name(self) -> str:
        """As the flag, without dashes in front and without the prefix."""
        return self.flag.removeprefix("--").removeprefix("sme2-")

    @property
    def destination(self) -> str:
        """Where parsers keep the value; also the name in the ini file."""
        return f"sme2_{self.name.replace('-', '_')}"

    def attributes(self) -> dict[str, Any]:
        """How it is added to a parser."""
        how: dict[str, Any] = {"dest": self.destination, "default": None, "help": self.help}
        if not self.parse:
            return {**how, "action": "store_true"}
        if self.bare:
            how |= {"nargs": "?", "const": ""}
        return {**how, "action": "append" if self.repeats else "store", "metavar": self.metavar}

    def read(self, given: Any) -> dict[str, Any]:
        """The fields of Settings, or a UsageError that lists the choices."""
        value = given
        if self.parse == PATH:
            value = Path(given)
        elif self.parse:
            module, _, function = self.parse.partition(":")
            parse = getattr(importlib.import_module(f"pytest_sme2.{module}"), function)
            value = parse([given] if self.repeats and isinstance(given, str) else given)
        return {self.field: value} if self.field else dict(value)


# fmt: off
OPTIONS: tuple[Option, ...] = (
    Option("--device", "device", "DEVICE", "targets.settings:parse_device",
           f"where to run programs: {', '.join(DEVICES)}. auto is this machine if it has SME2, "
           "else the SME2 emulator if there is one, else this machine without SME2."),
    Option("--sme2-models", "models", "NAME[,NAME]", "system.wording:split_list",
           "only these models; `sme2 models` lists all. A path that ends in .pte, or a pattern of "
           "such paths, is run as it is.", ini=False),
    Option("--sme2-variants", "variants", "VARIANT[,VARIANT]", "export.variant:parse_variants",
           "only these variants, for example fp32,fp16,int8; with an input size if the model takes "
           "one (fp16@256)."),
    Option("--update-baselines", "", "dry|all", "session.settings:parse_update",
           "measure, write the baselines, and print old and new values. With =dry nothing is "
           "written; with =all also what was measured while the machine was busy.", ini=False,
           bare=True),
    Option("--sme2-report", "", "FILE", "session.settings:parse_reports",
           "write a report: FILE.html has all results and needs no network; FILE.json is what "
           "a comment on a pull request says. May be repeated.", repeats=True),
    Option("--against", "against", "REF", "session.reference:parse_against",
           "compare with REF in the same run, in interleaved pairs: a bundle (`sme2 bundle`), a "
           "folder of .pte files, or a version such as executorch==1.5.0.", ini=False),
    Option("--threads", "threads", "N[,N]", "session.settings:parse_threads",
           "numbers of threads; default 1."),
    Option("--sme2-limit", "limits", "NAME=VALUE", "verdict.limits:parse_limits",
           "a limit of this run, named as in limits.toml: max_regression=3%%, min_speedup=1.5, "
           "min_coverage=90%%. May be repeated.", ini=False, repeats=True),
    Option("--sme2-strict", "strict", SWITCH, SWITCH,
           "fail if a verdict is INCONCLUSIVE, if a baseline is missing, if nothing was compared, "
           "or if any figure was not that the baselines of the device hold."),
    Option("--sme2-require", "require_sme2", SWITCH, SWITCH,
           "fail if the device has no SME2, instead of skipping what needs it."),
    Option("--sme2-budget", "", "TIME[,LIMIT]", "session.settings:parse_budgets",
           "time for measuring one model and variant, as in 60s or 2m; default 30s. Ten pairs are "
           "measured even where they take longer, and what would fail without being certain gets "
           "up to three times as long. After LIMIT the measurement fails; default ten times TIME. "
           "sustain=TIME (5m) also runs each case back to back for so long, and compares the last "
           "minute with the first; Ctrl-C ends it and keeps what was measured.", repeats=True),
    Option("--sme2-baseline-dir", "baseline_dir", "DIR", PATH,
           "the folder of baselines and limits.toml; default baselines."),
    Option("--sme2-out", "out", "DIR", PATH,
           "the run directory for traces, logs, tables and reports; default sme2-out."),
    Option("--sme2-history", "history", "DIR", PATH,
           "add a small record of each case to this folder; `sme2 history DIR` shows what "
           "changed."),
    Option("--sme2-weights", "weights", "FILE", PATH,
           "a state dict for the export; default: random weights with a fixed seed.", ini=False),
    Option("--sme2-cpu", "emulated_cpu", "NAME[:BITS]", "system.qemu:checked_cpu",
           "the CPU to emulate: strict (default; no real one with SME2 can do less), apple-m4, "
           "arm-c1 or sme1 (SME without SME2); BITS is the length of its streaming vectors: 128, "
           "256 or 512 (default)."),
    Option("--sme2-arms", "arms", "ARM,ARM[,ARM]", "session.settings:parse_arms",
           "what to run on the emulator: on,off (default), or off,sme1,on. sme1 hides SME2 and "
           "keeps SME, as on a chip without SME2."),
    Option("--sme2-fresh", "fresh", SWITCH, SWITCH,
           "make everything again: exports, the runner, the counter and emulated runs."),
    Option("--sme2-runner", "runners", "ON,OFF", "session.settings:parse_runners",
           "two executor_runner of your own: built with SME2 on, and with SME2 and SME off."),
    Option("--sme2-serial", "serials", "SERIAL[,SERIAL]", "targets.settings:parse_serials",
           "the phones for --device=android, by serial or host:port; may be repeated; default: "
           "ANDROID_SERIAL, else the only attached phone.", repeats=True),
    Option("--sme2-lab", "", "COORDINATOR[,TAG=VALUE]", "targets.settings:parse_lab",
           "with --device=android: take phones from a labgrid coordinator, HOST or HOST:PORT; only "
           "places with these tags, as in soc=dimensity-9500. Needs pytest-sme2[labgrid]."),
    Option("--sme2-phone", "", "NAME=VALUE", "session.settings:parse_phone",
           "about the phone: cpus=big, little, or numbers such as 4-7; "
           "patience=60s (for a lost phone); "
           "adb-server=HOST:PORT; bundle=FILE (of `sme2 bundle --phone`); fake: a sandbox with a "
           "real adbd, to try a set-up, whose times mean nothing. May be repeated.", repeats=True),
)
# fmt: on

FIRST = ("device", "models", "variants", "update-baselines", "report", "against", "threads")
DEVICE = ("device", "serial", "phone")


def read(given: Iterable[tuple[Option, Any, str]]) -> dict[str, Any]:
    """The fields of Settings, from each option's value, if there is one, and where that is from."""
    fields: dict[str, Any] = {}
    for option, value, where in given:
        try:
            fields |= {} if value is None else option.read(value)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
    if fields.get("lab") and fields.get("device") != "android":
        raise UsageError("--sme2-lab hands out phones. Give --device=android, too.")
    return fields
