"""The errors a user can meet, each one clear sentence without a traceback.

Errors of proofs are the kernel's; errors of the tools around it are added here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from transformula.kernel.exceptions import (
    BoxError,
    FormulaError,
    InputError,
    ModelFileError,
    NotProvenError,
    Reason,
    RefutedError,
    TransformulaError,
)

__all__ = [
    "BoxError",
    "ExportError",
    "FormulaError",
    "InputError",
    "ModelFileError",
    "NotProvenError",
    "Option",
    "PointError",
    "Reason",
    "RefutedError",
    "SavingError",
    "SearchInterrupted",
    "TransformulaError",
    "UnboundedError",
    "UncertifiedError",
    "UnfinishedError",
    "advice_of",
    "brief",
    "closer",
    "closest_bound",
    "in_words_of",
]


#: A parameter of `compile` and its value, as advice names them.
_PARAMETER = re.compile(r"\b(dtype|time_limit|construction|layers|rel|pointwise)=('[^']*'|[\d.e+-]*\d)")


@dataclass(frozen=True)
class Advised:
    """The reason of a refusal that says what to ask for instead: by entry, the arguments of `compile` to change."""

    advice: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class Option:
    """The reason of an InputError about one option, such as eps."""

    name: str


class PointError(InputError):
    """A point or a table of points does not fit the model's variables or box."""


class UncertifiedError(ModelFileError):
    """A model's files and its certificate do not belong together."""


class SavingError(InputError):
    """A result cannot be written where it was asked for; what was there before still is."""


class UnboundedError(NotProvenError):
    """The kernel finds no bound at all somewhere, whatever the table: others like it need not be tried."""


class UnfinishedError(RefutedError):
    """The search for a proof used up its part of the work: nothing is known against the model."""


class ExportError(InputError):
    """A model cannot be written in a format."""


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a search; the message says what was found so far."""


def advice_of(error: TransformulaError) -> list[dict[str, object]]:
    """The advice of a refusal: by entry, the arguments of `compile` to change; a tolerance replaces the one given.

    Examples
    --------
    >>> from transformula import compile
    >>> try:
    ...     compile("log(x)", "x=-1..1")
    ... except NotProvenError as error:
    ...     print(advice_of(error))
    [{'on': 'x=0.0312..1'}]
    """
    return [*error.reason.advice] if isinstance(error.reason, Advised) else []


def brief(value: object) -> str:
    """A value as a message shows it: on one line, and cut if it is long.

    Examples
    --------
    >>> brief([1] * 100)
    '[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,...'
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def in_words_of(text: str, eps: str, others: Callable[[str, str], str]) -> str:
    """A message whose parameters are named as somewhere other than in Python.

    Parameters
    ----------
    eps : how a tolerance of at least {} is asked for.
    others : from the name of a parameter and its value to how it is given.

    Examples
    --------
    >>> in_words_of("ask for eps >= 0.1 or use dtype='float64'", "--eps {}", "--{} {}".format)
    'ask for --eps 0.1 or use --dtype float64'
    """
    text = re.sub(r"\beps >= ([\d.]+(?:e[+-]?\d+)?)", lambda found: eps.format(found[1]), text)
    return _PARAMETER.sub(lambda found: others(found[1], found[2].strip("'")), text)


def closest_bound(error: NotProvenError) -> float:
    """How close a proof came: the proven bound, else the measured error, else infinity."""
    return error.best_bound or error.measured or math.inf


def closer(error: NotProvenError, earlier: NotProvenError | None) -> NotProvenError:
    """The refusal that came closer (a proven bound says more than a measured error), or the earlier one."""

    def rank(one: NotProvenError) -> tuple[bool, float]:
        return one.best_bound is None, closest_bound(one)

    return error if earlier is None or rank(error) < rank(earlier) else earlier
