"""A formula prepared: extended over removable singularities, signs found, and shown to be defined on its box."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from transformula.budget import checkpoint, spend
from transformula.compiler import policy
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.definedness import find_apart, find_defined
from transformula.compiler.evidence.finder import FLOORS
from transformula.compiler.evidence.range_trees import find_sign_tree
from transformula.compiler.lower.additive import Decomposition, decompose
from transformula.compiler.lower.derivation_hints import as_nonnegative, extended_formula, has_quotients, signs_of
from transformula.compiler.lower.rewrites import conjugated
from transformula.errors import NotProvenError, RefutedError
from transformula.kernel.derivations.derivation_steps import Facts, NodeSigns
from transformula.kernel.derivations.extensions import parsed
from transformula.kernel.derivations.polynomials import NotPolynomialError, as_polynomial
from transformula.kernel.enclosures.balls import float_above
from transformula.kernel.enclosures.expression_ranges import open_nodes
from transformula.kernel.enclosures.intervals import try_range
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr, short_text, to_text, walk

if TYPE_CHECKING:
    from transformula.compiler.lower.corners import CornerForm
    from transformula.kernel.derivations.floors import Floors

#: Sign of an expression that is not zero anywhere.
_STRICT = 2


class SignSearch(Facts):
    """Facts tried one by one; facts that cannot be proven are left out.

    Parameters
    ----------
    tried : dict
        Trees of signs by text, None where none was found: results of earlier searches.
    squares : dict
        Sums of squares that show a sign of what they equal, by its text: results of earlier searches, too.
    """

    def __init__(self, formula: Formula, tried: dict[str, list[int] | None], squares: dict[str, Expr]) -> None:
        super().__init__(Formula((), formula.box), {}, Evidence({}))
        self.formula = formula
        self.found: dict[str, list[int]] = {}
        self.tried, self.squares = tried, squares

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
            if tree is None and any(node.op in ("sin", "cos") for node in walk(expr)):
                from transformula.compiler.lower.angle_squares import as_angle_squares  # few formulas need it

                squares = as_angle_squares(expr, as_nonnegative)
                if squares is not None:
                    self.squares[text], tree = squares, [-1]
            if tree is None:
                tree = find_sign_tree(expr, self.region, seen, policy.MOST_PIECES)
            self.take(expr, tree)
        except (NotProvenError, RefutedError):
            self.tried[text] = None
            return

    def take(self, expr: Expr, tree: list[int]) -> None:
        """Prove a sign on the leaves of a tree, of an expression or of the squares that it is."""
        text = to_text(expr)
        self.add_sign(self.squares.get(text, expr), tree, expr)
        self.tried[text] = self.found[text] = tree


class Prepared:
    """A formula as typed and all that is known of it, found when it is first asked for: polynomials need none."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self.floors: list[dict[str, Any]] = []
        self.parts: dict[str, list[int]] = {}  # that go with the floors

    @cached_property
    def corners(self) -> list[CornerForm]:
        """Quotients that are 0/0 somewhere, and seen to be continuous there."""
        if is_polynomial(self.formula) or not has_quotients(self.extension[0].outputs, self.formula.box):
            return []
        from transformula.compiler.lower.corners import corners_of  # few formulas need it

        found = []
        for corner in corners_of(self.extension[0].outputs, self.formula.box):
            with suppress(RefutedError):
                self.with_floors([corner.step(policy.FLOOR_BITS[-1])])
                found.append(corner)
        return found

    @property
    def nearest(self) -> Prepared:
        """The same with such low floors at its corners that nothing is seen of them, for the size of its values."""
        steps = [corner.step(policy.FLOOR_BITS[-1]) for corner in self.corners]
        return self.with_floors(steps)[0] if steps else self

    def floored(self, eps: float) -> Prepared:
        """The same with floors for bases that touch 0, as in x**y and x*y/(x + y), if it is close enough."""
        region = Region.of_box(self.formula.box)
        nodes = dict.fromkeys(node for expr in self.extension[0].outputs for node in walk(expr))
        tops = {node: top for node in nodes if (top := _top(node, region))}
        for bits in policy.FLOOR_BITS if tops or self.corners else ():
            steps = [{"of": to_text(node), "floor": str(Fraction(2) ** (math.frexp(top)[1] - bits))}
                     for node, top in tops.items()]  # fmt: skip
            new, floors = self.with_floors([*steps, *(corner.step(bits) for corner in self.corners)])
            known = frozenset(node for expr in (*floors.before, *floors.outputs) for node in walk(expr))
            parts = find_apart(floors, known, policy.APART * eps)
            if parts is not None:
                new.parts = {FLOORS: parts}
                return new
        return self

    def with_floors(self, steps: list[dict[str, Any]]) -> tuple[Prepared, Floors]:
        """The same with some floors."""
        from transformula.kernel.derivations.floors import Floors  # few formulas need it

        new, search = Prepared(self.formula), SignSearch(self.extension[0], {}, {})
        for name in self.formula.box.variables:
            search.try_sign(ex.variable(name))
        floors = Floors(self.extension[0].outputs, search.region, search.algebra)
        for step in steps:
            floors.add(step)
        new.extension, new.floors, new.extended = self.extension, steps, replace(self.extended, outputs=floors.outputs)
        return new, floors

    @cached_property
    def extension(self) -> tuple[Formula, list[dict[str, Any]]]:
        """The formula extended over removable singularities, and the steps as model.json stores them."""
        return extended_formula(self.formula)

    @cached_property
    def extended(self) -> Formula:
        """The formula extended over its removable singularities, with its floors."""
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
        return _proven_facts(self)

    @property
    def defined(self) -> Formula:
        """The extended formula, once it is shown to be defined on its box."""
        return self.facts.formula

    @property
    def signs(self) -> dict[str, list[int]]:
        """Trees of the proven signs, by text."""
        return self.facts.found

    def stored(self, signs: Iterable[str]) -> dict[str, Any]:
        """Steps, signs and floors as a stored circuit has them."""
        squares = self.facts.squares if signs else {}
        written = [[text, to_text(squares[text])] if text in squares else text for text in signs]
        return {"extends": self.steps, "signs": written, **({"floors": self.floors} if self.floors else {})}

    @property
    def derivation(self) -> dict[str, Any] | None:
        """Steps and signs as model.json stores them; None if there are none."""
        return self.stored(self.signs) if self.steps or self.signs else None


def _top(node: Expr, region: Region) -> float:
    """The largest base of a power whose exponent is no number, if the smallest is 0; else 0."""
    power = node.op == "pow" and node.args[1].number is None
    ends = try_range(node.args[0], region.ends) if power else None
    return float_above(ends[1]) if ends is not None and ends[0] == 0 else 0.0


def is_polynomial(formula: Formula) -> bool:
    """Whether every output is a polynomial."""
    try:
        for expr in formula.outputs:
            as_polynomial(expr, formula.box.variables)
    except NotPolynomialError:
        return False
    return True


def _proven_facts(ground: Prepared) -> SignSearch:
    """Signs that can be proven, and a proof that every output is defined on the box."""
    extended, (written, needed) = ground.extended, ground.conjugates
    search = SignSearch(extended, {}, {})
    candidates = signs_of(
        written, extended.box, facts=(*needed, *(base for corner in ground.corners for base in corner.signed))
    )
    candidates += signs_of(extended.outputs, extended.box) if written != extended.outputs else []
    for expr in candidates:
        search.try_sign(expr)
    outputs, region = dict.fromkeys((*ground.extension[0].outputs, *extended.outputs)), search.region
    if ground.floors:
        _, floors = ground.with_floors(ground.floors)
        outputs, region = dict.fromkeys((*floors.before, *floors.outputs)), floors.wider(search.known)
    for expr in outputs:
        find_defined(expr, region, search.seen(expr))
        search.known |= frozenset(walk(expr))
    return search


def _known(ground: Prepared) -> SignSearch:
    """A search that knows the signs of the formula."""
    search = SignSearch(ground.extended, ground.facts.tried, ground.facts.squares)
    for text, tree in ground.signs.items():
        search.take(parsed(text, search.region.names), tree)
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
