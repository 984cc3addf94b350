"""Bounds as text: rounded up, so that what is printed holds too."""

from decimal import ROUND_CEILING, Context, Decimal


def at_most(bound: float, digits: int = 3) -> str:
    """A bound with few digits, not below it.

    >>> at_most(0.0384159), at_most(2.41e-05), at_most(0.1), at_most(0.0384159, 6)
    ('0.0385', '2.41e-05', '0.1', '0.0384159')
    """
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(float(bound))))
    return f"{float(rounded):.{digits}g}"
