"""Checks of an estimator's numbers; `InputError` is a `ValueError`, which scikit-learn expects."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from transformula.errors import InputError, brief


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is not a whole number, or is too small.

    Examples
    --------
    >>> check_count("rank", 0)
    Traceback (most recent call last):
    transformula.kernel.exceptions.InputError: rank must be a whole number, at least 1, not 0
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise InputError(f"{name} must be a whole number, at least {least}, not {brief(value)}")


def check_number(name: str, value: Any, zero: bool = False, below: float = math.inf) -> None:
    """Refuse what is not a number above 0 (or 0, if ``zero``) and below an end."""
    number = float(value) if isinstance(value, Real) else math.nan
    if not (0 < number < below or (zero and number == 0)):
        most = "" if below == math.inf else f" and below {below:g}"
        raise InputError(f"{name} must be a number {'from 0' if zero else 'above 0'}{most}, not {brief(value)}")
