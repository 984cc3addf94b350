"""A formula prepared: extended over removable singularities, signs found, and shown to be defined on its box."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from transformula.budget import checkpoint, remembered, spend
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.definedness import find_defined
from transformula.compiler.evidence.range_trees import find_sign_tree
from transformula.compiler.lower.conjugates import conjugated
from transformula.compiler.lower.derivation_hints import Sign, extended_formula, signs_of
from transformula.compiler.lower.removable import without_removable
from transformula.errors import NotProvenError, RefutedError
from transformula.kernel.derivations.derivation_steps import parsed, split_quotient
from transformula.kernel.derivations.facts import Facts
from transformula.kernel.derivations.node_signs import NodeSigns
from transformula.kernel.enclosures.expression_ranges import open_nodes
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr, walk
from transformula.kernel.syntax.printing import short_text, to_text

#: Parts of the box that the search for one sign may look at.
_MAX_PARTS = 200
#: Terms of a sum that are written over one denominator.
_MOST_TERMS = 4
#: The sign of what is not zero.
_STRICT = 2


class _Search(Facts):
    """Facts that are tried one by one; those that cannot be proven are left out.

    Parameters
    ----------
    tried : dict
        Trees of signs by text, None where none was found: results of earlier searches.
    """

    def __init__(self, formula: Formula, tried: dict[str, list[int] | None]) -> None:
        super().__init__(Formula((), formula.box), {}, Evidence({}))
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
                tree = find_sign_tree(expr, self.region, seen, _MAX_PARTS)
            self.add_sign(expr, tree)
        except (NotProvenError, RefutedError):
            self.tried[text] = None
            return
        self.tried[text] = self.found[text] = tree


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prepared formula.

    ``extended`` is the formula extended by ``steps``, as they are stored, and ``written`` the same with roots that
    nearly cancel written by their conjugates. ``signs`` are the trees of proven signs, by text,
    ``known`` the nodes that are defined, ``tried`` the results of all searches for signs.
    """

    extended: Formula
    written: tuple[Expr, ...]
    steps: list[dict[str, Any]]
    signs: dict[str, list[int]]
    known: frozenset[Expr]
    tried: dict[str, list[int] | None]


@remembered(32)
def prepared(formula: Formula) -> Prepared:
    """Prepare a formula.

    Raises
    ------
    NotProvenError
        If it is not shown to be defined on its box: which part fails, where, and on which box it would not.
    """
    extended, steps = extended_formula(formula)
    written, facts = conjugated(extended.outputs, extended.box)
    search = _Search(extended, {})
    for sign in signs_of(written, extended.box, facts=facts):
        search.try_sign(sign.expr)
    for sign in signs_of(extended.outputs, extended.box) if written != extended.outputs else ():
        search.try_sign(sign.expr)
    for expr in extended.outputs:
        try:
            find_defined(expr, search.region, search.seen(expr))
        except NotProvenError as error:
            raise _with_a_limit(error, expr, extended.box) from None
        search.known |= frozenset(walk(expr))
    return Prepared(extended, written, steps, search.found, search.known, search.tried)


def _with_a_limit(error: NotProvenError, expr: Expr, box: Box) -> NotProvenError:
    """The refusal, with what to write if a sum of quotients in the formula has a limit: 1/tanh(x) - 1/x at 0."""
    region = Region.of_box(box)
    for node in walk(expr):
        quotients = [split_quotient(term) for term in node.args] if node.op == "add" else []
        numbers = {b for _, b in quotients if not b.names}
        below = list(dict.fromkeys(b for _, b in quotients if b.names))
        if len(below) < 2 or len(quotients) > _MOST_TERMS:
            continue
        above = [ex.mul(ex.div(a, b) if b in numbers else a, *(c for c in below if c != b)) for a, b in quotients]
        whole = ex.div(ex.add(*above), ex.mul(*below))
        try:
            find_defined(without_removable(whole, box), region)
        except NotProvenError:
            continue
        return NotProvenError(f"{error}; or write {short_text(whole)} if its limit is meant", place=error.place)
    return error


def _known(ground: Prepared) -> _Search:
    """A search that knows the signs of the formula."""
    search = _Search(ground.extended, ground.tried)
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
            raise NotProvenError(f"{short_text(expr):.80} cannot be compared with any circuit: {error}") from None


def proven_signs(candidates: Iterable[Sign], ground: Prepared) -> dict[str, list[int]]:
    """Trees of the signs that can be proven, by text, those of the formula itself first."""
    search = _known(ground)
    for sign in candidates:
        search.try_sign(sign.expr)
    return search.found
