"""Measures two arms in pairs and says what the pairs prove: sampling, statistics, self-check.

Nothing here knows baselines or limits.
"""
