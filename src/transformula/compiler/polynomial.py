"""Any polynomial, exactly (Fang et al., Lemma 3.1 and Theorem 3.5).

Token k is z_k = [t_k, e_k (n), p_1..p_q, 1] with t_k = ξ_k·x. A product head multiplies two slots of
every token at once: the one-hot parts of query and key add C on the diagonal of the score matrix ::

    ⟨q_i, k_j⟩ = left_i · right_j + C·[i = j],        C > 2 sup|left| sup|right|

so hardmax keeps entry i of row i, the value writes left_i right_i + C into an empty slot, and the
feed-forward layer turns v into v − 2 ReLU(v) + 2 ReLU(−v) + C = C − v, which is −left_i right_i.

* Single head, q blocks: p_s = −t·p_{s−1} with p_0 = 1, so p_s = (−1)^s t^s.
* Several heads, ⌈log₂ q⌉ blocks: p_{a+b} = −p_a p_b with p_1 = t, so p_s = (−1)^{s−1} t^s, and block b
  forms the powers 2^{b−1}+1 .. 2^b.

The readout β, b makes Σ β_{k,s} p_s + b. Directions are whole numbers of each variable's unit times a power of two with
|ξ·x| ≤ 1 on the box, so they are exact in floats, every power stays in [−1, 1], and C = 3 serves every
block. (The paper's C = 2B^{2(s−1)} is too small for B < 1 and s ≥ 3: docs/theory.md, repair 4.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from flint import arb, fmpq

from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import COROLLARY, POLYNOMIAL
from transformula.compiler.layout import CONSTANT_BITS, midpoint_rational
from transformula.compiler.ridge_directions import Direction, RidgeSum, primitive, ridge_sums
from transformula.errors import FormulaError, InputError
from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.polynomials import NotPolynomialError, as_polynomial
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import walk
from transformula.runtime.matrices import matrix_of

#: Must exceed 2 sup|t| sup|p| = 2; one more leaves a gap that rounding cannot close.
OFFSET = 3


def polynomial_attempts(task: BuildTask) -> Iterator[Attempt]:
    """Models of the polynomial itself; of one that approximates it, if the formula is not a polynomial."""
    try:
        for weights in construct_polynomial(task.formula, task.options.dtype, task.options.multi_head):
            yield Attempt(POLYNOMIAL, partial(Built, weights))
    except NotPolynomialError as error:
        if task.options.eps is None and not task.ground.is_polynomial:
            raise FormulaError(f"{error}. Give a tolerance to approximate it, or use another construction") from None
        assert COROLLARY.attempts is not None
        yield from COROLLARY.attempts(task)


def construct_polynomial(formula: Formula, dtype: str = "float64", multi_head: bool = False) -> Iterator[Weights]:
    """Weights that compute the formula with no approximation error, fewest tokens first.

    Raises
    ------
    NotPolynomialError
        If an output is not a polynomial.
    """
    polynomials = [as_polynomial(e, formula.box.variables) for e in formula.outputs]
    with precision(CONSTANT_BITS):
        terms = [_rational_terms(p.terms()) for p in polynomials]
    yield from weights_from_terms(terms, formula.box, dtype, multi_head, _hints(formula))


def weights_from_terms(
    polynomials: Sequence[dict[tuple[int, ...], fmpq]],
    box: Box,
    dtype: str,
    multi_head: bool,
    hints: Sequence[Direction] = (),
) -> Iterator[Weights]:
    """Weights for polynomials given by their terms, fewest tokens first."""
    zero = (0,) * box.dimension
    constants = [terms.get(zero, fmpq(0)) for terms in polynomials]
    varying = [{e: v for e, v in terms.items() if e != zero} for terms in polynomials]
    units = _units(box)
    scaled = [{e: v * math.prod(u**k for u, k in zip(units, e, strict=True)) for e, v in t.items()} for t in varying]
    forms = [primitive([v * u for v, u in zip(hint, units, strict=True)])[0] for hint in hints]
    for ridge_sum in ridge_sums(scaled, forms):
        _check_work(ridge_sum)
        yield _RidgeBuilder(ridge_sum, constants, box, dtype, multi_head, units).weights()


def _units(box: Box) -> list[fmpq]:
    """A power of 16 for each variable, in which none is far smaller than the largest.

    Directions are whole numbers of these units: w x⁴ on 0..10⁴ and 0..4 is what is left of powers of forms in which w
    would hide x.
    """
    with precision(CONSTANT_BITS):
        sizes = [float(box.magnitude(k).log() / arb(16).log()) for k in range(box.dimension)]
    return [fmpq(1, 16 ** int(max(sizes) - size)) for size in sizes]


def ridge_weights(ridge_sum: RidgeSum, constants: Sequence[fmpq], box: Box, dtype: str) -> Weights:
    """Weights for powers of linear forms that are known already, as a trained model's are."""
    _check_work(ridge_sum)
    return _RidgeBuilder(ridge_sum, constants, box, dtype, multi_head=False).weights()


def _check_work(ridge_sum: RidgeSum) -> None:
    """The proof expands every power of every direction; refuse what would take minutes."""
    work = 0
    for direction, powers in ridge_sum.powers.items():
        support = sum(1 for v in direction if v)
        work += math.comb(support + max(powers), max(powers))
    if work > policy.MAX_PROOF_TERMS:
        raise FormulaError(
            f"the polynomial takes {len(ridge_sum)} tokens, and proving it would expand {work} terms; "
            f"at most {policy.MAX_PROOF_TERMS} are allowed"
        )


def _rational_terms(terms: dict[tuple[int, ...], fmpq | arb]) -> dict[tuple[int, ...], fmpq]:
    """Each coefficient, or the midpoint of the tiny ball around an irrational one."""
    rational = {e: v if isinstance(v, fmpq) else midpoint_rational(v) for e, v in terms.items()}
    return {e: v for e, v in rational.items() if v != 0}


def _hints(formula: Formula) -> list[Direction]:
    """Linear forms the user wrote under a power: (x + 2*y)**3 hints at one direction, not four."""
    hints: dict[Direction, None] = {}
    for expr in formula.outputs:
        for node in walk(expr):
            if node.op != "pow" or node.args[0].op not in ("add", "mul", "variable"):
                continue
            try:
                base = as_polynomial(node.args[0], formula.box.variables)
            except NotPolynomialError:
                continue
            if base.is_rational and base.exact.total_degree() == 1:
                form: list[Any] = [0] * formula.box.dimension
                for exponents, value in base.terms().items():
                    if sum(exponents):
                        form[exponents.index(1)] = value
                hints[primitive(form)[0]] = None
    return list(hints)


class _RidgeBuilder:
    """Lays out tokens and slots for one sum of ridge powers."""

    def __init__(
        self,
        ridge_sum: RidgeSum,
        constants: Sequence[fmpq],
        box: Box,
        dtype: str,
        multi_head: bool,
        units: Sequence[fmpq] | None = None,
    ) -> None:
        self.box, self.dtype, self.multi_head = box, dtype, multi_head
        self.constants = constants
        self.directions = list(ridge_sum.powers) or [(1,) + (0,) * (box.dimension - 1)]
        self.powers = ridge_sum.powers
        self.degree = max((s for by in self.powers.values() for s in by), default=1)
        n = len(self.directions)
        first = 2 if multi_head else 1
        self.slots = (
            "t",
            *(f"e{k + 1}" for k in range(n)),
            *(f"p{s}" for s in range(first, self.degree + 1)),
            "one",
        )
        self.index = {name: k for k, name in enumerate(self.slots)}
        ones = [fmpq(1)] * box.dimension
        self.forms = [[v / u for v, u in zip(d, units or ones, strict=True)] for d in self.directions]
        self.shifts = [_binary_shift(form, box) for form in self.forms]

    @property
    def tokens(self) -> int:
        return len(self.directions)

    def weights(self) -> Weights:
        n = self.tokens
        width = len(self.slots)
        inputs = self.box.dimension
        embedding, memory = [], []
        for k, (form, shift) in enumerate(zip(self.forms, self.shifts, strict=True)):
            row = k * width + self.index["t"]
            embedding += [(row, i, v * fmpq(2) ** shift) for i, v in enumerate(form)]
            memory += [(k, self.index[f"e{k + 1}"], 1), (k, self.index["one"], 1)]
        bias = self._matrix((len(self.constants), 1), [(o, 0, c) for o, c in enumerate(self.constants)])
        return Weights(
            inputs=self.box.variables,
            slots=self.slots,
            tokens=n,
            embedding=self._matrix((n * width, inputs), embedding),
            memory=self._matrix((n, width), memory),
            blocks=tuple(self._blocks()),
            readout=self._readout(),
            bias=bias,
            dtype=self.dtype,
        )

    def _matrix(self, shape: tuple[int, int], entries: Sequence[tuple[int, int, object]]) -> Matrix:
        matrix = matrix_of(shape, entries, self.dtype)
        if not all(abs(v) < float("inf") for v in matrix.values.tolist()):
            raise InputError(
                f"the polynomial's values on this box are beyond what {self.dtype} can hold: "
                "rescale the variables" + ("" if self.dtype == "float64" else " or use float64")
            )
        return matrix

    def _readout(self) -> Matrix:
        entries = []
        width = len(self.slots)
        for k, direction in enumerate(self.directions):
            for s, row in self.powers.get(direction, {}).items():
                name, sign = self._power_slot(s)
                scale = sign / fmpq(2) ** (s * self.shifts[k])
                column = k * width + self.index[name]
                entries += [(output, column, v * scale) for output, v in enumerate(row)]
        return self._matrix((len(self.constants), self.tokens * width), entries)

    def _power_slot(self, s: int) -> tuple[str, fmpq]:
        """The slot that ends up with ±t^s, and the sign."""
        if not self.multi_head:
            return f"p{s}", fmpq((-1) ** s)
        return ("t" if s == 1 else f"p{s}"), fmpq((-1) ** (s - 1))

    def _blocks(self) -> Iterator[Block]:
        if not self.multi_head:
            for s in range(1, self.degree + 1):
                yield self._block([("t", "one" if s == 1 else f"p{s - 1}", f"p{s}")])
            return
        reached = 1
        while reached < self.degree:
            targets = range(reached + 1, min(2 * reached, self.degree) + 1)
            half = self._power_slot(reached)[0]
            yield self._block([(half, self._power_slot(s - reached)[0], f"p{s}") for s in targets])
            reached = targets[-1]

    def _block(self, products: Sequence[tuple[str, str, str]]) -> Block:
        """Lemma 3.1, one head for each product (left slot, right slot, target slot)."""
        heads = tuple(self._head(*names) for names in products)
        width, units = len(self.slots), 2 * len(products)
        hidden, output, bias = [], [], []
        for h, (_, _, target) in enumerate(products):
            slot = self.index[target]
            hidden += [(2 * h, slot, 1), (2 * h + 1, slot, -1)]
            output += [(slot, 2 * h, -2), (slot, 2 * h + 1, 2)]
            bias += [(slot, 0, OFFSET)]
        layer = FeedForward(
            self._matrix((units, width), hidden),
            self._matrix((units, 1), []),
            self._matrix((width, units), output),
            self._matrix((width, 1), bias),
        )
        return Block(Attention(heads, kind="hardmax"), layer)

    def _head(self, left: str, right: str, target: str) -> Head:
        n, width = self.tokens, len(self.slots)
        hot = [(k + 1, self.index[f"e{k + 1}"]) for k in range(n)]
        query = [(0, self.index[left], 1), *((r, c, OFFSET) for r, c in hot)]
        key = [(0, self.index[right], 1), *((r, c, 1) for r, c in hot)]
        value = [(self.index[target], self.index["one"], 1)]
        return Head(
            self._matrix((n + 1, width), query),
            self._matrix((n + 1, width), key),
            self._matrix((width, width), value),
        )


def _binary_shift(form: Sequence[fmpq], box: Box) -> int:
    """The largest k with |2^k form·x| ≤ 1 on the box."""
    with precision(128):
        low = sum((_end(v, box, i, False) for i, v in enumerate(form) if v), arb(0))
        high = sum((_end(v, box, i, True) for i, v in enumerate(form) if v), arb(0))
        reach = abs(low).max(abs(high))
        exponent = int((reach.upper().log() / arb(2).log()).upper().ceil().unique_fmpz() or 0)
        while not reach * arb(2) ** (-exponent) <= 1:
            exponent += 1
        while reach * arb(2) ** (1 - exponent) <= 1:
            exponent -= 1
    return -exponent


def _end(coefficient: fmpq, box: Box, index: int, top: bool) -> arb:
    end = box.upper if (coefficient > 0) == top else box.lower
    return enclose(end[index]) * arb(coefficient)
