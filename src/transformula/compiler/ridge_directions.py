"""Polynomials as sums of powers of linear forms, exactly and with few forms.

Wanted: rational directions ξ_k and coefficients with Q(x) = Q(0) + Σ_k Σ_s β_{k,s} (ξ_k·x)^s (Fang,
Lemma 3.3). One direction is one token, so fewer is better. Degree by degree:

* *Linear part:* one direction, or none if it lies in the span of those already there.
* *Quadratic part:* Lagrange's diagonalisation, rank-many directions.
* *Monomials*, |α| = s, by symmetric polarization, ½ Π(α_i + 1) directions up to sign::

      x^α = 1/(2^s s!) Σ_{β ≤ α} (−1)^{|β|} Π C(α_i, β_i) ((α − 2β)·x)^s

  or by the plain one, x^α = 1/s! Σ_{β ≤ α} (−1)^{s−|β|} Π C(α_i, β_i) (β·x)^s, where that shares more
  directions with the rest. A part that lies in the span of powers of known directions costs nothing.
* *The lattice:* the powers (α·x)^q, |α| = q, are a basis of the forms of degree q, so n_q directions
  always suffice, without a linear system. With the apolar pairing ⟨x^γ, y^δ⟩ = γ! [γ = δ],
  ⟨(α·x)^s, g⟩ = s! g(α) for every form g of degree s. So p = Σ_α c_α (α·x)^s holds exactly when
  s! Σ_α c_α g(α) = ⟨p, g⟩ for all g, and testing with the Lagrange forms of the lattice gives
  c_α = ⟨p, ℓ_α⟩ / s!. On Σy = q the Lagrange polynomials of the sub-lattice {α : |α| = q, α_1 ≥ q − s} are ::

      ℓ_α(y) = C(y_1 − (q−s), α_1 − (q−s)) Π_{i>1} C(y_i, α_i)

  and writing σ = Σy/q for 1 makes them forms of degree s. A power of Σy in ℓ acts on p as the derivative
  D = Σ_i ∂_i, so D^m p is computed once for each m and every c_α is a short sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from flint import fmpq, fmpq_mat

from transformula.compiler import policy
from transformula.errors import FormulaError
from transformula.kernel.derivations.polynomials import Exponents

Direction = tuple[int, ...]
Terms = Mapping[Exponents, fmpq]


@dataclass
class RidgeSum:
    """Σ over directions and powers: ``powers[direction][s][output]`` is β_{k,s} for that output."""

    outputs: int
    powers: dict[Direction, dict[int, list[fmpq]]] = field(default_factory=dict)

    def add(self, form: Sequence[fmpq | int], s: int, output: int, coefficient: fmpq) -> None:
        """Add coefficient · (form·x)^s; parallel forms share one primitive direction."""
        if coefficient == 0:
            return
        direction, scale = primitive(form)
        row = self.powers.setdefault(direction, {}).setdefault(s, [fmpq(0)] * self.outputs)
        row[output] += coefficient * scale**s

    def include(self, other: RidgeSum) -> None:
        """Take over another sum's directions, which this one does not have yet."""
        for direction, by_power in other.powers.items():
            self.powers[direction] = {s: list(row) for s, row in by_power.items()}

    def pruned(self) -> RidgeSum:
        """The sum without powers and directions whose coefficients cancelled."""
        kept = RidgeSum(self.outputs)
        for direction, by_power in self.powers.items():
            rows = {s: row for s, row in by_power.items() if any(v != 0 for v in row)}
            if rows:
                kept.powers[direction] = rows
        return kept

    def __len__(self) -> int:
        return len(self.powers)


def primitive(form: Sequence[fmpq | int]) -> tuple[Direction, fmpq]:
    """A form as scale · (coprime integers, first non-zero one positive)."""
    values = [fmpq(v) for v in form]
    common = math.lcm(*(int(v.q) for v in values))
    whole = [int((v * common).p) for v in values]
    divisor = math.gcd(*whole) * (1 if next(v for v in whole if v) > 0 else -1)
    return tuple(v // divisor for v in whole), fmpq(divisor, common)


def lattice_ridge_sum(polynomials: Sequence[Terms]) -> RidgeSum | None:
    """Write polynomials without constant terms on one lattice; None if it would be too large."""
    exponents = [e for terms in polynomials for e in terms]
    degree = max(map(sum, exponents))
    support = [k for k in range(len(exponents[0])) if any(e[k] for e in exponents)]
    if math.comb(len(support) - 1 + degree, degree) > policy.MOST_TOKENS:
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


def homogeneous_parts(terms: Terms) -> dict[int, dict[Exponents, fmpq]]:
    """Split a polynomial's terms by total degree."""
    parts: dict[int, dict[Exponents, fmpq]] = {}
    for exponents, value in terms.items():
        parts.setdefault(sum(exponents), {})[exponents] = value
    return parts


def ridge_sums(polynomials: Sequence[Terms], hints: Iterable[Direction] = ()) -> list[RidgeSum]:
    """Ways to write the polynomials (one for each output, without their constants), fewest directions first.

    Hints are linear forms that occur in the formula as written, such as x + 2y in (x + 2y)**3.
    """
    sparse, fewest = RidgeSum(len(polynomials)), RidgeSum(len(polynomials))
    known = list(hints)
    for part in _components(polynomials):
        ways = [way for way in (_greedy(part, known), lattice_ridge_sum(part)) if way is not None]
        if not ways:
            raise FormulaError("the polynomial needs too many tokens: too many variables in one product")
        sparse.include(ways[0])
        fewest.include(min(ways, key=len))
    for way in (sparse, fewest):
        for output, terms in enumerate(polynomials):
            linear = {e: v for e, v in terms.items() if sum(e) == 1}
            if linear:
                _add_part(way, linear, 1, output, known)
    candidates = [fewest.pruned()]
    if sparse.powers.keys() != fewest.powers.keys():
        candidates.append(sparse.pruned())
    return candidates


def _components(polynomials: Sequence[Terms]) -> list[list[dict[Exponents, fmpq]]]:
    """The terms of degree two and more, split into groups that share no variable."""
    group: dict[int, set[int]] = {}
    for exponents in (e for terms in polynomials for e in terms if sum(e) > 1):
        merged = set().union(*({k} | group.get(k, set()) for k, e in enumerate(exponents) if e))
        group.update((k, merged) for k in merged)
    parts = []
    for members in {id(g): g for g in group.values()}.values():
        parts.append(
            [{e: v for e, v in terms.items() if sum(e) > 1 and members & _support(e)} for terms in polynomials]
        )
    return parts


def _support(exponents: Sequence[int]) -> set[int]:
    return {k for k, e in enumerate(exponents) if e}


def _greedy(polynomials: Sequence[Terms], hints: list[Direction]) -> RidgeSum | None:
    """Top degree first; each part reuses known directions if it can."""
    if sum(_polarization_size(p) for p in polynomials) > policy.MOST_TOKENS:
        return None
    result = RidgeSum(len(polynomials))
    parts = [homogeneous_parts(p) for p in polynomials]
    for s in sorted({s for part in parts for s in part}, reverse=True):
        for output, part in enumerate(parts):
            if s in part:
                _add_part(result, part[s], s, output, hints)
    return result.pruned()


def _polarization_size(terms: Terms) -> int:
    return sum(math.prod(a + 1 for a in exponents) for exponents in terms)


def _add_part(result: RidgeSum, part: Terms, s: int, output: int, hints: list[Direction]) -> None:
    solution = _in_span(part, s, [*result.powers]) or _in_span(part, s, [*result.powers, *hints])
    if solution is None:
        solution = min(_expansions(part, s, result), key=lambda forms: _new(forms, result))
    for form, coefficient in solution:
        result.add(form, s, output, coefficient)


Forms = list[tuple[tuple[fmpq | int, ...], fmpq]]


def _new(forms: Forms, result: RidgeSum) -> int:
    return len({primitive(form)[0] for form, _ in forms} - set(result.powers))


def _expansions(part: Terms, s: int, result: RidgeSum) -> list[Forms]:
    if s == 1:
        return [_linear(part)]
    by_monomial: Forms = []
    for exponents in sorted(part, reverse=True):
        known = RidgeSum(1, dict(result.powers) | {primitive(f)[0]: {} for f, _ in by_monomial})
        options = [_polarize(exponents, symmetric) for symmetric in (True, False)]
        best = min(options, key=lambda forms: _new(forms, known))
        by_monomial.extend((form, c * part[exponents]) for form, c in best)
    return [by_monomial, _diagonalize(part)] if s == 2 else [by_monomial]


def _linear(part: Terms) -> Forms:
    width = len(next(iter(part)))
    form: list[fmpq | int] = [0] * width
    for exponents, value in part.items():
        form[exponents.index(1)] = value
    return [(tuple(form), fmpq(1))]


def _polarize(exponents: Exponents, symmetric: bool) -> Forms:
    """x^α as a combination of s-th powers of forms (see the module's docstring)."""
    s = sum(exponents)
    scale = fmpq(1, (2**s if symmetric else 1) * math.factorial(s))
    forms: dict[Direction, fmpq] = {}
    for beta in product(*(range(a + 1) for a in exponents)):
        raw = tuple(a - 2 * b for a, b in zip(exponents, beta, strict=True)) if symmetric else beta
        if not any(raw):
            continue
        sign = (-1) ** (sum(beta) if symmetric else s - sum(beta))
        weight = math.prod(math.comb(a, b) for a, b in zip(exponents, beta, strict=True))
        direction, factor = primitive(raw)
        forms[direction] = forms.get(direction, fmpq(0)) + scale * sign * weight * factor**s
    return [(d, c) for d, c in forms.items() if c != 0]


def _diagonalize(part: Terms) -> Forms:
    """A quadratic form as Σ c_i (form_i·x)², by completing squares over the rationals."""
    width = len(next(iter(part)))
    matrix = [[fmpq(0)] * width for _ in range(width)]
    for exponents, value in part.items():
        i, j = [k for k, e in enumerate(exponents) for _ in range(e)]
        matrix[i][j] += value / 2
        matrix[j][i] += value / 2
    forms: Forms = []
    while any(v != 0 for row in matrix for v in row):
        pivot = next((k for k in range(width) if matrix[k][k] != 0), None)
        if pivot is not None:
            row = matrix[pivot]
            forms.append((tuple(v / row[pivot] for v in row), row[pivot]))
        else:  # only products are left: 2a·uv = a/2 ((u+v)² − (u−v)²) with whole rows u, v
            i, j = next((i, j) for i in range(width) for j in range(width) if matrix[i][j] != 0)
            u, v, a = list(matrix[j]), list(matrix[i]), matrix[i][j]
            forms.append((tuple(p + q for p, q in zip(u, v, strict=True)), 1 / (2 * a)))
            forms.append((tuple(p - q for p, q in zip(u, v, strict=True)), -1 / (2 * a)))
        for form, weight in forms[-1:] if pivot is not None else forms[-2:]:
            for i, j in product(range(width), repeat=2):
                matrix[i][j] -= weight * form[i] * form[j]
    return forms


def _in_span(part: Terms, s: int, directions: list[Direction]) -> Forms | None:
    """Write the part with s-th powers of the given directions, if that is possible at all."""
    support = set().union(*(_support(exponents) for exponents in part))
    useful = [d for d in dict.fromkeys(directions) if _support(d) <= support or s == 1]
    rows: dict[Exponents, int] = {}
    columns = []
    if not useful or math.comb(len(support) + s - 1, s) * len(useful) > policy.MAX_SYSTEM:
        return None
    for direction in useful:
        columns.append({rows.setdefault(e, len(rows)): v for e, v in power_terms(direction, s)})
    if any(e not in rows for e in part):
        return None
    system = fmpq_mat(len(rows), len(useful) + 1)
    for j, column in enumerate(columns):
        for i, value in column.items():
            system[i, j] = value
    for exponents, value in part.items():
        system[rows[exponents], len(useful)] = value
    return _solve(system, useful)


def _solve(system: fmpq_mat, useful: list[Direction]) -> Forms | None:
    reduced, rank = system.rref()
    forms: Forms = []
    for i in range(rank):
        lead = next(j for j in range(len(useful) + 1) if reduced[i, j] != 0)
        if lead == len(useful):
            return None
        if reduced[i, len(useful)] != 0:
            forms.append((useful[lead], reduced[i, len(useful)]))
    return forms


def power_terms(direction: Direction, s: int) -> list[tuple[Exponents, fmpq]]:
    """The terms of (direction·x)^s by the multinomial theorem."""
    support = [k for k, v in enumerate(direction) if v]
    terms = []
    for exponents in compositions(s, len(support)):
        weight = math.factorial(s)
        full = [0] * len(direction)
        for k, e in zip(support, exponents, strict=True):
            weight = weight // math.factorial(e) * direction[k] ** e
            full[k] = e
        terms.append((tuple(full), fmpq(weight)))
    return terms
