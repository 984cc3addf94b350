"""Every form of degree q from the n_q lattice directions {α : |α| = q}, in closed form.

With the apolar pairing ⟨x^γ, y^δ⟩ = γ! [γ = δ], ⟨(α·x)^s, g⟩ = s! g(α) for every form g of degree s.
So p = Σ_α c_α (α·x)^s holds exactly when s! Σ_α c_α g(α) = ⟨p, g⟩ for all g, and testing with the Lagrange
forms of the lattice gives c_α = ⟨p, ℓ_α⟩ / s!. On Σy = q the Lagrange polynomials of the sub-lattice
{α : |α| = q, α_1 ≥ q − s} are ::

    ℓ_α(y) = C(y_1 − (q−s), α_1 − (q−s)) Π_{i>1} C(y_i, α_i)

and writing σ = Σy/q for 1 makes them forms of degree s. A power of Σy in ℓ acts on p as the derivative
D = Σ_i ∂_i, so D^m p is computed once for each m and every c_α is a short sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from flint import fmpq

from transformula.compiler import policy
from transformula.compiler.ridge_sum import Exponents, RidgeSum, Terms


def lattice_ridge_sum(polynomials: Sequence[Terms]) -> RidgeSum | None:
    """Write polynomials without constant terms on one lattice; None if it would be too large."""
    exponents = [e for terms in polynomials for e in terms]
    degree = max(map(sum, exponents))
    support = [k for k in range(len(exponents[0])) if any(e[k] for e in exponents)]
    if math.comb(len(support) - 1 + degree, degree) > policy.MAX_DIRECTIONS:
        return None
    result = RidgeSum(len(polynomials))
    for output, terms in enumerate(polynomials):
        for s in sorted({sum(e) for e in terms}):
            part = {tuple(e[k] for k in support): v for e, v in terms.items() if sum(e) == s}
            for alpha, coefficient in _coefficients(part, s, degree):
                form = [0] * len(exponents[0])
                for k, a in zip(support, alpha, strict=True):
                    form[k] = a
                result.add(form, s, output, coefficient)
    return result.pruned()


def _coefficients(part: Terms, s: int, degree: int) -> list[tuple[Exponents, fmpq]]:
    """c_α for every α of the sub-lattice of degree s."""
    width = len(next(iter(part)))
    shift = degree - s
    derived = _derivatives(part, s)
    pairs = []
    for small in compositions(s, width):
        alpha = (small[0] + shift, *small[1:])
        pairs.append((alpha, _pair(derived, small, shift, degree) / math.factorial(s)))
    return [(alpha, c) for alpha, c in pairs if c != 0]


def _derivatives(part: Terms, s: int) -> list[dict[Exponents, fmpq]]:
    """D^m p for m = 0..s."""
    derived = [dict(part)]
    for _ in range(s):
        following: dict[Exponents, fmpq] = {}
        for exponents, value in derived[-1].items():
            for k, e in enumerate(exponents):
                if e:
                    lower = (*exponents[:k], e - 1, *exponents[k + 1 :])
                    following[lower] = following.get(lower, fmpq(0)) + e * value
        derived.append(following)
    return derived


def _pair(derived: list[dict[Exponents, fmpq]], small: Exponents, shift: int, degree: int) -> fmpq:
    """⟨p, ℓ_α⟩ for α = small + shift·e_1, expanded in y^κ σ^m."""
    factors = [_falling(n, shift if k == 0 else 0) for k, n in enumerate(small)]
    total = fmpq(0)
    for kappa in product(*(range(len(f)) for f in factors)):
        weight = math.prod(f[k] for f, k in zip(factors, kappa, strict=True))
        power = sum(small) - sum(kappa)
        value = derived[power].get(kappa) if weight else None
        if value is not None:
            scale = weight * math.prod(math.factorial(k) for k in kappa)
            total += value * scale / fmpq(degree) ** power
    return total / math.prod(math.factorial(n) for n in small)


def _falling(count: int, start: int) -> list[int]:
    """Coefficients of Π_{j < count} (y − (start + j)), lowest power first."""
    coefficients = [1]
    for j in range(start, start + count):
        shifted = [0, *coefficients]
        coefficients = [a - j * b for a, b in zip(shifted, [*coefficients, 0], strict=True)]
    return coefficients


def compositions(total: int, parts: int) -> list[Exponents]:
    """All ways to write a total as an ordered sum of that many whole numbers."""
    if parts == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total, -1, -1) for rest in compositions(total - first, parts - 1)]
