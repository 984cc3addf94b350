"""The functions of one argument a formula may use: one entry each, and no table of them anywhere else.

An entry says what a function does to a ball (`arb`; not finite outside the domain), to an interval with exact
rational ends inside the domain, to a power series (both raise `SingularError`) and to a Taylor model, and where
it is defined: between ``low`` and ``high``, without low itself if ``open_low``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from flint import arb, arb_series, fmpq

from transformula.kernel import function_series as series
from transformula.kernel import univariate
from transformula.kernel.errors import RefutedError
from transformula.kernel.function_ends import (
    OnEnds,
    abs_ends,
    cut,
    monotone,
    root_ends,
    sin_ends,
    sinc_ends,
    tan_ends,
    wave_ends,
)
from transformula.kernel.models import Model

if TYPE_CHECKING:
    from transformula.kernel.expression import Expr


@dataclass(frozen=True)
class Function:
    """One function; ``analytic`` on the whole real line, or with a ``kink`` inside its domain, or neither."""

    name: str
    ball: Callable[[arb], arb]
    ends: OnEnds
    series: Callable[[arb_series], arb_series]
    model: Callable[[Model], Model]
    low: Fraction | None = None
    high: Fraction | None = None
    open_low: bool = False
    analytic: bool = False
    kink: bool = False


def function_of(name: str) -> Function:
    """The entry of a function; refuses one that is not known."""
    if name not in FUNCTIONS:
        raise RefutedError(f"there is no function called {name[:40]!r}")
    return FUNCTIONS[name]


def _sqrt(ball: arb) -> arb:
    if ball > 0:
        return ball.sqrt()
    return arb(0).union(arb(ball.upper()).sqrt()) if ball >= 0 else arb.nan()


def _entry(name: str, ends: Any, series: Any, ball: Any = None, **more: Any) -> tuple[str, Function]:
    own = ball or getattr(arb, name)
    model = getattr(univariate, {"abs": "absolute"}.get(name, name))
    # FLINT's asin of an indeterminate ball is a finite one: it must never see any
    return name, Function(name, lambda b: own(b) if b.is_finite() else arb.nan(), ends, series, model, **more)


_ZERO, _ONE, _UNIT = fmpq(0), fmpq(1), {"low": Fraction(-1), "high": Fraction(1)}
#: Every function of one argument, in the order in which they are listed to a user.
FUNCTIONS: dict[str, Function] = dict(
    (
        _entry("sin", sin_ends, arb_series.sin, analytic=True),
        _entry("cos", wave_ends(arb.cos, _ZERO), arb_series.cos, analytic=True),
        _entry("tan", tan_ends, lambda u: u.sin() * series.inverse(u.cos())),
        _entry("asin", monotone(cut(arb.asin)), series.asin, **_UNIT),
        _entry("acos", monotone(cut(arb.acos)), lambda u: arb.pi() / 2 - series.asin(u), **_UNIT),
        _entry("atan", monotone(arb.atan), arb_series.atan, analytic=True),
        _entry("sinh", monotone(arb.sinh), lambda u: (u.exp() - (-u).exp()) / 2, analytic=True),
        _entry("cosh", monotone(arb.cosh, _ZERO, _ONE), lambda u: (u.exp() + (-u).exp()) / 2, analytic=True),
        _entry("tanh", monotone(arb.tanh, None, -_ONE, _ONE), series.tanh, analytic=True),
        _entry("exp", monotone(arb.exp, None, _ZERO), arb_series.exp, analytic=True),
        _entry("log", monotone(arb.log), lambda u: series.positive(u).log(), low=Fraction(0), open_low=True),
        _entry(
            "sqrt",
            lambda a, b: root_ends(a, b, Fraction(1, 2)),
            lambda u: series.positive(u).sqrt(),
            _sqrt,
            low=Fraction(0),
        ),
        _entry("abs", abs_ends, series.absolute, abs, kink=True),
        _entry("sinc", sinc_ends, series.sinc, analytic=True),
    )
)
NAMES = tuple(FUNCTIONS)


class Domain(NamedTuple):
    """The condition under which a node is defined: low <= args[argument] <= high.

    With ``open`` it is low < args[argument]; low = high = 0 with ``open`` means args[argument] != 0.
    """

    argument: int
    low: Fraction | None
    high: Fraction | None
    open: bool


def domain_of(node: Expr) -> Domain | None:
    """Where the argument of a node must lie, or None if any finite number will do.

    tan has no entry: its domain is no interval. A power with an exponent that is not a number is read
    as u > 0 (`intervals.range_of` also takes u >= 0 where the exponent is positive).
    """
    zero = Fraction(0)
    if node.op == "div":
        return Domain(1, zero, zero, True)
    if node.op == "pow":
        by = node.args[1].number
        if by is not None and by.denominator == 1:
            return Domain(0, zero, zero, True) if by < 0 else None
        return Domain(0, zero, None, by is None or by < 0)
    found = FUNCTIONS.get(node.op)
    return (
        Domain(0, found.low, found.high, found.open_low) if found and (found.low, found.high) != (None, None) else None
    )
