"""``sme2 bisect``: which commit, or which version of a package, made a case worse."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pytest_sme2.bisect.bisecting import FIGURES, LATENCY, NAMES, Bisecting
from pytest_sme2.bisect.row import (
    EXECUTORCH,
    PACKAGES,
    CommitRow,
    ReleaseRow,
    Row,
    WorkTree,
    check_ends,
    commits_between,
    installed_pin,
    named_versions,
    parse_release,
    releases_between,
    repository_of,
)
from pytest_sme2.cli.bisect_lines import document, lines
from pytest_sme2.cli.commands.models import DEFAULT_FOLDER
from pytest_sme2.cli.options import VARIANT, Arguments, add_options, chosen
from pytest_sme2.errors import BuildError, UsageError, plain
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.session.cases import Case
from pytest_sme2.session.options import DEVICE
from pytest_sme2.session.reproduce import run_command
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import is_program
from pytest_sme2.system.pip import Pin, known_versions
from pytest_sme2.system.terminal import Say, clear_line, terminal_line
from pytest_sme2.system.wording import split_list

EXAMPLE = "sme2 bisect toy_cnn --good v1.0 --bad HEAD"
_EMULATED = "emulated"
ARGUMENTS: Arguments = {
    "model MODEL": "a model; for versions of executorch also a .pte file, which is run as it is",
    "--good REF!": (
        f"what was fine: a commit, or a version as in executorch==1.5.0 ({', '.join(PACKAGES)})"
    ),
    "--bad REF": "what is worse (default: HEAD, or the installed version)",
    "--versions LIST": "the versions between the two, as in 1.5.0,1.5.1 (default: pip is asked)",
    "--keep-runner": (
        f"for versions of {EXECUTORCH}: only the export changes, and the runner stays that of "
        "the installed version"
    ),
    **VARIANT,
    "--models-folder DIR": (
        "the folder of models; for commits, inside the repository (default: models)",
        DEFAULT_FOLDER,
    ),
    "--out DIR": (
        "where the figures of each commit or version are kept: the same command goes on "
        "where it was broken off (default: sme2-bisect)",
        Path("sme2-bisect"),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--figure",
        choices=NAMES,
        help="what got worse (default: latency on a device that measures time, else the first that "
        "did): "
        + "; ".join(f"{figure.name}, the {figure.what}" for figure in FIGURES)
        + "; latency, in pairs with the good one",
    )
    add_options(
        parser,
        *DEVICE,
        "budget",
        device=_EMULATED,
        more=" Here it is for the pairs of one comparison, four times as much where they do not "
        "decide.",
    )


def run(arguments: argparse.Namespace) -> int:
    say = terminal_line(sys.stderr)
    program = is_program(arguments.model)
    settings = Settings(
        **chosen(arguments, device=_EMULATED),
        models=(arguments.model,),
        variants=() if program else (parse_variant(arguments.variant),),
        model_folders=(arguments.models_folder,),
    )
    asked = _figure(arguments, settings)
    try:
        with _row(arguments, settings, say) as row:
            search = Bisecting(row, arguments.out.resolve(), say)
            found = search.by_latency() if asked == LATENCY else search.by_figure(asked)
            clear_line(sys.stderr)
            if arguments.json:
                print(json.dumps(document(found), indent=2))
            else:
                name = arguments.model if program else f"{arguments.model}-{arguments.variant}"
                told = lines(found, name, asked, _command(arguments, settings))
                print("\n".join(map(plain, told)))
    finally:
        clear_line(sys.stderr)
    return 0 if found.culprit is None else 1


def _figure(arguments: argparse.Namespace, settings: Settings) -> str | None:
    """What to search by; None: the first exact figure that is worse."""
    timed = not Session(settings).emulated
    if arguments.figure == LATENCY and not timed:
        raise UsageError(
            "An emulator's time says nothing about latency. Name a device, as in --device linux, "
            "or search by another figure."
        )
    default = LATENCY if timed else None
    figure: str | None = arguments.figure or default
    return figure


def _command(arguments: argparse.Namespace, settings: Settings) -> str:
    """What runs the case, for a shell."""
    if is_program(arguments.model):
        return shlex.join(["sme2", "run", arguments.model, "--device", settings.device])
    return run_command(Case(arguments.model, settings.variants[0]), settings, settings.device)


# --- the row of changes ---------------------------------------------------------------------------


@contextlib.contextmanager
def _row(arguments: argparse.Namespace, settings: Settings, say: Say) -> Iterator[Row]:
    good = parse_release(arguments.good)
    if good is not None:
        yield _releases(arguments, settings, good, say)
        return
    if arguments.bad is not None and parse_release(arguments.bad) is not None:
        raise UsageError(
            f"--bad names a version of a package, and --good does not. Write it as "
            f"{EXECUTORCH}==1.5.0, too."
        )
    for option, given in (
        ("--versions", arguments.versions is not None),
        ("--keep-runner", arguments.keep_runner),
    ):
        if given:
            raise UsageError(
                f"{option} belongs to the versions of a package: --good {EXECUTORCH}==1.5.0"
            )
    if is_program(arguments.model):
        raise UsageError(
            f"{arguments.model} is run as it is, so no commit changes it. Name a model, or "
            f"versions of the runtime: --good {EXECUTORCH}==1.5.0"
        )
    repository = repository_of(Path.cwd())
    folder = (Path.cwd() / arguments.models_folder).resolve()
    if not folder.is_relative_to(repository.resolve()):
        raise UsageError(
            f"{str(arguments.models_folder)!r} is not in this repository, so its commits do not "
            "change it. Name a folder inside of it."
        )
    inside = (folder.relative_to(repository.resolve()),)
    commits = commits_between(repository, arguments.good, arguments.bad or "HEAD")
    with WorkTree(repository, commits[0]) as tree:
        yield CommitRow(tree, commits, replace(settings, model_folders=inside))


def _releases(arguments: argparse.Namespace, settings: Settings, good: Pin, say: Say) -> ReleaseRow:
    bad = installed_pin(good.package) if arguments.bad is None else parse_release(arguments.bad)
    if bad is None:
        raise UsageError(
            f"{arguments.bad!r} is not a version, and --good names one. Write it as "
            f"{good.package}==1.2.3."
        )
    check_ends(good, bad)
    if is_program(arguments.model) and (good.package != EXECUTORCH or arguments.keep_runner):
        raise UsageError(
            f"{arguments.model} is run as it is, so only the runner of {EXECUTORCH} makes a "
            "difference. Name a model, or let the runner change."
        )
    one_runner = settings.device_bundle is not None and not arguments.keep_runner
    if one_runner and good.package == EXECUTORCH:
        raise UsageError(
            "--phone bundle=FILE has one runner, so all versions would run on it. Leave it out, or "
            "say that this is meant: --keep-runner"
        )
    if arguments.versions is not None:
        known = named_versions(good, bad, split_list(arguments.versions))
    else:
        say(f"asking pip for the versions of {good.package}")
        try:
            known = known_versions(good.package)
        except BuildError as error:
            raise BuildError(f"{error} Or name them: --versions 1.2.3,1.2.4") from error
    runtime = installed_pin(EXECUTORCH).version if arguments.keep_runner else None
    row = releases_between(good, bad, known)
    return ReleaseRow(row, replace(settings, runtime=runtime), say)
