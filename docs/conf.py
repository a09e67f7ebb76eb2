"""How the documentation is built: `tox -e docs`, or `sphinx-build -W docs FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pytest_sme2 import __version__

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE / "_ext"), str(_HERE.parent)]

project = "pytest-sme2"
version = release = __version__
html_title = f"{project} {release}"
# Navigation and search on every page. Read the Docs keeps a site per version, and adds their menu.
html_theme = "furo"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_theme_options = {
    "source_repository": "https://github.com/pytest-sme2/pytest-sme2/",
    "source_branch": "main",
    "source_directory": "docs/",
}
templates_path = ["_templates"]
_PARTS = ("brand", "search", "scroll-start", "navigation", "live", "scroll-end")
html_sidebars = {"**": [f"{'' if name == 'live' else 'sidebar/'}{name}.html" for name in _PARTS]}
extensions = ["myst_parser", "sphinx.ext.autodoc", "generated_tables", "live_pages"]

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
