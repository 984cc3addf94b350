"""Why the circuit is the formula: signs, domains that follow from signs, equal normal forms.

All functions of formulas are continuous where they are defined. The new formula is proven to be defined on the
whole box (`Facts`); hence it is the old one, continuously extended to zeros of B.

A sign may be proven of another expression, with the same normal form, also in shares, that is defined on the whole box:
of a sum of squares. The form has no divisor, for it would tell nothing where that vanishes: N/D is E > 0 wherever D is
not zero, but N = E D is not > 0 where it is.

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
from collections.abc import Mapping
from typing import Any

from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.extensions import extended, parsed, plus, same
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.derivations.polynomials import direction, product
from transformula.kernel.enclosures.expression_ranges import check_defined, open_nodes, sign_on
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.functions.function_table import domain_of, find
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr, short_text, walk


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
    above = domain.low is None or signs.of(plus(u, -domain.low)) >= least
    if above and u.op == "sqrt" and domain.high is not None and domain.high >= 0:
        u, domain = u.args[0], domain._replace(high=domain.high**2)  # √v <= h where v <= h², and √v < h where v < h²
    return above and (domain.high is None or signs.of(plus(ex.neg(u), domain.high)) >= least)


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
        self.formula = Formula(outputs, formula.box)
        for index, text in enumerate(signs):
            pair = text if isinstance(text, list) and len(text) == 2 else (text, text)
            of, expr = (parsed(each, self.region.names) for each in pair)
            self.add_sign(expr, evidence.sign(index, expr, self.region, self.seen(expr)), of)
        shown, region = self.formula.outputs, self.region
        whole = [*self.numerators]
        if lifted:
            from transformula.kernel.derivations.floors import Floors  # few formulas need it

            both = Floors(outputs, self.region, self.algebra)
            for step in lifted:
                both.add(step)
            shown, region, whole = (*both.before, *both.outputs), both.wider(self.known), [*whole, *both.whole]
        for output, expr in enumerate(shown):
            node = expr if output else ex.add(expr, *whole)
            seen = self.seen(node)
            check_defined(node, region, evidence.defined(output, node, region, seen), seen)
            self.known |= frozenset(walk(expr))
        if lifted:
            self.apart = both.distance(evidence.apart(both, self.known), self.known)
            self.formula = Formula(both.outputs, formula.box)

    def add_sign(self, expr: Expr, tree: Any, of: Expr | None = None) -> None:
        """Prove a sign, on the parts of a tree unless it follows from others; ``of`` is what has it, or the same."""
        seen = self.seen(expr)
        sign = NodeSigns(self.algebra).of(expr)
        if abs(sign) != 2 or open_nodes(expr, seen):
            sign = sign_on(expr, self.region, tree, seen)
        form = self.algebra.of(of or expr)
        if of not in (None, expr) and not (form.whole and same(of, expr, self.algebra)):
            raise RefutedError(f"{short_text(of)} is not seen to be {short_text(expr)}")
        self.algebra.learn(form, sign)
        self.known |= seen

    def seen(self, expr: Expr) -> frozenset[Expr]:
        """The nodes known to be defined, with those of an expression whose condition follows from the signs."""
        return self.known | defined_nodes(expr, self.algebra)
