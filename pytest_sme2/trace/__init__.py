"""Reads the files of a run or an export: ETDump, ``.pte``, ETRecord, kernel logs.

Nothing is concluded here: what an operator is, and what it costs, is in ``profile``.
"""
