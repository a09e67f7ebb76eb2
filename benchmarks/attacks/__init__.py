"""Attacks on the gate: small projects that must not end green, and equal code that must."""
