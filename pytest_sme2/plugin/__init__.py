"""The pytest face: options, hooks, fixtures, scheduling, and the end of a run.

Registering it loads nothing but pytest and the standard library.
"""
