"""What ``--update-baselines`` stored: a few lines, or with -v every value, old and new. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_sme2.report.text import WIDTH, bullet
from pytest_sme2.results import BaselineChange
from pytest_sme2.system.wording import count, some_of

MOST_CASES = 3
"""Of those that changed; the rest is counted."""
MOST_CHANGES = 4
MOST_KINDS = 6
MOST_NAMED = 6
# What is only counted, and what follows its name.
_COUNTED = {"limit": "", "operator": "", "kernel": "", "share": " of time", "version": ""}
# A kernel whose name the library does not keep: its place there says nothing to a reader.
_UNNAMED = re.compile(r"kernel \S+\+0x[0-9a-f]+ ")


@dataclass(frozen=True)
class Update:
    """One case whose baseline was brought up to date."""

    case: str
    path: str
    changes: tuple[BaselineChange, ...]
    new: bool
    """Whether there was no baseline before."""
    doubts: tuple[str, ...] = ()
    """What of it is of little use, one sentence each."""
    stored: bool = True
    """Whether its changes were accepted."""


def update_lines(
    updates: Sequence[Update],
    root: str,
    verbosity: int = 0,
    width: int = WIDTH,
    *,
    dry_run: bool = False,
) -> list[str]:
    """What was stored, or would be in a dry run, for all cases together."""
    if not updates:
        return []
    told = _every(updates, dry_run) if verbosity > 0 else _summary(updates, root, width, dry_run)
    return [*told, *(["--update-baselines=dry: no baseline was written."] if dry_run else [])]


def unaccepted(
    changes: Sequence[BaselineChange], patterns: Sequence[str]
) -> tuple[BaselineChange, ...]:
    """The changes that match no pattern: as -v names them, or as the summary counts them."""
    return tuple(
        entry
        for entry in changes
        if not any(
            fnmatch.fnmatchcase(words, pattern)
            for words in (entry.what, _kind(entry))
            for pattern in patterns
        )
    )


def _every(updates: Sequence[Update], dry_run: bool) -> Iterator[str]:
    for update in updates:
        if not update.changes:
            yield f"{update.case}: the baseline stays as it is ({update.path})"
            continue
        if update.stored:
            written = "changes for" if dry_run else "baseline written to"
            yield f"{update.case}: {written} {update.path}"
        else:
            yield f"{update.case}: changes that were not stored in {update.path}"
        named = [entry for entry in update.changes if not _UNNAMED.match(entry.what)]
        yield from (f"  {entry.what}: {entry.old} → {entry.new}" for entry in named)
        if unnamed := len(update.changes) - len(named):
            yield f"  {count(unnamed, 'kernel')} without a name: each is in the file"
        yield from (f"  warning: {doubt}" for doubt in update.doubts)


def _summary(updates: Sequence[Update], root: str, width: int, dry_run: bool) -> Iterator[str]:
    new = [update for update in updates if update.new and update.stored]
    # Also list what would have changed in baselines that were not stored.
    changed = [update for update in updates if update.changes and not update.new]
    refused = [update.case for update in updates if not update.stored]
    stored = sum(update.stored for update in changed)
    same = len(updates) - len(new) - stored - len(refused)
    parts = (
        (len(new), "new"),
        (stored, "changed"),
        (len(refused), "not stored"),
        (same, "unchanged"),
    )
    counted = ", ".join(f"{number} {word}" for number, word in parts if number)
    yield bullet(f"baselines: {counted}, in {root}", "", width)
    if refused:
        yield bullet(f"not stored: {some_of(refused, MOST_NAMED)}", "  ", width)
    if new:
        cases = some_of([update.case for update in new], MOST_NAMED)
        yield bullet(f"new: {cases}", "  ", width)
        yield bullet(f"stored of them: {_kinds(new)}", "  ", width)
    if len(changed) > MOST_CASES:
        yield from (bullet(line, "  ", width) for line in _shared(changed))
    for update in changed[:MOST_CASES]:
        yield bullet(f"{update.case}: {_told(update.changes)}", "  ", width)
    if len(changed) > MOST_CASES:
        cases = some_of([update.case for update in changed[MOST_CASES:]], MOST_NAMED)
        yield bullet(f"changed, too: {cases}", "  ", width)
    doubts = [f"{update.case}: {doubt}" for update in updates for doubt in update.doubts]
    if doubts:
        more = f" ({count(len(doubts) - 1, 'more warning')} with -v)" if len(doubts) > 1 else ""
        yield bullet(f"warning: {doubts[0]}{more}", "  ", width)
    if new or changed or refused:
        commit = " Commit the files." if (new or stored) and not dry_run else ""
        yield f"  Every value, old and new, is shown with -v.{commit}"


def _shared(updates: Sequence[Update]) -> Iterator[str]:
    """The kinds of change that several cases share: ``41 cases: +1 Transpose (on, xnnpack)``."""
    found: Counter[str] = Counter()
    for update in updates:
        found.update(dict.fromkeys(map(_kind, update.changes), 1))
    shared = [(kind, number) for kind, number in found.most_common() if number > 1]
    for kind, number in shared[:MOST_KINDS]:
        yield f"{number} cases: {kind}"
    if len(shared) > MOST_KINDS:
        yield f"and {count(len(shared) - MOST_KINDS, 'other kind')} of change in several cases"


def _kind(entry: BaselineChange) -> str:
    """What changed, the same words for all cases where it changed alike."""
    word, _, name = entry.what.partition(" ")
    if word == "version":
        return f"{name.removeprefix('of ')} {entry.old} → {entry.new}"
    if word == "operator":
        numbers = [0 if text == "none" else int(text) for text in (entry.old, entry.new)]
        return f"{numbers[1] - numbers[0]:+d} {name}"
    if _UNNAMED.match(entry.what):
        return f"other kernels without a name{_UNNAMED.sub(' ', entry.what, count=1)}"
    if word == "kernel":
        return f"{'no longer ' if entry.new == 'none' else ''}runs {name}"
    return f"other {entry.what}"


def _kinds(updates: Sequence[Update]) -> str:
    """``operators, kernels, instructions (off), …``: each kind of value once."""
    found: dict[str, None] = {}
    for entry in (entry for update in updates for entry in update.changes):
        word = entry.what.partition(" ")[0]
        # What is in brackets is the arm or the number of threads.
        figure = re.sub(r" \(.*", "", entry.what)
        found[f"{word}s{_COUNTED[word]}" if word in _COUNTED else figure] = None
    return ", ".join(found)


def _told(changes: Sequence[BaselineChange]) -> str:
    """Of operators and kernels only how many changed, after the figures."""
    words = Counter(entry.what.partition(" ")[0] for entry in changes)
    figures = [entry for entry in changes if entry.what.partition(" ")[0] not in _COUNTED]
    parts = [f"{entry.what} {entry.old} → {entry.new}" for entry in figures[:MOST_CHANGES]]
    parts += [f"{count(words[word], word)}{rest}" for word, rest in _COUNTED.items() if words[word]]
    left = len(figures) - MOST_CHANGES
    return "; ".join(parts) + (f"; and {left} more" if left > 0 else "")
