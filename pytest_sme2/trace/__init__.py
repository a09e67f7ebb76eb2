"""Files of a run or an export, read into columns and values: ETDump, ``.pte``, ETRecord, kernel logs.

Nothing is concluded here: what an operator is, and what it costs, is in ``profile``.
"""
