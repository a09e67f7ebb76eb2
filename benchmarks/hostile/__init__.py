"""Faults and hostile input: what the product does when everything around it goes wrong."""
