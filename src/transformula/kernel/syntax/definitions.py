"""Functions that are short for others: the parser writes out what they are defined as.

atan2(u, v) is twice the angle t/2 with tan(t/2) = sin t / (1 + cos t): a quotient that is undefined on the branch cut
u = 0, v <= 0, and an angle in -pi..pi everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from transformula.kernel.exceptions import FormulaError
from transformula.kernel.functions.function_table import find
from transformula.kernel.functions.special_functions import FAMILIES, MAX_ORDER
from transformula.kernel.functions.taylor_rests import rest_named
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr

#: Each in the argument u, in u and v, or in u, v and w.
DEFINITIONS = {
    "log2": "log(u)*(1/log(2))", "log10": "log(u)*(1/log(10))", "log1p": "log(1 + u)", "exp2": "2**u",
    "expm1": "exp(u) - 1", "pow": "u**v", "hypot": "sqrt(u**2 + v**2)",
    "atan2": "2*atan(u/(sqrt(u**2 + v**2) + v))",
    "sec": "1/cos(u)", "csc": "1/sin(u)", "cot": "cos(u)/sin(u)",
    "sech": "1/cosh(u)", "csch": "1/sinh(u)", "coth": "cosh(u)/sinh(u)",
    "sigmoid": "(1 + tanh(u/2))/2", "logit": "log(u/(1 - u))", "softplus": "log(1 + exp(u))", "relu": "max(u, 0)",
    "gelu": "u*(1 + erf(u/sqrt(2)))/2", "silu": "u*(1 + tanh(u/2))/2", "softsign": "u/(1 + abs(u))",
    "clip": "min(max(u, v), w)", "radians": "u*pi/180", "degrees": "u*180/pi", "Phi": "(1 + erf(u/sqrt(2)))/2",
    "factorial": "gamma(u + 1)", "beta": "gamma(u)*gamma(v)/gamma(u + v)",
    **{f"{kind}{order}": f"bessel{kind}({order}, u)" for kind in "jyik" for order in "01"},
}  # fmt: skip

#: Other names for the same.
ALIASES = {
    "ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "arctan2": "atan2", "Abs": "abs", "Min": "min", "Max": "max", "power": "pow",
    "Gamma": "gamma", "loggamma": "lgamma", "gammaln": "lgamma", "psi": "digamma", "expit": "sigmoid",
    "swish": "silu", "LambertW": "lambertw", "jn": "besselj", "jv": "besselj", "yn": "bessely", "yv": "bessely",
    "iv": "besseli", "kn": "besselk", "kv": "besselk", "chebyshev": "chebyshevt",
    "clamp": "clip", "deg2rad": "radians", "rad2deg": "degrees", "normcdf": "Phi",
    "ceiling": "ceil", "sgn": "sign", "Heaviside": "heaviside", "step": "heaviside", "Mod": "mod", "rint": "round",
}  # fmt: skip

#: Sums and products of arguments in a list.
LISTED: dict[str, Callable[..., Expr]] = {"sum": ex.add, "prod": ex.mul}

#: where(test, a, b) and Piecewise((a, test), .., (b, True)): see `pieces`.
PIECEWISE = ("where", "Piecewise")

#: Functions that jump, and those made of them: for formulas that are continuous all the same (`jumps`). Halves may be
#: rounded either way: where a formula is continuous, that makes no difference.
JUMPS = ("floor", "sign")
JUMPING = {
    "ceil": "-floor(-u)", "round": "floor(u + 1/2)", "trunc": "max(floor(u), 0) - max(floor(-u), 0)",
    "heaviside": "(1 + sign(u))/2", "mod": "u - v*floor(u/v)", "fmod": "u - v*trunc(u/v)",
}  # fmt: skip


def _next(name: str, n: int) -> tuple[Fraction, Fraction, Fraction]:
    """a, b, c with P_(n+1) = (a u + b) P_n - c P_(n-1)."""
    one, k = Fraction(1), Fraction(1, n + 1)
    return {
        "legendre": ((2 * n + 1) * k, 0 * one, n * k),
        "laguerre": (-k, (2 * n + 1) * k, n * k),
        "hermite": (2 * one, 0 * one, 2 * n * one),
        "chebyshevt": (one if n == 0 else 2 * one, 0 * one, one),
        "chebyshevu": (2 * one, 0 * one, one),
    }[name]


#: Polynomials by degree: Hermite's are the physicists', Chebyshev's of the first and of the second kind.
POLYNOMIALS = ("legendre", "hermite", "laguerre", "chebyshevt", "chebyshevu")


def _polynomial(name: str, degree: int, u: Expr) -> Expr:
    if degree == 0:
        return ex.power(u, ex.number(0))  # 1, where u is defined
    before, now = [Fraction(0)], [Fraction(1)]
    for n in range(degree):
        a, b, c = _next(name, n)
        terms = [Fraction(0)] * (n + 2)
        for k, p in enumerate(now):
            terms[k + 1] += a * p
            terms[k] += b * p
        for k, p in enumerate(before):
            terms[k] -= c * p
        before, now = now, terms
    powers = (ex.power(u, ex.number(k)) if k else ex.number(1) for k in range(degree + 1))
    return ex.add(*(ex.mul(ex.number(c), p) for c, p in zip(now, powers, strict=True) if c))


def by_order(name: str, order: Expr, u: Expr) -> Expr:
    """A function of an order or a degree, and an argument."""
    value, least = order.number, 0 if name in POLYNOMIALS else -MAX_ORDER
    halves = 1 if name in POLYNOMIALS else 2
    if value is None or value.denominator > halves or not least <= value <= MAX_ORDER:
        kinds = "a whole number or a half" if halves == 2 else "a whole number"
        raise FormulaError(f"the first argument of {name} is {kinds} from {least} to {MAX_ORDER}")
    return _polynomial(name, int(value), u) if name in POLYNOMIALS else ex.call(f"{name}:{value}", u)


def is_known(name: str) -> bool:
    """Whether a name may stand before a bracket; that of a rest (`taylor_rests`) is not listed."""
    rest = rest_named(name)
    return name in (*known(), *JUMPS, *JUMPING) or (rest is not None and rest.base in (*ex.FUNCTIONS, *FAMILIES))


def known() -> tuple[str, ...]:
    """Every name that may stand before a bracket, aliases left out."""
    return (*ex.FUNCTIONS, *ex.VARIADIC, *DEFINITIONS, *LISTED, *FAMILIES, *POLYNOMIALS)


def written_out(name: str, args: list[Expr], read: Callable[[str], Expr]) -> Expr:
    """A call of a known function; ``read`` reads the text of a definition."""
    rest = rest_named(name)
    if (rest.base if rest else name) in (*FAMILIES, *POLYNOMIALS):
        _count(name, args, 2)
        return by_order(name, *args)
    if name in DEFINITIONS or name in JUMPING:
        meaning = read(DEFINITIONS.get(name) or JUMPING[name])
        _count(name, args, len(meaning.names))
        return ex.substitute(meaning, {ex.variable(n): a for n, a in zip("uvw", args, strict=False)})
    if name in LISTED:
        return LISTED[name](*args) if len(args) > 1 else args[0]
    if name in ex.VARIADIC and len(args) < 2:
        raise FormulaError(f"{name} takes two arguments or more")
    if name not in ex.VARIADIC:
        _count(name, args, 1)
    made = ex.call(name, *args)
    if rest and find(made.op) is None:
        raise FormulaError(f"{name} has terms before it that are not exact")
    return made


def _count(name: str, args: list[Expr], wanted: int) -> None:
    if len(args) != wanted:
        counts = {1: "one argument", 2: "two arguments", 3: "three arguments"}
        raise FormulaError(f"{name} takes {counts[wanted]}, not {len(args)}")
