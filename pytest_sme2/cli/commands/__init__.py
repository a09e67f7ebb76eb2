"""The subcommands of ``sme2``: one module per command, loaded only when it is called."""
