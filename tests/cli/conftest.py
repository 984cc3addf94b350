"""Run the command line inside this process, through its entry point."""

import sys
from dataclasses import dataclass

import pytest


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch, capfd):
    """cli("compile", ...) gives exit code, stdout and stderr."""
    from transformula.cli import main

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["transformula", *arguments])
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
        seen = capfd.readouterr()
        return Result(code, seen.out, seen.err)

    return run
