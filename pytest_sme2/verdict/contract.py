"""The contract: a run has compared every figure that the baselines of its device store, under the
conditions they were accepted with, and none of its checks has failed.

``pytest`` judges its records with it, and ``sme2 merge`` those of several runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pytest_sme2.errors import BaselineError
from pytest_sme2.results.case import Baseline, CaseResult, Check, Limits
from pytest_sme2.results.run import PAIR, Arm, Fingerprint
from pytest_sme2.results.timing import Outcome
from pytest_sme2.system.files import safe_name
from pytest_sme2.system.wording import count, some_of
from pytest_sme2.verdict.baselines import differing_facts, read, settings_of
from pytest_sme2.verdict.judging import FAILING, UNCHECKED, UPDATE_HINT, WARNING, reference_of
from pytest_sme2.verdict.limits import limit_facts, limits_for
from pytest_sme2.verdict.numerics import changed, tolerance_of_sample

_NOT_PROMISED = (Outcome.INVALID, Outcome.NOT_MEASURED)
_MOST_NAMED = 3


class Record(Protocol):
    """One case as a run left it."""

    @property
    def id(self) -> str: ...
    @property
    def measured(self) -> CaseResult: ...
    @property
    def checks(self) -> tuple[Check, ...]: ...
    @property
    def limits(self) -> Limits | None: ...


@dataclass(frozen=True)
class Asked:
    """What a run was asked for. Only its command line leaves anything out."""

    device: str = "auto"
    strict: bool = False
    known: tuple[str, ...] = ()
    """The cases that a run with no choice of models has."""
    left: tuple[tuple[str, str], ...] = ()
    """Test and case: those that were found and left out."""
    unchosen: tuple[str, ...] = ()
    """The cases that the choice of models or variants left out."""
    narrowed: bool = False
    """Whether single tests or files were named, so that the others are unknown."""
    arms: tuple[Arm, ...] = PAIR
    """The figures of other arms are for other runs."""
    against: str | None = None
    """What ``--against`` names: to compare with that is not what was promised."""


@dataclass(frozen=True)
class Judgement:
    """What became of the stored figures, and what is red; one sentence each."""

    stored: int
    compared: int
    left: int
    """By the command line, to other runs."""
    failed: tuple[str, ...] = ()
    """What the checks come to, whatever became of the tests that made them."""
    open: tuple[str, ...] = ()
    """What was not compared, or not as it was accepted."""
    empty: tuple[str, ...] = ()
    """Where nothing was compared at all."""

    def __str__(self) -> str:
        text = f"compared: {self.compared} of {count(self.stored, 'stored figure')}"
        return text + (f"; the command line leaves {self.left} out" if self.left else "")


def of_devices(
    root: Path, target: str = "auto", prints: Iterable[Fingerprint] = ()
) -> list[Baseline]:
    """All baselines of these devices; where none is given, of all that ``target`` may name."""
    prints = list(prints)
    targets = {each.target for each in prints} or {target}
    found = []
    for path in sorted(root.glob("*/*.json")):
        if not targets & {"auto", path.parent.name.partition("-")[0]}:
            continue
        baseline = read(path)
        if baseline is not None and (
            not prints or any(not differing_facts(baseline.fingerprint, each) for each in prints)
        ):
            found.append(baseline)
    return found


def case_of(model: str, variant: str, threads: int) -> str:
    name = f"{model}-{variant}" + (f"-t{threads}" if threads != 1 else "")
    return name if name.isprintable() else safe_name(name)


def rows(stored: Iterable[Baseline]) -> Iterator[tuple[str, str, str, str]]:
    """Device, case, figure and test of all that must be compared."""
    for baseline in stored:
        for threads, figures in sorted(baseline.promised.items()):
            case = case_of(baseline.model, baseline.variant, threads)
            for figure, test in sorted(figures.items()):
                yield baseline.fingerprint.key, case, figure, test


def promised(checks: Iterable[Check]) -> list[str]:
    """The figures of an update that must be compared from then on."""
    return [
        check.metric
        for check in checks
        if check.verdict not in _NOT_PROMISED and reference_of(check.metric) is None
    ]


def join(asked: Sequence[Asked]) -> Asked:
    """The parts of one run as a whole, which must have compared everything."""
    return Asked(
        device=asked[0].device,
        strict=any(part.strict for part in asked),
        known=tuple(dict.fromkeys(case for part in asked for case in part.known)),
        arms=tuple(dict.fromkeys(arm for part in asked for arm in part.arms)),
        against=asked[0].against,
    )


def judge(root: Path, records: Sequence[Record], asked: Asked) -> Judgement:
    """Hold a run to the baselines of its device, and to its own checks."""
    prints = {record.measured.fingerprint for record in records}
    failed = tuple(_failed(records, asked.strict))
    try:
        stored = of_devices(root, asked.device, prints)
    except BaselineError as error:
        return Judgement(0, 0, 0, failed, (str(error),))
    sums: Counter[str] = Counter()
    # Gaps that differ in their cases alone are one sentence.
    gaps: dict[tuple[Outcome, str, str], list[str]] = {}
    silent: list[str] = []
    for baseline in stored:
        known = case_of(baseline.model, baseline.variant, 1) in asked.known
        if known and not any(baseline.promised.values()):
            silent.append(f"{baseline.model}-{baseline.variant}")
        for threads in sorted(baseline.promised):
            case = case_of(baseline.model, baseline.variant, threads)
            for gap in _gaps(baseline, threads, records, asked, sums):
                gaps.setdefault(gap, []).append(case)
    sentences = [
        f"{verdict}: {some_of(cases, _MOST_NAMED)} on {device}: {words}"
        for (verdict, device, words), cases in gaps.items()
    ]
    sentences += _without_baseline(records) if asked.strict else ()
    if silent:
        sentences.append(
            f"{count(len(silent), 'baseline')} ({some_of(silent, _MOST_NAMED)}): nothing there "
            "says what must be compared. Run --update-baselines once."
        )
    checks = [check for record in records for check in record.checks]
    empty = []
    if all(check.verdict in UNCHECKED for check in checks):
        empty.append(
            "nothing was compared: no check of sme2_gate found anything to compare. Look at the "
            "skipped tests (-rs), and at `sme2 models`."
        )
    elif not stored and (asked.against is None or all(check.old is None for check in checks)):
        keys = ", ".join(sorted(each.key for each in prints))
        empty.append(f"{root} holds no baseline for {keys}. Make one with --update-baselines.")
    counts = sums["stored"], sums["compared"], sums["left"]
    return Judgement(*counts, failed, tuple(sentences), tuple(empty))


def _gaps(
    baseline: Baseline,
    threads: int,
    records: Sequence[Record],
    asked: Asked,
    sums: Counter[str],
) -> Iterator[tuple[Outcome, str, str]]:
    """What keeps a case from being compared as it was accepted: verdict, device and words."""
    case, device = case_of(baseline.model, baseline.variant, threads), baseline.fingerprint.key
    here = [record for record in records if _is_of(record.measured, baseline, threads)]
    changes = (differences(baseline, of.measured, of.limits) for of in here)
    changed = next((words for found in changes for words in found), None)
    if changed is not None:
        yield Outcome.INVALID, device, f"{changed} {UPDATE_HINT}"
    others = tuple(f"({arm})" for arm in Arm if arm not in asked.arms)
    figures = baseline.promised[threads].items()
    wanted = {name: test for name, test in figures if not name.endswith(others)}
    done, unmeasured = _compared(here, asked.against)
    reasons: dict[str | None, list[str]] = {}
    for figure in sorted({*wanted} - done):
        why = _why_not(case, figure, wanted[figure], unmeasured, asked)
        reasons.setdefault(why, []).append(figure)
    left = reasons.pop(None, [])
    sums.update(stored=len(wanted), compared=len({*wanted} & done), left=len(left))
    for why, names in reasons.items():
        yield Outcome.NOT_MEASURED, device, f"{', '.join(names)}: {why}"


def _failed(records: Sequence[Record], strict: bool) -> Iterator[str]:
    """What the checks come to, whatever became of the tests that made them."""
    failing = (*FAILING, *(WARNING if strict else ()))
    for record in records:
        bad: dict[Outcome, list[str]] = {}
        for check in record.checks:
            if check.verdict in failing:
                bad.setdefault(check.verdict, []).append(check.metric)
        for verdict, metrics in bad.items():
            named = some_of([*dict.fromkeys(metrics)], _MOST_NAMED)
            yield f"{verdict}, and no test failed: {record.id}: {named}"


def _without_baseline(records: Sequence[Record]) -> Iterator[str]:
    found = [
        record.id
        for record in records
        if any(check.verdict is Outcome.NO_BASELINE for check in record.checks)
    ]
    if found:
        cases = f"{count(len(found), 'case')} ({some_of(found, _MOST_NAMED)})"
        yield f"NO_BASELINE: {cases}. Store what is missing: pytest --update-baselines"


def _is_of(measured: CaseResult, baseline: Baseline, threads: int) -> bool:
    ours = measured.model, measured.variant, measured.threads
    same = ours == (baseline.model, baseline.variant, threads)
    return same and not differing_facts(baseline.fingerprint, measured.fingerprint)


def _compared(records: Sequence[Record], against: str | None) -> tuple[set[str], dict[str, str]]:
    """The figures that were compared; and of others, why they were not."""
    compared: set[str] = set()
    unmeasured: dict[str, str] = {}
    for check in (check for record in records for check in record.checks):
        reference = reference_of(check.metric)
        if reference is not None and reference == against:
            continue
        figure = check.metric if reference is None else check.metric.partition(" against ")[0]
        if check.verdict in UNCHECKED:
            unmeasured[figure] = check.message
        else:
            compared.add(figure)
    return compared, unmeasured


def _why_not(
    case: str, figure: str, test: str, unmeasured: dict[str, str], asked: Asked
) -> str | None:
    """Why a figure was not compared; None where the command line leaves it out."""
    # A device that cannot measure a figure at all does not name its arms.
    share = "shares" if figure.startswith("share of ") else figure
    for name in (figure, figure.partition(" (")[0], share):
        if name in unmeasured:
            return unmeasured[name]
    if (test, case) in asked.left or asked.narrowed or case in asked.unchosen:
        return None
    if case in asked.known:
        return f"no test compared it; {test} did."
    name = case.rpartition("-t")[0] if case.rpartition("-t")[2].isdigit() else case
    others = [known for known in asked.known if known == name or known.startswith(f"{name}-t")]
    if others:
        return f"it ran with another number of threads ({others[0]})."
    return "no model of this run has this variant."


def differences(baseline: Baseline, measured: CaseResult, limits: Limits | None) -> Iterator[str]:
    """What a case was not measured with as it was accepted; what changed first explains the rest.

    Nothing of a case of which nothing ran.
    """
    if not measured.structures:
        return
    now = {"weights": measured.weights, **settings_of(measured)}
    now |= {} if limits is None else _limits_by_name(limits_for(measured.variant, limits))
    accepted = {"weights": baseline.weights, **baseline.settings}
    accepted |= {} if baseline.limits is None else _limits_by_name(baseline.limits)
    yield from _other_samples(baseline, measured, "input")
    for name in {**accepted, **now}:
        old, new = accepted.get(name, "none"), now.get(name, "none")
        if old != new:
            yield f"{name}: {old} was accepted, and it is {new}."
    yield from _other_samples(baseline, measured, "reference", "output")


def _limits_by_name(limits: Limits) -> dict[str, str]:
    return {f"limit {name}": value for name, value in limit_facts(limits)}


def _other_samples(baseline: Baseline, measured: CaseResult, *kinds: str) -> Iterator[str]:
    for name in {**baseline.samples, **measured.samples}:
        if name.split()[0] not in kinds:
            continue
        old, new = baseline.samples.get(name), measured.samples.get(name)
        words = "it is new" if old is None else "it is gone"
        if old is not None and new is not None:
            words = changed(old, new, tolerance_of_sample(name, measured.variant))
        if words:
            yield f"{name} is not the accepted one: {words}."
