"""Deliberate faults of the code that is not trusted: compiler/.

A fault is a function with a piece of its source replaced, or replaced as a whole. It is live wherever the package
uses that function. The kernel imports none of them; faults of its own (tests/fuzz) are live there too.
"""

from __future__ import annotations
import __future__

import dataclasses
import functools
import importlib
import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

PACKAGE = "transformula"


@dataclass(frozen=True)
class Fault:
    """``where`` is module:name below the package; ``make`` turns what is there into what is wrong.

    ``cases`` are names of formulas that exercise it. A fault is ``harmless`` if another search or a larger bound may
    make up for it: then a model may come out, which must be true. Of any other no model within eps may come out.
    """

    name: str
    where: str
    make: Callable[[Any], Any]
    cases: str
    harmless: bool = False


def fault(name: str, where: str, old: str, new: str, cases: str, harmless: bool = False) -> Fault:
    """A piece of a function's source is replaced."""
    return Fault(name, where, lambda original: _with_source(original, old, new), cases, harmless)


def wrapped(name: str, where: str, change: Callable[[Any], Any], cases: str, harmless: bool = False) -> Fault:
    """What a function returns (or a constant is) is changed."""

    def make(original: Any) -> Any:
        if not callable(original):
            return change(original)

        @functools.wraps(original)
        def wrong(*args: Any, **options: Any) -> Any:
            return change(original(*args, **options))

        return wrong

    return Fault(name, where, make, cases, harmless)


@contextmanager
def active(it: Fault) -> Iterator[None]:
    """The package with a fault in it."""
    module_name, _, path = it.where.partition(":")
    module = importlib.import_module(f"{PACKAGE}.{module_name}")
    *outer, last = path.split(".")
    holder = functools.reduce(getattr, outer, module)
    original = inspect.getattr_static(holder, last)
    wrong = it.make(original)
    places, trusted = [(holder, last)], it.where.startswith("kernel.")
    if holder is module:
        places += [(m, n) for m in _modules(trusted) for n, v in vars(m).items() if v is original and m is not module]
    # tables are fitted to functions and ranges: only these modules have a say in what comes out
    deep = not it.where.startswith(("compiler.lower.", "compiler.evidence.")) or "compiler.lower.rewrites" in it.where
    for place, name in places:
        setattr(place, name, wrong)
    forget(deep, trusted)
    try:
        yield
    finally:
        for place, name in places:
            setattr(place, name, original)
        forget(deep, trusted)


def _with_source(original: Any, old: str, new: str) -> Any:
    plain = original
    for wrapper in ("fget", "func", "__func__", "__wrapped__"):
        plain = getattr(plain, wrapper, plain) if not inspect.isfunction(plain) else plain
    plain = inspect.unwrap(plain)
    source = textwrap.dedent(inspect.getsource(plain))
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {plain.__qualname__}"
    code = compile(source.replace(old, new), f"<fault in {plain.__qualname__}>", "exec",
                   flags=__future__.annotations.compiler_flag)  # fmt: skip
    found: dict[str, Any] = {}
    exec(code, plain.__globals__, found)
    return found[plain.__name__]


def _modules(trusted: bool = False) -> list[Any]:
    """All loaded modules that are not trusted; those that are as well, if asked for."""
    names = [n for n in sys.modules if n == PACKAGE or n.startswith(PACKAGE + ".")]
    return [sys.modules[n] for n in names if trusted or not n.startswith(PACKAGE + ".kernel")]


def forget(deep: bool = False, trusted: bool = False) -> None:
    """Empty what the package remembers of earlier formulas; fitted tables only if ``deep``."""
    for module in _modules(trusted):
        for name, value in vars(module).items():
            if hasattr(value, "cache_clear") and (deep or name != "_fit_once"):
                value.cache_clear()


def _drop(position: int) -> Callable[[Any], Any]:
    """A list without one of its items."""
    return lambda items: [v for k, v in enumerate(items) if k != position % len(items)]


def _without_last_leaf(tree: Any) -> Any:
    return tree[:-1] if len(tree) > 1 else []


def _halved(ends: Any) -> Any:
    """Half of an interval, around its middle."""
    low, high = ends
    if not math.isfinite(high - low):
        return ends
    return low + (high - low) / 4, high - (high - low) / 4


def _first_tree(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(item: Any) -> Any:
        trees = item["trees"]
        k = max(range(len(trees)), key=lambda i: len(trees[i]))
        return item | {"trees": [change(t) if i == k else t for i, t in enumerate(trees)]}

    return changed


_A, _L, _S = "compiler.lower.additive:", "compiler.lower.lowering:_Lowering.", "compiler.lower.store_circuit:"
_F, _D, _C = "compiler.lower.factors:", "compiler.lower.derivation_hints:", "compiler.lower.lowered_circuit:"
_B = "compiler.lower.lowered_circuit:CircuitBuilder."
_LAYOUT, _CIRCUIT = "compiler.layout:", "compiler.circuit_analysis:"
_FIND = "compiler.evidence.finder:Finder."

REWRITING = [
    # -- sums: additive.py
    fault("a term of a sum is lost", _A + "_summands", "stack.extend((factor, a) for a in reversed(node.args))",
          "stack.extend((factor, a) for a in reversed(node.args[:-1]))", "terms"),
    fault("the factor of a sum reaches its first term only", _A + "_summands",
          "stack.extend((factor, a) for a in reversed(node.args))",
          "stack.extend((factor if a is node.args[0] else ex.number(1), a) for a in reversed(node.args))", "scaled"),
    fault("a constant divisor multiplies", _A + "_pull_constants",
          "return ex.div(ex.number(1), node.args[1]), node.args[0]",
          "return node.args[1], node.args[0]", "over_pi"),
    fault("only one constant is pulled out of a product", _A + "_pull_constants", "return ex.mul(*constants), ",
          "return constants[0], ", "scaled"),
    fault("the constant of an affine term is lost", _A + "_add",
          "return AffineForm(form, ex.add(left.constant, right.constant))",
          "return AffineForm(form, left.constant)", "terms"),
    fault("min and max are swapped", _A + "_abs_term", 'half if term.op == "max" else -half',
          '-half if term.op == "max" else half', "kinks"),
    fault("max loses its affine part", _A + "_abs_term", "_scale(_add(inner[0], inner[1]), half)", "zero", "kinks"),
    fault("a kink is lost", _A + "decompose", "abs_terms.append(AbsTerm(ex.mul(factor, absolute.coefficient), absolute.inside))",
          "abs_terms[:] = [AbsTerm(ex.mul(factor, absolute.coefficient), absolute.inside)]", "kinks"),
    fault("a kink loses its factor", _A + "decompose", "AbsTerm(ex.mul(factor, absolute.coefficient), absolute.inside)", "absolute",
          "kinks"),
    fault("of two parts of one form the first is lost", _A + "_collect", "ex.add(other.expr, part.expr)", "part.expr",
          "same_form"),
    fault("the scale of a linear form is lost", _A + "as_part", "scale = primitive_form(affine.form)[1]",
          "scale = Fraction(1)", "same_form"),
    fault("the sign of a linear form is lost", _A + "as_part", "scale = primitive_form(affine.form)[1]",
          "scale = abs(primitive_form(affine.form)[1])", "odd_form"),
    fault("the constant inside a linear form is lost", _A + "as_part",
          "ex.add(ex.mul(ex.number(scale), u), affine.constant)", "ex.mul(ex.number(scale), u)", "same_form"),
    fault("what cancels leaves no constant", _A + "without_cancelled", "node: affine.constant for",
          "node: ex.number(0) for",
          "cancels"),
    fault("multiples of an argument count as the argument", _A + "with_argument",
          "ex.mul(ex.div(factor, constant), argument)", "argument", "multiples"),
    fault("a function of two values passes for one of one", _A + "depends_through",
          'return variables_of(with_argument(expr, node, _HOLE)) == {""}', "return True", "two_values"),
    # -- products: factors.py, rewrites.py, derivation_hints.py
    fault("a repeated factor counts once", _F + "factors_of", "powers[base] = powers.get(base, Fraction(0)) + by",
          "powers[base] = by", "repeated_factor"),
    fault("a quotient is a product", _F + "factors_of", "[(node.args[1], -exponent), (node.args[0], exponent)]",
          "[(node.args[1], exponent), (node.args[0], exponent)]", "quotient"),
    fault("the constant of a product is lost", _F + "factors_of",
          "constant = ex.mul(constant, ex.power(node, ex.number(exponent)))",
          "pass", "three_factors"),
    fault("a root is its argument", _F + "factors_of", "stack.append((node.args[0], exponent / 2))",
          "stack.append((node.args[0], exponent))", "root_factor"),
    fault("the exponent of a power is lost", _F + "factors_of", "exponent * node.args[1].number", "exponent",
          "quotient"),
    fault("a term is lost in multiplying out", _F + "distributed", "for term in total.args))",
          "for term in total.args[:-1]))", "distributes divides"),
    fault("what is divided out is multiplied", _F + "distributed", "ex.power(base, ex.number(sign))", "base", "divides"),
    fault("negative powers stay above", _F + "quotient_of", "{b: e for b, e in powers.items() if e > 0}", "powers",
          "removable_over"),
    fault("the root of a constant is the constant", "compiler.lower.factors:_root", "ex.number(exact) if",
          "ex.number(value) if", "length"),
    fault("the root of a square loses a factor", "compiler.lower.factors:root_of", "{b: e / 2 for b, e in powers.items()}",
          "{b: e / 2 for b, e in list(powers.items())[:1]}", "root_of_product"),
    fault("a square is lost under a root", "compiler.lower.factors:as_squares",
          "return found if len(found) > 1 else None",
          "return found[:-1] if len(found) > 2 else None", "length_of_three"),
    fault("the law of cosines has the wrong sign", "compiler.lower.factors:_complete", "squares[i] = ex.add(p, turned)",
          "squares[i] = ex.add(p, ex.neg(turned))", "cosines"),
    fault("the law of cosines loses its sine", "compiler.lower.factors:_complete",
          'squares[j] = ex.mul(q, ex.call("sin", cosine.args[0]))', "squares[j] = q", "cosines"),
    fault("a completed square is lost", "compiler.lower.derivation_hints:_completed", "return ex.add(*squares)",
          "return squares[0]",
          "completed"),
    fault("a squared factor is lost", "compiler.lower.derivation_hints:_even_factors",
          "ex.number(to_fraction(constant)), *powers)",
          "ex.number(to_fraction(constant)), *powers[1:])", "squared_factors", True),
    # -- removable singularities and parts: the bugs of version 1 among them
    fault("a removable power is overwritten", "compiler.lower.removable:_repaired",
          "powers[b] = powers.get(b, Fraction(0)) + times * e  # there may be some already",
          "powers[b] = (Fraction(0) if b == left else powers.get(b, Fraction(0))) + times * e",
          "removable_twice"),
    fault("the scale of a removable quotient is lost", "compiler.lower.removable:_repaired",
          "constant = ex.mul(constant, ex.power(scale, ex.number(times * order)))", "pass", "removable_scale"),
    fault("a removable quotient keeps what it was divided by", "compiler.lower.removable:_repaired",
          "(b, order * e) for b, e in inside.items()", "(b, 2 * order * e) for b, e in inside.items()",
          "removable_scale"),
    fault("a sine that is not there is removed", "compiler.lower.removable:_repaired", "powers[base] -= times", "pass",
          "removable_scale"),
    fault("a pole is removed", "compiler.lower.removable:zeros_of", 'if g.op == "sin":', 'if g.op in ("sin", "exp"):', "pole"),
    fault("a function's rest begins too late", "compiler.lower.removable:rest_call", "{name}_rest{order}", "{name}_rest{order + 1}",
          "removable_rest"),
    fault("a zero is counted twice", "compiler.lower.removable:zeros_of", "yield w, order, rest_call(g, at, order)",
          "yield w, order + 1, rest_call(g, at, order + 1)", "removable_rest"),
    fault("a sum loses the scale of its functions", "compiler.lower.removable:_checked", "ex.number(ratio**own), ", "",
          "removable_sum", True),
    fault("a step is not stored", _D + "extended_formula", "for step in steps\n", "for step in steps[1:]\n",
          "removable_two"),
    fault("a step is looked at where the quotient is undefined", "compiler.lower.removable:_inside",
          "return Fraction(int(mantissa))",
          "return 0 * Fraction(int(mantissa))", "removable_scale"),
    fault("sums are compared as sets", "compiler.evidence.range_search:_with_sum",
          "rest = [done[a] for a in (own - terms).elements()]",
          "rest = [done[a] for a in own if a not in terms]", "repeated_term"),
    fault("a part's negative passes for the part", "compiler.evidence.range_search:_with_sum",
          "ex.add(ex.mul(ex.number(sign), name), *rest)",
          "ex.add(name, *rest)", "negative_part"),
    # -- circuits: lowering.py
    fault("a sum of wires loses a term", _L + "_lower", "(ONE, self.lower(a)) for a in expr.args], expr)", "(ONE, self.lower(a)) for a in expr.args[1:]], expr)",
          "product_and_more"),
    fault("the corner of a product has the wrong sign", _B + "times", "corner = ex.number(-left * right)",
          "corner = ex.number(left * right)", "product"),
    fault("the centre of a product is that of the other factor", _B + "times", "(ex.number(left), b),",
          "(ex.number(right), b),", "product"),
    fault("a product is half as large", _B + "times", "quarter = ex.number(1 / (4 * weight))",
          "quarter = ex.number(1 / (8 * weight))", "product"),
    fault("a product's share in its squares is wrong", _B + "times", "share = 1 / (4 * weight)",
          "share = 1 / (2 * weight)",
          "product"),
    fault("the squares of a product are swapped", _B + "times", "(quarter, squares[0]),", "(quarter, squares[1]),",
          "product"),
    fault("a square forgets its centre", _B + "square",
          "twice = ex.number(2 * centre)",
          "twice = ex.number(centre)", "square"),
    fault("a square's corner is lost", _B + "square", "corner = ex.number(-(centre**2))", "corner = ex.number(0)",
          "square"),
    fault("min is max in a circuit", _B + "extreme", '(b, 1) if op == "max" else (a, -1)', "(b, 1)", "extremes"),
    fault("the halves of an extreme overlap", _B + "extreme", "self.extreme(op, args[half:])",
          "self.extreme(op, args[:half])", "extremes"),
    fault("an absolute value is bent once", _B + "absolute", "(ONE, self.relu(argument)), (ONE, self.relu(minus))",
          "(ONE, self.relu(argument))", "extremes"),
    fault("the root of a square is its base", _L + "_table_of",
          'size = root if root_of(root) is not None else ex.call("abs", root)',
          "size = root", "root_of_square"),
    fault("a table's offset is not given back", _B + "table", "plus=ex.number(shift)",
          "plus=ex.number(0)",
          "offset"),
    fault("a table's offset has the wrong sign", _B + "table", "ex.add(function, ex.number(-shift))",
          "ex.add(function, ex.number(shift))", "offset"),
    fault("no argument is clamped", _L + "_looked_up", "wanted = self.guide.clamp(function, argument.meaning)",
          "wanted = (False, False)", "clamp two_clamps", True),
    fault("the halves of a domain share no constant", _L + "_looked_up", ", plus=ex.neg(common)", "",
          "two_clamps"),
    fault("the distance from the end has the wrong sign", _L + "_at_distance", "ex.mul(ex.number(flip * sign), ARGUMENT)",
          "ex.mul(ex.number(-flip * sign), ARGUMENT)", "two_clamps"),
    fault("the end of a domain is off", _L + "_at_distance", "shift = ex.number(-sign * end)",
          "shift = ex.number(-sign * end + Fraction(1, 8))", "two_clamps"),
    fault("a product loses a factor", _L + "_product_of", "factors = [self._factor(f) for f in fused.values()]",
          "factors = [self._factor(f) for f in fused.values()][:2]", "three_factors"),
    fault("a product loses its constant", _L + "_product_of", "return combined([(constant, product)], expr)",
          "return combined([(ONE, product)], expr)", "three_factors"),
    fault("fused factors count once", _L + "_product_of", "ex.mul(fused[key], factor) if key in fused else factor",
          "factor",
          "fused"),
    fault("exchanged factors lose a power", _L + "_exchanged",
          "return ex.power(share, ex.number(-by)), others, function, inner",
          "return ex.power(share, ex.number(-by)), {}, function, inner", "exchange"),
    fault("an exchanged function keeps its power", _L + "_exchanged", "others, function, inner\n", "others, g, inner\n",
          "exchange"),
    fault("the logarithm of a factor is lost", _L + "_function_of", "for b, e in powers.items()]",
          "for b, e in list(powers.items())[1:]]", "logs"),
    fault("the logarithm of a constant is lost", _L + "_function_of", "plus=shift",
          "plus=ZERO", "logs"),
    fault("a negative product has a logarithm", _L + "_function_of",
          "sign = 1 if enclose(constant) > 0 else -1 if enclose(constant) < 0 else 0", "sign = 1", "negative_logs"),
    fault("factors of any sign have logarithms", "compiler.circuit:PlanningGuide.in_logs",
          "wanted and all(self.ranges.of(base)[0] > 0 for base in bases)", "wanted", "signed_logs"),
    fault("a length is folded at another angle", _B + "_new_norm", "*rows, last = measure.rows()",
          "*rows, last = (r._replace(units=(*r.units[:-1], *(ex.mul(ex.number(Fraction(9, 8)), c)"
          " for c in r.units[-1:]))) for r in measure.rows())", "norm"),
    fault("a length is turned the other way", _B + "_new_norm", "*zip(row.units, units, strict=False)]",
          "*((ex.neg(c), u) for c, u in zip(row.units, units, strict=False))]", "norm"),
    fault("a length misses a fold", _B + "_new_norm", "*zip(last.units, units, strict=True)], meaning)",
          "*zip(last.units[:-1], units, strict=False)], meaning)", "norm"),
    fault("a length's sides are exchanged", _B + "_new_norm", "Wire((a.form, b.form), total", "Wire((b.form, a.form), total", "norm"),
    fault("a length has one side twice", _B + "_new_norm", "Wire((a.form, b.form), total", "Wire((a.form, a.form), total", "norm"),
    fault("a length's coefficients are off by a thousandth", _B + "_new_norm", "*zip(row.units, units, strict=False)]",
          "*((ex.mul(ex.number(Fraction(1001, 1000)), c), u) for c, u in zip(row.units, units, strict=False))]",
          "norm"),
    fault("a power's base and exponent are swapped", _L + "_factor", "base, exponent = expr.args",
          "exponent, base = expr.args",
          "power"),
    fault("wires of one function are taken for one", _B + "_wire", "key = (function, argument)",
          "key = (function, None)",
          "swapped_wires"),
    fault("a combination loses a part", _C + "combined", "for factor, part in parts]",
          "for factor, part in parts[:-1] or parts]", "product_and_more"),
    fault("the constant of a combination is lost", _C + "combined", "collected(form.constant)), meaning)",
          "ZERO), meaning)", "product offset"),
    fault("a root has no end of its domain", "compiler.lower.rewrites:_domain", "function = find(node.op)",
          'function = find(node.op) if node.op != "sqrt" else None', "clamp"),
    fault("the end of a domain is on the wrong side", "compiler.lower.rewrites:_inverse", "(end - shift) / slope",
          "(end + shift) / slope", "shifted_root"),
    # -- what is stored: storing.py, derivation.py
    fault("a stored wire forgets its scale", _S + "_scaled", "held / scale**2", "held",
          "wide_product"),
    fault("a reader forgets what a wire holds", _S + "_Store._linear", "factor / self._held(k)",
          "factor",
          "wide_product"),
    fault("places of heads are swapped", _S + "_Store._place", "return [int(v) for v in self.places[k]]",
          "place = [int(v) for v in self.places[k]]; return [place[0], {0: 1, 1: 0}.get(place[1], place[1]), 0]",
          "swapped_wires"),
    fault("wires are numbered wrongly", _S + "_Store._linear", "[(k, ex.mul(",
          "[(k - 1 if k > 3 else k, ex.mul(", "wide_product"),
    fault("a stored coefficient is dropped", _S + "stored_linear", 'if c.number != 0],', 'if c.number != 0][:1],',
          "terms product"),
    fault("equal constants are added once", _C + "collected", "terms[node] = terms.get(node, Fraction(0)) + factor",
          "terms[node] = factor", "constants"),
    fault("the slope beside a table has the wrong sign", _S + "_table", "ex.mul(ex.number(-slope), ARGUMENT)",
          "ex.mul(ex.number(slope), ARGUMENT)", "slope"),
    fault("kinks are stored without their negatives", _S + "store_one_layer",
          "total.append((ex.neg(absolute.coefficient), _affine(absolute.inside)))", "pass", "kinks"),
    fault("a row's selector is off by its limit", _S + "_selected", "row.append((ex.number(-limit), _UNIT))", "pass", "sequence"),
    fault("no sign of a row's selector is asked for", _D + "selector_signs",
          "return [expr for expr in found if variables_of(expr)]",
          "return []", "sequence"),
    fault("no sign is asked for", _D + "signs_of",
          "return list(_readable(_one_signed(candidates, box), box))",
          "return []", "clamp"),
]  # fmt: skip

_PIECES, _DEFINED = "compiler.evidence.table_pieces:PieceSearch.refine", "compiler.evidence.definedness:find_defined"
_SIGN = "compiler.evidence.range_trees:find_sign_tree"
_SEARCH, _GRID, _CLAIMS = (
    "compiler.evidence.definedness:_search",
    "compiler.evidence.grid_pieces:find_pieces",
    "compiler.evidence.range_search:WireSearch.",
)

SEARCHING = [
    wrapped("any formula is defined", _DEFINED, lambda tree: [-1], "cut_to_be_defined"),
    wrapped("a tree of definedness is cut short", _DEFINED, _without_last_leaf, "cut_to_be_defined"),
    wrapped("a tree of definedness has one half", _DEFINED, lambda tree: tree[:2], "cut_to_be_defined"),
    Fault("the search for definedness falls through", _SEARCH, lambda original: lambda *_: [-1],
          "undefined undefined_removable undefined_circuit undefined_cells"),
    Fault("the search for definedness stops at its budget", _SEARCH,
          lambda original: lambda expr, region, defined, most: _told(original(expr, region, defined, most)),
          "undefined undefined_circuit"),
    fault("a formula is not shown to be defined", "compiler.prepare:_proven_facts",
          "find_defined(expr, region, search.seen(expr))", "pass", "undefined"),
    fault("what is defined is not written down", _FIND + "evidence", 'return {**self.written, "tables": kept}',
          'return {**self.written, "tables": kept, "defined": []}', "one_table"),
    Fault("any sign is believed", _SIGN, lambda original: lambda *_, **__: [-1], "cut_for_a_sign", True),
    wrapped("a tree of a sign is cut short", _SIGN, _without_last_leaf, "cut_for_a_sign", True),
    wrapped("a range's tree is a leaf", "compiler.evidence.range_trees:find_tree", lambda tree: [-1], "claimed_range", True),
    wrapped("a range's tree is cut short", "compiler.evidence.range_trees:find_tree", _without_last_leaf, "claimed_range", True),
    wrapped("ranges are too small", "compiler.evidence.range_search:BoxRanges.of", _halved, "product clamp", True),
    wrapped("ranges of functions are too small", "compiler.evidence.range_search:function_range", _halved, "nested", True),
    wrapped("the domain is not cut", "compiler.evidence.range_search:inside_domain", lambda ends: (ends[0] - 1.0, ends[1]),
            "clamp"),
    fault("a quantity is half as wide", _CLAIMS + "_of", "low, high = self._quantities[name][1].ends",
          "low, high = (v / 2 for v in self._quantities[name][1].ends)", "repeated_term", True),
    fault("a claim is about something else", _CLAIMS + "claims", "text = to_text(ex.mul(ex.number(scale), way.expr))",
          'text = "0"', "claimed_range"),
    fault("a claim forgets the scale", _CLAIMS + "claims", "text = to_text(ex.mul(ex.number(scale), way.expr))",
          "text = to_text(ex.mul(ex.number(scale / 2), way.expr))", "claimed_range"),
    fault("ranges are not written down", _FIND + "ranges",
          'self.written["ranges"][str(wire)] = [list(claim) for claim in claims]', "pass", "claimed_range", True),
    # -- pieces of tables
    wrapped("the first piece of a table is dropped", _PIECES, _drop(0), "one_table circuit_table"),
    wrapped("the last piece of a table is dropped", _PIECES, _drop(-1), "one_table circuit_table"),
    wrapped("every second edge is dropped", _PIECES, lambda edges: edges[::2], "rough_table"),
    wrapped("a table has one piece", _PIECES, lambda edges: [edges[0], edges[-1]], "one_table", True),
    wrapped("an edge is not a number", _PIECES, lambda edges: [*edges[:2], math.nan, *edges[2:]], "one_table"),
    wrapped("edges are infinite", _PIECES, lambda edges: [-math.inf, *edges, math.inf], "one_table"),
    wrapped("edges go back", _PIECES, lambda edges: [*edges, edges[0], edges[-1]], "one_table"),
    wrapped("the cells of a function are cut short", "compiler.evidence.table_pieces:find_function_cells",
            lambda edges: edges[: len(edges) // 2],
            "circuit_table"),
    wrapped("the cells of a function are not numbers", "compiler.evidence.table_pieces:find_function_cells",
            lambda edges: [*edges[:3], math.nan, *edges[3:]], "circuit_table"),
    wrapped("the slopes' pieces are cut short", "compiler.evidence.table_pieces:find_slopes", lambda edges: edges[:-1],
            "circuit_table"),
    wrapped("the slopes have one piece", "compiler.evidence.table_pieces:find_slopes", lambda edges: [edges[0], edges[-1]],
            "one_table", True),
    wrapped("a tree of a grid is cut short", _GRID, _first_tree(_without_last_leaf), "cut_grid"),
    wrapped("a tree of a grid is a leaf", _GRID, _first_tree(lambda tree: [-1]), "cut_grid", True),
    wrapped("a tree of a grid is dropped", _GRID, lambda item: item | {"trees": item["trees"][:-1]}, "grid"),
    wrapped("the edges of a grid end early", _GRID,
            lambda item: item | {"edges": [item["edges"][0], [*item["edges"][1][:-1], item["edges"][1][-1] - 0.1]]},
                "grid"),
    wrapped("the edges of a grid are swapped", _GRID, lambda item: item | {"edges": item["edges"][::-1]},
            "oblong_grid"),
    fault("boxes that are still open are dropped", _GRID,
          "            halves = cut_boxes(lower, upper, axes)\n",
          "            if len(levels) > 1:\n                axes[:] = False\n                break\n"
          "            halves = cut_boxes(lower, upper, axes)\n", "cut_grid", True),
    wrapped("an interval of a softmax is dropped", "compiler.evidence.grid_pieces:find_softmax",
            lambda edges: [e[:-1] for e in edges],
            "grid circuit_table"),
    wrapped("the softmax has one interval", "compiler.evidence.grid_pieces:find_softmax", lambda edges: [[e[0],
            e[-1]] for e in edges],
            "one_table"),
    wrapped("a cell of a partition is dropped", "compiler.evidence.grid_pieces:find_partition_cells", lambda trees: trees and trees[:-1],
            "cut_cells"),
    wrapped("a cell of a partition is not cut", "compiler.evidence.grid_pieces:find_partition_cells", lambda trees: None, "cut_cells",
            True),
    fault("far tokens are taken for farther", _FIND + "partition", "[self.far_bits, trees]",
          "[self.far_bits + 60, trees]",
          "cells", True),
    fault("far tokens are nearer than any", _FIND + "partition", "[self.far_bits, trees]", "[-5, trees]", "cells"),
    wrapped("the parts of the box are cut short", "compiler.evidence.range_trees:find_parts", _without_last_leaf, "followed"),
    wrapped("the parts of the box have another axis", "compiler.evidence.range_trees:find_parts",
            lambda tree: [7 if a >= 0 else a for a in tree], "followed"),
    fault("the first table's evidence serves all", _FIND + "_item_of", 'self.written["uses"][str(wire)] = index',
          'self.written["uses"][str(wire)] = 0', "two_tables", True),
    fault("a corollary's pieces end early", _FIND + "corollary", "tables.find_pieces(table, difference, ends[0])",
          "tables.find_pieces(table, difference, ends[0])[:-1]", "approximation"),
]  # fmt: skip


def _told(found: Any) -> Any:
    return found if isinstance(found, list) else [-1]


CONSTRUCTIONS = [
    wrapped("the gate of one layer is too weak", _LAYOUT + "Design.gate", lambda gate: -20.0, "two_parts"),
    wrapped("the gate of a circuit is too weak", _LAYOUT + "Design.gate", lambda gate: -64.0, "two_tables"),
    wrapped("the gate has the wrong sign", _LAYOUT + "Design.gate", lambda gate: -gate, "two_tables"),
    fault("a form forgets its scale", _CIRCUIT + "_reads", "factor = to_fmpq(scale)", "factor = to_fmpq(Fraction(1))",
          "wide_product"),
    fault("a form forgets what wires hold", _CIRCUIT + "_reads",
          "held = to_fmpq(1 / nodes[k].held) if k in nodes else 1", "held = 1", "wide_product"),
    fault("a form forgets its constant", _CIRCUIT + "_reads", "midpoint(linear.constant) * factor",
          "0 * midpoint(linear.constant)", "product offset"),
    fault("constants have three digits", "compiler.partition:midpoint", "return midpoint_rational(enclose(constant))",
          "return fmpq(round(1000 * float(enclose(constant))), 1000)", "constants", True),
    fault("a square holds something else", "compiler.circuit_analysis:_square_scales", "return scale, scale**2",
          "return scale, scale",
          "wide_product"),
    fault("a square's range is too small", "compiler.circuit_analysis:_square_scales",
          "* Fraction(2) ** power", "* Fraction(2) ** (power + 20)", "product"),
    fault("a table's offsets are shifted", _LAYOUT + "Design.memory", "] = column",
          '] = column + (kind == "offset") * np.arange(len(column))', "circuit_table"),
    fault("a table's values are reversed", _LAYOUT + "Design.memory", "] = table.values", "] = table.values[::-1]",
          "circuit_table"),
    fault("a head reads another table", _CIRCUIT + "circuit_design", "numbers[tables[k][0]], (reads,)", "0, (reads,)",
          "two_tables"),
    fault("a head writes to another slot", _CIRCUIT + "circuit_design", '(reach,), (f"w{k}",)',
          '(reach,), (f"w{max(nodes) if k == min(nodes) else min(nodes) if k == max(nodes) else k}",)', "two_tables"),
    fault("a hidden unit forgets its constant", _CIRCUIT + "circuit_design", "units.append((block, (reads, 0,",
          "units.append((block, (reads | {'one': 0}, 0,", "two_clamps"),
    fault("a table's own tokens move by a slot", _LAYOUT + "Design.memory", "start = rows.stop", "start = rows.stop - 1",
          "two_parts"),
    fault("a table's value is off", _LAYOUT + "Design.memory", "] = table.values", "] = 1.25 * table.values",
          "one_table cells"),
    fault("the slope beside a table is lost", "compiler.partition:one_layer_spec",
          "a + fmpq(*table.linear.as_integer_ratio()) * to_fmpq(b)",
          "a", "slope"),
    fault("a ReLU counts once", "compiler.partition:one_layer_spec", "ReluSpec(output, 2 * c, ",
          "ReluSpec(output, c, ", "kinks"),
    fault("the selector's limit is too small", "compiler.partition:one_layer_built",
          "limit, reaches = power_of_two(spec.reach), ",
          "spec = __import__('dataclasses').replace(spec, reach=0.25); limit, reaches = power_of_two(spec.reach), ",
              "sequence"),
    fault("a sampled value is that of the next cell", "compiler.partition:fit_partition",
          "return TableTokens(slopes, offsets, sampled.", "return TableTokens(slopes, offsets, np.roll(sampled, 1).",
          "cells"),
    fault("cells are blunt", "compiler.partition:sharp_scores", "gaps = far / (", "gaps = 0.1 * far / (",
          "cells", True),
    fault("a threshold is off", "compiler.partition:sharp_scores", "np.cumsum(np.diff(slopes) * thresholds)",
          "np.cumsum(np.diff(slopes) * (thresholds + 0.05))", "cells"),
    wrapped("anchors hold what the next one should", "compiler.gallery.attention_only:anchors",
            lambda t: dataclasses.replace(t, values=np.roll(t.values, 1)), "anchors"),
    fault("a line is read with another scale", "compiler.gallery.attention_only:_unscaled", "to_fmpq(scale[1])",
          "2 * to_fmpq(scale[1])", "anchors"),
    fault("cells do not know where lines begin", "compiler.gallery.attention_only:_line", "to_fmpq(-middle / radius)",
          "to_fmpq(middle / radius + 1)", "anchors"),
    fault("a bend is somewhere else", "compiler.gallery.attention_only:_abs_of", 'ex.add(ex.variable("u1"), constant)',
          'ex.variable("u1")', "bent_anchors"),
    fault("a local model is that of the next cell", "compiler.gallery.local_polynomials:_built", "cut.columns[:, cut.used]",
          "__import__('numpy').roll(cut.columns[:, cut.used], 1, axis=0)", "local"),
    fault("cells of local models are elsewhere", "compiler.gallery.local_polynomials:joined", "TableTokens(slopes, offsets, columns",
          "TableTokens(slopes, -offsets, columns", "local"),
    fault("terms of local models change places", "compiler.gallery.local_polynomials:_built", "for q in cut.terms(o)",
          "for q in cut.terms(o)[::-1]", "local"),
    fault("a product is computed before its factors", "compiler.gallery.local_polynomials:joined", "dict.fromkeys(local, 1)",
          "dict.fromkeys(local, 0)", "local"),
    fault("a coefficient goes to another slot", "compiler.gallery.local_polynomials:joined", "reach, tuple(local)",
          "reach, tuple(local[::-1])", "local"),
    fault("a polynomial's powers have the wrong sign", "compiler.polynomial:_RidgeBuilder._power_slot",
          "fmpq((-1) ** s)", "fmpq(1)",
          "polynomial"),
    wrapped("directions are too long", "compiler.polynomial:_binary_shift", lambda shift: shift + 3, "polynomial"),
    wrapped("the offset of Lemma 3.1 is too small", "compiler.polynomial:OFFSET", lambda offset: 1, "polynomial"),
    fault("a polynomial loses a direction", "compiler.polynomial:_RidgeBuilder._readout",
          "for k, direction in enumerate(self.directions):",
          "for k, direction in enumerate(self.directions[:-1]):", "polynomial"),
    fault("a polynomial's constant is lost", "compiler.polynomial:weights_from_terms", "terms.get(zero, fmpq(0))",
          "fmpq(0)",
          "polynomial"),
    fault("an approximation loses a term", "compiler.corollary:_Fit.monomials", "return dict(total.to_dict())",
          "return dict(list(total.to_dict().items())[1:])", "approximation"),
    fault("an approximation may be off by more than its share", "compiler.corollary:construct_approximation",
          "search.lowest(share * eps)", "search.lowest(20 * share * eps)", "approximation", True),
]  # fmt: skip

FAULTS = REWRITING + SEARCHING + CONSTRUCTIONS

#: name -> formulas, box, construction, eps, further options
CASES: dict[str, tuple[Any, str, str, float, dict[str, Any]]] = {
    "terms": ("sin(x) + 2*cos(y) - x/3 + 1/7", "x=-1..1, y=0..1", "lookup", 0.05, {}),
    "scaled": ("3*pi*(sin(x) + 2*(y + 1/3) + x)", "x=-1..1, y=0..1", "lookup", 0.3, {}),
    "over_pi": ("sin(x)/pi + x", "x=-1..1", "lookup", 0.05, {}),
    "kinks": ("2*max(x + 1/5, y/2) + 3*abs(x - 1/3) + sin(x)", "x=-1..1, y=0..1", "lookup", 0.05, {}),
    "same_form": ("sin(2*x + 2*y) + cos(3*x + 3*y + 1/2)", "x=-1..1, y=0..1", "lookup", 0.05, {}),
    "odd_form": ("exp(-x - y) + exp(x + y)/4", "x=-1..1, y=0..1", "lookup", 0.1, {}),
    "cancels": ("exp(x - x + 1/2)*sin(y) + x", "x=-1..1, y=0..1", "lookup", 0.05, {}),
    "multiples": ("exp(sin(x*y) + cos(2*x*y))", "x=-1..1, y=0..1", "circuit", 0.3, {}),
    "two_values": ("exp(sin(x*y) + x)", "x=-1..1, y=0..1", "circuit", 0.3, {}),
    "repeated_factor": ("x*y*x", "x=-1..1, y=0..1", "circuit", 0.1, {}),
    "quotient": ("x/(1 + y)**2", "x=-1..1, y=0..1", "circuit", 0.1, {}),
    "three_factors": ("3*x*sin(y)*exp(z)", "x=-1..1, y=0..1, z=0..1", "circuit", 0.3, {}),
    "root_factor": ("y*sqrt(1 + x)", "x=-1/2..1, y=0..1", "circuit", 0.1, {}),
    "distributes": ("x*(1/x + y)", "x=1..2, y=1..2", "circuit", 0.1, {}),
    "removable_over": ("sin(x)/x/(1 + y)", "x=-1..1, y=0..1", "lookup", 0.1, {}),
    "length": ("sqrt(4*x**2 + y**2)", "x=-1..1, y=-1..1", "circuit", 0.1, {"dtype": "float32"}),
    "root_of_product": ("sqrt(x**2*(1 + y)**2)", "x=-1..1, y=1/4..1", "circuit", 0.1, {}),
    "length_of_three": ("sqrt(x**2 + y**2 + z**2)", "x=-1..1, y=-1..1, z=-1..1", "circuit", 0.2, {"dtype": "float32"}),
    "cosines": ("sqrt(x**2 + y**2 - 2*x*y*cos(z))", "x=0..1, y=0..1, z=0..1", "circuit", 0.2, {"dtype": "float32"}),
    "conjugate": ("sqrt(x**2 + y) - x", "x=-1..9, y=1..2", "circuit", 0.2, {}),
    "other_conjugate": ("2*x - 2*sqrt(x**2 - 4*y)", "x=9..10, y=1..2", "circuit", 0.2, {}),
    "conjugate_twice": ("sqrt(x**2 + y) - x - x", "x=-1..9, y=1..2", "circuit", 0.5, {}),
    "completed": ("sqrt(2*x*x - 2*x*y + y*y - 2*x + 1)", "x=0..2, y=0..2", "circuit", 0.3, {}),
    "squared_factors": ("sqrt((x*x - 2*x*y + y*y)*(1 + 2*x + x*x))", "x=-1/2..1, y=-1..1", "circuit", 0.5, {}),
    "removable_twice": ("sin(x)/x*(sin(x)/x)", "x=-2..2", "lookup", 0.05, {}),
    "removable_scale": ("sin(3*x)/x", "x=-1..1", "lookup", 0.1, {}),
    "removable_rest": ("erf(x)/x", "x=-1..1", "lookup", 0.1, {}),
    "removable_sum": ("(exp(2*x) - exp(x))/x", "x=-1..1", "lookup", 0.1, {}),
    "pole": ("exp(x)/x*sin(y)", "x=-1..1, y=0..1", "lookup", 0.1, {}),
    "removable_two": ("sin(x)/x + sin(y)/y", "x=-1..1, y=-1..1", "lookup", 0.1, {}),
    "repeated_term": ("sin(3*(x + y)*(x + x + y))", "x=0..1, y=0..1", "circuit", 0.3, {}),
    "negative_part": ("sin(3*(x - y)*(y - x + z))", "x=0..1, y=0..1, z=0..1", "circuit", 0.3, {}),
    "product": ("x*y", "x=0..2, y=1/2..1", "circuit", 0.05, {}),
    "product_and_more": ("x*y + 3*x + sin(y)", "x=0..2, y=1/2..1", "circuit", 0.1, {}),
    "square": ("(x + y)**2 + x*y", "x=0..2, y=1/2..1", "circuit", 0.1, {}),
    "extremes": ("min(x*y, y, x + 1/2) + abs(x*y - 1/4)", "x=-1..1, y=0..1", "circuit", 0.1, {}),
    "root_of_square": ("sqrt((x*y - 1/4)**2)", "x=-1..1, y=0..1", "circuit", 0.1, {}),
    "offset": ("y*exp(4 + sin(x)/9)", "x=-1..1, y=0..1", "circuit", 0.2, {}),
    "clamp": ("sqrt(x*y)", "x=0..1, y=0..1", "circuit", 0.1, {}),
    "two_clamps": ("acos(x*y)", "x=-1..1, y=-1..1", "circuit", 0.2, {}),
    "fused": ("exp(x)*sin(x)*y", "x=-1..1, y=0..1", "circuit", 0.1, {}),
    "exchange": ("x/(exp(x/y) - 1)", "x=1..5, y=1..5", "circuit", 0.1, {}),
    "divides": ("(x**2 + y**2*z)/y", "x=1..2, y=1..2, z=1..2", "circuit", 0.1, {}),
    "logs": ("tanh(2*x*y/z)", "x=1..2, y=1..2, z=1..2", "circuit", 0.1, {}),
    "negative_logs": ("exp(-x*y/z)", "x=1..2, y=1..2, z=1..2", "circuit", 0.1, {}),
    "signed_logs": ("exp(x*y/z)", "x=-1..1, y=1..2, z=1..2", "circuit", 0.1, {}),
    "norm": ("sqrt(x**2 + y**2)", "x=-1..1, y=-1..1", "circuit", 4e-4, {"dtype": "float32"}),
    "power": ("x**y", "x=1..2, y=1/2..1", "circuit", 0.1, {}),
    "swapped_wires": ("sin(x + y)*exp(x*y)", "x=-1..1, y=0..1", "circuit", 0.1, {}),
    "shifted_root": ("sqrt(x*y - 1/4)", "x=1/2..1, y=1/2..1", "circuit", 0.1, {}),
    "wide_product": ("x*y + 1", "x=-9..9, y=0..5", "circuit", 0.5, {}),
    "constants": ("pi*x*y + pi*(y - 1) + pi", "x=0..1, y=0..1", "circuit", 0.05, {}),
    "slope": ("x + x**3/9 + exp(x)", "x=-1..1", "lookup", 0.05, {}),
    "sequence": (["sin(x) + y", "2*x + cos(y)"], "x=-1..1, y=0..1", "lookup", 0.1, {"shape": (2, 1)}),
    "cut_to_be_defined": ("tan(x - x*x)", "x=0..1.6", "lookup", 0.5, {}),
    "cut_for_a_sign": ("log(x - sin(2*x) + 3/5)", "x=0..1", "lookup", 0.2, {}),
    "undefined": ("sqrt(x*x - x + 1/5) + y*x", "x=0..1, y=0..1", "lookup", 0.3, {}),
    "undefined_circuit": ("sqrt(x*x - x*y + 1/5)*y", "x=0..1, y=1/2..1", "circuit", 0.3, {}),
    "undefined_removable": ("sin(x)/x*sqrt(x + 1/2)", "x=-1..1", "lookup", 0.3, {}),
    "undefined_cells": ("asin(x)", "x=0..1.2", "partition", 0.3, {}),
    "claimed_range": ("exp(x*y*(1 - x*y) - x*y)", "x=0..1, y=0..1", "circuit", 0.1, {}),
    "nested": ("sin(exp(x*y))", "x=-1..1, y=0..1", "circuit", 0.1, {}),
    "one_table": ("sin(3*x)", "x=-1..1", "lookup", 0.01, {}),
    "rough_table": ("sqrt(abs(sin(x)) + 1/50)", "x=-2..2", "lookup", 0.1, {}),
    "circuit_table": ("sin(2*x*y)", "x=-1..1, y=0..1", "circuit", 0.05, {}),
    "grid": ("sin(3*x*y)", "x=-1..1, y=0..1", "lookup", 0.05, {}),
    "oblong_grid": ("sin(x*y)", "x=-2..2, y=0..1", "lookup", 0.1, {}),
    "cut_grid": ("exp(-8*(x*x + y*y))*x", "x=-1..1, y=-1..1", "lookup", 0.2, {}),
    "cells": ("sin(2*x)", "x=-1..1", "partition", 0.1, {}),
    "anchors": ("sin(2*x)", "x=0..1", "attention-only", 0.1, {}),
    "bent_anchors": ("abs(x - 1/3)", "x=-1..1", "attention-only", 0.1, {}),
    "local": ("sin(3*x)", "x=-1..1", "local-polynomials", 0.01, {}),
    "cut_cells": ("sin(x)**2/(1 + x**2) - x*cos(x)", "x=-2..2", "partition", 0.3, {}),
    "followed": ("x*exp(-3*y)*z", "x=0..2, y=0..1, z=0..1", "circuit", 0.1, {}),
    "two_tables": ("sin(x*y) + exp(x)", "x=-1..1, y=0..1", "circuit", 0.1, {}),
    "two_parts": ("sin(2*x) + exp(y)", "x=-1..1, y=0..1", "lookup", 0.05, {}),
    "polynomial": ("x**3/3 - 2*x*y + 1/7", "x=-2..2, y=-1..3", "polynomial", 1e-6, {}),
    "approximation": ("exp(x)", "x=-1..1", "polynomial", 0.01, {}),
}  # fmt: skip
