"""Builds the wheel and the sdist into dist/, and refuses what a second build does not repeat.

    python .ci/package.py [v1.2.3]
    python .ci/package.py --published

Only what is committed is built. The bytes depend on nothing else: hatchling writes a fixed time
unless SOURCE_DATE_EPOCH names one. A tag has to be that of the version, and the changelog and
CITATION.cff have to know it.

Until a registry has the package, pages, workflows and messages install it from git. --published
takes that out of all of them, and a tag is refused before.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FROM_GIT = re.compile(r" @ git\+https://github\.com/pytest-sme2/pytest-sme2\b")


def build(source: Path) -> dict[str, bytes]:
    """The files of one build in a folder of its own, by name."""
    source.mkdir()
    archive = source.with_suffix(".tar")
    subprocess.run(["git", "archive", "--output", archive, "HEAD"], cwd=ROOT, check=True)
    with tarfile.open(archive) as opened:
        opened.extractall(source, filter="data")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(source / "made")]
    subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
    return {path.name: path.read_bytes() for path in (source / "made").iterdir()}


def relative_links(wheel: bytes) -> list[str]:
    """Links of the page on the registry that only the repository could follow."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        found: list[str] = re.findall(r"\]\((?!https:)[^)]*\)", opened.read(name).decode())
    return found


def unready(version: str, changelog: str, citation: str) -> list[str]:
    """What a release of this version lacks."""
    found = []
    if not re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md has no heading for {version}.")
    if f"\nversion: {version}\n" not in citation:
        found.append(f"CITATION.cff does not name {version}.")
    return found


def install_from_git(root: Path = ROOT) -> list[Path]:
    """The committed files that say so."""
    command = ["git", "grep", "-lE", FROM_GIT.pattern.replace(r"\b", "")]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False)
    return [root / name for name in done.stdout.splitlines()]


def install_as_published(root: Path = ROOT) -> None:
    for path in install_from_git(root):
        path.write_text(FROM_GIT.sub("", path.read_text("utf-8")), "utf-8")


def main(tags: Sequence[str]) -> int:
    if [*tags] == ["--published"]:
        install_as_published()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        first, second = (build(Path(folder) / name) for name in ("one", "another"))
    changed = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
    problems = [f"NOT REPRODUCIBLE: two builds of {name} differ." for name in changed]
    (version,) = {name.split("-")[1].removesuffix(".tar.gz") for name in first}
    problems += [f"The tag {tag} is not v{version}." for tag in tags if tag != f"v{version}"]
    texts = [(ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "CITATION.cff")]
    problems += unready(version, *texts)
    if tags and install_from_git():
        problems.append("Pages install from git: python .ci/package.py --published")
    (wheel,) = [content for name, content in first.items() if name.endswith(".whl")]
    problems += [f"The README's link {link} is relative." for link in relative_links(wheel)]
    if problems:
        print("\n".join(problems))
        return 1
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    (ROOT / "dist").mkdir()
    for name, content in first.items():
        (ROOT / "dist" / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
