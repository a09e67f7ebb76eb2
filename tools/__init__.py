"""What maintainers run from a checkout, and users do not need: nothing here is installed.

``python -m tools.matrix`` makes a kernel matrix, ``python -m tools.names`` the table of what names
mean on a device. They use the package; the package uses none of them.
"""
