"""Rewrites tried on a case: each alone, then together, and what they save is counted.

A rewrite that cannot be exported, loaded or run, or whose outputs differ too much, is left out with
its reason, and the others go on.

Writes a rewrite into the source of a model: its calls are replaced, what they need is added.

The added functions are those of ``rewriting.py``, so what is written is what was tried. Pure.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.variant import ASKED, FOLDED, FOLDING, NAMES, parse_variant, precision_of
from pytest_sme2.profile.findings import find
from pytest_sme2.results import (
    Agreement,
    Arm,
    Artifact,
    Executor,
    Finding,
    InferenceCost,
    Profile,
    Tolerance,
)
from pytest_sme2.system.files import from_here
from pytest_sme2.verdict.numerics import (
    agreement_text,
    compare_reference,
    read_values,
    tolerance_of,
    within,
)

if TYPE_CHECKING:
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.session import Session

_FUNCTIONAL = ("", "F", "functional", "torch", "nn.functional", "torch.nn.functional")
# By rewrite: the functions and methods of PyTorch that it replaces, and its function for each.
_CALLS: Mapping[str, Mapping[str, str]] = {
    "silu": {"silu": "_silu"},
    "gelu": {"gelu": "_gelu"},
    "sdpa": {"scaled_dot_product_attention": "_attention"},
    "chunk": {
        ".chunk": "_chunk",
        "chunk": "_chunk",
        ".split": "_split",
        "split": "_split",
        "glu": "_glu",
    },
    "layer_norm": {"layer_norm": "_layer_norm"},
    "pow": {".pow": "_pow", "pow": "_pow"},
    "unsqueeze": {".unsqueeze": "_unsqueeze", "unsqueeze": "_unsqueeze"},
    "group_norm": {"group_norm": "_group_norm"},
    "hardsigmoid": {"hardsigmoid": "_hardsigmoid"},
    "transposed": {"conv_transpose2d": "_transposed"},
    "expand": {".expand": "_expand", ".expand_as": "_expand_as"},
    "mean": {".mean": "_mean", "mean": "_mean"},
}
# By rewrite: the module that calls such a function, and how.
_MODULES: Mapping[str, tuple[str, str]] = {
    "silu": ("SiLU", "_silu(value)"),
    "gelu": ("GELU", "_gelu(value)"),
    "layer_norm": (
        "LayerNorm",
        "_layer_norm(value, self.normalized_shape, self.weight, self.bias, self.eps)",
    ),
    "group_norm": (
        "GroupNorm",
        "_group_norm(value, self.num_groups, self.weight, self.bias, self.eps)",
    ),
    "hardsigmoid": ("Hardsigmoid", "_hardsigmoid(value)"),
    "transposed": (
        "ConvTranspose2d",
        "_transposed(value, self.weight, self.bias, self.stride, self.padding, "
        "self.output_padding, self.groups, self.dilation)",
    ),
}
_IMPORTS: Mapping[str, str] = {
    "math": "import math",
    "torch": "import torch",
    "functional": "from torch.nn import functional",
}


def edited(source: str, rewrites: Iterable[str]) -> str | None:
    """The model's file with the rewrites in it; None where one of them finds no place."""
    file = _File(source)
    for name in rewrites:
        found = file.replace_calls(_CALLS.get(name, {}))
        if name in _MODULES:
            kind, call = _MODULES[name]
            if file.replace_modules(kind) or (not found and file.replace_model(kind)):
                file.modules[kind] = call
                file.functions.add(call.partition("(")[0])
                found = True
        if not found:
            return None
    return file.text()


def unified_diff(before: str, after: str, name: str) -> str:
    """As ``git apply`` takes it."""
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))


@dataclass
class _File:
    source: str
    functions: set[str] = field(default_factory=set)
    modules: dict[str, str] = field(default_factory=dict)
    """By module: what its ``forward`` calls instead."""
    wrapped: list[str] = field(default_factory=list)
    """Modules that are replaced in the finished model, since another file makes them."""

    def replace_calls(self, functions: Mapping[str, str]) -> bool:
        """Whether there were any; a call within another is replaced first."""
        before = self.source
        while calls := list(self._calls(functions)):
            node, text, function = min(calls, key=lambda call: len(ast.unparse(call[0])))
            self._replace(node, text)
            self.functions |= {function} - {""}
        return self.source != before

    def _calls(self, functions: Mapping[str, str]) -> Iterator[tuple[ast.expr, str, str]]:
        """Each call with what to write for it, and the function that this needs."""
        for parent in ast.walk(ast.parse(self.source)):
            for node in ast.iter_child_nodes(parent):
                if not isinstance(node, ast.Call):
                    continue
                owner, _, called = ast.unparse(node.func).rpartition(".")
                arguments = [self._text(entry) for entry in (*node.args, *node.keywords)]
                if owner not in _FUNCTIONAL and isinstance(node.func, ast.Attribute):
                    called = f".{called}"
                    arguments.insert(0, self._text(node.func.value))
                function = functions.get(called)
                if function is None:
                    continue
                if short := _inline(function, arguments):
                    binds = isinstance(parent, ast.BinOp | ast.UnaryOp | ast.Attribute)
                    yield node, f"({short})" if binds else short, ""
                else:
                    yield node, f"{function}({', '.join(arguments)})", function

    def replace_modules(self, kind: str) -> bool:
        names, before = (kind, f"nn.{kind}", f"torch.nn.{kind}"), self.source
        while made := [
            node.func
            for node in ast.walk(ast.parse(self.source))
            if isinstance(node, ast.Call) and ast.unparse(node.func) in names
        ]:
            self._replace(made[0], _own(kind))
        return self.source != before

    def replace_model(self, kind: str) -> bool:
        """Replace the modules in what ``get_eager_model`` returns."""
        answers = [
            node.value
            for method in ast.walk(ast.parse(self.source))
            if isinstance(method, ast.FunctionDef) and method.name == "get_eager_model"
            for node in ast.walk(method)
            if isinstance(node, ast.Return) and node.value is not None
        ]
        if len(answers) != 1:
            return False
        if not self.wrapped:
            self._replace(answers[0], f"_rewritten({self._text(answers[0])})")
        self.wrapped.append(kind)
        return True

    def _text(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.source, node) or ""

    def _replace(self, node: ast.expr, text: str) -> None:
        # ast counts columns in bytes.
        lines = [line.encode() for line in self.source.splitlines(keepends=True)]
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = b"".join(lines[:first]) + lines[first][: node.col_offset]
        after = lines[last][node.end_col_offset :] + b"".join(lines[last + 1 :])
        self.source = (before + text.encode() + after).decode()

    def text(self) -> str:
        """The file, with the new functions and what they import after its own imports."""
        added = _added(self.functions, self.modules, self.wrapped)
        if not added:
            return self.source
        tree = ast.parse(self.source)
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        known = {
            alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names
        }
        missing = [
            line
            for name, line in _IMPORTS.items()
            if name not in known and re.search(rf"(?<![.\w]){name}\.", added)
        ]
        after = max((node.end_lineno or 0 for node in imports), default=0)
        lines = self.source.splitlines()
        rest = "\n".join(lines[after:]).lstrip("\n")
        return "\n".join([*lines[:after], *missing, "", "", added, "", "", rest]) + "\n"


def _own(kind: str) -> str:
    return f"{kind}ForXnnpack"


def _inline(function: str, arguments: list[str]) -> str:
    """The function's one expression, of a plain name; empty where it is more than that."""
    definition = _functions()[function]
    body = definition.body[-1]
    if len(definition.body) > 1 or not isinstance(body, ast.Return) or body.value is None:
        return ""
    first, *others = (entry.arg for entry in definition.args.args)
    text = ast.unparse(body.value)
    needs_more = any(re.search(rf"\b{name}\b", text) for name in others)
    if needs_more or not arguments or not arguments[0].isidentifier():
        return ""
    return re.sub(rf"\b{first}\b", arguments[0], text)


@functools.cache
def _functions() -> dict[str, ast.FunctionDef]:
    """The functions of ``rewriting.py``, without types, and without the lines that say where they
    do not fit: an edited model is run before it is shown.
    """
    source = Path(__file__).parents[1] / "export" / "rewriting.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in found.values():
        node.returns = None
        node.body = [line for line in node.body if not _declines(line)]
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
    return found


def _declines(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.body[0]) == "return None"


def _needed(names: Iterable[str]) -> list[str]:
    """The functions and those that they call, in the order of their file."""
    known, found, left = _functions(), set[str](), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            words = {node.id for node in ast.walk(known[name]) if isinstance(node, ast.Name)}
            left += words & known.keys()
    return [name for name in known if name in found]


def _added(functions: Iterable[str], modules: Mapping[str, str], wrapped: Iterable[str]) -> str:
    parts = [ast.unparse(_functions()[name]) for name in _needed(functions)]
    for kind, call in modules.items():
        parts.append(
            f"class {_own(kind)}(torch.nn.{kind}):\n"
            f"    def forward(self, value):\n        return {call}"
        )
    kinds = ", ".join(f"torch.nn.{kind}: {_own(kind)}" for kind in wrapped)
    if kinds:
        parts.append(
            f"def _rewritten(model):\n    kinds = {{{kinds}}}\n"
            "    for module in model.modules():\n"
            "        module.__class__ = kinds.get(type(module), type(module))\n"
            "    return model"
        )
    return "\n\n\n".join(parts)


LEAST_SAVING, LEAST_TIME_SAVING = 0.01, 0.05
"""A rewrite that saves less is not worth a change of the model; times of traced runs also vary."""


@dataclass(frozen=True)
class Ran:
    """A variant's run with SME2 on, and what was found in it."""

    profile: Profile
    cost: InferenceCost | None
    findings: tuple[Finding, ...]
    timed: bool = False
    agreement: Agreement | None = None
    """With what the model itself answers; of several outputs the worst."""
    tolerance: Tolerance | None = None
    memory: int | None = None
    """Its peak on a device; on an emulator, whose own memory is in it, the size of the program."""
    forms: tuple[str, ...] = ()
    """How its rewrites wrote what they found by trying."""
    unused: tuple[str, ...] = ()
    """What the model computes in vain."""
    varying_db: float | None = None
    """The signal over noise of what varies in the output: a constant offset would hide an error."""

    @property
    def amount(self) -> float | None:
        """What it is judged by: instructions, or the time of traced runs; None if not known."""
        if self.cost is not None:
            return self.cost.total.instructions
        return self.profile.end_to_end.median if self.timed else None

    @property
    def portable(self) -> int:
        return self.profile.executor_counts.get(Executor.PORTABLE, 0)

    @property
    def outputs(self) -> str:
        if self.agreement is None:
            return ""
        return f"outputs: {agreement_text(self.agreement, self.tolerance)}"

    @property
    def agrees(self) -> bool:
        found, tolerance = self.agreement, self.tolerance
        return found is None or bool(found.dead) or tolerance is None or within(found, tolerance)


@dataclass(frozen=True)
class Trial:
    """A case with rewrites, against the same case without."""

    rewrites: tuple[str, ...]
    before: Ran
    after: Ran | None
    problem: str = ""
    """Why it could not be run, or may not be used."""
    folded: Ran | None = None
    """The case with its constants folded, where the rewrite alone does that as well."""

    @property
    def saving(self) -> float:
        """The part of the whole that is saved, without what folding constants saves; below zero
        where it costs more, or is of no use.
        """
        return self._saving(self.folded or self.before)

    @property
    def total(self) -> float:
        """The same with what folding saves."""
        return self._saving(self.before)

    def _saving(self, since: Ran) -> float:
        whole, old = self.before.amount, since.amount
        new = None if self.after is None else self.after.amount
        if self.problem or not whole or old is None or new is None:
            return -1.0
        return (old - new) / whole

    @property
    def helps(self) -> bool:
        return self.saving >= (LEAST_TIME_SAVING if self.before.timed else LEAST_SAVING)


@dataclass(frozen=True)
class Edit:
    """A tested change of the model's file."""

    trial: Trial
    diff: str


def judged(
    variant: str,
    profile: Profile,
    cost: InferenceCost | None,
    *,
    timed: bool,
    memory: int | None = None,
) -> Ran:
    # Time is what counts where there is any.
    counted = None if timed else cost
    found = find(profile, timed=timed, counted=cost, precision=precision_of(variant))
    return Ran(profile, counted, found, timed, memory=memory)


def run_once(session: Session, case: Case, original: Case | None = None) -> Ran:
    """The case with SME2 on; its outputs are held against those of the ``original``'s model."""
    cost = session.cost(case, Arm.ON)
    counted = None if isinstance(cost, str) else cost
    profile, traced = session.profile(case, Arm.ON), session.traced(case, Arm.ON)
    timed, size = session.bench.timed, session.artifact(case).pte.stat().st_size
    memory = traced.peak_rss_bytes if timed else size
    found = judged(case.variant_name, profile, counted, timed=timed, memory=memory)
    artifact, right = session.artifact(case), session.artifact(original or case)
    found = dataclasses.replace(found, forms=artifact.forms, unused=artifact.unused)
    compared = compare_reference(right, traced.outputs, Arm.ON)
    if not compared:
        return found
    tolerance = tolerance_of(case.variant_name, session.limits(original or case), "reference")
    # An output that is zero says nothing while there is another one.
    worst = max(compared, key=lambda entry: (not entry.dead, entry.max_rel))
    found = dataclasses.replace(found, agreement=worst, tolerance=tolerance)
    return dataclasses.replace(found, varying_db=_varying_db(right, worst))


def _varying_db(artifact: Artifact, found: Agreement) -> float | None:
    """Its signal over noise without the mean of what is expected."""
    spec, file = artifact.outputs[found.index], artifact.reference_files[found.index]
    values = read_values(file, spec.dtype, spec.shape)
    mean, square = float(values.mean()), float((values * values).mean())
    if found.sqnr_db is None or not square > mean * mean:
        return found.sqnr_db
    return found.sqnr_db + 10 * math.log10(1 - mean * mean / square)


def shares_of(findings: Iterable[Finding]) -> dict[str, float]:
    """By rewrite what all that it is named for costs, the costliest first."""
    found: dict[str, float] = {}
    for finding in findings:
        if finding.rewrite:
            found[finding.rewrite] = found.get(finding.rewrite, 0.0) + finding.cost.share
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def named_rewrites(before: Ran) -> tuple[str, ...]:
    """Those that the findings name, the costliest first; none that could not save enough."""
    shares = shares_of(before.findings)
    return tuple(name for name, share in shares.items() if share >= LEAST_SAVING)


def try_rewrites(
    session: Session, case: Case, before: Ran, names: Sequence[str]
) -> Iterator[Trial]:
    """Each alone, then together all that cost nothing by themselves.

    Constants are folded first: what that saves is no other rewrite's.
    """
    alone, folded = [], None
    if FOLDED.intersection(names):
        folding = _tried(session, case, before, (FOLDING,))
        folded = None if folding.problem else folding.after
        alone = [folding] if folding.helps or FOLDING in names else []
    for name in names:
        since = folded if name in FOLDED else None
        alone += [_tried(session, case, before, (name,), since)] * (name != FOLDING)
    yield from alone
    usable = [trial for trial in alone if not trial.problem and trial.saving > -LEAST_SAVING]
    best = max((trial.total for trial in usable if trial.helps), default=0.0)
    if best and len(usable) > 1:
        every = [name for trial in usable for name in trial.rewrites]
        both = _tried(session, case, before, tuple(every))
        if both.total > best + LEAST_SAVING / 2:
            yield both


def _tried(
    session: Session, case: Case, before: Ran, names: tuple[str, ...], folded: Ran | None = None
) -> Trial:
    rewrites = tuple(name for name in NAMES if name in names)
    changed = dataclasses.replace(parse_variant(case.variant_name), rewrites=rewrites)
    tried = _trial(session, dataclasses.replace(case, variant=changed), None, before, rewrites)
    return dataclasses.replace(tried, folded=folded)


def _trial(
    session: Session, case: Case, original: Case | None, before: Ran, rewrites: tuple[str, ...]
) -> Trial:
    try:
        if ASKED.issuperset(rewrites) and not session.artifact(case).forms:
            return Trial(rewrites, before, None, "no other form was found that does the same")
        after = run_once(session, case, original)
    except Sme2Error as error:
        return Trial(rewrites, before, None, str(error).splitlines()[0])
    # What was wrong before is not the rewrite's fault.
    wrong = before.agrees and not after.agrees
    return Trial(rewrites, before, after, f"the outputs differ: {after.outputs}" if wrong else "")


def try_edit(session: Session, case: Case, trial: Trial) -> Edit | None:
    """The rewrites written into the model's file, run from a copy; None where that brings nothing.

    A rewrite of what another file calls has no place in it.
    """
    entry = case.entry
    if entry is None or entry.file is None:
        return None
    source = entry.file.read_text(encoding="utf-8")
    after = edited(source, trial.rewrites)
    if after is None:
        return None
    with tempfile.TemporaryDirectory(prefix="sme2-edit-") as name:
        folder = Path(name) / entry.file.parent.name
        folder.mkdir()
        for beside in entry.file.parent.iterdir():
            if beside.name != entry.file.name:
                (folder / beside.name).symlink_to(beside.resolve())
        (folder / entry.file.name).write_text(after, encoding="utf-8")
        moved = dataclasses.replace(entry, file=folder / entry.file.name)
        copy = dataclasses.replace(case, model=f"{case.model}-edited", entry=moved)
        tested = _trial(session, copy, case, trial.before, trial.rewrites)
    if not tested.helps:
        return None
    shown = from_here(entry.file.resolve())
    if shown.is_absolute():
        shown = Path(entry.file.parent.name, entry.file.name)
    return Edit(tested, unified_diff(source, after, shown.as_posix()))
