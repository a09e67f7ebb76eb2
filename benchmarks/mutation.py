"""Breaks the gate, the statistics, the taxonomy and the ETDump reader, and counts what tests notice.

    python -m benchmarks.mutation [--module NAME] [--sample N --seed S] [--json FILE]

A mutant is one small change (mutants.py). The tests that run its line are run against it, the
fastest first, each mutant in a forked process of its own; what survives them meets all tests of
the module. A mutant is killed by a failing test, by an error, or by using far more CPU time than
the tests need. Survivors that were looked at and that no test can or should kill are listed in
mutation_survivors.json with the reason; any other makes the exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from benchmarks.mutants import Mutant, mutants, mutate

ROOT = Path(__file__).parent.parent
EXPLAINED = Path(__file__).with_name("mutation_survivors.json")
PACKAGES = ("pytest_sme2", "tests", "benchmarks", "conftest")

_GATE = ("tests/unit/test_gate.py",)
TARGETS: Mapping[str, tuple[str, ...]] = {
    "pytest_sme2/gate/__init__.py": _GATE,
    "pytest_sme2/gate/judging.py": _GATE,
    "pytest_sme2/gate/outputs.py": _GATE,
    "pytest_sme2/gate/sizes.py": _GATE,
    "pytest_sme2/gate/structure.py": _GATE,
    "pytest_sme2/gate/times.py": _GATE,
    "pytest_sme2/stats.py": ("tests/unit/test_stats.py",),
    "pytest_sme2/categories.py": ("tests/unit/test_categories.py",),
    "pytest_sme2/etdump.py": ("tests/unit/test_etdump.py",),
}
# Names with spaces are data there, and no wording.
NAMES_ARE_DATA = ("pytest_sme2/categories.py",)

# Beyond what the tests need by themselves. CPU time, so that a busy machine changes nothing.
SPARE_CPU_SECONDS = 10
WALL_SECONDS = 900
MEMORY_BYTES = 8 << 30

KILLED, SURVIVED, TIMED_OUT, UNREACHED = "killed", "survived", "timed out", "unreached"


@dataclass(frozen=True)
class Ground:
    """What the unchanged tests of a module did."""

    tests: Mapping[str, float]
    """Seconds by test."""
    by_line: Mapping[int, frozenset[str]]
    """The tests that ran a line; the empty name stands for the import."""
    modules: tuple[str, ...]
    """Third-party modules that they loaded."""
    cpu_seconds: float

    def covering(self, mutant: Mutant) -> list[str]:
        """The tests that may notice, the fastest first; none where the line never runs."""
        first, last = mutant.statement
        found = {name for line in range(first, last + 1) for name in self.by_line.get(line, ())}
        if "" in found:
            found = {*self.tests}
        return sorted(found & {*self.tests}, key=self.tests.__getitem__)


# --- In the child ---------------------------------------------------------------------------------


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from changed code, and no other."""

    def __init__(self, path: str, code: CodeType) -> None:
        self.path = ROOT / path
        parts = Path(path).with_suffix("").parts
        self.package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.package else parts)
        self.code = code

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        spec = importlib.machinery.ModuleSpec(
            fullname, self, origin=str(self.path), is_package=self.package
        )
        spec.has_location = True
        if self.package:
            spec.submodule_search_locations = [str(self.path.parent)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, module.__dict__)


class _Chosen:
    """A pytest plugin: only these tests, in this order."""

    def __init__(self, names: Sequence[str]) -> None:
        self.order = {name: number for number, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order),
            key=lambda item: self.order[item.nodeid],
        )


def _run_tests(files: Iterable[str], plugins: Sequence[object]) -> int:
    import hypothesis
    import pytest

    # The same examples every time, and none kept: a mutant's failures are nobody's regressions.
    hypothesis.settings.register_profile(
        "mutation", derandomize=True, database=None, deadline=None
    )
    hypothesis.settings.load_profile("mutation")
    options = [
        *("-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"),
        # What was imported ahead of pytest is no test.
        *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
    ]
    return int(pytest.main([*options, *files], plugins=list(plugins)))


def _try_mutant(module: str, code: CodeType, files: Sequence[str], names: Sequence[str]) -> int:
    sys.meta_path.insert(0, _Changed(module, code))
    return _run_tests(files, [_Chosen(names)])


def _survey(module: str, files: Sequence[str], answer: Path) -> int:
    """Run the unchanged tests, noting who runs what; the ground goes to a file."""
    import coverage

    tool = coverage.Coverage(data_file=None, include=[str(ROOT / module)], branch=False)
    seconds: dict[str, float] = {}

    class Survey:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            tool.switch_context(nodeid)

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.passed or report.failed:
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration

        def pytest_runtest_logfinish(self, nodeid: str) -> None:
            # What a skipped test ran tells nothing.
            tool.switch_context("")

    tool.start()
    code = _run_tests(files, [Survey()])
    tool.stop()
    if code == 0:
        lines = tool.get_data().contexts_by_lineno(str(ROOT / module))
        used = resource.getrusage(resource.RUSAGE_SELF)
        ground = {
            "tests": seconds,
            "by_line": {line: sorted(contexts) for line, contexts in lines.items()},
            "modules": [
                name
                for name, loaded in list(sys.modules.items())
                if name.partition(".")[0] not in PACKAGES and getattr(loaded, "__spec__", None)
            ],
            "cpu_seconds": used.ru_utime + used.ru_stime,
        }
        answer.write_text(json.dumps(ground), encoding="utf-8")
    return code


# --- In the parent --------------------------------------------------------------------------------


def _fork(work: Callable[[], int], *, cpu_seconds: float, quiet: bool = True) -> int | None:
    """The exit code of work done in a child; None where it ran out of time."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setpgid(0, 0)
            limit = int(cpu_seconds) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if quiet:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 1)
                os.dup2(nowhere, 2)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return _wait(child)


def _wait(child: int) -> int | None:
    deadline = time.monotonic() + WALL_SECONDS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            status = signal.SIGKILL
            break
        time.sleep(0.01)
    # Programs that a test started go with it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if os.WIFSIGNALED(status):
        ran_out = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        return None if ran_out else 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def ground(module: str, files: Sequence[str], folder: Path) -> Ground:
    """Run the unchanged tests once; they must pass."""
    answer = folder / "ground.json"
    code = _fork(lambda: _survey(module, files, answer), cpu_seconds=WALL_SECONDS, quiet=False)
    if code != 0:
        raise SystemExit(f"The unchanged tests of {module} fail ({code}); mend them first.")
    facts = json.loads(answer.read_text(encoding="utf-8"))
    return Ground(
        facts["tests"],
        {int(line): frozenset(names) for line, names in facts["by_line"].items()},
        tuple(facts["modules"]),
        facts["cpu_seconds"],
    )


def judge(mutant: Mutant, files: Sequence[str], known: Ground) -> str:
    """What became of a mutant."""
    names = known.covering(mutant)
    if not names:
        return UNREACHED
    source = (ROOT / mutant.module).read_text(encoding="utf-8")
    tree = mutate(source, mutant, wording=mutant.module in NAMES_ARE_DATA)
    code = compile(tree, str(ROOT / mutant.module), "exec")
    every = sorted(known.tests, key=known.tests.__getitem__)
    for chosen in (names, every) if len(names) < len(every) else (names,):
        ended = _fork(
            functools.partial(_try_mutant, mutant.module, code, files, chosen),
            cpu_seconds=3 * known.cpu_seconds + SPARE_CPU_SECONDS,
        )
        if ended is None:
            return TIMED_OUT
        if ended != 0:
            return KILLED
    return SURVIVED


def _preload(names: Iterable[str]) -> None:
    """Import what the tests will need, so that a forked child has it already."""
    for name in names:
        # Some modules can only be imported by others.
        with contextlib.suppress(BaseException):
            importlib.import_module(name)


def explanations() -> dict[tuple[str, str, str, str], str]:
    """Why a survivor may live, by what it changes."""
    entries = json.loads(EXPLAINED.read_text(encoding="utf-8"))
    return {
        (entry["module"], entry["function"], entry["before"], entry["after"]): entry["reason"]
        for entry in entries
    }


def _facts(mutant: Mutant, fate: str) -> dict[str, object]:
    return {
        "module": mutant.module,
        "function": mutant.function,
        "line": mutant.line,
        "rule": mutant.rule,
        "before": mutant.before,
        "after": mutant.after,
        "fate": fate,
    }


def _chosen(module: str, sample: int | None, seed: int) -> Iterator[Mutant]:
    source = (ROOT / module).read_text(encoding="utf-8")
    found = mutants(module, source, wording=module in NAMES_ARE_DATA)
    if sample is not None and sample < len(found):
        picked = random.Random(f"{seed} {module}").sample(range(len(found)), sample)
        found = [found[position] for position in sorted(picked)]
    yield from found


def run_module(
    module: str, folder: Path, *, sample: int | None, seed: int
) -> Iterator[tuple[Mutant, str]]:
    """Every chosen mutant of a module, and its fate."""
    files = TARGETS[module]
    known = ground(module, files, folder)
    _preload(known.modules)
    for mutant in _chosen(module, sample, seed):
        # Code that does not compile is no mutant.
        with contextlib.suppress(SyntaxError):
            yield mutant, judge(mutant, files, known)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--module", action="append", choices=list(TARGETS), metavar="FILE",
                        help=f"only this one (repeatable): {', '.join(TARGETS)}")  # fmt: skip
    parser.add_argument("--sample", type=int, help="at most this many mutants a module")
    parser.add_argument("--seed", type=int, default=1, help="for the sample")
    parser.add_argument("--json", type=Path, help="write the result there")
    given = parser.parse_args(arguments)
    # One thread: what is forked must have no others, and two cores may be all there are.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.chdir(ROOT)
    explained = explanations()
    summary: dict[str, dict[str, float]] = {}
    alive: list[dict[str, object]] = []
    unexplained = 0
    for module in given.module or TARGETS:
        start = time.monotonic()
        fates: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as folder:
            for mutant, fate in run_module(
                module, Path(folder), sample=given.sample, seed=given.seed
            ):
                fates[fate] += 1
                if fate in (SURVIVED, UNREACHED):
                    reason = explained.get(mutant.key)
                    unexplained += reason is None
                    alive.append({**_facts(mutant, fate), "explained": reason})
                    note = "explained" if reason else "NOT EXPLAINED"
                    print(
                        f"{mutant.module}:{mutant.line}: {fate}, {note}: "
                        f"{mutant.before}  ->  {mutant.after}"
                    )
        seconds = time.monotonic() - start
        summary[module] = {**fates, "mutants": fates.total(), "seconds": round(seconds, 1)}
        print(f"{module}: {json.dumps(summary[module])}", flush=True)
    result = {
        "sample": given.sample,
        "seed": given.seed,
        "modules": summary,
        "alive": alive,
        "unexplained": unexplained,
    }
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    killed = sum(int(facts.get(KILLED, 0) + facts.get(TIMED_OUT, 0)) for facts in summary.values())
    total = sum(int(facts["mutants"]) for facts in summary.values())
    print(f"{killed} of {total} mutants killed, {len(alive)} alive, {unexplained} not explained.")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
