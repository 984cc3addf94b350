"""Floors: a formula that differs from the given one where it touches 0, and how far apart the two are.

*Powers.* A step {"of": S, "floor": d} writes G = max(u, d)**v for a power S = u**v, d > 0. Where u >= d this is S.

*Corners.* A step {"of": S, "is": G, "within": [E, ..], "at": point} writes G for a quotient S = A/B that is continuous
where B vanishes, such as x*y/(x + y) from 0. It is checked that

* the points of the box with B != 0 are dense in it (`extensions`);
* A, B and all E are defined on the whole box (`Facts`), hence continuous there;
* E**2 B**2 - A**2 >= 0 on the box for every E, by proven signs: |S| <= |E| wherever B != 0;
* one of the E has all factors of B, but for roots, numbers and exponents, so it is zero wherever B is;
* G has some variables x as max(x, d) only, each with one number d below the end of its interval, and with x for
  every max(x, d) it has the normal form of S.

So S, continued by 0 to the zeros of B, is continuous on the box, and |S| <= |E| everywhere. It is the only continuous
extension of S, and S >= 0 if A B >= 0. Let p replace every such x by max(x, d). It maps the box onto the box P of its
points with all x >= d, and is the identity on P. There S = G at the points with B != 0, which are dense in P, hence
everywhere on P; and G(x) = G(p(x)) = S(p(x)) on the whole box, so |G| <= |E| at p(x).

In the formula, f(x, S), a variable s takes the place of S. It is proven to be defined for all x in the box and every s
that the E leave there, |s| <= |E|, and s >= 0 if S is. So f(x, S(x)) is continuous on the box, and the only continuous
extension of what was typed.

*Distance.* Where all x >= d and all u >= d, both formulas are equal. The leaves of a tree cover the box; points of a
leaf with an x < d are in its slabs {x <= d}. There, f in [a, b] and g in [c, d], |f - g| <= max(b - c, d - a); so it is
on the leaf if a u may be < d. The ranges of S and G are those that the E and their values at p(x) leave. If g is f
with G for every s, then by the mean value theorem also |f - g| <= sum of sup |df/ds| sup |S - G|, the first over the
leaf and all values between those of s and G there, the second over the slabs of that corner. Both formulas are proven
to be defined on the whole box. The largest bound, ``apart``, is added to the error of a circuit that is proven for g.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from flint import arb, fmpq

from transformula.kernel.derivations.extensions import parsed, plus, rational, same, sign_at, split_quotient, stem
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import float_above, from_float, partial, round_up, to_fmpq
from transformula.kernel.enclosures.intervals import Ends, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import RefutedError, SingularError
from transformula.kernel.functions.elementary_functions import abs_ends
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, short_text, substitute, walk


class Corner(NamedTuple):
    """The variable s of a quotient, its G, the floors of variables in G, the E, and whether S >= 0."""

    name: str
    new: Expr
    floors: Mapping[str, fmpq]
    within: tuple[Expr, ...]
    nonnegative: bool

    def range(self, ends: Mapping[str, Ends], known: Container[Expr], moved: bool = False) -> Ends:
        """The range of S, or of G if ``moved``."""
        raised = [(n, [max(end, d) for end in ends[n]]) for n, d in self.floors.items()] if moved else []
        image = {**ends, **{n: (a, b) for n, (a, b) in raised}}
        most = min(abs_ends(*range_of(e, image, known))[1] for e in self.within)
        return fmpq(0) if self.nonnegative else -most, most


class Floors:
    """Formulas ``before`` and after the steps; ``above`` are the u - d, ``whole`` has to be defined on the whole box.

    Those before have a variable for each of ``corners``.
    """

    def __init__(self, outputs: tuple[Expr, ...], region: Region, algebra: Algebra) -> None:
        self.before = self.outputs = outputs
        self.region, self.algebra = region, algebra
        self.above: list[Expr] = []
        self.corners: list[Corner] = []
        self.whole: list[Expr] = []

    def add(self, step: Any) -> None:
        """Take one step."""
        keys = set(step) if isinstance(step, Mapping) and isinstance(step.get("within", []), list) else set()
        if keys not in ({"of", "floor"}, {"of", "is", "within", "at"}):
            raise RefutedError("a floor of a derivation has an of and a floor, or an of, an is, a within and an at")
        old = parsed(step["of"], self.region.names)
        if "is" in step:
            new = parsed(step["is"], self.region.names)
            self._add_corner(old, new, step)
        else:
            least = rational(step["floor"])
            if old.op != "pow" or not least > 0:
                raise RefutedError("only the base of a power has a floor, which is positive")
            new = ex.power(ex.call("max", old.args[0], ex.number(least)), old.args[1])
            self.above.append(plus(old.args[0], -least))
        self.outputs = tuple(substitute(expr, {old: new}) for expr in self.outputs)

    def _add_corner(self, old: Expr, new: Expr, step: Mapping[str, Any]) -> None:
        a, b = split_quotient(old)
        within = tuple(parsed(text, self.region.names) for text in step["within"])
        if not sign_at(b, step["at"], self.region):
            raise RefutedError(f"{short_text(b)} is not seen to be other than zero at the point given")
        if not any(_factors(b) <= _factors(e) for e in within):
            raise RefutedError(f"no bound of {short_text(old)} is seen to be zero where {short_text(b)} is")
        for e in within:
            if self._sign(ex.add(ex.mul(e, e, b, b), ex.neg(ex.mul(a, a)))) < 1:
                raise RefutedError(f"{short_text(old)} is not seen to be within {short_text(e)}")
        pairs = [node for node in walk(new) if node.op == "max" and len(node.args) == 2]
        floored = {node: u for node in pairs for u, d in [node.args] if u.op == "variable" and d.number is not None}
        floors = {str(u.value): to_fmpq(node.args[1].number or Fraction(0)) for node, u in floored.items()}
        rest = substitute(new, dict.fromkeys(floored, ex.variable("#")))
        below = all(d < self.region.ends[name][1] for name, d in floors.items())
        if len(floors) < len(floored) or not rest.names.isdisjoint(floors) or not below:
            raise RefutedError(f"{short_text(new)} has no floors of variables")
        if not same(old, substitute(new, floored), self.algebra):
            raise RefutedError(f"{short_text(new)} without its floors is not seen to be {short_text(old)}")
        self.whole += [a, b, *within]
        nonnegative = self._sign(ex.mul(a, b)) >= 1
        self.corners.append(Corner(f"#s{len(self.corners)}", new, floors, within, nonnegative))
        swap = {old: ex.variable(self.corners[-1].name)}
        self.before = tuple(substitute(expr, swap) for expr in self.before)

    def _sign(self, expr: Expr) -> int:
        return self.algebra.sign(self.algebra.of(expr))

    def values(self, ends: Mapping[str, Ends], known: Container[Expr], moved: bool = False) -> dict[str, Ends]:
        """The intervals of a part of the box, and the range of every S on it, or of every G if ``moved``."""
        return {**ends, **{corner.name: corner.range(ends, known, moved) for corner in self.corners}}

    def wider(self, known: Container[Expr]) -> Region:
        """The box, with an interval for the variable of every corner."""
        found = self.values(self.region.ends, known)
        return Region(tuple(found), *zip(*found.values(), strict=True))

    def apart_on(self, lower: Sequence[float], upper: Sequence[float], known: Container[Expr]) -> fmpq:
        """A bound of |f - g| on a leaf; all nodes are known."""
        leaf, slabs, off = self.region.exact(lower, upper), list[dict[str, Ends]](), dict[str, fmpq]()
        for name, _, floors, *_ in self.corners:
            own = [leaf | {n: (leaf[n][0], min(leaf[n][1], d))} for n, d in floors.items() if leaf[n][0] < d]
            sides = [[self.values(slab, known, g)[name] for g in (False, True)] for slab in own]
            off[name], slabs = max((_most(f, g) for f, g in sides), default=fmpq(0)), slabs + own
        if any(range_of(expr, leaf, known)[0] < 0 for expr in self.above):
            slabs = [leaf]
        here, there = (self.values(leaf, known, g) for g in (False, True))
        hull = {n: (min(a, there[n][0]), max(b, there[n][1])) for n, (a, b) in here.items()}
        worst = fmpq(0)
        for old, new in zip(self.before, self.outputs, strict=True) if slabs else ():
            alike = substitute(old, {ex.variable(corner.name): corner.new for corner in self.corners}) == new
            slopes = _by_slopes(old, hull, off) if alike else math.inf
            one, other = _without_common_terms(old, new)
            for slab in [] if slopes < math.inf else slabs:
                moved = range_of(one if alike else other, self.values(slab, known, True), known)
                worst = max(worst, _most(range_of(one, self.values(slab, known), known), moved))
            worst = max(worst, from_float(slopes)) if slopes < math.inf else worst
        return worst

    def distance(self, tree: Any, known: Container[Expr]) -> float:
        """A bound of |f - g| on the box, from the leaves of a tree."""
        leaves = zip(*(ends.T.tolist() for ends in self.region.leaves(tree)), strict=True)
        return float_above(max(self.apart_on(lower, upper, known) for lower, upper in leaves))


def _factors(expr: Expr) -> set[Expr]:
    """Factors that are zero where the expression is, but for numbers."""
    bare = stem(expr)
    return {factor for factor in (bare.args if bare.op == "mul" else (bare,)) if factor.number is None}


def _most(one: Ends, other: Ends) -> fmpq:
    """The largest distance of a number of one interval from a number of the other."""
    return max(one[1] - other[0], other[1] - one[0])


def _by_slopes(expr: Expr, hull: Mapping[str, Ends], off: Mapping[str, fmpq]) -> float:
    """A bound of the change of an expression if some variables change by at most so much, or infinity."""
    try:
        found = round_up(sum((abs(partial(expr, name, hull)) * arb(by) for name, by in off.items()), arb(0)))
    except SingularError:
        return math.inf
    return found if found < math.inf else math.inf


def _without_common_terms(one: Expr, other: Expr) -> tuple[Expr, Expr]:
    ones, others = (Counter(expr.args if expr.op == "add" else [expr]) for expr in (one, other))
    return ex.add(*(ones - others).elements()), ex.add(*(others - ones).elements())
