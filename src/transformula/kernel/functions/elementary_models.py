"""Taylor models of exp, sin, cos and log, many boxes at once: the functions that are asked for on most boxes.

With [low, high] the range of u, abs(g^(K)) / K! is at most e^high / K! for exp, 1 / K! for sin and cos, and
1 / (K low**K) for log, which is unbounded (rest = inf) where u may reach zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import factorial

import numpy as np
from flint import arb

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.taylor_models import TINY, UP, Floats, TaylorModel, U, compose

_BITS = 80


def _values(function: Callable[[arb], arb], points: Floats) -> tuple[Floats, Floats]:
    """Values of a function at floats, by Arb, with bounds of their errors: the radius, and one ulp, charged 4u."""
    unique, back = np.unique(points, return_inverse=True)
    with precision(_BITS):
        balls = [arb.nan() if np.isnan(x) else function(arb(x)) for x in unique.tolist()]
    values, radii = np.array([float(b.mid()) for b in balls]), np.array([float(b.rad()) for b in balls])
    return values[back], ((radii + np.abs(values) * (4 * U)) * UP + TINY)[back]


def exp(u: TaylorModel) -> TaylorModel:
    """e**u."""
    order = u.layout.order
    top, slack = _values(arb.exp, u.range()[1])
    rest = (top + slack) / factorial(order) * UP + TINY
    return compose(u, *_over_factorials([_values(arb.exp, u.constant)], order), rest)


def _wave(u: TaylorModel, shift: int) -> TaylorModel:
    """The derivative of sin u of order ``shift``."""
    order = u.layout.order
    (s, s_wrong), (c, c_wrong) = _values(arb.sin, u.constant), _values(arb.cos, u.constant)
    cycle = [(s, s_wrong), (c, c_wrong), (-s, s_wrong), (-c, c_wrong)]
    series, wrong = _over_factorials(cycle[shift:] + cycle[:shift], order)
    return compose(u, series, wrong, np.full(len(s), UP / factorial(order)))


sin, cos = partial(_wave, shift=0), partial(_wave, shift=1)


def _over_factorials(cycle: list[tuple[Floats, Floats]], order: int) -> tuple[list[Floats], list[Floats]]:
    """Derivatives, given with errors and in turn, over k!: two roundings (charged 4u)."""
    found = [(k, *cycle[k % len(cycle)]) for k in range(order)]
    wrong = [(slack + np.abs(value) * (4 * U)) / factorial(k) * UP + TINY for k, value, slack in found]
    return [value / factorial(k) for k, value, _ in found], wrong


def log(u: TaylorModel) -> TaylorModel:
    """log u; the coefficients -+ 1/(k p0**k) take three roundings a step, each charged twice."""
    order, low = u.layout.order, u.range()[0]
    ok = low > 0
    p0, rest = np.where(ok, u.constant, 1.0), np.ones(len(low))
    value, slack = _values(arb.log, p0)
    series, wrong = [value], [slack]
    for k in range(1, order):
        series.append(series[-1] * ((1 - k) / k) / p0 if k > 1 else 1 / p0)
        wrong.append(np.abs(series[-1]) * (2 * (1 + 3 * (k - 1)) * U) + TINY)
    for _ in range(order):
        rest = rest / np.where(ok, low, 1.0)
    return compose(u, series, wrong, np.where(ok, (rest * UP + TINY) / order * UP + TINY, np.inf))
