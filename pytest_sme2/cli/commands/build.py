"""``sme2 build``: the stock executor_runner, from the user's own ExecuTorch checkout."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import BuildError, UsageError
from pytest_sme2.runners import stock
from pytest_sme2.system.terminal import say

EXAMPLE = "sme2 build --executorch ~/executorch --platform android --ndk ~/android-ndk --dry-run"
ARGUMENTS: Arguments = {
    "--executorch DIR!": "the ExecuTorch checkout; it is not changed",
    f"--platform {{{','.join(stock.PLATFORMS)}}}!": "where the runner runs",
    f"--variant {{{','.join(stock.VARIANTS)}}}": (
        "xnnlog prints which operators ran; do not use it for timing",
        "timing",
    ),
    "--ndk DIR": "the Android NDK (default: ANDROID_NDK)",
    "--out DIR": "where to build (default: a folder in the cache)",
    "--cmake-option NAME=VALUE...": "a CMake variable; may be repeated",
    "--dry-run": "print the commands and what is missing, and build nothing",
}


def run(arguments: argparse.Namespace) -> int:
    request = stock.SourceBuild(
        # Made absolute, not resolved: a link named 'executorch' is a good way to get the name.
        tree=_absolute(arguments.executorch),
        platform=arguments.platform,
        variant=arguments.variant,
        ndk=_absolute(ndk) if (ndk := arguments.ndk or os.environ.get("ANDROID_NDK")) else None,
        out=arguments.out and _absolute(arguments.out),
        options=dict(map(_option, arguments.cmake_option)),
    )
    problems = stock.check(request)
    if arguments.dry_run:
        print(stock.dry_run(request), end="")
    for problem in problems:
        print(f"missing: {problem}", file=sys.stderr)
    if arguments.dry_run:
        return 3 if problems else 0
    if problems:
        raise BuildError(f"{len(problems)} thing(s) stand in the way of this build, as said above.")
    built = stock.build(request, progress=say)
    document, lines = [], []
    for runner, found in built.items():
        families = found and sorted(family.value for family in found)
        known = "not to be seen in the binary" if families is None else ", ".join(families)
        lines.append(f"SME2 {runner.arm}: {runner.binary} (kernels: {known})")
        document.append({"sme2": runner.arm, "binary": str(runner.binary), "kernels": families})
    lines.append(stock.usage_line(request))
    return show(arguments, document, lines)


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is not a CMake option. Write --cmake-option NAME=VALUE.")
    return name, value


def _absolute(path: Path | str) -> Path:
    return Path(os.path.normpath(Path(path).expanduser().absolute()))
