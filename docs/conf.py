"""How the documentation is built: `tox -e docs`, or `sphinx-build -W docs FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_sme2 import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "pytest-sme2"
version = release = __version__
html_title = f"{project} {release}"
html_theme = "alabaster"
html_theme_options = {
    "description": "Performance regressions of ExecuTorch models on Arm with SME2",
    "page_width": "1000px",
}
extensions = ["myst_parser", "sphinx.ext.autodoc", "generated_tables", "sample_report"]

# Reports for other projects: files to send, not pages to read.
exclude_patterns = ["upstream"]

# Headings can be linked to, as in measuring.md#threads.
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

# Types are named as in the source: most are imported for type checkers only.
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"undoc-members": True}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
