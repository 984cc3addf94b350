"""Ranges of expressions on a box, of functions on intervals and of wires: for planning, and as claims of a proof.

The meaning of a wire is an expression in the inputs. Its range is sought in several ways: directly on parts of the box;
through one inner value it depends on; through the values it repeats, varied independently; and from its own operands.
Values in between become quantities (#q0, #q1, ..) with ranges of their own. All are the kernel's own bounds on pieces
that are searched for here; the kernel computes them again from evidence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb

from transformula.budget import remembered, spend
from transformula.compiler import policy
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.range_trees import find_tree, sub_region
from transformula.compiler.evidence.table_pieces import find_function_cells
from transformula.compiler.lower.additive import narrowest, with_argument
from transformula.compiler.lower.lowered_circuit import LoweredCircuit, WireFacts
from transformula.compiler.lower.rewrites import domain_ends
from transformula.kernel.enclosures.balls import enclose, from_float, round_down, round_up, to_fmpq
from transformula.kernel.enclosures.expression_ranges import each_once, range_on
from transformula.kernel.enclosures.intervals import Pair, UndefinedError, length, plus, range_of, squared, times
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.folder.evidence import RangeClaim
from transformula.kernel.structures.stored_circuit import LinearForm, Wire
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr, rebuild, substitute, to_text, variables_of, walk
from transformula.kernel.tables.table_slopes import FunctionCells

Interval = tuple[float, float]


@dataclass(frozen=True)
class _Way:
    """One way to bound an expression: as another one, on parts; ``uses`` are quantities it needs."""

    expr: Expr
    tree: list[int]
    ends: Interval
    uses: tuple[str, ...] = ()


class WireSearch:
    """Claims about the meanings of wires, each expression searched once.

    Parameters
    ----------
    meanings : mapping
        For stored wires: the expression in the inputs that the argument (of a table or ReLU) or the value (of a
        product or norm) stands for, and the power of two that it is scaled by.
    functions : mapping, optional
        For stored tables: their functions of u. A range that leaves their domain is worth any improvement.
    before : WireSearch, optional
        A search on the same region, whose findings are used.
    """

    def __init__(
        self,
        meanings: Mapping[int, tuple[Expr, Fraction]],
        functions: Mapping[int, Expr] | None = None,
        before: WireSearch | None = None,
    ) -> None:
        self.meanings, self.functions = meanings, functions or {}
        self.region: Region | None = None
        self.known: frozenset[Expr] = frozenset()
        self._ways: dict[Expr, list[_Way]] = {} if before is None else before._ways
        self._names: dict[Expr, str] = {} if before is None else before._names
        self._quantities: dict[str, tuple[Expr, _Way]] = {} if before is None else before._quantities
        self._told: set[str] = set()

    def claims(self, wire: int, of: str, found: Interval, region: Region, known: frozenset[Expr]) -> list[RangeClaim]:
        """Claims that tighten the range of a wire's argument or value, with the quantities needed first."""
        self.region, self.known = region, known
        if wire not in self.meanings:
            return []
        meaning, scale = self.meanings[wire]
        claims: list[RangeClaim] = []
        low, high = found[0] / float(scale), found[1] / float(scale)
        for way in sorted(self.ways(meaning), key=lambda w: w.ends[1] - w.ends[0]):
            slack = (
                policy.CLAIM_GAIN * (high - low) if math.isfinite(high - low) and self._inside(wire, low, high) else 0.0
            )
            if way.ends[0] > low + slack or way.ends[1] < high - slack:
                text = to_text(ex.mul(ex.number(scale), way.expr))
                claims += [*self._defined(way.uses), RangeClaim(of, text, way.tree)]
                low, high = max(low, way.ends[0]), min(high, way.ends[1])
        return claims

    def _inside(self, wire: int, low: float, high: float) -> bool:
        """Whether a range is within the domain of a wire's function, as far as that is known."""
        least, most = domain_ends(self.functions[wire]) if wire in self.functions else (None, None)
        return (least is None or low >= least) and (most is None or high <= most)

    def range(self, expr: Expr, region: Region, known: frozenset[Expr]) -> Interval:
        """The best range of an expression that is found; infinite if none is."""
        self.region, self.known = region, known
        return self._range(expr)

    def _range(self, expr: Expr, depth: int = 0) -> Interval:
        ways = self.ways(expr, depth)
        return max((w.ends[0] for w in ways), default=-math.inf), min((w.ends[1] for w in ways), default=math.inf)

    def ways(self, expr: Expr, depth: int = 0) -> list[_Way]:
        """All ways to bound an expression that gave a finite range."""
        if expr not in self._ways:
            self._ways[expr] = []  # an expression does not bound itself
            self._ways[expr] = [way for way in self._search(expr, depth) if way is not None]
        return self._ways[expr]

    def _search(self, expr: Expr, depth: int) -> Iterator[_Way | None]:
        assert self.region is not None
        direct = self._on(expr, sub_region(self.region, sorted(variables_of(expr))), ())
        yield direct
        if depth > policy.MOST_ROUNDS or (direct is not None and (not variables_of(expr) or each_once(expr))):
            return  # every variable occurs once: interval arithmetic is already exact
        inner = narrowest(expr)
        if inner is not None:
            name = self._quantity(inner, depth)
            if name is not None:
                yield self._of(with_argument(expr, inner, ex.variable(name)), (name,))
        swapped = in_parts(expr)
        if swapped is not None and len(swapped[1]) <= policy.CLAIM_PARTS:
            parts = {old: self._quantity(part, depth) for old, part in swapped[1].items()}
            if all(parts.values()):
                swap = {ex.variable(old): ex.variable(str(new)) for old, new in parts.items()}
                yield self._of(ex.substitute(swapped[0], swap), tuple(map(str, parts.values())))
        if expr.op in ("add", "mul", "div", "pow"):
            yield self._from_operands(expr, depth)

    def _from_operands(self, expr: Expr, depth: int) -> _Way | None:
        new, used = [], []
        for operand in expr.args:
            if not variables_of(operand) or operand.op == "variable":
                new.append(operand)
                continue
            name = self._quantity(operand, depth)
            if name is None:
                return None
            new.append(ex.variable(name))
            used.append(name)
        return self._of(rebuild(expr.op, new), tuple(dict.fromkeys(used)))

    def _quantity(self, expr: Expr, depth: int) -> str | None:
        """A name for an expression with a finite range."""
        if expr not in self._names:
            ways = self.ways(expr, depth + 1)
            if not ways:
                return None
            best = min(ways, key=lambda w: w.ends[1] - w.ends[0])
            self._names[expr] = f"#q{len(self._names)}"
            self._quantities[self._names[expr]] = expr, best
        return self._names[expr]

    def _of(self, expr: Expr, uses: tuple[str, ...]) -> _Way | None:
        """Bound an expression in inputs and quantities."""
        assert self.region is not None
        ends = self.region.ends
        for name in uses:
            low, high = self._quantities[name][1].ends
            ends[name] = to_fmpq(Fraction(low)), to_fmpq(Fraction(high))
        names = sorted(variables_of(expr))
        region = Region(tuple(names), tuple(ends[n][0] for n in names), tuple(ends[n][1] for n in names))
        return self._on(expr, region, uses)

    def _on(self, expr: Expr, region: Region, uses: tuple[str, ...]) -> _Way | None:
        try:
            tree = find_tree(expr, region, self.known)
            spend(costs.claim(expr, tree))
            return _Way(expr, tree, range_on(expr, region, tree, self.known), uses)
        except NotProvenError:
            return None

    def _defined(self, uses: tuple[str, ...]) -> Iterator[RangeClaim]:
        for name in uses:
            if name not in self._told:
                _, way = self._quantities[name]
                yield from self._defined(way.uses)
                self._told.add(name)
                yield RangeClaim(name, to_text(way.expr), way.tree)


def in_parts(expr: Expr) -> tuple[Expr, dict[str, Expr]] | None:
    """(the expression in new variables, what each of them stands for), or None if nothing is repeated.

    The new names cannot occur in a formula.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> found, parts = in_parts(parse("sqrt((x - y*z)**2 + a*b) - x + y*z"))
    >>> str(found), {name: str(part) for name, part in parts.items()}
    ('-#0 + sqrt(#0**2 + #1)', {'#0': 'x - y*z', '#1': 'a*b'})
    """
    nodes = list(walk(expr))
    if len(nodes) > policy.CLAIM_NODES:
        return None
    parts: dict[str, Expr] = {}
    found = expr
    for node in reversed(nodes):  # the largest first
        if node is expr or not node.args or not variables_of(node):
            continue
        name = ex.variable(f"#{len(parts)}")
        swapped = _with_sum(found, node, name) if node.op == "add" else substitute(found, {node: name})
        if _occurrences(swapped, name) > 1:
            found, parts[str(name.value)] = swapped, node
    if not parts:
        return None
    swap = {node: ex.variable(f"#{len(parts) + k}") for k, node in enumerate(_untouched(found))}
    return substitute(found, swap), parts | {str(name.value): node for node, name in swap.items()}


def _with_sum(expr: Expr, total: Expr, name: Expr) -> Expr:
    """Replace a sum by a variable, also where its terms or their negatives are among a longer sum's."""
    signed = [(sign, Counter(ex.mul(ex.number(sign), t) for t in total.args)) for sign in (1, -1)]
    done: dict[Expr, Expr] = {}
    for node in walk(expr):
        if node == total:
            done[node] = name
            continue
        own = Counter(node.args if node.op == "add" else ())
        match = [(s, t) for s, t in signed if t <= own]  # a term that stands there twice counts twice
        if match:
            sign, terms = match[0]
            rest = [done[a] for a in (own - terms).elements()]
            done[node] = ex.add(ex.mul(ex.number(sign), name), *rest)
        else:
            done[node] = rebuild(node.op, [done[a] for a in node.args]) if node.args else node
    return done[expr]


def _occurrences(expr: Expr, name: Expr) -> int:
    total, stack = 0, [expr]
    while stack:
        node = stack.pop()
        total += node == name
        stack.extend(node.args)
    return total


def _untouched(expr: Expr) -> list[Expr]:
    """The largest sub-expressions in the formula's own variables only."""
    found: list[Expr] = []
    stack = [expr]
    while stack:
        node = stack.pop()
        names = variables_of(node)
        if not names or node in found:
            continue
        if any(name.startswith("#") for name in names):
            stack.extend(node.args)
        else:
            found.append(node)
    return found


def largest(ends: Interval) -> float:
    """The largest size in an interval."""
    return max(abs(ends[0]), abs(ends[1]))


class _Everything:
    """For planning, functions are assumed to be defined wherever their arguments are meant to lie."""

    def __contains__(self, node: object) -> bool:
        return True


_EVERYTHING = _Everything()


class BoxRanges:
    """Ranges of many expressions on one box, as floats rounded outwards; infinite where none is found."""

    def __init__(self, box: Box, known: frozenset[Expr] = frozenset()) -> None:
        self.region, self.known = Region.of_box(box), known
        self.search = WireSearch({})

    def of(self, expr: Expr) -> Interval:
        """An interval that contains the expression's values on the box."""
        return self.search.range(expr, self.region, self.known)


@remembered(512)
def function_cells(function: Expr, low: float, high: float) -> FunctionCells:
    """Values and slopes of a function of u on an interval."""
    high = high if high > low else math.nextafter(low, math.inf)
    edges = find_function_cells(function, low, high)
    spend(len(edges) * costs.cell(function))
    return FunctionCells(function, edges, defined=_EVERYTHING)


def function_range(function: Expr, low: float, high: float) -> Interval:
    """Range of a function of u on an interval, as floats rounded outwards; infinite where none is found."""
    if not math.isfinite(high - low):
        return -math.inf, math.inf
    try:
        a, b = range_of(function, {"u": (from_float(low), from_float(high))}, _EVERYTHING)
        plain = round_down(arb(a)), round_up(arb(b))
    except UndefinedError:
        plain = -math.inf, math.inf
    if each_once(function) and math.isfinite(plain[1] - plain[0]):
        return plain
    least, most = function_cells(function, low, high).values(np.array([low]), np.array([high]))
    return max(plain[0], float(least[0])), min(plain[1], float(most[0]))


def inside_domain(function: Expr, ends: Interval) -> Interval:
    """The part of an interval where a function of u is defined, as far as its roots and logarithms tell."""
    least, most = domain_ends(function)
    low = ends[0] if least is None else max(ends[0], round_down(arb(to_fmpq(least))))
    high = ends[1] if most is None else min(ends[1], round_up(arb(to_fmpq(most))))
    return low, high


class PlannedRanges:
    """Ranges of wires and of their arguments on the box.

    ``values`` has a range for every wire, ``arguments`` for every table and ReLU: a table's is cut to its
    function's domain, since elsewhere the formula is not defined.
    """

    def __init__(self, lowered: LoweredCircuit, ranges: BoxRanges) -> None:
        self.ranges = ranges
        self.values: dict[int, Interval] = {}
        self.arguments: dict[int, Interval] = {}
        for k, (wire, fact) in enumerate(zip(lowered.circuit.wires, lowered.facts, strict=True)):
            if not wire.arguments:
                self.values[k] = ranges.of(fact.meaning)
            elif wire.total is not None:
                self.values[k] = self._virtual(wire, fact)
            else:
                self.arguments[k], self.values[k] = self._looked_up(wire, fact)

    def _virtual(self, wire: Wire, fact: WireFacts) -> Interval:
        """A product or a length."""
        left, right = (_pair(self._form(*side)) for side in zip(wire.arguments, fact.arguments, strict=True))
        if wire.is_norm:
            found = length(left, right)
        else:
            found = squared(left) if wire.arguments[0] == wire.arguments[1] else times(left, right)
        return _both(_ends(found), self.ranges.of(fact.meaning))

    def _looked_up(self, wire: Wire, fact: WireFacts) -> tuple[Interval, Interval]:
        """The argument and the value of a table or a ReLU."""
        (form,), (meaning,) = wire.arguments, fact.arguments
        if wire.inside is None:
            argument = self._form(form, meaning)
        else:  # the ReLUs of a length need no sharp ranges: none is larger than the length is
            most = self.ranges.of(meaning)[1]
            argument = _both(self._sum(form), (-most, most))
        if wire.function is None:
            return argument, (max(argument[0], 0.0), max(argument[1], 0.0))
        argument = inside_domain(wire.function, argument)
        if not argument[0] <= argument[1]:
            raise NotProvenError(f"{fact.meaning} is not defined on the box", place=str(meaning))
        if not math.isfinite(argument[1] - argument[0]):
            return argument, self.ranges.of(fact.meaning)
        return argument, function_range(wire.function, *argument)

    def _form(self, linear: LinearForm, meaning: Expr) -> Interval:
        """The range of a linear form: of its wires, and of its meaning."""
        return _both(self._sum(linear), self.ranges.of(meaning))

    def _sum(self, linear: LinearForm) -> Interval:
        ball = enclose(linear.constant)
        total: Pair = np.asarray(round_down(ball)), np.asarray(round_up(ball))
        for k, c in linear.terms:
            factor = enclose(c)
            ends = np.asarray(round_down(factor)), np.asarray(round_up(factor))
            total = plus(total, times(ends, _pair(self.values[k])))
        return _ends(total)


def _pair(ends: Interval) -> Pair:
    return np.asarray(ends[0]), np.asarray(ends[1])


def _ends(pair: Pair) -> Interval:
    return float(pair[0]), float(pair[1])


def _both(a: Interval, b: Interval) -> Interval:
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else a
