"""A script in place of ``llama_main``, which says the times that it is given."""

from __future__ import annotations

from pathlib import Path

_SCRIPT = """\
#!/bin/sh
# prompt and new tokens, milliseconds of prefill and decode, and a file that must be there
[ -f "${5#*=}" ] || { echo "no model" >&2; exit 3; }
echo "Once upon a time"
answered=$((10 + $3)) ended=$((10 + $3 + $4))
cat <<END
PyTorchObserver {"prompt_tokens": $1, "generated_tokens": $2, "model_load_start_ms": 0, \
"model_load_end_ms": 5, "inference_start_ms": 10, "prompt_eval_end_ms": $answered, \
"first_token_ms": $answered, "inference_end_ms": $ended, "SCALING_FACTOR_UNITS_PER_SECOND": 1000}
END
"""


def make_spoken(folder: Path, shell: str = "/bin/sh") -> tuple[Path, Path]:
    """The script, and a model that it asks for."""
    script, model = folder / "llama_main", folder / "model.pte"
    script.write_text(_SCRIPT.replace("/bin/sh", shell), "utf-8")
    script.chmod(0o755)
    model.write_bytes(b"weights")
    return script, model
