"""The contract: what must be compared, in a file beside the baselines, and what a run left open.

One line per case, device and figure, so that a diff says what is no longer gated. A line with ``=``
says what the case was accepted with: its settings, weights, inputs and outputs. Pure but for
``load`` and ``store``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_sme2.errors import BaselineError
from pytest_sme2.results import PAIR, Arm, CaseResult, Check, Fingerprint, Outcome
from pytest_sme2.system.files import replacing, safe_name
from pytest_sme2.system.locks import locked
from pytest_sme2.system.reading import read_text_if_there
from pytest_sme2.verdict.baselines import LOCK_NAME, LOCK_SECONDS, SYSTEM_FACTS
from pytest_sme2.verdict.judging import UNCHECKED, UPDATE_HINT, reference_of
from pytest_sme2.verdict.promises import tolerance_of_sample

FILE_NAME = "contract.txt"
HEADER = """\
# What must be compared: device, case, figure, test. --update-baselines adds to it. In CI a run
# passes only if it compared every line of its device. To stop gating something, delete its line.
"""
REMEDY = "Restore it from version control, or remove it and run with --update-baselines."

_SHARES = "share of "
_NOT_PROMISED = (Outcome.INVALID, Outcome.NOT_STORED, *UNCHECKED)

Key = tuple[str, str]
"""A device and a case."""


DESELECTED = "DESELECTED"
"""The reason of a run that was asked for less: it passes for its part."""

# Each may have changed since it was accepted (INPUT_CHANGED); what changed first explains the rest.
_FACTS = ("input", "weights", "settings", "reference", "output")


@dataclass(frozen=True)
class Contract:
    """The lines of the file."""

    checks: Mapping[Key, Mapping[str, str]] = field(default_factory=dict)
    """By figure, the test that compares it."""
    facts: Mapping[Key, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class CasePart:
    """What one run did with one case."""

    device: str
    case: str
    compared: tuple[str, ...]
    unmeasured: Mapping[str, str]
    """By figure, why it was not compared."""
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Part:
    """What one run compared, and what it was not asked to compare."""

    devices: tuple[str, ...]
    cases: tuple[CasePart, ...]
    known: tuple[str, ...]
    """The cases that a run with no choice of models has."""
    left: tuple[tuple[str, str], ...] = ()
    """Test and case: those that were found and left out."""
    unchosen: tuple[str, ...] = ()
    """The cases that the choice of models or variants left out."""
    narrowed: bool = False
    """Whether single tests were named, so that the others are unknown."""
    arms: tuple[Arm, ...] = PAIR
    """The arms that the run was asked for; the lines of others are for other runs."""


@dataclass(frozen=True)
class Gap:
    """Lines of one case that were not compared, for one reason."""

    device: str
    case: str
    reason: str
    """``NOT_MEASURED``, for example."""
    message: str
    figures: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = f"{', '.join(self.figures)}: " if self.figures else ""
        return f"{self.reason}: {self.case} on {self.device}: {what}{self.message}"


def device_of(fingerprint: Fingerprint) -> str:
    """A device stays the same one when its system is updated."""
    facts = tuple(fact for fact in fingerprint.facts if fact[0] not in SYSTEM_FACTS)
    return Fingerprint(fingerprint.target, facts).key


def case_of(model: str, variant: str, threads: int) -> str:
    name = f"{model}-{variant}" + (f"-t{threads}" if threads != 1 else "")
    return name if name.isprintable() and "|" not in name else safe_name(name)


def facts_of(measured: CaseResult) -> dict[str, str]:
    """What the figures of a case depend on, in words."""
    cpu = dict(measured.fingerprint.facts).get("cpu", "") if measured.emulated else ""
    settings = [f"threads {measured.threads}", f"runner {measured.runner}", cpu and f"cpu {cpu}"]
    facts = {"settings": ", ".join(filter(None, settings)), "weights": measured.weights}
    for name, sample in measured.samples.items():
        near = tolerance_of_sample(name, measured.variant) * sample.scale
        numbers = " ".join(f"{number:.6g}" for number in sample.numbers)
        facts[name] = f"{sample.sha256}: {numbers} ± {near:.3g}"
    return facts


def _same(old: str, new: str) -> bool:
    """Whether two facts say the same; numbers may differ by the accepted one's tolerance."""
    (digest, _, before), (other, _, now) = old.partition(": "), new.partition(": ")
    if digest == other:
        return True
    before, _, tolerance = before.partition(" ± ")
    numbers = (map(float, text.split()) for text in (before, now.partition(" ± ")[0]))
    try:
        near = [abs(a - b) <= float(tolerance) for a, b in zip(*numbers, strict=True)]
    except ValueError:
        return False
    return bool(near) and all(near)


def parse(text: str, path: Path) -> Contract:
    checks: dict[Key, dict[str, str]] = {}
    facts: dict[Key, dict[str, str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match line.split(" | "):
            case [device, case, fact] if " = " in fact:
                name, _, value = fact.partition(" = ")
                facts.setdefault((device, case), {})[name] = value
            case [device, case, figure, test]:
                checks.setdefault((device, case), {})[figure] = test
            case _:
                raise BaselineError(
                    f"{path}: line {number} cannot be read: {line[:80]!r}. {REMEDY}"
                )
    return Contract(checks, facts)


def render(contract: Contract) -> str:
    facts = (
        (device, case, f"{name} = {value}")
        for (device, case), found in contract.facts.items()
        for name, value in found.items()
    )
    return HEADER + "".join(sorted(f"{' | '.join(row)}\n" for row in (*facts, *rows(contract))))


def rows(contract: Contract) -> Iterator[tuple[str, str, str, str]]:
    """Device, case, figure and test of each line that must be compared."""
    for (device, case), figures in sorted(contract.checks.items()):
        for figure, test in sorted(figures.items()):
            yield device, case, figure, test


def load(root: Path) -> Contract | None:
    path = root / FILE_NAME
    text = read_text_if_there(path, remedy=REMEDY, error=BaselineError)
    return None if text is None else parse(text, path)


def store(root: Path, accepted: Contract) -> None:
    """Add what was accepted; all that it says nothing about stays."""
    with locked(root / LOCK_NAME, f"updating {FILE_NAME}", timeout_seconds=LOCK_SECONDS):
        old = load(root)
        new = add(old or Contract(), accepted)
        if new != old:
            with replacing(root / FILE_NAME, durable=True) as file:
                file.write(render(new).encode())


def add(old: Contract, accepted: Contract) -> Contract:
    checks = {key: dict(figures) for key, figures in old.checks.items()}
    for key, figures in accepted.checks.items():
        before = checks.get(key, {})
        # Which categories a program has changes with the program.
        if any(name.startswith(_SHARES) for name in figures):
            before = {name: test for name, test in before.items() if not name.startswith(_SHARES)}
        checks[key] = {**before, **figures}
    return Contract(checks, {**old.facts, **accepted.facts})


def promised(checks: Iterable[Check]) -> list[str]:
    """The figures of an update that are worth a line."""
    return [
        check.metric
        for check in checks
        if check.verdict not in _NOT_PROMISED and reference_of(check.metric) is None
    ]


def case_part(measured: CaseResult, checks: Sequence[Check], against: str | None) -> CasePart:
    """``against`` is what ``--against`` names: to compare with that is not what was promised."""
    compared: set[str] = set()
    unmeasured: dict[str, str] = {}
    for check in checks:
        reference = reference_of(check.metric)
        if reference is not None and reference == against:
            continue
        figure = check.metric if reference is None else check.metric.partition(" against ")[0]
        if check.verdict in UNCHECKED:
            unmeasured[figure] = check.message
        else:
            compared.add(figure)
    return CasePart(
        device_of(measured.fingerprint),
        case_of(measured.model, measured.variant, measured.threads),
        tuple(sorted(compared)),
        unmeasured,
        facts_of(measured) if measured.structures else {},
    )


def join(parts: Sequence[Part]) -> Part:
    """The parts of one run as a whole, which must have compared everything."""
    cases = tuple(case for part in parts for case in part.cases)
    # A part without cases does not know its device.
    devices = [case.device for case in cases] or [name for part in parts for name in part.devices]
    return Part(
        devices=tuple(dict.fromkeys(devices)),
        cases=cases,
        known=tuple(dict.fromkeys(case for part in parts for case in part.known)),
        arms=tuple(dict.fromkeys(arm for part in parts for arm in part.arms)),
    )


def lines_for(contract: Contract, part: Part) -> Contract:
    """The contract without the lines of arms that the run was not asked for."""
    others = tuple(f"({arm})" for arm in Arm if arm not in part.arms)
    checks = {
        key: {name: test for name, test in figures.items() if not name.endswith(others)}
        for key, figures in contract.checks.items()
    }
    return replace(contract, checks=checks)


def gaps(contract: Contract, part: Part) -> list[Gap]:
    """What of the contract the run left open, for its devices."""
    found: list[Gap] = []
    for (device, case), figures in sorted(lines_for(contract, part).checks.items()):
        if device not in part.devices:
            continue
        here = [entry for entry in part.cases if (entry.device, entry.case) == (device, case)]
        changed = _changed(contract.facts.get((device, case), {}), here)
        found += [] if changed is None else [Gap(device, case, *changed)]
        compared = {figure for entry in here for figure in entry.compared}
        reasons: dict[tuple[str, str], list[str]] = {}
        for figure, test in sorted(figures.items()):
            if figure not in compared:
                reasons.setdefault(_reason(case, figure, test, here, part), []).append(figure)
        found += [
            Gap(device, case, reason, message, tuple(names))
            for (reason, message), names in reasons.items()
        ]
    return found


def _changed(accepted: Mapping[str, str], here: Sequence[CasePart]) -> tuple[str, str] | None:
    """A reason and a message; None where all is as it was accepted."""
    for facts in (entry.facts for entry in here if entry.facts):
        for kind in _FACTS:
            for name in sorted({*accepted, *facts}):
                old, new = accepted.get(name, "none"), facts.get(name, "none")
                if name.split()[0] == kind and not _same(old, new):
                    return (
                        f"{kind.upper()}_CHANGED",
                        f"{name} was {old}, and is {new}. {UPDATE_HINT}",
                    )
    return None


def _reason(
    case: str, figure: str, test: str, here: Sequence[CasePart], part: Part
) -> tuple[str, str]:
    # A device that cannot measure a figure at all does not name its arms.
    for name in (figure, figure.partition(" (")[0], "shares" if _SHARES in figure else figure):
        for entry in here:
            if name in entry.unmeasured:
                return "NOT_MEASURED", entry.unmeasured[name]
    if (test, case) in part.left or part.narrowed:
        return DESELECTED, "left out by the choice of tests."
    if case in part.unchosen:
        return DESELECTED, "left out by the choice of models and variants."
    if here or case in part.known:
        return "NOT_MEASURED", f"no test compared it; {test} did."
    name = case.rpartition("-t")[0] if case.rpartition("-t")[2].isdigit() else case
    others = [known for known in part.known if known == name or known.startswith(f"{name}-t")]
    if others:
        return "SETTINGS_CHANGED", f"it ran with another number of threads ({others[0]})."
    return "MODEL_GONE", "no model of this run has this variant."
