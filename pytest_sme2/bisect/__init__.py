"""Finds the change that made a case worse: between two commits, or two versions of a package.

Most of what is compared here is exact, so one run of a change is enough. Latency takes pairs.
"""
