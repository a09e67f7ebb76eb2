"""The kernel matrix: which kernel runs each operator in each data type and size.

``sme2 matrix --make`` makes it here, cell by cell, on the emulator. Reading a finished one is the
business of ``profile/kernel_matrix.py``.
"""
