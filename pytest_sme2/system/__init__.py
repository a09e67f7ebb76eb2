"""The lowest layer: processes, files, the cache, locks, tools of this machine.

Nothing here knows what a model, a device or a measurement is.
"""
