"""The programs that run a ``.pte``: how they are built, how they are called, what they answer.

A runner knows its flags and starts nothing; starting processes is the job of ``targets``.
"""
