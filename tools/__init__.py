"""What maintainers run from a checkout, and users do not need: nothing here is installed.

``python -m tools.matrix`` makes a kernel matrix, ``python -m tools.sweep`` looks for programs that
SME2 computes wrongly. Both use the package; the package uses neither.
"""
