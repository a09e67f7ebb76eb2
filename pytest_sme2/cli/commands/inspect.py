"""``sme2 inspect``: is SME2 inside a library, an app or a wheel, and can it be found there?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import UsageError, plain
from pytest_sme2.system.elf import PHONE_PAGE_BYTES
from pytest_sme2.system.wording import count
from pytest_sme2.trace.library import ARM64, Library, read_package

EXAMPLE = "sme2 inspect app-release.apk --require-sme2"
_PARTS = {"xnnpack": "XNNPACK", "kleidiai": "KleidiAI", "cpuinfo": "cpuinfo"}
_CHECKS = {
    "here": "SME2 kernels, and the code that asks the system for SME2",
    "elsewhere": "SME2 kernels; cpuinfo, which asks the system, is in a library that is not here",
    "nowhere": "SME2 kernels, but no code was found that asks the system for SME2",
}
_MOST_NAMES = 8
ARGUMENTS: Arguments = {
    "path FILE|DIR": "a library (.so, .a, .dylib), a package (.aar, .apk, .ipa, .whl) or a folder",
    "--require-sme2": "exit code 1 if SME2 is missing, or if nothing asks the system for it",
    "--json": "print JSON, with all kernels",
}


def run(arguments: argparse.Namespace) -> int:
    package = read_package(arguments.path)
    if not package.libraries:
        raise UsageError(f"{arguments.path} has no library. Give one, or what it is packed into.")
    found: dict[tuple[str, str], list[Library]] = {}
    for library in package.libraries:
        found.setdefault((library.architecture, library.platform), []).append(library)
    groups = [_group(*key, libraries) for key, libraries in sorted(found.items())]
    # Only arm64 has SME2. Libraries without XNNPACK need it only where none has XNNPACK.
    arm64 = [group for group in groups if group["architecture"] == ARM64]
    asked = [group for group in arm64 if group["xnnpack"]] or arm64
    ready = bool(asked) and all(g["sme2"] and g["check"] != "nowhere" for g in asked)
    document = {"schema": 2, "path": str(arguments.path), "executorch": package.executorch}
    version = f": ExecuTorch {package.executorch}" if package.executorch else ""
    lines = [f"{plain(str(arguments.path))}{version}"]
    lines += (line for group in groups for line in _lines(group))
    show(arguments, {**document, "sme2": ready, "groups": groups}, lines)
    return 1 if arguments.require_sme2 and not ready else 0


def _group(architecture: str, platform: str, libraries: Sequence[Library]) -> dict[str, Any]:
    """The libraries for one CPU and one system: at run time they are together."""
    # Where nothing names them, XNNPACK and KleidiAI may be in any library.
    carriers = [one for one in libraries if one.xnnpack or one.kleidiai] or libraries
    cpuinfo = any(library.cpuinfo for library in libraries)
    elsewhere = not cpuinfo and any(library.uses_other_cpuinfo for library in carriers)
    check = "elsewhere" if elsewhere else "nowhere"
    # Others may ask for purposes of their own: Rust's standard library does.
    if any(one.asks_for_sme2 for one in libraries if one in carriers or one.cpuinfo):
        check = "here"
    return {
        "architecture": architecture,
        "platform": platform,
        "xnnpack": any(library.xnnpack for library in libraries),
        "kleidiai": any(library.kleidiai for library in libraries),
        "cpuinfo": cpuinfo,
        "sme2": any(library.sme2 for library in carriers),
        "check": check,
        "misaligned": [
            library.name
            for library in libraries
            if library.alignment is not None and library.alignment < PHONE_PAGE_BYTES
            # No other system of x86_64 has such pages.
            if architecture == ARM64 or platform == "Android"
        ],
        "libraries": [asdict(library) for library in libraries],
    }


def _lines(group: dict[str, Any]) -> list[str]:
    verdict = _CHECKS[group["check"]] if group["sme2"] else "no SME2 kernels"
    parts = ", ".join(
        f"{name} {'' if group[part] else 'not '}found" for part, name in _PARTS.items()
    )
    lines = ["", f"{group['architecture']} {group['platform']}: {verdict}", f"  {parts}"]
    for library in group["libraries"]:
        lines += _library_lines(library)
    if group["platform"] == "Android":
        aligned = "not all" if group["misaligned"] else "all"
        lines += [f"  aligned for pages of 16 KB: {aligned}", *_listed(group["misaligned"], "not ")]
    return lines


def _library_lines(library: dict[str, Any]) -> list[str]:
    found, lines = library["instructions"], list[str]()
    if library["asks_for_sme2"]:
        lines.append("    asks the system for SME2")
    for title, kernels in (("SME2", library["sme2_kernels"]), ("SME", library["sme_kernels"])):
        if kernels:
            lines += [f"    {count(len(kernels), f'{title} kernel')} by name:", *_listed(kernels)]
    if found["smstart"]:
        work = "".join(f", {number} {name}" for name, number in found["work"].items())
        lines.append(
            f"    instructions: {found['smstart']} SMSTART{work}; "
            f"{found['sme2_only']} are SME2's alone"
        )
    return [f"  {plain(library['name'])}", *lines] if lines else []


def _listed(names: Sequence[str], before: str = "") -> list[str]:
    more = [f"      and {len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return [*(f"      {before}{plain(name)}" for name in names[:_MOST_NAMES]), *more]
