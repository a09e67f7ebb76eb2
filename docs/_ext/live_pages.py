"""Makes the sample reports and the kernel matrix page at every build, with the tool itself.

Then it follows the links: each page must be near, and no link may lead nowhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from pytest_sme2.profile.kernel_matrix import shipped_matrix, shipped_versions
from tools.matrix.comparing import matrix_page


def finish(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        write_samples(app)
        shown = [shipped_matrix(version) for version in shipped_versions()]
        (Path(app.outdir) / "kernel-matrix.html").write_text(matrix_page(shown), encoding="utf-8")
        check_links(app)


def write_samples(app: Sphinx) -> None:
    """Beside the page that links to them."""
    out = Path(app.outdir) / "sample"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        # Reports are also written into the run directories.
        runs = Path(shutil.copytree(Path(app.srcdir) / "sample", Path(name) / "runs"))
        done = subprocess.run(
            [
                sys.executable,
                *("-c", "import sys; from pytest_sme2.cli.main import main; sys.exit(main())"),
                *("report", *sorted(folder.name for folder in runs.iterdir())),
                *("--html", str(out / "report.html"), "--markdown", str(out / "report.md")),
            ],
            # So that the report names the runs as the page does.
            cwd=runs,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise ExtensionError(f"the sample report was not made: {done.stderr}")


CLICKS = 2


def check_links(app: Sphinx) -> None:
    """Every page and every live page is within two clicks of the first one."""
    out = Path(app.outdir)
    seen = near = {out / "index.html"}
    for _ in range(CLICKS):
        near = {target for page in near for target in _targets(page)} - seen
        missing = sorted(str(page.relative_to(out)) for page in near if not page.exists())
        if missing:
            raise ExtensionError(f"links lead to pages that are not there: {', '.join(missing)}")
        seen = seen | near
    live = [out / "kernel-matrix.html", out / "sample" / "report.html"]
    wanted = {*live, *(out / f"{name}.html" for name in app.env.found_docs)}
    if wanted - seen:
        far = ", ".join(sorted(page.name for page in wanted - seen))
        raise ExtensionError(f"more than {CLICKS} clicks from the first page: {far}")


def _targets(page: Path) -> set[Path]:
    """The pages of this site that a page links to; what is written by hand has no scheme."""
    found = re.findall(r'<a\b[^>]*\bhref="([^"#?:]+\.html)[#"]', page.read_text(encoding="utf-8"))
    return {(page.parent / name).resolve() for name in found}


def setup(app: Sphinx) -> dict[str, bool]:
    # After all that others write then.
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
