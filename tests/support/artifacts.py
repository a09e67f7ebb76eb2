"""Artifacts for tests: the files an export leaves, without an export."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sme2.export.store import META_FILE, SCHEMA, artifact_stem, load_artifact
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results.run import Artifact, Output


def make_output(path: Path, values: Sequence[float], **changes: Any) -> Output:
    """What a runner says of an output, whose values are in a file."""
    data = struct.pack(f"<{len(values)}f", *values)
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    return replace(Output("float32", (len(values),), digest, False, path), **changes)


def make_artifact(folder: Path, model: str, variant: str, content: bytes = b"") -> Artifact:
    """A folder that ``load_artifact`` takes; its program holds ``content``, or its own name."""
    folder.mkdir(parents=True)
    pte = f"{artifact_stem(model, parse_variant(variant))}.pte"
    files = {
        pte: content or f"{model} {variant}".encode("utf-8", "surrogatepass"),
        f"{pte}.etrecord": b"etrecord",
        "input_0.bin": bytes(4),
        "reference_0.bin": bytes(4),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    spec = {"dtype": "float32", "shape": [1]}
    meta = {
        "schema": SCHEMA,
        "key": "key",
        "model": model,
        "variant": variant,
        "pte": pte,
        "inputs": [spec],
        "outputs": [spec],
        "weights": "random (seed 0)",
        "versions": {"executorch": "1.5.1"},
        "dependencies": {"files": {}, "packages": {}},
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        },
    }
    (folder / META_FILE).write_text(json.dumps(meta), encoding="utf-8")
    return load_artifact(folder)
