from pathlib import Path

ETDUMPS = Path(__file__).parents[1] / "data" / "etdumps"
