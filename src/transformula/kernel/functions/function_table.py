"""The functions of one argument a formula may use: one entry each, and no table of them anywhere else.

An entry (`smooth_functions.Function`) says where a function is defined and evaluates it on a ball, on an interval with
exact rational ends, on a power series and on a Taylor model. The elementary functions have
balls, ranges and series of their own, and exp, sin, cos and log also Taylor models; everything else follows from a
function's values and Taylor coefficients (`smooth_functions.from_taylor`).
Functions of an order and an argument, such as besselj(2, u), have an entry for each order, called besselj:2.

Taylor models of u**q, q a fraction, have the coefficients C(q, k) u**(q - k). Those of atan, with u = tan(t), are
cos(t)**k sin(k (t + pi/2))/k: at most (1 + u**2)**(-k/2)/k.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from flint import arb, arb_series, fmpq

from transformula.kernel.enclosures.taylor_models import TaylorModel, absolute
from transformula.kernel.exceptions import RefutedError, SingularError
from transformula.kernel.functions import elementary_functions as elementary
from transformula.kernel.functions.elementary_functions import (
    abs_ends,
    cut,
    monotone,
    root_ends,
    sin_ends,
    sinc_ends,
    wave_ends,
)
from transformula.kernel.functions.smooth_functions import Function, finite, on_ends, on_models
from transformula.kernel.functions.special_functions import FAMILIES, SPECIAL, member, sinc_series
from transformula.kernel.functions.taylor_rests import rest_named, rest_of

if TYPE_CHECKING:
    from transformula.kernel.syntax.expression import Expr


def function_of(name: str) -> Function:
    """The entry of a function; refuses one that is not known."""
    found = find(name)
    if found is None:
        raise RefutedError(f"there is no function called {name[:40]!r}")
    return found


def find(name: str) -> Function | None:
    """The entry of a function, or None."""
    if (found := FUNCTIONS.get(name)) is not None:
        return found
    if (rest := rest_named(name)) is not None:
        base = find(rest.base)
        return base and rest_of(base, name, rest.at, rest.order)
    return member(name) if name.partition(":")[0] in FAMILIES else None


def _sqrt(ball: arb) -> arb:
    if ball > 0:
        return ball.sqrt()
    return arb(0).union(arb(ball.upper()).sqrt()) if ball >= 0 else arb.nan()


def _tan(u: arb_series) -> arb_series:
    return u.sin() * elementary.inverse(u.cos())


@lru_cache(maxsize=256)
def root_model(by: Fraction) -> Callable[[TaylorModel], TaylorModel]:
    """u**by of Taylor models, by > 0 a fraction; they hold where u >= 0."""

    q = fmpq(by.numerator, by.denominator)

    def taylor(at: arb, length: int) -> list[arb]:
        if not at > 0:
            raise SingularError
        found, scale = [], fmpq(1)
        for k in range(length):
            found.append(scale * at ** arb(q - k))
            scale = scale * (q - k) / (k + 1)
        return found

    return on_models(finite(taylor), lambda a, b: root_ends(a, b, by), Fraction(0))


def _atan_taylor(at: arb, length: int) -> list[arb]:
    found = elementary.of_series(arb_series.atan)(at, length)
    if at.is_exact():
        return found
    size = (1 + at.abs_lower() ** 2).sqrt()
    limits = [arb.pos_inf(), *(1 / (k * size**k) for k in range(1, length))]
    return [c if abs(c) <= limit else arb(0, limit) for c, limit in zip(found, limits, strict=True)]


def _entry(
    name: str, ends: Any, on_series: Any, ball: Any = None, model: Any = None, taylor: Any = None, **more: Any
) -> tuple[str, Function]:
    own, limits = ball or getattr(arb, name), (more.get("low"), more.get("high"))
    model = model or on_models(finite(taylor or elementary.of_series(on_series)), ends, *limits)
    # FLINT's asin of an indeterminate ball is a finite one: it must never see any
    return name, Function(name, lambda b: own(b) if b.is_finite() else arb.nan(), ends, on_series, model, **more)


_ZERO = fmpq(0)
_ONE = fmpq(1)
_UNIT = {"low": Fraction(-1), "high": Fraction(1)}
_ELEMENTARY = dict(
    (
        _entry("sin", sin_ends, arb_series.sin, model=elementary.sin, analytic=True),
        _entry("cos", wave_ends(arb.cos, _ZERO), arb_series.cos, model=elementary.cos, analytic=True),
        _entry("tan", on_ends(arb.tan, finite(elementary.of_series(_tan))), _tan, poles=True),
        _entry("asin", monotone(cut(arb.asin)), elementary.asin, odd=True, **_UNIT),
        _entry("acos", monotone(cut(arb.acos)), lambda u: arb.pi() / 2 - elementary.asin(u), sign=1, **_UNIT),
        _entry("atan", monotone(arb.atan), arb_series.atan, taylor=_atan_taylor, analytic=True, odd=True),
        _entry("sinh", monotone(arb.sinh), lambda u: (u.exp() - (-u).exp()) / 2, analytic=True, odd=True),
        _entry("cosh", monotone(arb.cosh, _ZERO, _ONE), lambda u: (u.exp() + (-u).exp()) / 2, analytic=True, sign=2),
        _entry("tanh", monotone(arb.tanh, None, -_ONE, _ONE), elementary.tanh, analytic=True, odd=True),
        _entry("exp", monotone(arb.exp, None, _ZERO), arb_series.exp, model=elementary.exp, analytic=True, sign=2),
        _entry(
            "log",
            monotone(arb.log),
            lambda u: elementary.positive(u).log(),
            model=elementary.log,
            low=Fraction(0),
            open=True,
        ),
        _entry(
            "sqrt",
            lambda a, b: root_ends(a, b, Fraction(1, 2)),
            lambda u: elementary.positive(u).sqrt(),
            _sqrt,
            root_model(Fraction(1, 2)),
            low=Fraction(0),
        ),
        _entry("abs", abs_ends, elementary.absolute, abs, absolute),
        _entry("sinc", sinc_ends, sinc_series, analytic=True),
    )
)
#: Every function of one argument, in the order in which they are listed to a user.
FUNCTIONS: dict[str, Function] = _ELEMENTARY | {entry.name: entry for entry in SPECIAL}
#: Names that no variable may have; those of the others are read as functions only before a bracket.
RESERVED = (*_ELEMENTARY, "min", "max")


class Domain(NamedTuple):
    """The condition under which a node is defined: low <= args[argument] <= high.

    With ``open`` it is low < args[argument] < high; low = high = 0 with ``open`` means args[argument] != 0.
    """

    argument: int
    low: Fraction | None
    high: Fraction | None
    open: bool


def domain_of(node: Expr) -> Domain | None:
    """The domain of a node's argument, or None if any finite number will do.

    Not for a function with ``poles``: its domain is no interval, or has an end that is no fraction. A power with an
    exponent that is not a number is read as u > 0 (`intervals.range_of` also takes u >= 0 where the exponent is
    positive).
    """
    zero = Fraction(0)
    if node.op == "div":
        return Domain(1, zero, zero, True)
    if node.op == "pow":
        by = node.args[1].number
        if by is not None and by.denominator == 1:
            return Domain(0, zero, zero, True) if by < 0 else None
        return Domain(0, zero, None, by is None or by < 0)
    found = find(node.op)
    if found is None or found.poles or (found.low, found.high) == (None, None):
        return None
    return Domain(0, found.low, found.high, found.open)


def is_open(node: Expr) -> bool:
    """Whether a node may be undefined where its arguments are defined."""
    found = find(node.op)
    return domain_of(node) is not None or (found is not None and found.poles)
