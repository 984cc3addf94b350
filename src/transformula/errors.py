"""The errors a user can meet. Each is one clear sentence; none needs a traceback.

``exit_code`` is what the command line returns: 2 for the user's input, 1 for a claim that could not
be proven (or does not verify).
"""

from __future__ import annotations

import math


class TransformulaError(Exception):
    """Root of the family: catch this to catch everything the library refuses on purpose."""

    exit_code = 2


class InputError(TransformulaError, ValueError):
    """Something the user gave can not be used."""


class FormulaError(InputError):
    """The text of a formula is not one, or asks for more than the limits allow."""


class BoxError(InputError):
    """The box of inputs is malformed, empty, or does not match the formula."""


class PointError(InputError):
    """A point or a table of points does not fit the model's variables or box."""


class ModelFileError(InputError):
    """A model folder is missing, truncated, edited or not ours."""


class NotProvenError(TransformulaError):
    """The claim could not be proven.

    Attributes
    ----------
    best_bound : float or None
        The smallest bound that was reached, if any.
    place : str
        Where the proof stopped: a sub-expression or a part of the box.
    """

    exit_code = 1

    def __init__(self, message: str, best_bound: float | None = None, place: str = "") -> None:
        super().__init__(message)
        self.best_bound = best_bound
        self.place = place

    def unless_closer(self, earlier: NotProvenError | None) -> NotProvenError:
        """This refusal, or an earlier one whose best bound was at least as small."""
        if earlier is None or (self.best_bound or math.inf) < (earlier.best_bound or math.inf):
            return self
        return earlier
