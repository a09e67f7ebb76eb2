"""Where a runner runs: this machine, the emulator, a phone.

A target starts processes and brings their files back. What they measured is judged elsewhere.
"""
