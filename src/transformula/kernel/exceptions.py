"""The errors the kernel raises, each one clear sentence. ``exit_code`` is what the command line returns:
2 for the user's input, 1 for a claim that could not be proven (or does not verify)."""

from __future__ import annotations


class TransformulaError(Exception):
    """Base class: catch this to catch everything the library refuses on purpose."""

    exit_code = 2


class InputError(TransformulaError, ValueError):
    """Something the user gave cannot be used."""


class FormulaError(InputError):
    """The text of a formula is not one, or asks for more than the limits allow."""


class BoxError(InputError):
    """The box of inputs is malformed, empty, or does not match the formula."""


class ModelFileError(InputError):
    """A model folder is missing, truncated, edited or not ours."""


class NotProvenError(TransformulaError):
    """The claim could not be proven.

    ``place`` says where the proof stopped, and the numbers how close it came: the smallest proven bound, the
    rounding in it, and the smallest error measured where nothing was proven.
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


class RefutedError(NotProvenError):
    """The files are not what the claim says they are; the message gives the reason."""


class SingularError(Exception):
    """A function may fail to be smooth, defined or bounded on its argument; the caller falls back to another method."""
