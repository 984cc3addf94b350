"""How long the command line takes to answer --help."""

from __future__ import annotations

import subprocess
import sys

from report import Line, limit, seconds


def measure() -> list[Line]:
    """A fresh process each time."""
    command = [sys.executable, "-c", "from transformula.cli import main; main()", "--help"]

    def ask() -> None:
        subprocess.run(command, capture_output=True, check=True)

    return [limit("transformula --help", seconds(ask, 5), 0.5)]
