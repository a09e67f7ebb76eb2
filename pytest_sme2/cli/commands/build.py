"""``sme2 build``: the stock executor_runner, from the user's own ExecuTorch checkout."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import BuildError, UsageError
from pytest_sme2.results import PAIR, Arm
from pytest_sme2.runners import source_build
from pytest_sme2.system.terminal import say

EXAMPLE = "sme2 build --executorch ~/executorch --platform android --ndk ~/android-ndk --dry-run"
ARGUMENTS: Arguments = {
    "--executorch DIR!": "the ExecuTorch checkout; it is not changed",
    f"--platform {{{','.join(source_build.PLATFORMS)}}}!": "where the runner runs",
    "--sme2 {on,off,both}": ("which runners to build (default: both)", "both"),
    f"--variant {{{','.join(source_build.VARIANTS)}}}": (
        "xnnlog prints which operators ran; do not use it for timing",
        "timing",
    ),
    "--ndk DIR": "the Android NDK (default: ANDROID_NDK)",
    "--kleidiai DIR": "a copy of KleidiAI, if there is no network to download it",
    "--python FILE": ("a Python with torch (default: this one)", Path(sys.executable)),
    "--out DIR": "where to build (default: a folder in the cache)",
    "--cmake-option NAME=VALUE...": "a CMake variable; may be repeated",
    "--dry-run": "print the commands and what is missing, and build nothing",
    "--force": "build even if something is missing",
    "--jobs N": ("how many compilers at a time (default: one per core)", os.cpu_count() or 1),
}


def run(arguments: argparse.Namespace) -> int:
    request = source_build.SourceBuild(
        # Made absolute, not resolved: a link named 'executorch' is a good way to get the name.
        tree=_absolute(arguments.executorch),
        platform=arguments.platform,
        sides=PAIR if arguments.sme2 == "both" else (Arm(arguments.sme2),),
        variant=arguments.variant,
        ndk=_absolute(ndk) if (ndk := arguments.ndk or os.environ.get("ANDROID_NDK")) else None,
        kleidiai=arguments.kleidiai and _absolute(arguments.kleidiai),
        python=_absolute(arguments.python),
        out=arguments.out and _absolute(arguments.out),
        jobs=arguments.jobs,
        options=dict(map(_option, arguments.cmake_option)),
    )
    tools = source_build.find_tools()
    problems = source_build.check(request, tools)
    if arguments.dry_run:
        print(source_build.dry_run(request, tools), end="")
    for problem in problems:
        print(f"missing: {problem}", file=sys.stderr)
    if arguments.dry_run:
        return 3 if problems else 0
    if problems and not arguments.force:
        raise BuildError(
            f"{len(problems)} thing(s) stand in the way of this build; they are listed above. "
            "--force builds nevertheless."
        )
    built = source_build.build(request, tools, progress=say)
    document, lines = [], []
    for runner, found in built.items():
        families = found and sorted(family.value for family in found)
        known = "not to be seen in the binary" if families is None else ", ".join(families)
        lines.append(f"SME2 {runner.arm}: {runner.binary} (kernels: {known})")
        document.append({"sme2": runner.arm, "binary": str(runner.binary), "kernels": families})
    lines.append(source_build.usage_line(request, tuple(built)))
    return show(arguments, document, lines)


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is not a CMake option. Write --cmake-option NAME=VALUE.")
    return name, value


def _absolute(path: Path | str) -> Path:
    return Path(os.path.normpath(Path(path).expanduser().absolute()))
