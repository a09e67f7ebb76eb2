"""A fake phone: a real adb server and real adbd devices in a sandbox on this machine.

It is for trying a set-up and for tests without a phone. What runs on it is this machine's CPU or
an emulator, so no time measured on it says anything about a phone.
"""
