"""A fake phone: a real adb server and real adbd devices in a sandbox on this machine.

Use it to try a set-up, and for tests without a phone. Programs run on this machine's CPU or in an
emulator, so times measured on it say nothing about a phone.
"""
