"""One module a subcommand of ``sme2``; see ``pytest_sme2.cli`` for their shape."""
