"""Ten architectures that people deploy, in small configurations with random weights."""
