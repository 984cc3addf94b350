"""What is proven of a formula on its box before anything else: signs, and that it is defined everywhere.

Removable singularities are removed first (`steps`). Then signs are proven one after the other on given parts
of the box and taken over by the normal forms. A node whose domain condition follows from them counts as defined;
all others, and the numerators of removed quotients, are shown to be defined part by part.
"""

from __future__ import annotations

from typing import Any

from transformula.kernel.derivations.derivation_steps import defined_nodes, extended, parsed
from transformula.kernel.derivations.node_signs import NodeSigns
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.expression_ranges import check_defined, open_nodes, sign_on
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr, walk

MAX_STEPS = 1_000


class Facts:
    """``formula`` extended, its ``region``, the ``algebra`` with all signs, and the nodes ``known`` to be defined."""

    def __init__(self, formula: Formula, data: Any, evidence: Evidence) -> None:
        self.region = Region.of_box(formula.box)
        self.algebra = Algebra(formula.box.variables)
        self.known: frozenset[Expr] = frozenset()
        steps, signs = (data.get(key, []) for key in ("extends", "signs"))
        if not isinstance(steps, list) or not isinstance(signs, list) or len(steps) + len(signs) > MAX_STEPS:
            raise RefutedError("the derivation in model.json cannot be read")
        outputs = formula.outputs
        self.numerators: list[Expr] = []
        for step in steps:
            outputs, numerator = extended(outputs, step, self.region.names, self.algebra)
            self.numerators.append(numerator)
        self.formula = Formula(outputs, formula.box)
        for index, text in enumerate(signs):
            expr = parsed(text, self.region.names)
            self.add_sign(expr, evidence.sign(index, expr, self.region, self.seen(expr)))
        for output, expr in enumerate(outputs):
            whole = expr if output else ex.add(expr, *self.numerators)
            seen = self.seen(whole)
            check_defined(whole, self.region, evidence.defined(output, whole, self.region, seen), seen)
            self.known |= frozenset(walk(expr))

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
