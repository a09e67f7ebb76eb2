"""Compares what was measured with limits and baselines: one function per check.

Pure apart from reading and writing baselines and limits. The wording of reports is not here.
"""
