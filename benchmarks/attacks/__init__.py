"""Attacks on the gate: small projects that must not end green, and equal code that must."""

VARIABLE = "SME2_ATTACKS_DEVICE"
"""What an attack changes about the pretended device, as JSON."""
