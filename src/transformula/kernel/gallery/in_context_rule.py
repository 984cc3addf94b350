"""The proof for in-context models: over the whole box of prompts, how far the blocks are from the algorithm.

`in_context_blocks` shows that the blocks are those of the algorithm. What is left is the remainder of Newton and
Schulz's iteration, and rounding. Hats mark computed numbers. Inputs are rounded once, |x̂ − x| <= Dx, and the hatted
box is that much larger. A sum of m products of total size S is off by at most gamma_m S + m·lost; a stored rational
counts as two roundings. n pairs, d features, L the penalty; norms are Euclidean, of matrices spectral.

*Spectrum.* Â = Σ_m k̂_m x̂_mᵀ is symmetric, with eigenvalues from L(1 − 2u) to L(1 + 2u) + n d x̂². With b = Xᵀy,
‖Â − A‖ <= dA and ‖b̂ − b‖ <= db. For numbers or vectors r_m, ‖Σ_m k̂_m r_mᵀ‖ <= K max‖r_m‖.

*descent.* Write p̂_j = x̂_j·(w_t + δ) + r_j with the real iterate w_t. If a layer rounds by e_j at token j, then

    δ' = (I − rate·Â) δ + rate·(b̂ − b − (Â − A) w_t − Σ_m k̂_m r_m),        r_j' = r_j + e_j

reproduces what it computes. So r adds up, and δ and w_t grow by no more than the norm of I − rate·Â in a step: at
most 1 for sensible rates, whatever is added and subtracted in between. *lasso.* The same for w itself, as S is
non-expansive; p is made anew from w in each step, and its rounding takes the place of r. Here L = 0.

*ridge.* Without rounding Q − A⁻¹ = −A⁻¹(I − start·A)^N, N = 2^layers, and with g the query's features

    |g·A⁻¹(I − start·A)^N Xᵀy| <= ‖g‖ ‖y‖ max |1 − start·a|^N √(a − L)/a     over the spectrum's a,

as XᵀX <= A − L·I. Here √(a − L)/a <= 1/(2√L), by which also ‖w‖ = ‖A⁻¹Xᵀy‖ <= ‖y‖/(2√L). Stored penalties may differ
from each other by their rounding: L is the least of them. With rounding, write q̂_j = M x̂_j + r_j, M = start·I at
first, and Ĝ = Σ_m k̂_m q̂_mᵀ = Â Mᵀ + F, ‖F‖ <= K max‖r‖. A layer computes q̂_j' = (2I − Ĝ) q̂_j + e_j, so
M' = (2I − Ĝ) M, r_j' = (2I − Ĝ) r_j + e_j, and E = I − Ĝ becomes E' = E − Eᵀ + E Eᵀ − Σ_m k̂_m e_mᵀ. Let E = R + D with
the exact remainder R = (I − start·Â)^N, which becomes R². Then

    D' = (D − Dᵀ) + (D R + R Dᵀ + D Dᵀ) − Σ_m k̂_m e_mᵀ,

a skew and a symmetric part and the new errors. So if s and t bound the symmetric and the skew part of D, then
2 ‖R‖ (s + t) + (s + t)² + K e and 2t + K e bound them afterwards: errors double at most, as long as ‖R‖ < 1. In the
end Mᵀ = Â⁻¹(I − R − D − F): the answer b̂·q̂ is off from what exact layers give at the rounded prompt by at most
‖b̂‖ ((s + t + K‖r‖) ‖ĝ‖/L + ‖r‖). That is off from the exact ridge prediction there by the remainder, and this one from
the prediction at the prompt by ‖Â⁻¹(b̂ − b − (Â − A) w)‖ ‖ĝ‖ + ‖ĝ − g‖ ‖w‖, and so back to the layers by the remainder.

*kernel.* Scores are off by D, so each exponential by a factor within e^{±c}, c = D + u·(largest − smallest score) +
exp's own error. Factors in common cancel, so Σ w_i y_i moves by at most y (e^{2c} − 1); sums, quotient and products
are at most 3n + 3 roundings. *recurrence.* e' = a e + |x| Da + Db + the rounding of a·x + b.
"""

from __future__ import annotations

from functools import reduce

from flint import arb, fmpq

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.folder.description import Proof
from transformula.kernel.folder.weights import Weights
from transformula.kernel.gallery.in_context_blocks import PromptTask, check_plan, plan_of
from transformula.kernel.rounding.formats import EXP_ULPS, FORMATS, QUERY_FACTOR, FloatFormat, check_size

#: More layers of Newton and Schulz's iteration than any float64 can use.
MAX_ROUNDS = 60
#: Rounding is a small difference of bounds.
BITS = 128


def prove_in_context(weights: Weights, task: PromptTask) -> Proof:
    """Prove what the weights achieve on the task's box of prompts, or raise `NotProvenError`."""
    if weights.inputs != task.inputs or weights.outputs != task.outputs:
        raise RefutedError("the weights' inputs or outputs are not those of the task")
    rounds, start = len(weights.blocks) - 1, fmpq(1)
    if task.algorithm == "ridge":
        slot = weights.width * task.pairs  # the query's first: start times its first feature
        start = next((v for row, _, v in weights.embedding.entries() if row == slot), fmpq(0))
        if not (0 <= rounds <= MAX_ROUNDS and start > 0):
            raise RefutedError("the blocks are not those of the algorithm: the number of layers, or the first Q")
    check_plan(weights, plan_of(task, start, rounds))
    with precision(BITS):
        sizes = _StreamSizes(task, FORMATS[weights.dtype], weights.tokens)
        if task.algorithm == "ridge":
            approximation, rounding = _ridge(sizes, start, rounds)
        else:
            approximation, rounding = arb(0), _ROUNDINGS[task.algorithm](sizes)
        return Proof(round_up(approximation), round_up(rounding))


def _largest(*sizes: arb) -> arb:
    return reduce(arb.max, sizes).upper()


class _StreamSizes:
    """Bounds of what a prompt holds, after its numbers were rounded to the format."""

    def __init__(self, task: PromptTask, form: FloatFormat, tokens: int) -> None:
        self.task = task
        self.form = form
        self.tokens = tokens
        self.lost = form.lost
        for reach in (task.a, task.b, task.x, task.y):
            check_size(form, arb(reach))
        self.x, self.y = (arb(reach) + self.shift(reach) for reach in (task.x, task.y))
        n = task.pairs
        self.root = arb(task.features).sqrt()
        x_off = self.shift(task.x)
        exact, twice = arb(0 if task.algorithm == "lasso" else task.penalty), 2 * form.unit_roundoff
        #: The least and the largest that the stored penalty may be; the lasso's is not in A.
        self.penalty = (exact * (1 - twice)).lower(), (exact * (1 + twice)).upper()
        self.matrix_off = (2 * n * task.features * self.x * x_off + self.penalty[1] - self.penalty[0]).upper()
        self.b_off = (n * self.root * (x_off * self.y + self.x * self.shift(task.y))).upper()
        self.b = (n * self.root * self.x * self.y).upper()
        self.keys = (self.root * (n * self.x + self.penalty[1])).upper()  # K

    def shift(self, reach: fmpq) -> arb:
        """Rounding error of an input of at most this size."""
        return self.form.unit_roundoff * arb(reach) + self.lost

    def contraction(self, step: arb) -> arb:
        """‖I − step·Â‖."""
        high = self.penalty[1] + self.task.pairs * self.task.features * self.x**2
        return _largest(abs(1 - step * self.penalty[0]), abs(1 - step * high))

    def layer(self, rows: int, scores: arb, terms: int, value: arb, before: arb) -> arb:
        """Rounding of a linear layer at one token and slot, which held ``before``.

        ``scores`` is a bound of Σ_m Σ_r |z_j[r] z_m[r]|, ``value`` of the absolute terms of one v_m.
        """
        form, tokens = self.form, self.tokens
        score = scores * (1 + form.gamma(rows)) + tokens * rows * self.lost
        product = score * (value * (1 + form.gamma(terms + 2)) + terms * self.lost) * (1 + form.gamma(tokens))
        made = product + 2 * tokens * self.lost
        check_size(form, 4 * (before + made + score + value))
        return (made - scores * value + form.unit_roundoff * (before + made)).upper()


def _descent(sizes: _StreamSizes) -> arb:
    task = sizes.task
    rate = arb(sizes.task.rate)
    one = arb(1)
    rho = sizes.contraction(rate)
    asked, norm = _largest(task.features * sizes.x, one), _largest(sizes.root * sizes.x, one)
    scores = asked * (task.pairs * sizes.x + sizes.penalty[1])
    w = delta = r = arb(0)
    for _ in range(task.steps):
        p = norm * (w + delta) + r
        local = sizes.layer(task.features, scores, 2, rate * (sizes.y + p), p)
        delta = (rho * delta + rate * (sizes.b_off + sizes.matrix_off * w + sizes.keys * r)).upper()
        w, r = (rho * w + rate * sizes.b).upper(), (r + local).upper()
    return sizes.root * (sizes.shift(task.x) * w + sizes.x * delta) + r


def _lasso(sizes: _StreamSizes) -> arb:
    task = sizes.task
    rate = arb(sizes.task.rate)
    form = sizes.form
    rho = sizes.contraction(rate)
    threshold = rate * arb(task.penalty)
    w = delta = p_off = arb(0)
    for _ in range(task.steps):
        held = w + delta
        p = sizes.root * sizes.x * held + p_off
        moved = sizes.layer(task.features, task.pairs * sizes.x, 2, rate * (sizes.y + p), held)
        u = held + task.pairs * sizes.x * rate * (sizes.y + p) + moved
        # three roundings in each of two units, four in a sum of at most 2 (u + t), one of at most 3 (u + t)
        rounded_relu = form.gamma(20) * (u + threshold) + 16 * sizes.lost
        check_size(form, 8 * (u + threshold))
        delta = rho * delta + rate * (sizes.b_off + sizes.matrix_off * w + sizes.keys * p_off)
        delta = (delta + sizes.root * (moved + rounded_relu)).upper()
        w = (rho * w + rate * sizes.b).upper()
        p_off = sizes.layer(task.features, task.features * sizes.x, 1, w + delta, sizes.lost) + sizes.lost
    return sizes.root * (sizes.shift(task.x) * w + sizes.x * delta) + p_off


def _ridge(sizes: _StreamSizes, start: fmpq, rounds: int) -> tuple[arb, arb]:
    task = sizes.task
    form = sizes.form
    root = sizes.root
    keys = sizes.keys
    first, u = arb(start), form.unit_roundoff
    lost = sizes.lost * arb(4) ** (rounds + 1)  # what is stored is up to 2^-t of what is meant, its scores 4^-t
    norm, column = _largest(root * sizes.x, arb(1)), task.pairs * sizes.x + sizes.penalty[1]
    r = (root * (form.gamma(3) * first * sizes.x + lost) + 2 * u * first).upper()
    m, left = first, sizes.contraction(first)
    s = t = (keys * r).upper()
    for _ in range(rounds):
        size, grow = m * norm + r, 1 + left + s + t
        score = size**2 * (1 + form.gamma(task.features)) + task.features * lost
        off = column * (score * (1 + form.gamma(sizes.tokens)) - size**2)
        off += 2 * sizes.tokens * lost * (1 + column + score)
        check_size(form, 8 * (score + column * (1 + score) + size) * arb(4) ** (rounds + 1))
        e = root * off * (1 + u) + u * grow * size
        s, t = (2 * left * (s + t) + (s + t) ** 2 + keys * e).upper(), (2 * t + keys * e).upper()
        m = (grow * m).upper()
        r = (grow * r + e).upper()
        left = (left**2).upper()
    least = sizes.penalty[0]
    w = arb(task.pairs).sqrt() * sizes.y / (2 * least.sqrt())
    approximation = (root * sizes.x * w * left).upper()
    answer = sizes.b * ((s + t + keys * r) * root * sizes.x / least + r)
    rounded = (sizes.b_off + sizes.matrix_off * w) / least * root * sizes.x + root * sizes.shift(task.x) * w
    size = m * norm + r
    check_size(form, 4 * (sizes.y * arb(2) ** rounds + root * column * size))  # constant tokens answer with penalties
    read = sizes.layer(task.features, task.pairs * root * sizes.x * size, 1, sizes.y, arb(0))
    read += sizes.tokens * task.features * lost * (1 + sizes.y)
    return approximation, answer + rounded + read + 2 * approximation


def _kernel(sizes: _StreamSizes) -> arb:
    task = sizes.task
    form = sizes.form
    u = sizes.form.unit_roundoff
    n = sizes.task.pairs
    size = task.features * sizes.x**2 / arb(task.bandwidth)
    if not 4 * size < form.largest_exponent / 2:  # then no weight is anywhere near underflow
        raise RefutedError(f"the scores reach {size.str(3)}: take a larger bandwidth or a smaller box")
    off = 2 * task.features * sizes.x * sizes.shift(task.x) / arb(task.bandwidth)
    off += form.gamma(task.features + 3) * size
    off += 4 * task.features * (1 + sizes.x) * (1 + 1 / arb(task.bandwidth)) * sizes.lost
    exponent = off + 2 * u * (size + off) - (1 - 2 * EXP_ULPS * u).log()
    # the quotient may be taken last
    check_size(form, 4 * (QUERY_FACTOR * (size + 1 / arb(task.bandwidth)) + n * sizes.y))
    moved = sizes.y * ((2 * exponent).exp() * (1 + form.gamma(3 * n + 3)) - 1)
    return moved + sizes.shift(task.y) + 2 * n * sizes.lost


def _recurrence(sizes: _StreamSizes) -> arb:
    task = sizes.task
    a, b = (arb(v) + sizes.shift(v) for v in (task.a, task.b))
    x = arb(task.x)
    off = sizes.shift(task.x)
    worst = arb(0)
    for _ in range(task.steps):
        reach = x + off
        local = sizes.layer(2, a * reach + b, 1, arb(1), arb(0))
        off = (a * off + x * sizes.shift(task.a) + sizes.shift(task.b) + local).upper()
        x = (arb(task.a) * x + arb(task.b)).upper()
        worst = _largest(worst, off)
    return worst


_ROUNDINGS = {"descent": _descent, "lasso": _lasso, "kernel": _kernel, "recurrence": _recurrence}
