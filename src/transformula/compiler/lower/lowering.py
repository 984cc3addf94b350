"""Any formula as a circuit: sums are wires joined linearly, everything else is a table or a ReLU.

A *wire* is an input, a table f(u) of one argument, or ReLU(u); an argument u is a linear combination of
earlier wires. The rewriting uses identities only:

* a sub-expression that depends on the inputs through one linear form, or through one inner
  sub-expression, is one table (exp(−θ²/2) is one);
* a product of powers has equal bases merged, factors of the same form fused, and the rest multiplied
  pairwise, least deep first, by  ab = a₀b + b₀a − a₀b₀ + ((a−a₀ + λ(b−b₀))² − (a−a₀ − λ(b−b₀))²) / 4λ
  with any a₀, b₀ and λ > 0: two tables of the square;
* c·Πb^e · g(v), v itself a product Πb^f, may be written c·Πb^{e−af} · v^a g(v): x/(exp(x/y) − 1) is
  y · u/(exp(u) − 1) with u = x/y, whose factors are no larger than the product;
* f(c·Πb^e) with positive b may be read as f(exp(u)) at u = log c + Σ e log b: relative errors stay relative, and
  sums of quotients, whose normal forms may be too long, do not come up;
* a length √(a² + b²) whose square may come close to zero can be made of ReLUs (`stored_circuit`): the only step
  that is no identity;
* |u| = ReLU(u) + ReLU(−u), max(u, v) = v + ReLU(u − v), min(u, v) = u − ReLU(u − v), and a non-smooth
  function is a smooth one of abs, min or max computed first; of several, max is that of the first half's
  and the second half's, as in the kernel's normal form;
* u^v = exp(v log u).

Every wire carries its *meaning*, the expression in the inputs that it stands for. The choice of a₀, b₀, λ and of a is
left to the caller, since it changes accuracy, not correctness.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from transformula.compiler.lower.additive import (
    as_part,
    depends_through,
    is_nonsmooth,
    narrowest,
    smooth_outside,
    with_argument,
    without_cancelled,
)
from transformula.compiler.lower.factors import (
    as_squares,
    complemented,
    distributed,
    factors_of,
    product_of,
    radicand,
    root_of,
)
from transformula.compiler.lower.lowered_circuit import (
    ARGUMENT,
    ONE,
    ZERO,
    CircuitBuilder,
    Combination,
    Guide,
    LoweredCircuit,
    combined,
    constant_of,
    has_slot,
)
from transformula.compiler.lower.rewrites import domain_ends, factored
from transformula.errors import NotProvenError
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.structures.stored_circuit import SQUARE, LinearForm, Measure, single
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, substitute, variables_of, walk

_ARC_SINE = ex.call("asin", ARGUMENT)
_LOG = ex.call("log", ARGUMENT)
_MINUS_ONE = ex.number(-1)
_SQUARES = (SQUARE, ex.power(ex.neg(ARGUMENT), ex.number(2)))


class _Lowering(CircuitBuilder):
    """Adds the wires of expressions to a circuit, each once."""

    def __init__(self, variables: Sequence[str], guide: Guide) -> None:
        super().__init__(variables, guide)
        self._known: dict[Expr, Combination] = {}

    def lower(self, expr: Expr) -> Combination:
        """The expression as a combination of wires, which are added where they are missing."""
        if expr not in self._known:
            self._known[expr] = self._lower(expr)
        return self._known[expr]

    def _lower(self, expr: Expr) -> Combination:
        if not variables_of(expr):
            return constant_of(expr)
        if expr.op == "variable":
            return Combination(single(self.variables.index(str(expr.value))), expr)
        if expr.op == "add":
            return combined([(ONE, self.lower(a)) for a in expr.args], expr)
        if expr.op == "abs":
            return combined([(ONE, self.absolute(self.lower(expr.args[0])))], expr)
        if expr.op in ("min", "max"):
            return combined([(ONE, self.extreme(expr.op, [self.lower(a) for a in expr.args]))], expr)
        if expr.op in ("mul", "div", "pow"):
            return self._product_of(expr)
        return self._table_of(expr)

    def _table_of(self, expr: Expr) -> Combination:
        """f of one linear form of the inputs, or of one inner sub-expression."""
        inside = radicand(expr)
        root = None if inside is None else root_of(inside)
        if root is not None:  # √p² = |p|, and p itself if that is a square
            size = root if root_of(root) is not None else ex.call("abs", root)
            return combined([(ONE, self.lower(size))], expr)
        corner = smooth_outside(expr)
        if corner is not None:
            return self._function_of(with_argument(expr, corner, ARGUMENT), corner)
        part = as_part(expr, self.variables)
        if len(part.forms) == 1:
            terms = tuple((k, ex.number(v)) for k, v in enumerate(part.forms[0]) if v)
            inner = ex.add(*(ex.mul(c, ex.variable(self.variables[k])) for k, c in terms))
            argument = Combination(LinearForm(terms, ZERO), inner)
            function = substitute(part.expr, {ex.variable("u1"): ARGUMENT})
            if function in _SQUARES:
                return self.square(argument)
            ends = set(domain_ends(function)) - {None, Fraction(0)}  # from 0 a form is measured as it is
            return self._looked_up(function, argument) if ends else self.table(function, argument)
        length = self._length_in(expr)
        if length is not None:
            return length
        through = narrowest(expr)
        if through is None:
            raise NotProvenError(f"{expr} could not be taken apart into functions of one argument")
        function = with_argument(expr, through, ARGUMENT)
        if function in _SQUARES:
            return self.square(self.lower(through))
        return self._function_of(function, through)

    def _function_of(self, function: Expr, inner: Expr) -> Combination:
        """f(v), by way of log v if v is u**w, or a product and the guide asks for that.

        Not if a factor is non-smooth: then the normal form may not recognise that exp(log b) is b.
        """
        if inner.op == "pow" and inner.args[1].number is None:
            argument = self.lower(_log_of(inner))
            table = self.table(substitute(function, {ARGUMENT: ex.call("exp", ARGUMENT)}), argument)
            return combined([(ONE, table)], substitute(function, {ARGUMENT: inner}))
        constant, powers = factors_of(inner) if inner.op in ("mul", "div") else (ONE, {})
        sign = 1 if enclose(constant) > 0 else -1 if enclose(constant) < 0 else 0
        alone = function == _LOG
        if len(powers) < 2 or not sign or any(map(is_nonsmooth, powers)) or not self.guide.in_logs(list(powers), alone):
            return self._looked_up(function, self.lower(inner))
        shift = ex.call("log", ex.mul(ex.number(sign), constant))
        parts = [(ex.number(e), self.lower(_log_of(b))) for b, e in powers.items()]
        size = ex.call("log", ex.mul(ex.number(sign), inner))
        argument = combined(parts, size, plus=shift)
        if alone:  # then that is all
            return argument
        back = ex.mul(ex.number(sign), ex.call("exp", ARGUMENT))
        table = self.table(substitute(function, {ARGUMENT: back}), argument)
        return combined([(ONE, table)], substitute(function, {ARGUMENT: inner}))

    def _length_in(self, expr: Expr) -> Combination | None:
        """A function of a length, or the length itself, if it is to be measured by ReLUs."""
        for node in walk(expr):
            inside = radicand(node)
            squares = None if inside is None else as_squares(inside)
            if inside is None or squares is None or not depends_through(expr, node):
                continue
            measure = self.guide.measure(inside)
            if measure is not None:
                length = self._length(squares, measure)
                function = substitute(expr, {node: ARGUMENT})
                return length if node is expr else self._looked_up(function, length)
        return None

    def _length(self, parts: Sequence[Expr], measure: Measure) -> Combination:
        """√(a² + b² + ..), two at a time; numbers among the parts go into a table of the length of the others."""
        sides = [self.lower(part) for part in parts]
        held = [side for side in sides if side.is_constant]
        result, *moving = [side for side in sides if not side.is_constant] or sides
        for side in moving:
            result = self.norm(result, side, measure)
        if not held or result.is_constant:
            return result
        squares = [ex.power(side, ex.number(2)) for side in (ARGUMENT, *(side.form.constant for side in held))]
        return self.table(ex.power(ex.add(*squares), ex.number(Fraction(1, 2))), result)

    def _looked_up(self, function: Expr, argument: Combination) -> Combination:
        """f(u), read at its distance from the end of f's domain where errors might carry u beyond that.

        With d = ReLU(u − low), f(u) = f(low + d): d never falls below 0, and close to the end it is small, so that
        rounding does little harm to a steep table there. With two such ends and m between them, f(u) = f(max(u, m)) +
        f(min(u, m)) − f(m), each with one. Wherever the formula is defined this is an identity.
        """
        wanted = self.guide.clamp(function, argument.meaning)
        low, high = (end if want else None for end, want in zip(domain_ends(function), wanted, strict=True))
        if low == 0 and self._is_relu_sum(argument):
            low = None  # it never falls below 0 as it is
        if low is None and high is None:
            return self.table(function, argument)
        if low is None or high is None:
            return self._at_distance(function, argument, low, high)
        middle = ex.number((low + high) / 2)
        excess = self.relu(combined([(ONE, argument)], ex.add(argument.meaning, ex.neg(middle)), plus=ex.neg(middle)))
        above = combined([(ONE, excess)], ex.call("max", argument.meaning, middle), plus=middle)
        below = combined([(ONE, argument), (_MINUS_ONE, excess)], ex.call("min", argument.meaning, middle))
        common = substitute(function, {ARGUMENT: middle})
        sides = [self._at_distance(function, below, low, None), self._at_distance(function, above, None, high)]
        meaning = substitute(function, {ARGUMENT: argument.meaning})
        return combined([(ONE, side) for side in sides], meaning, plus=ex.neg(common))

    def _is_relu_sum(self, argument: Combination) -> bool:
        """Whether it is a sum of ReLUs."""
        return argument.form.constant.number == 0 and all(
            has_slot(self.wires[k]) and self.wires[k].function is None and (c.number or 0) > 0
            for k, c in argument.form.terms
        )

    def _at_distance(
        self, function: Expr, argument: Combination, low: Fraction | None, high: Fraction | None
    ) -> Combination:
        """f(low + d) with d = ReLU(u − low), or f(high − d) with d = ReLU(high − u).

        The arc sine is odd: at its lower end it is −f(−low − d), so that one table serves both ends.
        """
        end, sign = (low, 1) if low is not None else (high, -1)
        odd = low is not None and function == _ARC_SINE
        assert end is not None
        shift = ex.number(-sign * end)
        meaning = ex.add(ex.mul(ex.number(sign), argument.meaning), shift)
        distance = combined([(ex.number(sign), argument)], meaning, plus=shift)
        flip = -1 if odd else 1
        inside = ex.add(ex.number(flip * end), ex.mul(ex.number(flip * sign), ARGUMENT))
        moved = factored(substitute(function, {ARGUMENT: inside}))
        return combined(
            [(ex.number(flip), self.table(moved, self.relu(distance)))],
            substitute(function, {ARGUMENT: argument.meaning}),
        )

    def _product_of(self, expr: Expr) -> Combination:
        constant, powers = factors_of(expr)
        constant, powers = complemented(constant, powers, self.guide.complements)
        powers = distributed(powers, self.guide.divides, self.guide.divides_always())
        constant, powers = self._without_cancelled(constant, powers)
        exchanged = self._exchanged(powers)
        if exchanged is not None:
            factor, powers, function, inner = exchanged
            constant = ex.mul(constant, factor)
        logs = self.guide.by_logs([base for base in powers if not is_nonsmooth(base)])
        fused: dict[object, Expr] = {}
        for base, exponent in powers.items():
            if base in logs:
                continue
            factor = ex.power(base, ex.number(exponent))
            part = as_part(factor, self.variables)
            key = part.forms if len(part.forms) == 1 else factor
            fused[key] = ex.mul(fused[key], factor) if key in fused else factor
        factors = [self._factor(f) for f in fused.values()]
        if logs:
            factors.append(self._by_logs({base: powers[base] for base in logs}))
        if exchanged is not None:
            factors.append(self._function_of(function, inner))
        while len(factors) > 1:
            factors.sort(key=self.ready)
            factors = [*factors[2:], self.times(factors[0], factors[1])]
        product = factors[0] if factors else constant_of(ONE)
        return combined([(constant, product)], expr)

    def _by_logs(self, powers: dict[Expr, Fraction]) -> Combination:
        """Πb^e as exp(Σ e log b)."""
        meaning = product_of(ONE, powers)
        parts = [(ex.number(e), self.lower(_log_of(b))) for b, e in powers.items()]
        table = self.table(ex.call("exp", ARGUMENT), combined(parts, ex.call("log", meaning)))
        return combined([(ONE, table)], meaning)

    def _without_cancelled(self, constant: Expr, powers: dict[Expr, Fraction]) -> tuple[Expr, dict[Expr, Fraction]]:
        """The same product, for when multiplying out has made all variables of a base cancel (x*(y/x - y/x))."""
        kept: dict[Expr, Fraction] = {}
        for base, exponent in powers.items():
            short = without_cancelled(base, self.variables)
            if variables_of(short):
                kept[short] = kept.get(short, Fraction(0)) + exponent
            else:
                constant = ex.mul(constant, ex.power(short, ex.number(exponent)))
        return constant, kept

    def _exchanged(self, powers: dict[Expr, Fraction]) -> tuple[Expr, dict[Expr, Fraction], Expr, Expr] | None:
        """(constant, the other powers, v^a g in u, v) where g(v) is one of the powers, if that is wanted."""
        for base, exponent in powers.items():
            factor = ex.power(base, ex.number(exponent))
            if base.op in ("variable", "mul", "div", "pow") or len(as_part(factor, self.variables).forms) == 1:
                continue
            inner = narrowest(factor)
            if inner is None or inner.op not in ("mul", "div", "pow"):
                continue
            share, inside = factors_of(inner)
            by = next((powers[b] / e for b, e in inside.items() if b in powers), Fraction(0))
            if not by or by.denominator != 1 or base in inside:
                continue
            others = {b: powers.get(b, Fraction(0)) - by * inside.get(b, 0) for b in (*powers, *inside)}
            others = {b: e for b, e in others.items() if e and b is not base}
            g = with_argument(factor, inner, ARGUMENT)
            function = ex.mul(ex.power(ARGUMENT, ex.number(by)), g)
            before = [ex.power(b, ex.number(e)) for b, e in powers.items()]
            after = [ex.power(b, ex.number(e)) for b, e in others.items()]
            if self.guide.exchange(before, after, function, inner):
                return ex.power(share, ex.number(-by)), others, function, inner
        return None

    def _factor(self, expr: Expr) -> Combination:
        if expr.op in ("mul", "div", "pow"):
            if expr.op == "pow" and expr.args[1].number is None:
                base, exponent = expr.args
                return self.lower(ex.call("exp", ex.mul(exponent, ex.call("log", base))))
            return self._table_of(expr)
        return self.lower(expr)


def _log_of(base: Expr) -> Expr:
    """The logarithm of a base, of an exponential the exponent."""
    if base.op == "exp":
        return base.args[0]
    return ex.mul(base.args[1], ex.call("log", base.args[0])) if base.op == "pow" else ex.call("log", base)


def build_circuit(outputs: Sequence[Expr], variables: Sequence[str], guide: Guide) -> LoweredCircuit:
    """Lower every output into one circuit; common sub-expressions are computed once.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> from transformula.compiler.lower.lowered_circuit import Guide
    >>> lowered = build_circuit([parse("x*y + sin(x + 2*y)")], ("x", "y"), Guide())
    >>> [str(wire.function) for wire in lowered.circuit.wires if wire.function is not None], lowered.layers
    (['u**2', 'u**2', 'sin(u)'], 1)
    """
    lowering = _Lowering(variables, guide)
    return lowering.finished([lowering.lower(without_cancelled(expr, lowering.variables)) for expr in outputs])
