"""Where the work of one program goes: operators, categories, coverage, evidence, comparison.

Pure: columns and values in, values out. Verdicts are in ``verdict``, sentences in ``report``.
"""
