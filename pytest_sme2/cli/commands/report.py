"""``sme2 report``: the reports of one or several run directories, made again from their files, in
there or elsewhere; or whether their files are whole.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_sme2.cli.experiments import rewrite_experiments
from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import MissingExtraError, UsageError
from pytest_sme2.report.history import pytorch_benchmark
from pytest_sme2.report.markdown import REPORT, run_report
from pytest_sme2.report.model_explorer import viewer
from pytest_sme2.report.text import printable
from pytest_sme2.report.versus_baseline import comment_json
from pytest_sme2.report.writing import validate_run, write_case
from pytest_sme2.session.run_directory import METRICS, CaseRecord, find_records, read_record
from pytest_sme2.session.settings import parse_report
from pytest_sme2.system.files import write_text
from pytest_sme2.system.wording import count

MODEL_EXPLORER = "model-explorer"
FORMATS = {"comment": comment_json, "pytorch": pytorch_benchmark}
EXAMPLE = "sme2 report sme2-out --html report.html"
ARGUMENTS: Arguments = {
    "run_dir RUN_DIR+": "a run directory; several share one report",
    "--html FILE": "write the HTML report to this file",
    "--markdown FILE": "write the Markdown report to this file",
    f"--format {{{','.join((*FORMATS, MODEL_EXPLORER))}}}": (
        "only print the results: for a pull request, or PyTorch's benchmark database. "
        f"{MODEL_EXPLORER}: write files that colour the program's graph, and "
        "print the command that shows it; of two run directories the first is what the second is "
        "compared with"
    ),
    "--open": f"with --format {MODEL_EXPLORER}: show it, on this machine only",
    "--check": "only say which files are missing or broken; exit code 1 if any is",
}


def run(arguments: argparse.Namespace) -> int:
    if arguments.check:
        return _check(arguments)
    html = None if arguments.html is None else parse_report(str(arguments.html))
    # What goes elsewhere leaves the run directory as it is.
    rewritten = arguments.format is None and html is None and arguments.markdown is None
    if rewritten and len(arguments.run_dir) > 1:
        raise UsageError(
            "Several run directories have no folder in common. Add --html or --markdown."
        )
    runs: dict[str, list[tuple[Path, CaseRecord]]] = {}
    for root in arguments.run_dir:
        folders = list(find_records(root)) if root.is_dir() else []
        if not folders:
            raise UsageError(
                f"{str(root)!r} is not a run directory: it has no metrics.json. "
                "Give the folder that --sme2-out named."
            )
        runs[str(root)] = [(folder, read_record(folder)) for folder in folders]
    pairs = [pair for found in runs.values() for pair in found]
    records = [record for _, record in pairs]
    if arguments.format == MODEL_EXPLORER:
        return _show_graphs(arguments, runs)
    if arguments.format is not None:
        print(FORMATS[arguments.format](records), end="")
        return 0
    markdown = arguments.markdown
    if rewritten:
        (root,) = arguments.run_dir
        for folder, record in pairs:
            write_case(folder, record)
        if (root / METRICS).is_file():
            rewrite_experiments(root, pairs)
        markdown = root / REPORT
    written = []
    if markdown is not None:
        names = [name for name, found in runs.items() for _ in found] if len(runs) > 1 else []
        write_text(markdown, run_report(records, names))
        written.append(markdown)
    if html is not None:
        from pytest_sme2.report.html import write_html

        write_html(html, pairs)
        written.append(html)
    files = [str(path) for path in written]
    return show(arguments, {"cases": [record.id for record in records], "files": files}, files)


def _show_graphs(
    arguments: argparse.Namespace, runs: Mapping[str, Sequence[tuple[Path, CaseRecord]]]
) -> int:
    *earlier, last = runs.values()
    before = {record.id: record for found in earlier for _, record in found}
    commands = [viewer(folder, record, before.get(record.id)) for folder, record in last]
    if not arguments.open:
        lines = [shlex.join(["model-explorer", *command[3:]]) for command in commands]
        return show(arguments, {"commands": lines}, lines)
    if len(commands) > 1:
        raise UsageError(f"There are {len(commands)} cases. Name the folder of one to --open it.")
    if importlib.util.find_spec("pte_adapter_model_explorer") is None:
        raise MissingExtraError("pte_adapter_model_explorer", "see", "Showing a graph")
    return subprocess.run(commands[0], check=False).returncode


def _check(arguments: argparse.Namespace) -> int:
    found = [each for root in arguments.run_dir for each in validate_run(root)]
    problems = [each for each in found if each.problem]
    files = [{"file": str(each.path), "problem": each.problem} for each in found]
    lines = [printable(f"{each.path}: {each.problem}") for each in problems]
    lines.append(f"{count(len(found), 'file')} looked at, {count(len(problems), 'problem')}")
    show(arguments, {"valid": not problems, "files": files}, lines)
    return 1 if problems else 0
