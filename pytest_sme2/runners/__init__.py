"""The programs that run a ``.pte`` file: how they are built and called, and what they answer.

A runner knows its flags but starts no process; ``targets`` does that.
"""
