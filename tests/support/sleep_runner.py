"""A runner that only sleeps, to test orchestration; never for results."""

from __future__ import annotations

from pathlib import Path

from pytest_sme2.runners.sme2 import PROGRAM, Sme2Runner
from pytest_sme2.system.platforms import LINUX_AARCH64

_SCRIPT = """\
#!/system/bin/sh
# Speaks sme2_runner's flags, sleeps, and writes a result of the right form.
while [ $# -gt 0 ]; do
    case "$1" in
        --json) json=$2 ;;
        --runs) runs=$2 ;;
        --sme2) arm=$2 ;;
        --model) model=$2 ;;
        --etdump) etdump=$2 ;;
        --outputs) mkdir -p "$2" ;;
    esac
    shift 2
done
[ -f "$model" ] || { echo "sme2_runner: no such file" >&2; exit 10; }
DO
if [ -n "$etdump" ]; then echo "$arm" > "$etdump"; fi
run=1 times=EACH cores=$core
while [ $run -lt "$runs" ]; do run=$((run + 1)); times=$times,EACH cores=$cores,$core; done
[ -n "$core" ] || cores=
[ "$arm" = on ] && seen=true || seen=false
cat > "$json" <<END
{"schema": 1, "sme2": {"requested": "$arm", "effective": $seen}, "cpu_features": [],
 "load_ns": 1, "warmup_wall_ns": [], "wall_ns": [$times], "cpu_ns": [$times],
 "core": [$cores],
 "peak_rss_load_bytes": null, "peak_rss_bytes": null, "outputs": []}
END
"""


class SleepRunner(Sme2Runner):
    takes_turns = False


def make_sleep_runner(folder: Path, do: float | str, each: str = "$run") -> Sme2Runner:
    """Write the runner into ``folder``; it needs only a shell. ``do``: seconds, or other words,
    which may set ``core``, where it says it ran. ``each``: how long a run took, in nanoseconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / PROGRAM
    words = do if isinstance(do, str) else f"sleep {do:g}"
    text = _SCRIPT.replace("DO", words).replace("EACH", each)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return SleepRunner(kind="sleep", platform=LINUX_AARCH64, executorch="none", folder=folder)
