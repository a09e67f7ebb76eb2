"""Finds the change that made a case worse: between two commits of the user's repository.

Everything that is compared here is exact, so one run of a commit is enough.
"""
