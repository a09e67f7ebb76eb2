"""The ground floor: processes, files, the cache, locks, tools on this machine.

Nothing here knows what a model, a device or a measurement is.
"""
