"""Which lines of a model's sources changed since its baseline was committed.

Only for what measures, in the user's own working tree. Git is asked for a commit and for the
contents of files, by commands that run no program that a repository names: no diff, no status, no
filter, no signature, no fetch. What cannot be known is left out, and nothing gets worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from pathlib import Path

from pytest_sme2.errors import RunError
from pytest_sme2.results import CaseResult, ChangedLines, Fingerprint
from pytest_sme2.system.processes import git
from pytest_sme2.verdict.baselines import baseline_path

_SECONDS = 10.0
_SAFE = ("--no-replace-objects", "-c", "core.fsmonitor=false")
# In a clone without all contents, those that are missing are not asked for.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
_MOST_BYTES = 2 << 20


def changed_since(root: Path, measured: CaseResult, model: Path | None) -> tuple[ChangedLines, ...]:
    """Those of a case's sources, ``model`` first, that differ from the commit of its baseline."""
    known = (measured.fingerprint, Fingerprint("emulated", ()))
    paths = (baseline_path(root, measured.model, measured.variant, each) for each in known)
    path = next((path for path in paths if path.is_file()), None)
    sources = [] if model is None else [model]
    for profile in measured.profiles.values():
        origins = [member.origin for member in profile.operators if member.origin]
        ways = [frame for origin in origins for frame in origin.way]
        sources += [Path(frame.file) for frame in ways if not frame.installed]
    return () if path is None else changed_lines(path, sources)


def changed_lines(baseline: Path, sources: Iterable[Path]) -> tuple[ChangedLines, ...]:
    """Of each source that differs from what it was when the baseline was committed."""
    try:
        folder = baseline.resolve(strict=True).parent
        root = Path(_git(folder, "rev-parse", "--show-toplevel").rstrip("\n")).resolve()
        commit = _git(root, "rev-list", "-1", "HEAD", "--", _name(root, baseline)).strip()
        # One that was updated since may be of any state of the sources.
        if not re.fullmatch("[0-9a-f]{40,64}", commit) or _committed(
            root, commit, baseline
        ) != _lines(baseline):
            return ()
    except (RunError, OSError, ValueError):
        return ()
    found = []
    for source in dict.fromkeys(each.resolve() for each in sources):
        try:
            old, new = _committed(root, commit, source), _lines(source)
        except (OSError, ValueError):
            continue
        codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        edits = [(range(a + 1, b + 1), range(c + 1, d + 1)) for tag, a, b, c, d in codes
                 if tag != "equal"]  # fmt: skip
        if edits:
            found.append(ChangedLines(source, tuple(edits)))
    return tuple(found)


def _git(folder: Path, *words: str) -> str:
    return git(folder, *_SAFE, *words, seconds=_SECONDS, variables=_NO_FETCH)


def _name(root: Path, file: Path) -> str:
    """As git calls it; ValueError for a file that is elsewhere."""
    return file.resolve().relative_to(root).as_posix()


def _committed(root: Path, commit: str, file: Path) -> list[str]:
    """The lines that it had; none where it was not there."""
    name = _name(root, file)
    try:
        return _git(root, "cat-file", "blob", f"{commit}:{name}").splitlines()
    except RunError:
        return []


def _lines(file: Path) -> list[str]:
    if file.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{file} is no source")
    return file.read_text("utf-8", errors="replace").splitlines()
