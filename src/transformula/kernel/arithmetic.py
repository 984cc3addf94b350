"""FLINT's settings, held by one thread at a time; power series, never read beyond their length; bounds as text.

python-flint keeps the working precision and the length of series (``ctx.prec``, ``ctx.cap``) for the whole process.
Both are changed only here, by blocks that hold one lock, so that no other thread of ours works with them meanwhile.

A lower precision only widens balls. A shorter series is worse: python-flint answers 0 for a coefficient beyond the
length. Every series carries that length (``prec``), whatever the setting became meanwhile, and `coefficients` refuses
to read beyond it.

Bounds as text are rounded up, so that what is printed holds too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import ROUND_CEILING, Context, Decimal
from threading import RLock

from flint import arb, arb_series, ctx

from transformula.kernel.exceptions import RefutedError

_lock = RLock()


def _renew() -> None:
    """In a forked process: a lock that a thread of the parent held would never be released."""
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work at a given binary precision, alone in this process, and restore the old one."""
    with _lock, ctx.workprec(bits):
        yield


@contextmanager
def series_length(length: int) -> Iterator[None]:
    """Keep this many coefficients of every series, alone in this process, and restore the old number."""
    with _lock:
        before, ctx.cap = ctx.cap, length
        try:
            yield
        finally:
            ctx.cap = before


def coefficients(series: arb_series, length: int) -> list[arb]:
    """The first coefficients of a series; a series that is shorter than that is refused.

    Examples
    --------
    >>> coefficients(arb_series([1, 2], 3), 3)
    [1.00000000000000, 2.00000000000000, 0]
    >>> coefficients(arb_series([1, 2], 3), 4)
    Traceback (most recent call last):
    ...
    transformula.kernel.exceptions.RefutedError: a power series has 3 coefficients where 4 are needed
    """
    if not series.prec >= length:
        raise RefutedError(f"a power series has {series.prec} coefficients where {length} are needed")
    return [series[k] for k in range(length)]


def head(series: arb_series) -> arb:
    """The constant coefficient of a series."""
    return coefficients(series, 1)[0]


def at_most(bound: float, digits: int = 3) -> str:
    """A bound with few digits, not below it.

    >>> at_most(0.0384159), at_most(2.41e-05), at_most(0.1), at_most(0.0384159, 6), at_most(5e-324)
    ('0.0385', '2.41e-05', '0.1', '0.0384159', '4.95e-324')
    """
    bound, up = float(bound), Context(prec=digits, rounding=ROUND_CEILING)
    if 0 < bound < sys.float_info.min:  # floats are far apart here: the shortest text of one may be well below it
        return f"{up.create_decimal(Decimal(bound)):e}"
    return f"{float(up.create_decimal(Decimal(repr(bound)))):.{digits}g}"
