"""The project's own tests need pytester, and pytest takes that only from the top folder."""

pytest_plugins = ["pytester"]
