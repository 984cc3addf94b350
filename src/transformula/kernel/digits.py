"""Bounds as text: rounded up, so that what is printed holds too."""

import sys
from decimal import ROUND_CEILING, Context, Decimal


def at_most(bound: float, digits: int = 3) -> str:
    """A bound with few digits, not below it.

    >>> at_most(0.0384159), at_most(2.41e-05), at_most(0.1), at_most(0.0384159, 6), at_most(5e-324)
    ('0.0385', '2.41e-05', '0.1', '0.0384159', '4.95e-324')
    """
    bound, up = float(bound), Context(prec=digits, rounding=ROUND_CEILING)
    if 0 < bound < sys.float_info.min:  # floats are far apart here: the shortest text of one may be well below it
        return f"{up.create_decimal(Decimal(bound)):e}"
    return f"{float(up.create_decimal(Decimal(repr(bound)))):.{digits}g}"
