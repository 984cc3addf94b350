"""The command line. A verb is imported when it is run, so that --help answers at once."""

from transformula.cli.app import main

__all__ = ["main"]
