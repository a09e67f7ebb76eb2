"""``sme2 bundle``: a runner and programs in one file, for ``pytest --against`` or phones."""

from __future__ import annotations

import argparse
import shlex

from pytest_sme2.cli.commands.models import registry_of
from pytest_sme2.cli.options import FOLDERS, Arguments, show
from pytest_sme2.errors import UsageError
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import Registry
from pytest_sme2.export.variant import parse_variants
from pytest_sme2.results.run import Artifact
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.bundle import check_name, open_bundle, write_bundle
from pytest_sme2.session.device import choose_target
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.platforms import LINUX_AARCH64, PLATFORMS
from pytest_sme2.system.terminal import say
from pytest_sme2.system.wording import count, one_of, split_list
from pytest_sme2.targets.settings import DEVICES, parse_device

EXAMPLE = "sme2 bundle last-release.tar.gz --models toy_cnn --variants fp32,fp16"
ARGUMENTS: Arguments = {
    "out OUT": "the bundle, a .tar.gz file",
    **FOLDERS,
    "--models LIST": "comma-separated (default: all)",
    "--variants LIST": "comma-separated (default: each model's own)",
    "--phone": "only the runner for phones, without an NDK, for pytest --sme2-phone bundle=FILE",
    "--device DEVICE": (
        f"the device that the runner is for: {', '.join(DEVICES)} (default: auto)",
        "auto",
    ),
    "--platform PLATFORM": f"or its platform: {', '.join(PLATFORMS)}",
    "--executorch VERSION": "the ExecuTorch of the runner (default: the installed one)",
    "--json": "print the contents as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    check_name(arguments.out)
    if arguments.phone:
        chosen = (arguments.models, arguments.variants, arguments.platform)
        if chosen != (None, None, None):
            raise UsageError("--phone takes no --models, --variants or --platform.")
        platform = LINUX_AARCH64
    elif arguments.platform is None:
        device = parse_device(arguments.device)
        platform = choose_target(Settings(device=device)).platform
    else:
        platform = one_of(arguments.platform, PLATFORMS, "a platform")
    artifacts = [] if arguments.phone else _export(arguments, registry_of(arguments))
    runner = wheel_runner(platform, executorch=arguments.executorch, progress=say)
    path = write_bundle(arguments.out, runner, artifacts)
    # Open it once, to find out now whether that works.
    bundle = open_bundle(path)
    if arguments.phone:
        use = f"Use it with: pytest --device android --sme2-phone bundle={shlex.quote(str(path))}"
    else:
        # pytest takes a word that is a path for the tests to run, before it knows the option.
        use = f"Measure against it with: pytest --against={shlex.quote(str(path))}"
    document = {
        "path": str(path),
        "sha256": bundle.sha256,
        "platform": runner.platform,
        "executorch": runner.executorch,
        "programs": [list(key) for key in bundle.artifacts],
    }
    what = f"the runner of ExecuTorch {runner.executorch} for phones"
    what = what if arguments.phone else count(len(artifacts), "program")
    return show(arguments, document, [f"{path}: {what}, {path.stat().st_size / 1e6:.1f} MB", use])


def _export(arguments: argparse.Namespace, registry: Registry) -> list[Artifact]:
    names = split_list(arguments.models) if arguments.models is not None else registry.names
    wanted = parse_variants(arguments.variants) if arguments.variants is not None else ()
    artifacts = [
        export_model(entry, variant, progress=say)
        for entry in (registry.get(name) for name in names)
        for variant in (wanted or entry.variants)
    ]
    if not artifacts:
        raise UsageError("No model was found to bundle. Name a folder with --models-folder.")
    return artifacts
