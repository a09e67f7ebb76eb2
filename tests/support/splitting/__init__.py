"""A network that holds everything a rewrite is known for."""
