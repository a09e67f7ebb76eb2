"""How much worse a thing may get: ``limits.toml`` and the command line become Limits."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_sme2.errors import UsageError
from pytest_sme2.export.variant import PRECISIONS, Variant, parse_variant, precision_of
from pytest_sme2.results.case import ANY_THREADS, Bounds, Limits, Tolerance
from pytest_sme2.results.profile import Category
from pytest_sme2.results.run import AS_EXPORTED
from pytest_sme2.system.files import read_text_if_there, toml_value
from pytest_sme2.system.wording import as_given

FILE_NAME = "limits.toml"

# Signal over noise does not depend on a model's scale, so one figure serves every model. fp32 and
# fp16 sum in another order than eager does; int8 and int4 carry the error of the
# quantisation itself.
TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(max_rel=1e-3, min_sqnr_db=80.0),
    "fp16": Tolerance(max_rel=5e-2, min_sqnr_db=35.0),
    "bf16": Tolerance(max_rel=1e-1, min_sqnr_db=25.0),
    "int8": Tolerance(min_sqnr_db=10.0),
    "int8_dynamic": Tolerance(min_sqnr_db=15.0),
    "int4": Tolerance(min_sqnr_db=10.0),
    "int4_channel": Tolerance(min_sqnr_db=10.0),
}
"""Against the eager model, by precision."""

# The same program on other kernels: fp32 and int8 were seen to agree to the last digit or nearly.
ON_OFF_TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(max_rel=1e-4, min_sqnr_db=90.0),
    "fp16": Tolerance(max_rel=5e-2, min_sqnr_db=35.0),
    "bf16": Tolerance(max_rel=1e-1, min_sqnr_db=25.0),
    **dict.fromkeys(
        ("int8", "int8_dynamic", "int4", "int4_channel"), Tolerance(max_rel=5e-2, min_sqnr_db=30.0)
    ),
}
"""SME2 on against off, by precision."""

_NUMBER = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z%]*)")
_LARGEST = 1e18
"""No limit is as large; what is larger is a slip, or overflows further on."""
_LONGEST_FILE = 2**20
_REMEDY = "Correct it."
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_BYTES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def _number(value: object, expected: str) -> tuple[float, str]:
    """A number and the unit written behind it; ValueError says what was expected."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # A whole number may be too large for a float, and is not a limit then.
        number, unit = float(value) if abs(value) < _LARGEST else math.inf, ""
    else:
        match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{value!r} is not {expected}")
        number, unit = float(match["number"]), match["unit"]
    if not 0 <= number < _LARGEST:
        raise ValueError(f"{value!r} is not {expected}")
    return number, unit


def parse_fraction(value: object) -> float:
    """``"3%"`` or ``0.03``. A bare 3 would mean 300 %, which is surely a mistake."""
    expected = 'a fraction; write "3%" or 0.03'
    number, unit = _number(value, expected)
    if unit not in ("", "%") or (not unit and number > 1):
        raise ValueError(f"{value!r} is not {expected}")
    return number / 100 if unit else number


def parse_share(value: object) -> float:
    """A fraction of a whole, at most 1."""
    share = parse_fraction(value)
    if share > 1:
        raise ValueError(f'{value!r} is more than the whole; write at most "100%"')
    return share


def parse_loss(value: object) -> float:
    """A fraction below 1: nothing can lose all of its speed."""
    loss = parse_share(value)
    if loss >= 1:
        raise ValueError(f'{value!r} would allow any loss; write less than "100%"')
    return loss


def _amount(value: object, expected: str, units: Mapping[str, float]) -> float:
    """A number above 0 in one of these units, which are in capitals here."""
    number, unit = _number(value, expected)
    if unit.upper() not in units or number == 0:
        raise ValueError(f"{value!r} is not {expected}")
    # 103 thousandths are 0.103, also where they are multiplied.
    return float(f"{number * units[unit.upper()]:.12g}")


def parse_speedup(value: object) -> float:
    """``1.5`` or ``"1.5x"``."""
    return _amount(value, 'a speedup; write 1.5 or "1.5x"', {"": 1, "X": 1})


def parse_bytes(value: object) -> int:
    """``300000000``, ``"300 MB"`` or ``"256 MiB"``."""
    return int(_amount(value, 'a size; write a number of bytes, or "300 MB", "256 MiB"', _BYTES))


def parse_time(value: object) -> float:
    """``"30 ms"``. A bare number is read as milliseconds by one, and as seconds by another."""
    return _amount(value, 'a time with its unit; write "30 ms"', {"S": 1, "MS": 1e-3, "US": 1e-6})


def _non_negative(value: object) -> float:
    expected = "a number of at least 0"
    number, unit = _number(value, expected)
    if unit:
        raise ValueError(f"{value!r} is not {expected}")
    return number


SCALARS: Mapping[str, Callable[[object], float | int]] = {
    "max_regression": parse_fraction,
    "min_speedup": parse_speedup,
    "max_speedup_loss": parse_loss,
    "min_coverage": parse_share,
    "max_memory_growth": parse_fraction,
    "max_memory_bytes": parse_bytes,
    "max_size_growth": parse_fraction,
    "max_load_growth": parse_fraction,
    "max_cost_growth": parse_fraction,
    "max_sustained_loss": parse_loss,
}
"""Every limit that is one number, and how it is read."""
BUDGETS = ("max_latency", "max_p95")
"""Times that may differ from one number of threads to another."""


class _Table(NamedTuple):
    """What may stand in a table of the file, and how each entry is read."""

    what: str
    entries: Mapping[str, Any]
    """By key: a function for a value, or another table."""
    others: str = ""
    """A pattern of more keys; all are read as the first entry is."""
    single: Callable[[object], float] | None = None
    """How a value is read that stands in place of the table."""


_BOUNDS = _Table("a bound", {"min": parse_share, "max": parse_share})
_TOLERANCE = _Table(
    "a tolerance", dict.fromkeys(("max_abs", "max_rel", "min_sqnr_db"), _non_negative)
)
_PRECISIONS = _Table("a precision", dict.fromkeys(PRECISIONS, _TOLERANCE))
_TIMES = _Table("a number of threads", {ANY_THREADS: parse_time}, "[1-9][0-9]{0,3}", parse_time)
_LIMITS = _Table(
    "a limit",
    {
        **SCALARS,
        **dict.fromkeys(BUDGETS, _TIMES),
        "shares": _Table("a category", {category.value: _BOUNDS for category in Category}),
        "tolerance": _PRECISIONS,
        "on_off_tolerance": _PRECISIONS,
    },
)


def _read(path: Path | str, place: tuple[str, ...], form: Any, value: object) -> Any:
    """What stands in one place as numbers; UsageError says where something is wrong, and what."""
    where = f"{path}: {'.'.join(place)}"
    if isinstance(form, _Table) and form.single is not None and not isinstance(value, dict):
        form = form.single
    if not isinstance(form, _Table):
        try:
            return form(value)
        except ValueError as error:
            raise UsageError(f"{where}: {error}.") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where}: must be a table, as in [{'.'.join(place)}].")
    found = {}
    for key, inner in value.items():
        entry = form.entries.get(key)
        if entry is None and re.fullmatch(form.others, key):
            entry = next(iter(form.entries.values()))
        if entry is None:
            at, choices = ".".join((*place, key)), ", ".join(form.entries)
            raise UsageError(f"{path}: {at}: is not {form.what}. Choose one of: {choices}.")
        found[key] = _read(path, (*place, key), entry, inner)
    if form is _BOUNDS and found.get("min", 0.0) > found.get("max", 1.0):
        problem = f"{found['min']:g} is more than max, {found.get('max', 1.0):g}"
        raise UsageError(f"{where}.min: {problem}.")
    return found


def _apply(limits: Limits, given: Mapping[str, Any]) -> Limits:
    """``limits`` with those of one table laid over them."""
    changes = {name: value for name, value in given.items() if name in SCALARS}
    for name in {*BUDGETS} & {*given}:
        times = given[name]
        # One time is for all numbers of threads.
        alone = {ANY_THREADS: times} if isinstance(times, float) else None
        changes[name] = alone or {**getattr(limits, name), **times}
    shares = {
        Category(name): Bounds(of.get("min", 0.0), of.get("max", 1.0))
        for name, of in given.get("shares", {}).items()
    }
    changes["shares"] = {**limits.shares, **shares}
    for name in ("tolerance", "on_off_tolerance"):
        before: dict[str, Tolerance] = dict(getattr(limits, f"{name}s"))
        for precision, of in given.get(name, {}).items():
            before[precision] = dataclasses.replace(before.get(precision, Tolerance()), **of)
        changes[f"{name}s"] = before
    return dataclasses.replace(limits, **changes)


def _read_file(path: Path) -> Mapping[str, object]:
    text = read_text_if_there(path, remedy=_REMEDY, limit=_LONGEST_FILE, error=UsageError)
    if text is None:
        return {}
    return toml_value(text, str(path), remedy=_REMEDY, error=UsageError)


def _lay_over(
    limits: Limits, path: Path | str, document: Mapping[str, object], variant: str
) -> Limits:
    """``limits`` with those of ``document`` laid over them, the more particular ones last.

    All of it is checked, also the parts about other variants: a typing error must not wait until
    somebody measures that variant.
    """
    general = {key: value for key, value in document.items() if key != "variant"}
    limits = _apply(limits, _read(path, (), _LIMITS, general))
    tables = document.get("variant", {})
    if not isinstance(tables, dict):
        raise UsageError(f"{path}: variant: must be a table, as in [variant].")
    found: list[tuple[Variant, Mapping[str, Any]]] = []
    for name, table in tables.items():
        try:
            of = parse_variant(name)
        except UsageError as error:
            raise UsageError(f"{path}: variant.{name}: {error}") from error
        found.append((of, _read(path, ("variant", name), _LIMITS, table)))
    # A table of a variant does not apply to a program of unknown variant.
    wanted = None if variant == AS_EXPORTED else parse_variant(variant)
    for of, given in sorted(found, key=lambda entry: entry[0].size is not None):
        if wanted and of in (wanted, dataclasses.replace(wanted, size=None)):
            limits = _apply(limits, given)
    return limits


def resolve(
    variant: str,
    *,
    files: Sequence[Path] = (),
    command_line: Mapping[str, object] | None = None,
) -> Limits:
    """The command line, as a file would say it, over ``files``, the least important one first."""
    limits = default_limits()
    for path in files:
        limits = _lay_over(limits, path, _read_file(path), variant)
    return _lay_over(limits, "--sme2-limit", command_line or {}, variant)


def parse_limits(texts: Iterable[str]) -> dict[str, object]:
    """Limits of the command line, as in ``max_regression=3%`` or ``max_latency.4=30ms``, as a file
    would say them; a typing error costs no time.
    """
    given: dict[str, object] = {}
    for text in texts:
        name, _, value = text.partition("=")
        *places, last = name.strip().replace("-", "_").split(".")
        inner: Any = given
        for place in places:
            inner = inner.setdefault(place, {})
            if not isinstance(inner, dict):
                raise UsageError(f"--sme2-limit {text}: {place} has a value already.")
        inner[last] = value.strip()
    resolve("fp32", command_line=given)
    return given


def default_limits() -> Limits:
    """What holds where neither a file nor the command line says anything."""
    return Limits(tolerances=dict(TOLERANCES), on_off_tolerances=dict(ON_OFF_TOLERANCES))


def limits_for(variant: str, limits: Limits) -> Limits:
    """Those that concern a variant."""
    precision = precision_of(variant)

    def own(tolerances: Mapping[str, Tolerance]) -> dict[str, Tolerance]:
        return {name: of for name, of in tolerances.items() if name == precision}

    return dataclasses.replace(
        limits,
        tolerances=own(limits.tolerances),
        on_off_tolerances=own(limits.on_off_tolerances),
    )


def limit_facts(limits: Limits) -> Iterator[tuple[str, str]]:
    """Each limit that is set, by its name as in limits.toml."""
    for entry in dataclasses.fields(limits):
        value = getattr(limits, entry.name)
        if not isinstance(value, Mapping):
            yield from () if value is None else [(entry.name, limit_text(entry.name, value))]
            continue
        for name, of in value.items():
            if isinstance(of, float):
                yield f"{entry.name}.{name}", limit_text(entry.name, of)
                continue
            for part in dataclasses.fields(of):
                number = getattr(of, part.name)
                if number is not None:
                    yield f"{entry.name}.{name}.{part.name}", limit_text(entry.name, number)


def limit_text(name: str, value: float) -> str:
    """With all its digits, as ``limits.toml`` has it: ``0.01 %``, ``300000000``."""
    percent = name == "shares" or SCALARS.get(name) in (parse_fraction, parse_loss, parse_share)
    return f"{as_given(value)} %" if percent else f"{value:.12g}"
