"""A progress bar on stderr while a model trains, only where it was asked for and a person is watching."""

from __future__ import annotations

import sys
from typing import Any


class TrainingBar:
    """Epochs done, epochs in all, and the last loss; silent in pipes."""

    def __init__(self, wanted: bool, epochs: int, first: int) -> None:
        self.bar: Any = None
        self.epochs, self.first = epochs, first
        if wanted and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True))

    def __enter__(self) -> TrainingBar:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("training", total=self.epochs, completed=self.first)
        return self

    def advance(self, loss: float) -> None:
        """One more epoch."""
        if self.bar is not None:
            self.bar.update(self.task, advance=1, description=f"loss {loss:.4g}")

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
