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


class UncertifiedError(ModelFileError):
    """A model's files and its certificate do not belong together."""


class ExportError(InputError):
    """A model can not be written in a format, or what that takes is not installed."""


class NotProvenError(TransformulaError):
    """The claim could not be proven.

    Attributes
    ----------
    best_bound : float or None
        The smallest bound that was proven, if any.
    rounding : float or None
        The part of the best bound that is rounding.
    measured : float or None
        The smallest error seen of what could not even be tried to be proven, or what rounding alone costs.
    place : str
        Where the proof stopped: a sub-expression or a part of the box.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        best_bound: float | None = None,
        place: str = "",
        measured: float | None = None,
        rounding: float | None = None,
    ) -> None:
        super().__init__(message)
        self.best_bound = best_bound
        self.place = place
        self.measured = measured
        self.rounding = rounding

    @property
    def closest(self) -> float:
        """How close it came: the proven bound, else the measured error, else infinity."""
        return self.best_bound or self.measured or math.inf

    @property
    def _rank(self) -> tuple[bool, float]:
        return self.best_bound is None, self.closest  # a proven bound says more than a measured error

    def unless_closer(self, earlier: NotProvenError | None) -> NotProvenError:
        """This refusal, or an earlier one that came at least as close."""
        if earlier is None or self._rank < earlier._rank:
            return self
        return earlier
