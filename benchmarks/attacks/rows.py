"""All attacks, by group."""

from __future__ import annotations

from benchmarks.attacks import baselines, choices, exports, tricks, trust

ATTACKS = (*choices.ATTACKS, *baselines.ATTACKS, *tricks.ATTACKS, *exports.ATTACKS, *trust.ATTACKS)
