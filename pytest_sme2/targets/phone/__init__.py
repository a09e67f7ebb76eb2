"""An Android phone over adb: choosing and leasing it, its storage, its power, and runs on it.

Everything that is changed on a phone is restored.
"""
