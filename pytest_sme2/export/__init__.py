"""Finds models, exports them to ``.pte`` files, and keeps the exports.

Only a child process of this folder imports torch. Nothing here runs a program.
"""
