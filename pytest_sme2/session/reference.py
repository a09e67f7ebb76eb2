"""What ``--against`` names: a bundle, a folder of programs, or a version of ExecuTorch.

Parsing is pure; opening downloads, builds or unpacks. The measuring itself is in ``versus.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_sme2.errors import Sme2Warning, UsageError
from pytest_sme2.export.store import artifact_stem, find_artifact
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import AS_EXPORTED, Artifact, Baseline, Fingerprint
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sdk import parse_pin
from pytest_sme2.runners.sme2 import find_runner, wheel_runner
from pytest_sme2.session.bundle import SUFFIXES, open_bundle
from pytest_sme2.system.files import file_sha256, safe_name
from pytest_sme2.system.terminal import Say

CHOICES = (
    "Give a bundle made with sme2 bundle (.tar.gz), a folder of .pte files, or a version of "
    "ExecuTorch as in executorch==1.5.0."
)
BASELINE_BUNDLE = "bundle.tar.gz"
CANDIDATE, BASELINE_PROGRAM = "this version", "the baseline's program"


@dataclass(frozen=True)
class Reference:
    """What to measure against, as the user named it."""

    kind: str
    """``executorch``, ``bundle``, ``programs``, or ``baseline`` for what a baseline measured."""
    name: str
    """For reports: ``executorch 1.5.0``, or the file's or folder's name."""
    version: str | None = None
    path: Path | None = None


def parse_against(text: str) -> Reference:
    """``executorch==1.5.0``, a bundle, or a folder of ``.pte`` files."""
    pin = parse_pin(text)
    if pin is not None and pin.package == "executorch":
        return Reference("executorch", f"executorch {pin.version}", version=pin.version)
    path = Path(text).expanduser()
    if path.resolve().name in (CANDIDATE, BASELINE_PROGRAM):
        raise UsageError(f"--against: {text!r} has a name that reports use themselves. Rename it.")
    if text.strip() and path.is_file() and path.name.endswith(SUFFIXES):
        return Reference("bundle", path.name, path=path.resolve())
    if text.strip() and path.is_dir():
        return Reference("programs", path.resolve().name, path=path.resolve())
    problem = "is neither of these" if path.exists() and text.strip() else "does not exist"
    if text.strip().startswith("executorch"):
        problem = "is not a version"
    raise UsageError(f"--against: {text!r} {problem}. {CHOICES}")


def open_beside(
    root: Path, fingerprint: Fingerprint, platform: str, *, progress: Say | None = None
) -> OpenReference | None:
    """The bundle that was stored with a target's baselines, if there is one.

    With it, a stored latency that looks worse can be decided by interleaved pairs.
    """
    path = root / safe_name(fingerprint.key) / BASELINE_BUNDLE
    if not path.is_file():
        return None
    return open_reference(parse_against(str(path)), platform, progress=progress)


def baseline_reference(
    baseline: Baseline, threads: int, runner: Runner, bundle: OpenReference | None
) -> OpenReference | None:
    """What the baseline measured: from the bundle beside it, else from the cache, else None.

    A bundle that holds something else is not used, and a warning says how to renew it.
    """
    if bundle is not None:
        problem = why_stale(bundle, baseline, threads)
        if problem is None:
            return bundle
        warnings.warn(Sme2Warning(problem), stacklevel=2)
    return kept_reference(baseline, threads, runner)


def why_stale(bundle: OpenReference, baseline: Baseline, threads: int) -> str | None:
    """Why a bundle must not decide; None where it holds what the baseline measured.

    The runner counts as well: pairs with today's runner on both sides would hide what it costs.
    """
    program, runtime = baseline.pte_sha256, ""
    for session in baseline.current(threads)[-1:]:
        program, runtime = session.program, session.runtime
    found = (bundle.artifacts or {}).get((baseline.model, baseline.variant))
    if found is None:
        problem = "no program"
    elif not program or found.sha256 != program:
        problem = "another program than the baseline measured"
    elif runtime and bundle.runner is not None and bundle.runner.sha256 != runtime:
        problem = "another runner than the baseline measured"
    else:
        return None
    path = bundle.reference.path
    # What else it holds must be in the new one, too.
    wanted = sorted({*(bundle.artifacts or {}), (baseline.model, baseline.variant)})
    models = ",".join(dict.fromkeys(model for model, _ in wanted))
    variants = ",".join(dict.fromkeys(variant for _, variant in wanted))
    return (
        f"{path} is not used: it holds {problem} for {baseline.model}-{baseline.variant}. Renew it "
        f"together with the baseline: sme2 bundle {path} --models {models} --variants {variants}"
    )


def kept_reference(
    baseline: Baseline, threads: int, runner: Runner, *, cache: Path | None = None
) -> OpenReference | None:
    """What the baseline's last session measured, where the cache still has its program and runner.

    ``runner`` is today's; it may well be the same one.
    """
    sessions = baseline.current(threads)
    # What was not exported here, the cache never had.
    if not sessions or baseline.variant == AS_EXPORTED:
        return None
    last = sessions[-1]
    if not last.program or not last.runtime:
        return None
    variant = parse_variant(baseline.variant)
    artifact = find_artifact(baseline.model, variant, last.program, cache=cache)
    kept: Runner | None = runner
    if last.runtime != runner.sha256:
        kept = find_runner(runner.platform, last.runtime, cache=cache)
    if artifact is None or kept is None:
        return None
    reference = Reference("baseline", BASELINE_PROGRAM)
    return OpenReference(reference, kept, {(baseline.model, baseline.variant): artifact})


@dataclass(frozen=True)
class OpenReference:
    """A reference that is ready to be measured against."""

    reference: Reference
    runner: Runner | None
    """None: the runner of the other side, on other programs."""
    artifacts: Mapping[tuple[str, str], Artifact] | None = None
    """By model and variant; None: the programs of the other side, on another runner."""
    programs: Mapping[str, Path] = field(default_factory=dict)
    """By file name without ``.pte``, where the reference is a folder of them."""

    def side(self, artifact: Artifact, runner: Runner) -> tuple[Artifact, Runner]:
        """What to compare ``artifact`` on ``runner`` with; UsageError where nothing fits."""
        return self._artifact(artifact), self._runner(runner)

    def _runner(self, runner: Runner) -> Runner:
        if self.runner is None:
            return runner
        if self.runner.platform != runner.platform:
            raise UsageError(
                f"{self.reference.name} is for {self.runner.platform}, but this target is "
                f"{runner.platform}. Measure against something made for it."
            )
        return self.runner

    def _artifact(self, artifact: Artifact) -> Artifact:
        if self.artifacts is not None:
            found = self.artifacts.get((artifact.model, artifact.variant))
            if found is None:
                known = (f"{model}-{variant}" for model, variant in sorted(self.artifacts))
                raise self._lacks(artifact, known)
            return found
        if self.reference.kind == "programs":
            stem = artifact.pte.stem
            if artifact.variant != AS_EXPORTED:
                stem = artifact_stem(artifact.model, parse_variant(artifact.variant))
            path = self.programs.get(stem)
            if path is None:
                raise self._lacks(artifact, (f"{name}.pte" for name in sorted(self.programs)))
            digest = file_sha256(path)
            # The inputs stay ours: both sides are to compute the same thing.
            return replace(artifact, folder=path.parent, pte=path, sha256=digest, etrecord=None)
        return artifact

    def _lacks(self, artifact: Artifact, known: Iterable[str]) -> UsageError:
        names = ", ".join(known)
        return UsageError(
            f"{self.reference.name} has no program for {artifact.model}-{artifact.variant}. "
            f"It has: {names or 'none'}."
        )


def open_reference(
    reference: Reference,
    platform: str,
    *,
    cache: Path | None = None,
    progress: Say | None = None,
) -> OpenReference:
    """Make a reference ready: download and build, unpack and check, or look into the folder."""
    if reference.kind == "executorch":
        runner = wheel_runner(
            platform, executorch=reference.version, cache=cache, progress=progress
        )
        return OpenReference(reference, runner)
    if reference.path is None:
        raise ValueError(f"A reference of kind {reference.kind!r} needs a path.")
    if reference.kind == "bundle":
        bundle = open_bundle(reference.path, cache=cache)
        return OpenReference(reference, bundle.runner, bundle.artifacts)
    return OpenReference(reference, None, programs=_programs(reference.path))


def _programs(folder: Path) -> dict[str, Path]:
    """The programs in a folder and in the folders in it, as ``sme2 export --out`` leaves them."""
    found: dict[str, Path] = {}
    for path in sorted((*folder.glob("*.pte"), *folder.glob("*/*.pte"))):
        if path.stem in found:
            raise UsageError(
                f"{folder}: two programs are called {path.name}: {found[path.stem]} and {path}. "
                "Remove one."
            )
        found[path.stem] = path
    if not found:
        raise UsageError(f"{folder}: holds no .pte file. {CHOICES}")
    return found
