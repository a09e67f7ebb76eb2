"""The ``sme2`` command: one module per subcommand, and experiment files.

It does what the plugin does, without pytest.
"""
