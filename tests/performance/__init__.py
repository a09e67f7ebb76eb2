"""The suite: installed as pytest_sme2.suite, so that it can be run on anybody's models."""
