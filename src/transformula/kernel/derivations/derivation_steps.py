"""Why the circuit is the formula: removable singularities, domains that follow from signs, equal normal forms.

*Removable singularities.* A step replaces a quotient S = A/B in the formula by E. It is checked that

* B is built of functions that are analytic on the whole line, or inside a domain in whose interior the range of
  their argument over the box lies. By continuity B is then analytic on an open connected set that holds the box, and
  it is not zero at a given point of the box: its zeros have measure zero, and the points of the box with B != 0 are
  dense in the box, whose intervals are no single points;
* A is defined on the whole box (`Facts`), so that S is defined wherever B is not zero: what is closed is no larger
  hole, such as x < 0 in (sin(x) + 0*log(x))/x;
* E*B and A have the same normal form, with f(u) written by the rests that are in E (`taylor_rests`), so E = S wherever
  E is defined and B is not zero;
* no exponent becomes a number: x**(y/y) is defined for x > 0 only, x**1 everywhere.

A step may also replace a product S = A log(u) by an E with xlogx(u) in it, which is u log(u) and 0 at u = 0. It is
checked that u is analytic as B is above and positive at the point, that A is defined on the whole box, and that E with
u log(u) for xlogx(u) has the normal form of S. E is proven to be defined on the box, so u >= 0 there, and u > 0, where
S is defined and equals E, on a dense set.

*Floors.* A step {"of": S, "floor": d} writes max(u, d)**v for a power S = u**v, d > 0. Where u >= d this is S; so on
each leaf of a tree either u >= d for every step, and both formulas are equal, or they differ by no more than their
ranges there, f in [a, b] and g in [c, d], do: |f - g| <= max(b - c, d - a). Both are proven to be defined on the whole
box. The largest of these, ``apart``, is added to the error of a circuit that is proven for the new formula.

All functions of formulas are continuous where they are defined. The new formula is proven to be defined on the
whole box (`Facts`); hence it is the old one, continuously extended to zeros of B.

Signs of the nodes of an expression: from those of its arguments, and of normal forms where these do not tell.

A sign is 2 (> 0), 1 (>= 0), -1, -2 or 0 (unknown), at every point of the box at which the node is defined: a
divisor is not zero there, and what stands under a root is not negative. A sum of terms >= 0, one of them > 0, is
> 0; signs of factors multiply; equal factors are a power. Normal forms multiply everything out and lose such
signs, but know those that are proven, and all that follows from cancellation.

What is proven of a formula on its box before anything else: signs, and that it is defined everywhere.

Removable singularities are removed first (`extended`). Then signs are proven one after the other on given parts
of the box and taken over by the normal forms. A node whose domain condition follows from them counts as defined;
all others, and the numerators of removed quotients, are shown to be defined part by part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from flint import arb, fmpq

from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.derivations.polynomials import direction, product
from transformula.kernel.enclosures.balls import enclose, float_above, to_fmpq, to_fraction
from transformula.kernel.enclosures.expression_ranges import check_defined, leaf_range, open_nodes, sign_on
from transformula.kernel.enclosures.intervals import Ends, try_range
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import FormulaError, RefutedError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.functions.function_table import domain_of, find, function_of
from transformula.kernel.functions.taylor_rests import first_terms, rest_named
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr, short_text, substitute, variables_of, walk
from transformula.kernel.syntax.parsing import parse


class NodeSigns:
    """Signs of nodes under what an algebra knows; ``names`` gives the forms of further variables."""

    def __init__(self, algebra: Algebra, names: Mapping[str, QuotientForm] | None = None) -> None:
        self.algebra, self.names = algebra, names
        self.forms: dict[Expr, QuotientForm] = {}
        self.known: dict[Expr, int] = {}

    def of(self, expr: Expr) -> int:
        """The sign of an expression."""
        for node in walk(expr):
            if node not in self.known:
                sign = self._node(node, [self.known[a] for a in node.args])
                self.known[node] = sign if abs(sign) == 2 else max(sign, self._form(node), key=abs)
        return self.known[expr]

    def _form(self, node: Expr) -> int:
        try:
            return self.algebra.sign(self.algebra.of(node, self.names, done=self.forms))
        except RefutedError:  # too large
            return 0

    def _node(self, node: Expr, args: list[int]) -> int:
        op = node.op
        if node.number is not None:
            return 2 * direction(node.number) or 1
        if op == "add":
            return max(args, key=abs) if min(args) > 0 or max(args) < 0 else 0
        if op == "mul":
            return product([(self.known[factor], count) for factor, count in Counter(node.args).items()])
        if op == "div":
            return product([(args[0], 1), (2 * direction(args[1]), 1)])
        if op == "pow":
            by = node.args[1].number
            if by is None or by.denominator != 1:
                return 2 if args[0] == 2 or (by is not None and by < 0) else 1
            sign = product([(args[0], int(by))])
            return sign if by > 0 else 2 * direction(sign)
        if op in ("sqrt", "abs"):
            return max(abs(args[0]), 1)
        if op in ("min", "max"):
            return min(args) if op == "min" else max(args)
        function = find(op)
        if function is None:
            return 2 if op == "constant" else 0
        return args[0] if function.odd else function.sign


_BITS = 256


def check_equal(output: int, expr: Expr, form: QuotientForm, algebra: Algebra) -> None:
    """Refuse a circuit's output whose form is not seen to be the formula's."""
    if not algebra.same(form, algebra.of(expr)):
        raise RefutedError(f"output {output + 1} of the circuit is not seen to be the formula {short_text(expr)}")


def defined_nodes(expr: Expr, algebra: Algebra, names: Mapping[str, QuotientForm] | None = None) -> frozenset[Expr]:
    """Nodes whose domain condition follows from known signs, at every point at which their arguments are defined."""
    signs = NodeSigns(algebra, names)
    return frozenset(node for node in walk(expr) if _follows(node, signs))


def _follows(node: Expr, signs: NodeSigns) -> bool:
    if node.op == "tan":
        return abs(signs.of(ex.call("cos", *node.args))) == 2
    domain = domain_of(node)
    if domain is None:
        return False
    u = node.args[domain.argument]
    if domain.low == domain.high == 0:  # a divisor
        return abs(signs.of(u)) == 2
    least = 2 if domain.open else 1
    above = domain.low is None or signs.of(_plus(u, -domain.low)) >= least
    return above and (domain.high is None or signs.of(_plus(ex.neg(u), domain.high)) >= least)


def _plus(expr: Expr, value: Fraction) -> Expr:
    return ex.add(expr, ex.number(value)) if value else expr


def extended(outputs: Sequence[Expr], step: Any, region: Region, algebra: Algebra) -> tuple[tuple[Expr, ...], Expr]:
    """The outputs after one step {"of": S, "is": E, "at": {variable: rational number}}, and the numerator A."""
    if not isinstance(step, Mapping) or set(step) != {"of", "is", "at"} or not isinstance(step["at"], Mapping):
        raise RefutedError("a step of a derivation has an of, an is and an at")
    old, new = (parsed(step[key], region.names) for key in ("of", "is"))
    nodes = {node for expr in outputs for node in walk(expr)}
    if old not in nodes:
        raise RefutedError(f"the formula has no {short_text(old)} to be extended")
    closed = _closed_log(old, new)
    above, below = closed or split_quotient(old)
    point = {name: _rational(text) for name, text in step["at"].items()}
    if not is_analytic(below, region.ends) or not variables_of(below) <= set(point) <= set(region.names):
        raise RefutedError(f"the zeros of {short_text(below)} are not seen to be of measure zero")
    if not all(low <= to_fmpq(point[name]) <= high for name, (low, high) in region.ends.items() if name in point):
        raise RefutedError("the point of a derivation lies outside the box")
    for node in walk(old):
        needs_sign = node.op == "log" or (node.op == "pow" and node.args[1].number is None)
        if needs_sign and _lies_inside(node.args[0], _ZERO, None, region.ends):
            algebra.learn(algebra.of(node.args[0]), 2)
    with precision(_BITS):
        value = enclose(below, {name: arb(to_fmpq(at)) for name, at in point.items()})
    if not (value > 0 or (value < 0 and closed is None)):
        raise RefutedError(f"{short_text(below)} is not seen to be other than zero at the point given")
    if closed is not None:
        whole = ex.mul(below, ex.call("log", below))
        same = algebra.same(algebra.of(substitute(new, {ex.call("xlogx", below): whole})), algebra.of(old))
    else:
        a, b = (algebra.of(substitute(part, _by_rests(new))) for part in (above, below))
        same = algebra.same(algebra.of(new) * b, a)
    if not same:
        raise RefutedError(f"{short_text(new)} is not seen to extend {short_text(old)}")
    exponents = [node.args[1] for node in nodes if node.op == "pow" and node.args[1].number is None]
    if any(substitute(exponent, {old: new}).number is not None for exponent in exponents):
        raise RefutedError(f"an exponent with {short_text(old)} in it would become a number, which has another domain")
    return tuple(substitute(expr, {old: new}) for expr in outputs), above


def floored(outputs: Sequence[Expr], step: Any, region: Region) -> tuple[tuple[Expr, ...], Expr]:
    """The outputs after one step {"of": u**v, "floor": d}, and u - d."""
    if not isinstance(step, Mapping) or set(step) != {"of", "floor"}:
        raise RefutedError("a floor of a derivation has an of and a floor")
    old, least = parsed(step["of"], region.names), _rational(step["floor"])
    if old.op != "pow" or not least > 0:
        raise RefutedError("only the base of a power has a floor, which is positive")
    base, by = old.args
    new = ex.power(ex.call("max", base, ex.number(least)), by)
    return tuple(substitute(expr, {old: new}) for expr in outputs), _plus(base, -least)


def distance(pairs: Sequence[tuple[Expr, Expr]], above: Sequence[Expr], region: Region, tree: Any, known: Any) -> float:
    """A bound of |f - g| for pairs that are equal wherever all of ``above`` are >= 0; all nodes are known."""
    worst = fmpq(0)
    for lower, upper in zip(*(ends.T for ends in region.leaves(tree)), strict=True):
        if all(leaf_range(expr, region, lower, upper, known)[0] >= 0 for expr in above):
            continue
        for pair in pairs:
            (a, b), (c, d) = (leaf_range(expr, region, lower, upper, known) for expr in pair)
            worst = max(worst, b - c, d - a)
    return float_above(worst)


def _closed_log(old: Expr, new: Expr) -> tuple[Expr, Expr] | None:
    """A and u, if a product is A log(u) and xlogx(u) stands in what replaces it."""
    made = {node.args[0] for node in walk(new) if node.op == "xlogx"}
    logs = [f for f in old.args if f.op == "log" and f.args[0] in made] if old.op == "mul" else []
    return (ex.mul(*(f for f in old.args if f is not logs[0])), logs[0].args[0]) if len(logs) == 1 else None


def _by_rests(expr: Expr) -> dict[Expr, Expr]:
    """f(u) = P(u) + (u - a)**m rest(u), for every rest in an expression: true wherever f(u) is defined."""
    found = {}
    for node in walk(expr):
        rest = rest_named(node.op)
        terms = rest and first_terms(function_of(rest.base), rest.at, rest.order)
        if rest and terms:
            d, (u,) = _plus(node.args[0], Fraction(-rest.at)), node.args
            parts = [ex.mul(ex.number(to_fraction(c)), ex.power(d, ex.number(j))) for j, c in enumerate(terms) if c]
            found[ex.call(rest.base, u)] = ex.add(*parts, ex.mul(ex.power(d, ex.number(rest.order)), node))
    return found


_ZERO = Fraction(0)
#: Functions that are analytic in the interior of their domains, which are intervals.
_ANALYTIC_INSIDE = ("log", "sqrt", "asin", "acos")


def is_analytic(expr: Expr, ends: Mapping[str, Ends]) -> bool:
    """Whether an expression with variables is real-analytic on an open connected set that holds a box."""
    good: dict[Expr, bool] = {}
    for node in walk(expr):
        if not variables_of(node):
            good[node] = bool(_constant(node).is_finite())
        else:
            good[node] = all(good[a] for a in node.args) and _keeps_analytic(node, ends)
    return good[expr] and bool(variables_of(expr))


def _keeps_analytic(node: Expr, ends: Mapping[str, Ends]) -> bool:
    """Whether a node of analytic arguments is analytic."""
    if node.op in ("variable", "add", "mul"):
        return True
    if node.op == "div":
        return _avoids_zero(node.args[1], ends)
    if node.op == "pow":
        base, by = node.args[0], node.args[1].number
        if by is None or by.denominator != 1:
            return _lies_inside(base, _ZERO, None, ends)
        return by >= 0 or _avoids_zero(base, ends)
    function = find(node.op)
    if function is None or function.analytic:
        return function is not None
    return node.op in _ANALYTIC_INSIDE and _lies_inside(node.args[0], function.low, function.high, ends)


def _avoids_zero(expr: Expr, ends: Mapping[str, Ends]) -> bool:
    return _lies_inside(expr, _ZERO, None, ends) or _lies_inside(expr, None, _ZERO, ends)


def _lies_inside(expr: Expr, low: Fraction | None, high: Fraction | None, ends: Mapping[str, Ends]) -> bool:
    """Whether low < expr < high on the whole box, by its range."""
    found = try_range(expr, ends)
    if found is None:
        return False
    return (low is None or bool(to_fmpq(low) < found[0])) and (high is None or bool(found[1] < to_fmpq(high)))


def _constant(expr: Expr) -> arb:
    with precision(_BITS):
        return enclose(expr, {})


def split_quotient(expr: Expr) -> tuple[Expr, Expr]:
    """Numerator and denominator of a quotient, a negative power, or a product with such factors."""
    if expr.op == "mul":
        parts = [split_quotient(factor) for factor in expr.args]  # factors of a flat product are no products
        return ex.mul(*(a for a, _ in parts)), ex.mul(*(b for _, b in parts))
    if expr.op == "div":
        return expr.args[0], expr.args[1]
    by = expr.args[1].number if expr.op == "pow" else None
    if by is not None and by.denominator == 1 and by < 0:
        return ex.number(1), ex.power(expr.args[0], ex.number(-by))
    return expr, ex.number(1)


def parsed(text: Any, names: Sequence[str]) -> Expr:
    """An expression of a derivation."""
    try:
        return parse(text, names)
    except FormulaError as error:
        raise RefutedError(f"an expression of a derivation cannot be read: {error}") from None


def _rational(text: Any) -> Fraction:
    value = parsed(text, ()).number
    if value is None:
        raise RefutedError("the point of a derivation is given by rational numbers")
    return value


MAX_STEPS = 1_000


class Facts:
    """``formula`` extended, its ``region``, the ``algebra`` with all signs, and the nodes ``known`` to be defined.

    With ``floors`` it is up to ``apart`` away from the formula; rules that do not add this take none.
    """

    apart = 0.0

    def __init__(self, formula: Formula, data: Any, evidence: Evidence, floors: bool = False) -> None:
        self.region = Region.of_box(formula.box)
        self.algebra = Algebra(formula.box.variables)
        self.known: frozenset[Expr] = frozenset()
        steps, signs, lifted = given = [data.get(key, []) for key in ("extends", "signs", "floors")]
        if not all(isinstance(each, list) for each in given) or sum(map(len, given)) > MAX_STEPS:
            raise RefutedError("the derivation in model.json cannot be read")
        if lifted and not floors:
            raise RefutedError("a power whose base touches 0, such as x**y from x = 0, is not taken here")
        outputs = formula.outputs
        self.numerators: list[Expr] = []
        for step in steps:
            outputs, numerator = extended(outputs, step, self.region, self.algebra)
            self.numerators.append(numerator)
        self.formula, before, above = Formula(outputs, formula.box), outputs, list[Expr]()
        for index, text in enumerate(signs):
            expr = parsed(text, self.region.names)
            self.add_sign(expr, evidence.sign(index, expr, self.region, self.seen(expr)))
        for step in lifted:
            outputs, least = floored(outputs, step, self.region)
            above.append(least)
        for output, expr in enumerate((*before, *outputs) if lifted else outputs):
            whole = expr if output else ex.add(expr, *self.numerators)
            seen = self.seen(whole)
            check_defined(whole, self.region, evidence.defined(output, whole, self.region, seen), seen)
            self.known |= frozenset(walk(expr))
        if lifted:
            pairs = [*zip(before, outputs, strict=True)]
            tree = evidence.apart(pairs, above, self.region, self.known)
            self.apart = distance(pairs, above, self.region, tree, self.known)
            self.formula = Formula(outputs, formula.box)

    def add_sign(self, expr: Expr, tree: Any) -> None:
        """Prove a sign, on the parts of a tree unless it follows from others, and take it over."""
        seen = self.seen(expr)
        sign = NodeSigns(self.algebra).of(expr)
        if abs(sign) != 2 or open_nodes(expr, seen):
            sign = sign_on(expr, self.region, tree, seen)
        self.algebra.learn(self.algebra.of(expr), sign)
        self.known |= seen

    def seen(self, expr: Expr) -> frozenset[Expr]:
        """The nodes known to be defined, with those of an expression whose condition follows from the signs."""
        return self.known | defined_nodes(expr, self.algebra)
