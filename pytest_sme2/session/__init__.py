"""One run: its settings, cases, device, results and run directory.

This is where the stages are joined. pytest, the command line and the reports are above it.
"""
