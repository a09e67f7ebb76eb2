"""The differential sweep: random small programs, run with SME2 on and off, against eager PyTorch.

It runs on every emulated CPU. What differs is made small, and becomes a script.
"""
