"""A formula prepared: extended over removable singularities, signs found, and shown to be defined on its box."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from transformula.budget import checkpoint, spend
from transformula.compiler import policy
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.definedness import find_defined
from transformula.compiler.evidence.range_trees import find_sign_tree
from transformula.compiler.lower.additive import Decomposition, decompose
from transformula.compiler.lower.derivation_hints import extended_formula, signs_of
from transformula.compiler.lower.removable import without_removable
from transformula.compiler.lower.rewrites import conjugated
from transformula.errors import NotProvenError, RefutedError
from transformula.kernel.derivations.derivation_steps import Facts, NodeSigns, parsed, split_quotient
from transformula.kernel.derivations.polynomials import NotPolynomialError, as_polynomial
from transformula.kernel.enclosures.expression_ranges import open_nodes
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr, short_text, to_text, walk

#: Sign of an expression that is not zero anywhere.
_STRICT = 2


class SignSearch(Facts):
    """Facts tried one by one; facts that cannot be proven are left out.

    Parameters
    ----------
    tried : dict
        Trees of signs by text, None where none was found: results of earlier searches.
    """

    def __init__(self, formula: Formula, tried: dict[str, list[int] | None]) -> None:
        super().__init__(Formula((), formula.box), {}, Evidence({}))
        self.formula = formula
        self.found: dict[str, list[int]] = {}
        self.tried = tried

    def try_sign(self, expr: Expr) -> None:
        """Learn a sign if it can be proven, and does not follow from others."""
        text = to_text(expr)
        if text in self.found or self.tried.get(text, ()) is None:
            return
        checkpoint()
        spend(costs.sign(expr, None))
        try:
            if abs(self.algebra.sign(self.algebra.of(expr))) == _STRICT:
                return
            tree, seen = self.tried.get(text), self.seen(expr)
            if tree is None and abs(NodeSigns(self.algebra).of(expr)) == _STRICT and not open_nodes(expr, seen):
                tree = [-1]
            if tree is None:
                tree = find_sign_tree(expr, self.region, seen, policy.LOOK_PARTS)
            self.add_sign(expr, tree)
        except (NotProvenError, RefutedError):
            self.tried[text] = None
            return
        self.tried[text] = self.found[text] = tree


class Prepared:
    """A formula with all that is known of it, each part found when it is first asked for: polynomials need none.

    Parameters
    ----------
    formula : Formula
        As typed.
    """

    def __init__(self, formula: Formula) -> None:
        self.formula = formula

    @cached_property
    def extension(self) -> tuple[Formula, list[dict[str, Any]]]:
        """The formula extended over removable singularities, and the steps as model.json stores them."""
        return extended_formula(self.formula)

    @property
    def extended(self) -> Formula:
        """The formula extended over its removable singularities."""
        return self.extension[0]

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps of the extension, as model.json stores them."""
        return self.extension[1]

    @cached_property
    def splits(self) -> tuple[Decomposition, ...]:
        """The outputs as sums: affine parts, absolute values, and parts that need tables."""
        return tuple(decompose(expr, self.formula.box.variables) for expr in self.extended.outputs)

    @property
    def is_polynomial(self) -> bool:
        """Whether every output is a polynomial, at least once it is extended."""
        return is_polynomial(self.formula) or is_polynomial(self.extended)

    @cached_property
    def conjugates(self) -> tuple[tuple[Expr, ...], Any]:
        """The outputs with roots that nearly cancel written by their conjugates, and the facts that this needs."""
        return conjugated(self.extended.outputs, self.extended.box)

    @property
    def written(self) -> tuple[Expr, ...]:
        """The outputs with roots that nearly cancel written by their conjugates."""
        return self.conjugates[0]

    @cached_property
    def facts(self) -> SignSearch:
        """The proven signs and the nodes that are defined.

        Raises
        ------
        NotProvenError
            If the formula is not shown to be defined on its box: which part fails, where, and on which box it would
            not.
        """
        return _proven_facts(self.extended, *self.conjugates)

    @property
    def defined(self) -> Formula:
        """The extended formula, once it is shown to be defined on its box."""
        return self.facts.formula

    @property
    def signs(self) -> dict[str, list[int]]:
        """Trees of the proven signs, by text."""
        return self.facts.found

    @property
    def derivation(self) -> dict[str, Any] | None:
        """Steps and signs as model.json stores them; None if there are none."""
        return {"extends": self.steps, "signs": list(self.signs)} if self.steps or self.signs else None


def is_polynomial(formula: Formula) -> bool:
    """Whether every output is a polynomial."""
    try:
        for expr in formula.outputs:
            as_polynomial(expr, formula.box.variables)
    except NotPolynomialError:
        return False
    return True


def _proven_facts(extended: Formula, written: tuple[Expr, ...], needed: Any) -> SignSearch:
    """Signs that can be proven, and a proof that every output is defined on the box."""
    search = SignSearch(extended, {})
    candidates = signs_of(written, extended.box, facts=needed)
    candidates += signs_of(extended.outputs, extended.box) if written != extended.outputs else []
    for expr in candidates:
        search.try_sign(expr)
    for expr in extended.outputs:
        try:
            find_defined(expr, search.region, search.seen(expr))
        except NotProvenError as error:
            raise _with_a_limit(error, expr, extended.box) from None
        search.known |= frozenset(walk(expr))
    return search


def _with_a_limit(error: NotProvenError, expr: Expr, box: Box) -> NotProvenError:
    """The refusal, with what to write if a sum of quotients in the formula has a limit: 1/tanh(x) - 1/x at 0."""
    region = Region.of_box(box)
    for node in walk(expr):
        quotients = [split_quotient(term) for term in node.args] if node.op == "add" else []
        numbers = {b for _, b in quotients if not b.names}
        below = list(dict.fromkeys(b for _, b in quotients if b.names))
        if len(below) < 2 or len(quotients) > policy.MOST_ORDER:
            continue
        above = [ex.mul(ex.div(a, b) if b in numbers else a, *(c for c in below if c != b)) for a, b in quotients]
        whole = ex.div(ex.add(*above), ex.mul(*below))
        try:
            find_defined(without_removable(whole, box), region)
        except NotProvenError:
            continue
        return NotProvenError(f"{error}; or write {short_text(whole)} if its limit is meant", place=error.place)
    return error


def _known(ground: Prepared) -> SignSearch:
    """A search that knows the signs of the formula."""
    search = SignSearch(ground.extended, ground.facts.tried)
    for text, tree in ground.signs.items():
        search.add_sign(parsed(text, search.region.names), tree)
        search.found[text] = tree
    return search


def check_length(ground: Prepared) -> None:
    """Refuse a formula whose normal form is too long before any table is solved: no circuit can be compared with it."""
    search = _known(ground)
    for expr in ground.extended.outputs:
        try:
            search.algebra.of(expr)
        except RefutedError as error:
            said = f"{short_text(expr):.80} cannot be compared with any circuit: {error}"
            raise NotProvenError(said, reason=error.reason) from None


def proven_signs(candidates: Iterable[Expr], ground: Prepared) -> dict[str, list[int]]:
    """Trees of the signs that can be proven, by text, those of the formula itself first."""
    search = _known(ground)
    for expr in candidates:
        search.try_sign(expr)
    return search.found
