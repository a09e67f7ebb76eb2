"""Finds models, exports them to ``.pte`` files, and keeps the exports; runs no program."""
