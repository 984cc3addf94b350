"""The errors the kernel raises, each one clear sentence. ``exit_code`` is what the command line returns:
2 for the user's input, 1 for a claim that could not be proven (or does not verify)."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Reasons that callers act on; the sentence of an error decides nothing."""

    JUMP = "the pieces of a formula do not meet"
    CONDITION = "a condition is not linear in one of its variables"
    UNCOMPARED = "a normal form is too long to be compared"


class TransformulaError(Exception):
    """Base class: catch this to catch everything the library refuses on purpose."""

    exit_code = 2

    def __init__(self, message: str = "", reason: object = None) -> None:
        super().__init__(message)
        self.reason = reason


class InputError(TransformulaError, ValueError):
    """Something the user gave cannot be used."""


class FormulaError(InputError):
    """The text of a formula is not one, or asks for more than the limits allow.

    ``position`` is the index of the mistake in the text, ``place`` where the formula jumps, where it has one.
    """

    def __init__(self, message: str = "", reason: object = None, position: int | None = None, place: str = "") -> None:
        super().__init__(message, reason)
        self.position, self.place = position, place


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
        reason: object = None,
    ) -> None:
        super().__init__(message, reason)
        self.best_bound = best_bound
        self.place = place
        self.measured = measured
        self.rounding = rounding


class RefutedError(NotProvenError):
    """The files are not what the claim says they are; the message gives the reason."""


class SingularError(Exception):
    """A function may fail to be smooth, defined or bounded on its argument; the caller falls back to another method."""
