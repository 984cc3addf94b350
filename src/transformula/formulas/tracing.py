"""Python functions as formulas: called once with symbols for numbers, which write down what is done to them.

Operators and NumPy's functions are followed. What depends on a comparison is not: a symbol has no value to compare.
No text is executed; the function itself is the caller's own code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from transformula.errors import BoxError, FormulaError
from transformula.formulas import written as w
from transformula.formulas.written import Written

_INSTEAD = "use np.minimum, np.maximum or np.abs, or compile the branches one by one"
#: NumPy's names of functions of the registry, where they differ.
_NAMES = {"absolute": "abs", "fabs": "abs", "minimum": "min", "maximum": "max", "fmin": "min", "fmax": "max"}
_NAMES |= {"remainder": "mod"}
_NAMES |= {f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")}
_DEGREE = w.over(Written("pi"), Written("180"))
#: What NumPy's functions without an entry in the registry stand for.
_MEANINGS: dict[str, Callable[..., Written]] = {
    "add": w.plus, "subtract": w.minus, "multiply": w.times, "divide": w.over, "true_divide": w.over,
    "power": w.power, "float_power": w.power, "negative": w.negative, "positive": lambda a: a,
    "square": lambda a: w.power(a, Written("2")), "reciprocal": lambda a: w.over(Written("1"), a),
    "exp2": lambda a: w.power(Written("2"), a), "deg2rad": lambda a: w.times(a, _DEGREE),
    "radians": lambda a: w.times(a, _DEGREE), "rad2deg": lambda a: w.over(a, _DEGREE),
    "degrees": lambda a: w.over(a, _DEGREE), "sinc": lambda a: w.call("sinc", w.times(Written("pi"), a)),
    "heaviside": lambda a, middle: _step(a, middle), "floor_divide": lambda a, b: _whole(a, b),
    "clip": lambda a, low, high: w.call("min", w.call("max", a, low), high),
}  # fmt: skip


def traced(function: Callable[..., Any], variables: Sequence[str]) -> list[str]:
    """The texts of what a function of named arguments returns: one number, or a sequence of them.

    Parameters
    ----------
    variables : names of the box; arguments with a default value need not be among them.

    Examples
    --------
    >>> traced(lambda x, y: np.sin(x) * y + 0.1, ["x", "y"])
    ['sin(x)*y + 0.1']
    """
    returned = function(**_arguments(function, variables))
    several = isinstance(returned, (list, tuple)) or (isinstance(returned, np.ndarray) and returned.ndim > 0)
    texts = [_written(value) for value in (np.ravel(_objects(returned)) if several else [returned])]
    for text, value in zip(texts, returned if several else [returned], strict=False):
        if text is None:
            raise FormulaError(f"the function returned {type(value).__name__}, not a number made of its arguments")
    return [text.text for text in texts if text is not None]


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
            found[parameter.name] = Symbol(Written(parameter.name))
        elif parameter.default is parameter.empty:
            raise BoxError(f"the box has no interval for {parameter.name}, an argument of the function")
    return found


def _written(value: Any) -> Written | None:
    if isinstance(value, Symbol):
        return value.written
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _written(value.item())
    return w.number(value)


def _compared(*_: Any) -> NoReturn:
    raise FormulaError(f"the function compares its arguments, which have no values here: {_INSTEAD}")


def _as_number(*_: Any) -> NoReturn:
    raise FormulaError("the function needs the value of an argument, only a symbol here: use np.sin, not math.sin")


def _operator(meaning: Callable[[Written, Written], Written], swapped: bool = False) -> Any:
    def operate(self: Symbol, other: Any) -> Any:
        known = _written(other)
        if known is None:
            return NotImplemented
        return Symbol(meaning(known, self.written) if swapped else meaning(self.written, known))

    return operate


def _remainder(a: Written, b: Written) -> Written:
    return w.call("mod", a, b)


def _whole(a: Written, b: Written) -> Written:
    return w.call("floor", w.over(a, b))


def _step(a: Written, middle: Written) -> Written:
    if middle.text != "0.5":
        raise FormulaError("np.heaviside is read with the value 0.5 at zero")
    return w.call("heaviside", a)


class Symbol:
    """Stands for a number that is not known yet, and writes down what is done to it."""

    __slots__ = ("written",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: Written) -> None:
        self.written = text

    def __repr__(self) -> str:
        return self.written.text

    __add__, __radd__ = _operator(w.plus), _operator(w.plus, True)
    __sub__, __rsub__ = _operator(w.minus), _operator(w.minus, True)
    __mul__, __rmul__ = _operator(w.times), _operator(w.times, True)
    __truediv__, __rtruediv__ = _operator(w.over), _operator(w.over, True)
    __pow__, __rpow__ = _operator(w.power), _operator(w.power, True)
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = _compared  # type: ignore[assignment]
    __float__ = __int__ = __index__ = __complex__ = _as_number
    __mod__, __rmod__ = _operator(_remainder), _operator(_remainder, True)
    __floordiv__, __rfloordiv__ = _operator(_whole), _operator(_whole, True)

    def __neg__(self) -> Symbol:
        return Symbol(w.negative(self.written))

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return Symbol(w.call("abs", self.written))

    def __getattr__(self, name: str) -> Callable[[], Symbol]:
        """``x.sin()``: so NumPy calls functions of arrays of objects."""
        if not isinstance(getattr(np, name, None), np.ufunc):
            raise AttributeError(name)
        return lambda *more: _applied(name, (self, *more))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(value, np.ndarray) and value.ndim for value in inputs):
            boxed = [np.array(value, dtype=object) if isinstance(value, Symbol) else value for value in inputs]
            return getattr(ufunc, method)(*(_held(v) for v in boxed), **options)
        if method != "__call__" or options:
            raise FormulaError(f"np.{ufunc.__name__}.{method} cannot be compiled: only plain calls can")
        return _applied(ufunc.__name__, inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if options or any(isinstance(value, (list, tuple, np.ndarray)) for value in args):
            raise FormulaError(f"np.{function.__name__} cannot be compiled in this form")
        return _applied(function.__name__, args)


def _held(value: Any) -> Any:
    """A symbol in an array without dimensions, which NumPy broadcasts."""
    return value if not isinstance(value, np.ndarray) or value.dtype == object else value.astype(object)


def _applied(name: str, values: Sequence[Any]) -> Symbol:
    """NumPy's function of that name."""
    if name in ("where", "select", "piecewise", "less", "less_equal", "greater", "greater_equal"):
        raise FormulaError(f"np.{name} cannot be compiled: {_INSTEAD}")
    if name in ("equal", "not_equal"):
        _compared()
    parts = [_written(value) for value in values]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        raise FormulaError(f"np.{name} is given something that is neither a number nor an argument of the function")
    meaning = _MEANINGS.get(name)
    return Symbol(meaning(*known) if meaning else w.call(_NAMES.get(name, name), *known))
