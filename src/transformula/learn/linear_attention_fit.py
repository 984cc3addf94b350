r"""Linear attention from data, in polynomial time (Yau et al., 2410.10101).

H heads of linear attention map tokens z_1 .. z_n to

    y = Σ_h V_h Z Zᵀ Q_h z,        Z = (z_1 .. z_n), z the asking token,

which is not convex in (V, Q). It is linear in T = Σ_h V_h ⊗ Q_h, because

    y_a = Σ_{b,c,e} T_{a,bce} (Σ_i z_{i,b} z_{i,c}) z_e :

least squares over d·d(d + 1)/2 features of degree 3 finds the map, whatever the number of rows and heads. Only the
part of T that is symmetric in (b, c) can be seen in data, since Z Zᵀ is symmetric. So two sets of heads are
*equivalent* where these parts agree, and `factor` looks for the fewest heads within a class:

* a singular value decomposition of T as a matrix (a, b) x (c, e) gives at most d·min(outputs, d) of them, always;
* fewer are looked for among all T with the same symmetric part, by alternating least squares and Gauss and Newton's
  steps from the leading singular vectors. That search is not convex and promises nothing; what it finds is measured.
  Without a number of heads to reach it is made only for a map that the data determine and that fits them to rounding:
  noise makes a map generic, and no fewer heads carry it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.linalg import svd
from scipy.optimize import least_squares

from transformula.learn.distinct_rows import Floats
from transformula.learn.solvers.exact_fit import Spectrum
from transformula.learn.solvers.features import Exponents, MonomialSum

#: Share of the largest singular value below which the others are rounding.
_RANK = 1e-10
#: Share of a map that heads may miss and still carry it.
SAME = 1e-9
#: Numbers in V and Q beyond which only alternating least squares is tried.
_MOST_UNKNOWNS = 250
#: Local searches for few heads.
_STARTS = 12
#: Sweeps of alternating least squares.
_SWEEPS = 20
#: Evaluations of a Gauss-Newton search.
_STEPS = 100


@dataclass(frozen=True)
class Heads:
    """Values V (heads, outputs, d) and queries with keys Q (heads, d, d); a token of d − 1 numbers ends with a 1.

    Attributes
    ----------
    constant : whether tokens are extended by that 1.
    """

    values: Floats
    queries: Floats
    constant: bool

    def __len__(self) -> int:
        return len(self.values)

    def __call__(self, tokens: Floats, each: bool) -> Floats:
        """Attend: (rows, n, features) to (rows, outputs) at the last token, or (rows, n, outputs) at each."""
        z = extended(tokens, self.constant)
        asking = z if each else z[:, -1:]
        moments = np.einsum("rib,ric->rbc", z, z)
        read = np.einsum("hce,rie->rhic", self.queries, asking)
        out: Floats = np.einsum("hab,rbc,rhic->ria", self.values, moments, read, optimize=True)
        return out if each else out[:, 0]

    def map(self) -> Floats:
        """The symmetric part of T, (outputs, d, d, d): all that a set of heads does."""
        return symmetric(np.einsum("hab,hce->abce", self.values, self.queries))


def extended(tokens: Floats, constant: bool) -> Floats:
    """Tokens (rows, n, features), with a 1 behind them if asked for."""
    return np.concatenate([tokens, np.ones((*tokens.shape[:2], 1))], axis=2) if constant else tokens


def symmetric(tensor: Floats) -> Floats:
    """The part of (outputs, b, c, e) that is symmetric in b and c."""
    return np.asarray((tensor + tensor.transpose(0, 2, 1, 3)) / 2)


def features(tokens: Floats, constant: bool, each: bool) -> Floats:
    """(Σ_i z_b z_c) z_e for b <= c, of every row, or of every row and position: (samples, d²(d + 1)/2)."""
    z = extended(tokens, constant)
    asking = z if each else z[:, -1:]
    b, c = np.triu_indices(z.shape[2])
    moments = np.einsum("rib,ric->rbc", z, z)[:, b, c]
    return np.asarray(np.einsum("rm,rie->rime", moments, asking).reshape(len(z) * asking.shape[1], -1))


@dataclass(frozen=True)
class Solved:
    """Least squares: the map's symmetric T (outputs, d, d, d), the penalty, and how well the data tell the map.

    Attributes
    ----------
    told : number of features that the rows tell apart.
    certain : whether that is all of them, and the fit passes through the data up to rounding.
    """

    tensor: Floats
    ridge: float
    told: int
    certain: bool


def solve(phi: Floats, Y: Floats, weight: Floats, d: int, ridge: float | None, constant: bool) -> Solved:
    """Least squares over the features, with the penalty of the least leave-one-out error if none is given.

    Parameters
    ----------
    phi : (samples, d²(d + 1)/2) of `features`; Y : (samples, outputs); weight : (samples,).
    ridge : penalty on squared coefficients of features of mean square 1, relative to the total weight.
    constant : the constant among the features is not penalised.
    """
    total = float(weight.sum())
    mean = weight @ phi / total if constant else np.zeros(phi.shape[1])
    offset = weight @ Y / total if constant else np.zeros(Y.shape[1])
    size = np.sqrt(weight @ (phi - mean) ** 2 / total)
    size[size <= 1e-14 * np.abs(phi).max(axis=0, initial=0.0)] = np.inf  # a feature with one value says nothing
    root = np.sqrt(weight)[:, None]
    left, s, right = svd(root * (phi - mean) / size, full_matrices=False, check_finite=False)
    keep = s > s.max(initial=0.0) * max(phi.shape) * np.finfo(float).eps
    targets = root * (Y - offset)
    along = left.T @ targets
    if ridge is None:
        spread = np.maximum(weight @ (Y - offset) ** 2 / total, 1e-300)
        choice = Spectrum(s**2, left * s, s[:, None] * along, targets, weight, total).least(spread)
        ridge = choice.ridge if np.isfinite(choice.losses).all() else 1.0
    shrunk = (s[keep] / (s[keep] ** 2 + ridge * total))[:, None] * along[keep]
    coefficients = (right[keep].T @ shrunk) / size[:, None]
    tensor = np.zeros((Y.shape[1], d, d, d))
    b, c = np.triu_indices(d)
    by_pair = coefficients.T.reshape(Y.shape[1], len(b), d) / np.where(b == c, 1.0, 2.0)[:, None]
    tensor[:, b, c], tensor[:, c, b] = by_pair, by_pair
    if constant:
        # the last moment is the number of tokens, the last coordinate is 1: their feature is the constant
        tensor[:, -1, -1, -1] += (offset - mean @ coefficients) / phi[0, -1]
    told = int(np.count_nonzero(keep)) + constant
    miss = _norm(targets - left[:, keep] @ (s[keep, None] * shrunk))
    return Solved(tensor, ridge, told, told == phi.shape[1] and miss <= SAME * _norm(targets))


def factor(found: Solved, constant: bool, heads: int | None, seed: int = 0) -> Heads:
    """Heads for a map: as many as asked for, or the fewest found that carry it."""
    whole = _decomposed(found.tensor, constant)
    if heads is not None:
        return whole if heads >= len(whole) else _searched(found.tensor, whole, heads, seed)
    for count in range(1, len(whole) if found.certain else 1):
        fewer = _searched(found.tensor, whole, count, seed)
        if missed(found.tensor, fewer) <= SAME:
            return fewer
    return whole


def missed(tensor: Floats, heads: Heads) -> float:
    """Distance of the heads' map from a map, as a share of its Frobenius norm."""
    size = _norm(tensor)
    return _norm(tensor - heads.map()) / size if size else 0.0


def _norm(tensor: Floats) -> float:
    """Frobenius norm, of numbers whose squares would underflow or overflow too."""
    largest = float(np.abs(tensor).max(initial=0.0))
    return largest * float(np.linalg.norm(tensor / largest)) if largest else 0.0


def _decomposed(tensor: Floats, constant: bool) -> Heads:
    outputs, d = tensor.shape[:2]
    left, s, right = svd(tensor.reshape(outputs * d, d * d), full_matrices=False)
    count = max(1, int(np.count_nonzero(s > _RANK * s.max(initial=0.0))))
    root = np.sqrt(s[:count])[:, None]
    return Heads((root * left.T[:count]).reshape(-1, outputs, d), (root * right[:count]).reshape(-1, d, d), constant)


def _searched(tensor: Floats, start: Heads, count: int, seed: int) -> Heads:
    """The best of a few local searches for V and Q with this symmetric part."""
    scale = _norm(tensor) or 1.0
    rng = np.random.default_rng(seed)
    best, least = start, np.inf
    for attempt in range(_STARTS):
        Q = start.queries[:count] / scale**0.5
        if attempt:
            Q = Q + 0.3 * rng.normal(size=Q.shape) * np.abs(Q).max()
        V, Q = _alternated(tensor / scale, Q)
        if V.size + Q.size <= _MOST_UNKNOWNS:
            V, Q = _polished(tensor / scale, V, Q)
        found = Heads(V * scale**0.5, Q * scale**0.5, start.constant)
        if (miss := missed(tensor, found)) < least:
            best, least = found, miss
        if least <= SAME / 10:
            break
    return best


def _alternated(tensor: Floats, Q: Floats) -> tuple[Floats, Floats]:
    """Solve for V with Q as it is, then for Q, and again: two small least-squares problems a sweep."""
    outputs, d = tensor.shape[:2]
    unit = np.eye(d)

    def solved(design: Floats, wanted: Floats) -> Floats:
        return np.asarray(np.linalg.lstsq(design, wanted, rcond=None)[0])

    for _ in range(_SWEEPS):
        one = np.einsum("hce,bB->bcehB", Q, unit)
        by_value = (one + one.swapaxes(0, 1)).reshape(d**3, -1) / 2
        V = solved(by_value, tensor.reshape(outputs, -1).T).reshape(len(Q), d, outputs).swapaxes(1, 2)
        one = np.einsum("hab,cC->abchC", V, unit)
        by_query = (one + one.swapaxes(1, 2)).reshape(outputs * d * d, -1) / 2
        Q = solved(by_query, tensor.reshape(-1, d)).reshape(len(Q), d, d)
    return V, Q


def _polished(tensor: Floats, V: Floats, Q: Floats) -> tuple[Floats, Floats]:
    """Gauss and Newton's steps in V and Q together."""
    outputs, d = tensor.shape[:2]
    b, c = np.triu_indices(d)
    unit, rows = np.eye(d), outputs * len(b) * d

    def parts(x: Floats) -> tuple[Floats, Floats]:
        return x[: V.size].reshape(V.shape), x[V.size :].reshape(Q.shape)

    def miss(x: Floats) -> Floats:
        made = symmetric(np.einsum("hab,hce->abce", *parts(x)))
        return np.asarray((made - tensor)[:, b, c].ravel())

    def slope(x: Floats) -> Floats:
        values, queries = parts(x)
        by_value = np.einsum("hce,bB,aA->abcehAB", queries, unit, np.eye(outputs))
        by_query = np.einsum("hab,cC,eE->abcehCE", values, unit, unit)
        return np.hstack([(t + t.swapaxes(1, 2))[:, b, c].reshape(rows, -1) / 2 for t in (by_value, by_query)])

    start = np.concatenate([V.ravel(), Q.ravel()])
    return parts(least_squares(miss, start, jac=slope, xtol=1e-14, ftol=1e-10, gtol=1e-15, max_nfev=_STEPS).x)


@dataclass(frozen=True)
class AttentionFit:
    """Heads and the map they were factored from, with the shape of their sequences.

    The heads predict; the map is written down as polynomials.
    """

    heads: Heads
    tensor: Floats
    positions: int
    each: bool

    def predict(self, X: Floats) -> Floats:
        """(rows, positions · features) to (rows, outputs), or to (rows, positions · outputs)."""
        return self.heads(X.reshape(len(X), self.positions, -1), self.each).reshape(len(X), -1)

    @property
    def n_terms(self) -> int:
        """Number of entries in the heads' matrices."""
        return self.heads.values.size + self.heads.queries.size

    def exact(self) -> MonomialSum:
        """Each output as monomials of the inputs, in rational arithmetic from the map's floats."""
        width = self.tensor.shape[1] - self.heads.constant
        asked = range(self.positions) if self.each else [self.positions - 1]
        return MonomialSum(tuple(self._terms(one, place, width) for place in asked for one in self.tensor))

    def _terms(self, one: Floats, asking: int, width: int) -> dict[Exponents, Fraction]:
        terms: dict[Exponents, Fraction] = {}
        for b, c, e in np.argwhere(one):
            value = Fraction(float(one[b, c, e]))
            for token in range(self.positions):
                exponents = [0] * (self.positions * width)
                for place, k in ((token, b), (token, c), (asking, e)):
                    if k < width:
                        exponents[place * width + k] += 1
                key = tuple(exponents)
                terms[key] = terms.get(key, Fraction(0)) + value
        return terms
