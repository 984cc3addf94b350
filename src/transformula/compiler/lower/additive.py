"""The additive decomposition of a formula: summands that are functions of few linear forms.

A softmax head reads linear forms of the inputs, so what matters is not how many variables a summand
has but how many *forms*: sin(3*x1 + x2) needs one. An expression is split at its sums; affine
summands, multiples of |affine|, min and max of two affine expressions, and the rest are told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from transformula.compiler.lower.factors import factors_of
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, substitute, variables_of, walk

Form = tuple[Fraction, ...]


@dataclass(frozen=True)
class AffineForm:
    """constant + Σ form_i x_i, where the form is rational and the constant may be any expression."""

    form: Form
    constant: Expr

    @property
    def is_constant(self) -> bool:
        """Whether no input occurs."""
        return not any(self.form)


@dataclass(frozen=True)
class Part:
    """A summand as a function of forms: ``expr`` in the variables u1, u2, .. with u_k = forms[k]·x.

    ``original`` is the same summand in the formula's own variables, for messages.
    """

    forms: tuple[Form, ...]
    expr: Expr
    original: Expr


@dataclass(frozen=True)
class AbsTerm:
    """coefficient · |affine|, which a ReLU layer computes exactly."""

    coefficient: Expr
    inside: AffineForm


@dataclass(frozen=True)
class Decomposition:
    """affine + Σ abs_terms + Σ parts."""

    affine: AffineForm
    abs_terms: tuple[AbsTerm, ...]
    parts: tuple[Part, ...]


def decompose(expr: Expr, variables: Sequence[str]) -> Decomposition:
    """Split an expression; the sum of the results is exactly the expression.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> d = decompose(parse("sin(3*x + y) + 2*x + abs(y - 1/3)"), ("x", "y"))
    >>> [str(part.expr) for part in d.parts], d.parts[0].forms == ((Fraction(3), Fraction(1)),)
    (['sin(u1)'], True)
    >>> [str(k.inside.constant) for k in d.abs_terms], d.affine.form == (2, 0)
    (['-1/3'], True)
    """
    width = len(variables)
    expr = without_cancelled(expr, variables)
    affine = AffineForm((Fraction(0),) * width, ex.number(0))
    abs_terms: list[AbsTerm] = []
    rest: dict[tuple[Form, ...], Part] = {}
    for factor, term in _summands(expr):
        linear = as_affine(term, variables)
        if linear is not None and factor.number is not None:
            affine = _add(affine, _scale(linear, factor.number))
        elif linear is not None and linear.is_constant:
            affine = _add(affine, AffineForm(linear.form, ex.mul(factor, linear.constant)))
        elif (found := _abs_term(term, variables)) is not None and (factor.number is not None or term.op == "abs"):
            absolute, outside = found
            abs_terms.append(AbsTerm(ex.mul(factor, absolute.coefficient), absolute.inside))
            affine = _add(affine, _scale(outside, factor.number or Fraction(0)))
        else:
            _collect(rest, ex.mul(factor, term), variables)
    return Decomposition(affine, tuple(abs_terms), tuple(rest.values()))


def without_cancelled(expr: Expr, variables: Sequence[str]) -> Expr:
    """Replace affine sub-expressions whose variables cancel (x − x, 0·y) by their constants."""
    while True:
        inner = _maximal_affine(expr, variables)
        cancelled = {node: affine.constant for node, affine in inner.items() if affine.is_constant}
        if not cancelled:
            return expr
        expr = substitute(expr, cancelled)


def _collect(rest: dict[tuple[Form, ...], Part], term: Expr, variables: Sequence[str]) -> None:
    part = as_part(term, variables)
    other = rest.get(part.forms)
    if other is not None:
        part = Part(part.forms, ex.add(other.expr, part.expr), ex.add(other.original, part.original))
    rest[part.forms] = part


def _summands(expr: Expr) -> list[tuple[Expr, Expr]]:
    """(constant factor, term) pairs whose products add up to the expression."""
    found: list[tuple[Expr, Expr]] = []
    stack = [(ex.number(1), expr)]
    while stack:
        factor, node = stack.pop()
        if node.op == "add":
            stack.extend((factor, a) for a in reversed(node.args))
            continue
        constant, other = _pull_constants(node)
        if constant is not None:
            stack.append((ex.mul(factor, constant), other))
        else:
            found.append((factor, node))
    return found


def _pull_constants(node: Expr) -> tuple[Expr | None, Expr]:
    if node.op == "mul":
        constants = [a for a in node.args if not variables_of(a)]
        others = [a for a in node.args if variables_of(a)]
        if constants and others:
            return ex.mul(*constants), ex.mul(*others) if len(others) > 1 else others[0]
    if node.op == "div" and not variables_of(node.args[1]) and variables_of(node.args[0]):
        return ex.div(ex.number(1), node.args[1]), node.args[0]
    return None, node


def as_affine(expr: Expr, variables: Sequence[str]) -> AffineForm | None:
    """The expression as a rational linear form plus a constant, or None if it is not one."""
    width = len(variables)
    zero = (Fraction(0),) * width
    if not variables_of(expr):
        return AffineForm(zero, expr)
    if expr.op == "variable":
        index = list(variables).index(str(expr.value))
        return AffineForm(tuple(Fraction(k == index) for k in range(width)), ex.number(0))
    if expr.op == "add":
        total = AffineForm(zero, ex.number(0))
        for term in expr.args:
            inner = as_affine(term, variables)
            if inner is None:
                return None
            total = _add(total, inner)
        return total
    if expr.op == "mul" and expr.args[0].number is not None:
        inner = as_affine(ex.mul(*expr.args[1:]), variables)
        return None if inner is None else _scale(inner, expr.args[0].number)
    return None


def _add(left: AffineForm, right: AffineForm) -> AffineForm:
    form = tuple(a + b for a, b in zip(left.form, right.form, strict=True))
    return AffineForm(form, ex.add(left.constant, right.constant))


def _scale(affine: AffineForm, by: Fraction) -> AffineForm:
    return AffineForm(tuple(by * v for v in affine.form), ex.mul(ex.number(by), affine.constant))


def _abs_term(term: Expr, variables: Sequence[str]) -> tuple[AbsTerm, AffineForm] | None:
    """abs, min or max of affine expressions as coefficient·|affine| + affine."""
    zero = AffineForm((Fraction(0),) * len(variables), ex.number(0))
    if term.op not in ("abs", "min", "max") or len(term.args) > 2:
        return None
    inner = [as_affine(a, variables) for a in term.args]
    if term.op == "abs" and inner[0] is not None:
        return AbsTerm(ex.number(1), inner[0]), zero
    if len(inner) == 2 and inner[0] is not None and inner[1] is not None:
        half = Fraction(1, 2)
        difference = _add(inner[0], _scale(inner[1], Fraction(-1)))
        sign = half if term.op == "max" else -half
        return AbsTerm(ex.number(sign), difference), _scale(_add(inner[0], inner[1]), half)
    return None


def as_part(expr: Expr, variables: Sequence[str]) -> Part:
    """The expression in as few linear forms as possible, from its maximal affine sub-expressions.

    If all of them are multiples of one form (plus constants), that form is the only argument;
    otherwise the variables themselves are.
    """
    inner = _maximal_affine(expr, variables)
    forms = {primitive_form(a.form)[0] for a in inner.values()}
    if len(forms) == 1:
        (form,) = forms
        u = ex.variable("u1")
        swap = {}
        for node, affine in inner.items():
            scale = primitive_form(affine.form)[1]
            swap[node] = ex.add(ex.mul(ex.number(scale), u), affine.constant)
        return Part((form,), substitute(expr, swap), expr)
    used = sorted(variables_of(expr), key=list(variables).index)
    units = tuple(tuple(Fraction(v == name) for v in variables) for name in used)
    renamed = {ex.variable(n): ex.variable(f"u{k + 1}") for k, n in enumerate(used)}
    return Part(units, substitute(expr, renamed), expr)


def _maximal_affine(expr: Expr, variables: Sequence[str]) -> dict[Expr, AffineForm]:
    """The largest sub-expressions that are affine and not constant."""
    found: dict[Expr, AffineForm] = {}
    stack = [expr]
    while stack:
        node = stack.pop()
        if not variables_of(node):
            continue
        affine = as_affine(node, variables)
        if affine is not None:
            found[node] = affine
        else:
            stack.extend(node.args)
    return found


def primitive_form(form: Form) -> tuple[Form, Fraction]:
    """A form as (coprime whole numbers with the first one positive, scale)."""
    common = math.lcm(*(v.denominator for v in form))
    whole = [int(v * common) for v in form]
    divisor = math.gcd(*whole)
    if next(v for v in whole if v) < 0:
        divisor = -divisor
    return tuple(Fraction(v // divisor) for v in whole), Fraction(divisor, common)


#: A variable no formula can contain: its name is empty.
_HOLE = ex.variable("")


def narrowest(expr: Expr) -> Expr | None:
    """The deepest sub-expression through which an expression depends on all of its variables, if any.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(narrowest(parse("exp(x*y)/(1 + x*y)"))), narrowest(parse("exp(x*u) + u"))
    ('x*y', None)
    """
    for node in walk(expr):  # children first: the first that qualifies is the deepest
        if node is not expr and node.args and variables_of(node) and depends_through(expr, node):
            return node
    return None


def smooth_outside(expr: Expr) -> Expr | None:
    """The deepest sub-expression of which the whole is a smooth function, and which has all of its abs, min and max.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(smooth_outside(parse("sqrt(abs(sin(x)) + 1)"))), smooth_outside(parse("x*abs(x)"))
    ('abs(sin(x))', None)
    """
    for node in walk(expr) if is_nonsmooth(expr) else ():
        if node is not expr and is_nonsmooth(node):
            outside = with_argument(expr, node, _HOLE)
            if variables_of(outside) == {""} and not is_nonsmooth(outside):
                return node
    return None


def is_nonsmooth(expr: Expr) -> bool:
    """Whether abs, min or max of a non-constant occurs."""
    return any(node.op in ("abs", "min", "max") and variables_of(node) for node in walk(expr))


def depends_through(expr: Expr, node: Expr) -> bool:
    """Whether an expression depends on its variables through one sub-expression only."""
    return variables_of(with_argument(expr, node, _HOLE)) == {""}


def with_argument(expr: Expr, node: Expr, argument: Expr) -> Expr:
    """The expression with a sub-expression, and its multiples, replaced by an argument and its multiples.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(with_argument(parse("exp(x/y) + exp(-3*x/y)"), parse("x/y"), ex.variable("u")))
    'exp(u) + exp(-3*u)'
    """
    swap = {node: argument}
    if node.op in ("mul", "div"):
        constant, powers = factors_of(node)
        for other in walk(expr):
            if other.op in ("mul", "div") and other != node:
                factor, same = factors_of(other)
                if same == powers:
                    swap[other] = ex.mul(ex.div(factor, constant), argument)
    return substitute(expr, swap)
