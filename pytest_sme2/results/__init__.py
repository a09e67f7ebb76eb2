"""The values that pass between the stages: frozen dataclasses, and nothing that computes.

A stage knows the one before it only through these values, so each can be tested, cached and run
again alone. Nothing heavy is imported here: arrays are named in annotations only.
"""
