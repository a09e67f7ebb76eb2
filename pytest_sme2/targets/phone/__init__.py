"""An Android phone behind adb: choosing it, leasing it, its storage, its power, a run on it.

Everything that is changed on a phone is put back.
"""
