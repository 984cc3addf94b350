"""Python functions as formulas: called with symbols for numbers, which record the operations on them.

Operators and NumPy's functions are followed, and comparisons where `np.where` or `np.select` chooses by them. Anything
else that depends on a comparison is not: a symbol has no value to compare. No text is executed; the function itself is
the caller's own code.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from numbers import Real
from typing import Any, NoReturn

import numpy as np

from transformula.errors import BoxError, FormulaError, TransformulaError
from transformula.formula.formula_text import ONE, ZERO, FormulaText, call, number_text

_INSTEAD = "use np.where, np.minimum, np.maximum or np.abs"
#: NumPy's comparisons, and what joins them.
_SIGNS = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_JOINED: dict[str, Callable[..., Any]] = {
    "logical_and": operator.and_,
    "logical_or": operator.or_,
    "logical_not": operator.invert,
}
_JOINED |= {"bitwise_and": operator.and_, "bitwise_or": operator.or_, "invert": operator.invert}
#: NumPy's names of functions that the language does not know.
_NAMES = {"absolute": "abs", "fabs": "abs", "minimum": "min", "maximum": "max", "fmin": "min", "fmax": "max"}
_NAMES |= {"remainder": "mod", "fix": "trunc"}
_PI = FormulaText("pi")
_TWO = FormulaText("2")
_DEGREE = _PI / FormulaText("180")


#: Refusals of the function that is being traced.
_refused_here: ContextVar[list[FormulaError]] = ContextVar("_refused_here")


class UntraceableError(FormulaError):
    """An operation that symbols do not have. The function may catch this, and go on as it would with no number."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        _refused_here.get([]).append(self)


def traced(function: Callable[..., Any], variables: Sequence[str]) -> list[str]:
    """The texts of what a function of named arguments returns: one number, or a sequence of them.

    Parameters
    ----------
    variables : names of the box; arguments with a default value need not be among them.

    Examples
    --------
    >>> traced(lambda x, y: np.sin(x) * y + 0.1, ["x", "y"])
    ['sin(x)*y + 0.1']
    >>> traced(lambda x: np.where(x > 1, x**2, round(x)), ["x"])
    ['where(x > 1, x**2, round(x))']
    """
    returned = _called(function, _arguments(function, variables))
    several = isinstance(returned, (list, tuple)) or (isinstance(returned, np.ndarray) and returned.ndim > 0)
    values = np.ravel(_objects(returned)) if several else [returned]
    texts = [_written(value) for value in values]
    for text, value in zip(texts, values, strict=True):
        if text is None or isinstance(value, bool):
            raise FormulaError(f"the function returned {type(value).__name__}, not a number made of its arguments")
    return [text.text for text in texts if text is not None]


def _called(function: Callable[..., Any], arguments: dict[str, Symbol]) -> Any:
    try:
        refused: list[FormulaError] = []
        _refused_here.set(refused)
        returned = function(**arguments)
        if refused:
            raise refused[0]
        return returned
    except TransformulaError:
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise FormulaError(
            f"the function fails when symbols stand for its arguments ({said}): "
            "each is one real number, for arithmetic and NumPy's functions"
        ) from error


def _objects(values: Any) -> Any:
    array = np.empty(len(values), dtype=object) if isinstance(values, (list, tuple)) else values
    if array is not values:
        array[:] = values
    return array


def _arguments(function: Callable[..., Any], variables: Sequence[str]) -> dict[str, Symbol]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise FormulaError(f"the arguments of {function!r:.60} have no names: wrap it in a lambda") from None
    found = {}
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise FormulaError(f"the function takes {parameter}, which has no name: wrap it in a lambda")
        if parameter.name in ("pi", "E"):
            raise FormulaError(f"{parameter.name} is the name of a constant: rename the argument")
        if parameter.name in variables:
            found[parameter.name] = Symbol(FormulaText(parameter.name))
        elif parameter.default is parameter.empty:
            raise BoxError(f"the box has no interval for {parameter.name}, an argument of the function")
    return found


def _written(value: Any) -> FormulaText | None:
    if isinstance(value, complex):
        raise UntraceableError(f"the function uses the complex number {value}: formulas are real")
    if isinstance(value, Symbol):
        return value.written
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _written(value.item())
    return number_text(value)


def _refused(said: str) -> Any:
    def refuse(*_: Any) -> NoReturn:
        raise UntraceableError(said)

    return refuse


_compared = _refused(f"the function compares its arguments, which have no values here: {_INSTEAD}")
_as_number = _refused("the function needs the value of an argument, only a symbol here: use np.sin, not math.sin")
_as_many = _refused("the function takes an argument as a sequence, and each is one number: write lambda x1, x2: ..")
_as_bits = _refused("the function takes its arguments as bits, and they are real numbers: write ** for a power")


def _operator(made: Callable[[FormulaText, FormulaText], Any], swapped: bool = False) -> Any:
    def operate(self: Symbol, other: Any, modulus: Any = None) -> Any:
        known = _written(other) if modulus is None else None
        if known is None:
            return NotImplemented
        return _as_symbols(made(known, self.written) if swapped else made(self.written, known))

    return operate


def _comparison(sign: str) -> Any:
    return _operator(lambda a, b: Condition(f"{a.text} {sign} {b.text}"))


def _as_symbols(made: Any) -> Any:
    """Formulas as symbols, one or several; a condition stays one."""
    if isinstance(made, FormulaText):
        return Symbol(made)
    return tuple(map(Symbol, made)) if isinstance(made, tuple) else made


def _divided(a: FormulaText, b: FormulaText) -> tuple[FormulaText, FormulaText]:
    return _quotient(a, b), _remainder(a, b)


def _remainder(a: FormulaText, b: FormulaText) -> FormulaText:
    """``a % b``."""
    return call("mod", a, b)


def _quotient(a: FormulaText, b: FormulaText) -> FormulaText:
    """``a // b``."""
    return call("floor", a / b)


def _rounded(a: FormulaText, digits: FormulaText = ZERO) -> FormulaText:
    """``round(a, digits)``. Halves may be rounded either way: where a formula is continuous, that is the same."""
    if digits == ZERO:
        return call("round", a)
    unit = FormulaText("10") ** digits
    return call("round", a * unit) / unit


def _step(a: FormulaText, middle: FormulaText) -> FormulaText:
    if middle.text != "0.5":
        raise UntraceableError("np.heaviside is read with the value 0.5 at zero")
    return call("heaviside", a)


_MEANINGS: dict[str, Callable[..., FormulaText]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "true_divide": operator.truediv, "power": operator.pow, "float_power": operator.pow, "negative": operator.neg,
    **dict.fromkeys(("positive", "conjugate", "real"), lambda a: a),
    "square": lambda a: a**_TWO, "reciprocal": lambda a: ONE / a,
    "exp2": lambda a: _TWO**a, "deg2rad": lambda a: a * _DEGREE,
    "radians": lambda a: a * _DEGREE, "rad2deg": lambda a: a / _DEGREE,
    "degrees": lambda a: a / _DEGREE, "sinc": lambda a: call("sinc", _PI * a),
    "logaddexp": lambda a, b: call("log", call("exp", a) + call("exp", b)),
    "heaviside": _step, "floor_divide": _quotient, "round": _rounded, "around": _rounded,
}  # fmt: skip


class _Traced:
    """The protocol by which NumPy passes on its calls with symbols and conditions."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(value, np.ndarray) and value.ndim for value in inputs):
            boxed = [np.array(value, dtype=object) if isinstance(value, _Traced) else value for value in inputs]
            return getattr(ufunc, method)(*(_held(v) for v in boxed), **options)
        if method != "__call__" or options:
            raise UntraceableError(f"np.{ufunc.__name__} cannot be compiled in this form: only plain calls can")
        return _applied(ufunc.__name__, inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        name = function.__name__
        if name == "clip":
            return _clipped(*args, **options)
        if name == "select" and not options:
            return _selected(*args)
        along = name in ("sum", "prod", "max", "min") and len(args) > 1  # not terms, but an axis
        if options or along or any(isinstance(value, (list, tuple, np.ndarray)) for value in args):
            raise UntraceableError(
                f"np.{name} cannot be compiled in this form: only plain calls with single numbers can"
            )
        return _applied(name, args)


class Symbol(_Traced):
    """A number that is not known yet, which records the operations on it as text."""

    __slots__ = ("written",)

    def __init__(self, text: FormulaText) -> None:
        self.written = text

    def __repr__(self) -> str:
        return self.written.text

    __add__, __radd__ = _operator(operator.add), _operator(operator.add, True)
    __sub__, __rsub__ = _operator(operator.sub), _operator(operator.sub, True)
    __mul__, __rmul__ = _operator(operator.mul), _operator(operator.mul, True)
    __truediv__, __rtruediv__ = _operator(operator.truediv), _operator(operator.truediv, True)
    __pow__, __rpow__ = _operator(operator.pow), _operator(operator.pow, True)
    __mod__, __rmod__ = _operator(_remainder), _operator(_remainder, True)
    __floordiv__, __rfloordiv__ = _operator(_quotient), _operator(_quotient, True)
    __divmod__, __rdivmod__ = _operator(_divided), _operator(_divided, True)
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("<", "<=", ">", ">="))
    __eq__ = __ne__ = __bool__ = _compared
    __hash__ = None  # type: ignore[assignment]
    __float__ = __int__ = __index__ = __complex__ = _as_number
    __matmul__ = __rmatmul__ = _as_many
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _as_bits
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _as_bits

    def __format__(self, form: str) -> str:
        return _as_number() if form else repr(self)

    def __neg__(self) -> Symbol:
        return Symbol(-self.written)

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return Symbol(call("abs", self.written))

    def __round__(self, digits: Any = 0) -> Any:
        return _applied("round", (self, digits or 0))

    def __floor__(self) -> Any:
        return _applied("floor", (self,))

    def __ceil__(self) -> Any:
        return _applied("ceil", (self,))

    def __trunc__(self) -> Any:
        return _applied("trunc", (self,))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """``x.sin()``: so NumPy calls functions of arrays of objects."""
        if not isinstance(getattr(np, name, None), np.ufunc):
            raise AttributeError(f"an argument is one number and has no attribute {name}")
        return lambda *more: _applied(name, (self, *more))


Real.register(Symbol)  # as np.isscalar asks: a function takes the way that it takes with numbers


class Condition(_Traced):
    """A comparison of symbols, or several joined by &, | and ~: the condition of `np.where`."""

    __slots__ = ("choose",)

    def __init__(self, test: str = "", choose: Callable[[FormulaText, FormulaText], FormulaText] | None = None) -> None:
        self.choose = choose or (lambda a, b: call("where", FormulaText(test), a, b))

    def __and__(self, other: Any) -> Condition:
        both = _condition(other)
        return Condition(choose=lambda a, b: self.choose(both.choose(a, b), b))

    def __or__(self, other: Any) -> Condition:
        either = _condition(other)
        return Condition(choose=lambda a, b: self.choose(a, either.choose(a, b)))

    def __invert__(self) -> Condition:
        return Condition(choose=lambda a, b: self.choose(b, a))

    __rand__, __ror__ = __and__, __or__
    __eq__ = __ne__ = __bool__ = _compared
    __hash__ = None  # type: ignore[assignment]


def _condition(value: Any) -> Condition:
    if isinstance(value, Condition):
        return value
    if isinstance(value, (bool, np.bool_)):
        return Condition(choose=lambda a, b: a if value else b)
    raise UntraceableError("np.where and np.select choose by comparisons such as x > 1, joined by &, | and ~")


def _held(value: Any) -> Any:
    """A symbol in an array without dimensions, which NumPy broadcasts."""
    return value if not isinstance(value, np.ndarray) or value.dtype == object else value.astype(object)


def _known(name: str, values: Sequence[Any]) -> list[FormulaText]:
    """The formulas of the values that NumPy's function of that name is given."""
    parts = [_written(value) for value in values]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        raise UntraceableError(f"np.{name} is given something that is neither a number nor an argument of the function")
    return known


def _applied(name: str, values: Sequence[Any]) -> Any:
    """NumPy's function of that name."""
    if name in ("equal", "not_equal"):
        _compared()
    if name in _JOINED:
        return _JOINED[name](*map(_condition, values))
    if name == "where" and len(values) == 3:
        return Symbol(_condition(values[0]).choose(*_known(name, values[1:])))
    known = _known(name, values)
    if name in _SIGNS:
        return Condition(f"{known[0].text} {_SIGNS[name]} {known[1].text}")
    if name == "divmod":
        return _as_symbols(_divided(*known))
    return Symbol(_numpy_function(name, *known))


def _numpy_function(name: str, *args: FormulaText) -> FormulaText:
    """The formula of a function of NumPy; the parser refuses unknown names."""
    if name not in _MEANINGS:
        return call(_NAMES.get(name, name), *args)
    try:
        return _MEANINGS[name](*args)
    except TypeError:
        raise UntraceableError(f"np.{name} cannot be compiled with {len(args)} arguments") from None


def _clipped(a: Any, a_min: Any = None, a_max: Any = None, **named: Any) -> Any:
    """np.clip, whose ends may be left out."""
    low, high = named.pop("min", a_min), named.pop("max", a_max)
    if named:
        raise UntraceableError("np.clip cannot be compiled in this form: only plain calls with single numbers can")
    a = a if low is None else _applied("maximum", (a, low))
    return a if high is None else _applied("minimum", (a, high))


def _selected(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0) -> Symbol:
    """np.select: the choice of the first condition that holds."""
    if len(conditions) != len(choices):
        raise UntraceableError(f"np.select is given {len(choices)} choices for {len(conditions)} conditions")
    (found,) = _known("select", [default])
    for condition, choice in reversed(list(zip(conditions, _known("select", choices), strict=True))):
        found = _condition(condition).choose(choice, found)
    return Symbol(found)
