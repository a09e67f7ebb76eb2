"""Makes a kernel matrix on the emulator, cell by cell: which kernel runs each operator.

Reading a finished one is the business of ``pytest_sme2/profile/kernel_matrix.py``.
"""
