"""Breaks the gate, statistics, taxonomy and ETDump reader, and counts what the tests notice.

    python -m benchmarks.mutation [--module NAME] [--sample N --seed S] [--json FILE]

A mutant is one small change (mutants.py). The tests that run its line are run against it, the
fastest first, each mutant in a forked process of its own; what survives them meets the other tests
of the module. A change in a function goes into the functions of a session that has collected its
tests, which costs no import; any other, and one that no test runs, has the module imported anew. A
mutant is killed by a failing test, by an error, or by using far more CPU time than the tests need.
Survivors that were looked at and that no test can or should kill are listed in
mutation_survivors.json with the reason; any other makes the exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import math
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
from types import CodeType, FunctionType, ModuleType
from typing import Any

from benchmarks.mutants import Mutant, mutants, mutate

ROOT = Path(__file__).parent.parent
EXPLAINED = Path(__file__).with_name("mutation_survivors.json")
PACKAGES = ("pytest_sme2", "tests", "benchmarks", "conftest")

_GATE = ("tests/unit/test_gate.py", "tests/unit/test_gate_checks.py")
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

# Exit codes of a child: an error of its own, and tests that never loaded the changed module.
ERROR, NOT_USED = 70, 71
KILLED, SURVIVED, TIMED_OUT, UNREACHED = "killed", "survived", "timed out", "unreached"


# --- Running tests in a child ---------------------------------------------------------------------


def _run_tests(files: Iterable[str], plugin: object) -> int:
    import hypothesis
    import pytest

    # The same examples every time, and none kept: a mutant's failures are nobody's regressions.
    hypothesis.settings.register_profile("mutation", derandomize=True, database=None, deadline=None)
    hypothesis.settings.load_profile("mutation")
    options = [
        *("-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"),
        # pytest's own rewriting of a plugin's modules would come before the changed code.
        *("--assert=plain", "--tb=no"),
    ]
    return int(pytest.main([*options, *files], plugins=[plugin]))


def _run_items(session: Any, items: Sequence[Any]) -> int:
    """Run collected tests until one fails."""
    for number, item in enumerate(items):
        following = items[number + 1] if number + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def _fork(
    work: Callable[[], int],
    *,
    cpu_seconds: float,
    quiet: bool = True,
    wall_seconds: float | None = WALL_SECONDS,
) -> int | None:
    """The exit code of work done in a child; None where it ran out of time."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = ERROR
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
    return _wait(child, wall_seconds)


def _wait(child: int, wall_seconds: float | None) -> int | None:
    deadline = time.monotonic() + (math.inf if wall_seconds is None else wall_seconds)
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


def _compiled(mutant: Mutant) -> CodeType:
    source = (ROOT / mutant.module).read_text(encoding="utf-8")
    tree = mutate(source, mutant, wording=mutant.module in NAMES_ARE_DATA)
    return compile(tree, str(ROOT / mutant.module), "exec")


def _module_name(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# --- A change in a function's code: put into the functions of a session that has collected --------


class _Host:
    """A pytest plugin: runs the mutants, each in a fork of the session, in place of the tests."""

    def __init__(self, chosen: Sequence[Mutant], answer: Path) -> None:
        self.chosen = chosen
        self.answer = answer

    def pytest_runtestloop(self, session: Any) -> bool:
        # It writes past the descriptors that a child closes.
        session.config.pluginmanager.unregister(name="terminalreporter")
        modules = sorted({mutant.module for mutant in self.chosen})
        with tempfile.TemporaryDirectory() as folder:
            noted = Path(folder) / "ground.json"
            survey = functools.partial(_survey, session, modules, noted)
            code = _fork(survey, cpu_seconds=WALL_SECONDS)
            if code != 0:
                raise SystemExit(f"The unchanged tests fail ({code}); mend them first.")
            known = Ground.read(noted)
        # What is not looked at in a child is not copied for it either.
        gc.freeze()
        with self.answer.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"modules": known.modules, "cpu": known.cpu_seconds}) + "\n")
            for mutant in self.chosen:
                fate = self._judge(session, mutant, known)
                file.write(json.dumps({"fate": fate}) + "\n")
                file.flush()
        return True

    def _judge(self, session: Any, mutant: Mutant, known: Ground) -> str:
        names = known.covering(mutant)
        if not names:
            return UNREACHED
        items = {item.nodeid: item for item in session.items}
        others = sorted(known.tests.keys() - {*names}, key=known.tests.__getitem__)
        for chosen in filter(None, (names, others)):
            tests = [items[name] for name in chosen]
            work = functools.partial(_swap_and_run, session, mutant, tests)
            fate = _fate(_fork(work, cpu_seconds=known.limit))
            if fate != SURVIVED:
                return fate
        return SURVIVED


def _survey(session: Any, modules: Sequence[str], answer: Path) -> int:
    """Run the unchanged tests, noting who runs which line; the ground goes to a file."""
    import coverage

    before = resource.getrusage(resource.RUSAGE_SELF)
    include = [str(ROOT / module) for module in modules]
    tool = coverage.Coverage(data_file=None, include=include, branch=False)
    seconds: dict[str, float] = {}

    class Survey:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            # What an earlier test has cached, a later one would not run.
            _clear_caches(modules)
            tool.switch_context(nodeid)

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.passed:
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration

    session.config.pluginmanager.register(Survey())
    tool.start()
    code = _run_items(session, session.items)
    tool.stop()
    data, after = tool.get_data(), resource.getrusage(resource.RUSAGE_SELF)
    facts = {
        "tests": seconds,
        "by_line": [
            (module, line, sorted(contexts))
            for module in modules
            for line, contexts in data.contexts_by_lineno(str(ROOT / module)).items()
        ],
        "modules": [
            name
            for name, loaded in list(sys.modules.items())
            if name.partition(".")[0] not in PACKAGES and getattr(loaded, "__spec__", None)
        ],
        "cpu_seconds": after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
    }
    answer.write_text(json.dumps(facts), encoding="utf-8")
    return code


def _clear_caches(modules: Iterable[str]) -> None:
    for module in modules:
        for value in vars(sys.modules[_module_name(module)]).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def _swap_and_run(session: Any, mutant: Mutant, tests: Sequence[Any]) -> int:
    """Give a function its changed code, wherever it was imported to, and run the tests."""
    name = _module_name(mutant.module)
    changed = ModuleType(name)
    changed.__file__ = str(ROOT / mutant.module)
    exec(_compiled(mutant), changed.__dict__)
    old, new = (_function(module, mutant.function) for module in (sys.modules[name], changed))
    old.__code__ = new.__code__
    _clear_caches([mutant.module])
    return _run_items(session, tests)


def _function(module: ModuleType, path: str) -> FunctionType:
    """The outermost function on a path such as ``Class.method``, without what wraps it."""
    found: Any = module
    for name in path.split("."):
        found = vars(found)[name]
        found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found
        found = inspect.unwrap(found)
        if isinstance(found, FunctionType):
            return found
    raise TypeError(f"{path} of {module.__name__} is no function")


# --- A change outside of functions: the module is imported anew -----------------------------------


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from changed code, and no other."""

    def __init__(self, path: str, code: CodeType) -> None:
        self.path = ROOT / path
        self.name = _module_name(path)
        self.code = code
        self.used = False

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        package = self.path.name == "__init__.py"
        spec = importlib.machinery.ModuleSpec(
            fullname, self, origin=str(self.path), is_package=package
        )
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [str(self.path.parent)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, module.__dict__)
        self.used = True


def _import_and_run(module: str, code: CodeType, files: Sequence[str]) -> int:
    changed = _Changed(module, code)
    sys.meta_path.insert(0, changed)
    ended = _run_tests(files, object())
    # Tests of the unchanged code would pass, and say nothing.
    return ended if changed.used or ended else NOT_USED


# --- In the parent --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ground:
    """What the unchanged tests did."""

    tests: Mapping[str, float]
    """Seconds by test that passed."""
    by_line: Mapping[tuple[str, int], frozenset[str]]
    """The tests that ran a module's line."""
    modules: tuple[str, ...]
    """Third-party modules that they loaded."""
    cpu_seconds: float

    @classmethod
    def read(cls, path: Path) -> Ground:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            facts["tests"],
            {(module, line): frozenset(names) for module, line, names in facts["by_line"]},
            tuple(facts["modules"]),
            facts["cpu_seconds"],
        )

    @property
    def limit(self) -> float:
        """The CPU time after which a mutant hangs."""
        return 3 * self.cpu_seconds + SPARE_CPU_SECONDS

    def covering(self, mutant: Mutant) -> list[str]:
        """The tests that may notice, the fastest first; none where the line never runs."""
        first, last = mutant.statement
        found = {
            name
            for line in range(first, last + 1)
            for name in self.by_line.get((mutant.module, line), ())
        }
        return sorted(found & {*self.tests}, key=self.tests.__getitem__)


def _fate(code: int | None) -> str:
    if code == NOT_USED:
        raise SystemExit("The tests do not import the changed module.")
    if code is None:
        return TIMED_OUT
    return KILLED if code else SURVIVED


def _preload(names: Iterable[str]) -> None:
    """Import what the tests will need, so that a forked child has it already."""
    for name in names:
        # Some modules can only be imported by others.
        with contextlib.suppress(BaseException):
            importlib.import_module(name)


def explanations() -> dict[tuple[str, ...], str]:
    """Why a survivor may live, by what it changes."""
    parts = ("module", "function", "text", "before", "after")
    entries = json.loads(EXPLAINED.read_text(encoding="utf-8"))
    return {tuple(entry[part] for part in parts): entry["reason"] for entry in entries}


def _facts(mutant: Mutant, fate: str) -> dict[str, object]:
    return {
        "module": mutant.module,
        "function": mutant.function,
        "line": mutant.line,
        "text": mutant.text,
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


def run_modules(
    modules: Sequence[str], files: tuple[str, ...], *, sample: int | None, seed: int
) -> Iterator[tuple[Mutant, str]]:
    """Every chosen mutant of modules that have the same tests, and its fate."""
    chosen = [mutant for module in modules for mutant in _chosen(module, sample, seed)]
    inside = [mutant for mutant in chosen if mutant.in_body]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "fates.jsonl"
        host = functools.partial(_run_tests, files, _Host(inside, answer))
        code = _fork(host, cpu_seconds=10 * WALL_SECONDS, quiet=False, wall_seconds=None)
        lines = answer.read_text(encoding="utf-8").splitlines() if answer.exists() else []
    if code != 0 or len(lines) != len(inside) + 1:
        raise SystemExit(f"{', '.join(files)} cannot be run ({code}).")
    facts = json.loads(lines[0])
    fates = [json.loads(line)["fate"] for line in lines[1:]]
    reached = [pair for pair in zip(inside, fates, strict=True) if pair[1] != UNREACHED]
    yield from reached
    _preload(facts["modules"])
    # What no test runs may have run when the module was imported.
    done = {id(mutant) for mutant, _ in reached}
    for mutant in chosen:
        if id(mutant) not in done:
            work = functools.partial(_import_and_run, mutant.module, _compiled(mutant), files)
            limit = 3 * facts["cpu"] + SPARE_CPU_SECONDS
            yield mutant, _fate(_fork(work, cpu_seconds=limit))


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
    alive: list[dict[str, object]] = []
    unexplained = 0
    fates: dict[str, Counter[str]] = {}
    start = time.monotonic()
    groups: dict[tuple[str, ...], list[str]] = {}
    for module in given.module or TARGETS:
        groups.setdefault(TARGETS[module], []).append(module)
    for files, modules in groups.items():
        for mutant, fate in run_modules(modules, files, sample=given.sample, seed=given.seed):
            fates.setdefault(mutant.module, Counter())[fate] += 1
            if fate == SURVIVED:
                reason = explained.get(mutant.key)
                unexplained += reason is None
                alive.append({**_facts(mutant, fate), "explained": reason})
                note = "explained" if reason else "NOT EXPLAINED"
                print(
                    f"{mutant.module}:{mutant.line}: {fate}, {note}: "
                    f"{mutant.before}  ->  {mutant.after}",
                    flush=True,
                )
    summary = {
        module: {**counts, "mutants": sum(counts.values())} for module, counts in fates.items()
    }
    for module, facts in summary.items():
        print(f"{module}: {json.dumps(facts)}")
    result = {
        "sample": given.sample,
        "seed": given.seed,
        "seconds": round(time.monotonic() - start, 1),
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
