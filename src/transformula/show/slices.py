"""Numbers to draw: the formula, the model and their difference along a line or a plane; attention at a point.

All of these are samples; *proven* bounds are in the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from transformula.compiler.constructions import CIRCUIT_FAMILY, TABLE_FAMILY
from transformula.errors import InputError
from transformula.formula.evaluation import evaluate, evaluate_accurately
from transformula.internals import summands
from transformula.kernel.folder.weights import FloatArray, Head, IntArray, Weights
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr, short_text, walk
from transformula.model import Model
from transformula.runtime import reference

#: Points along an axis of a curve and of a surface by default, and the largest number of points of a slice.
CURVE_POINTS = 401
SURFACE_POINTS = 61
MAX_POINTS = 1_000_000
#: Operations of a slice up to which it is evaluated with Arb, which does about a million a second.
_ACCURATE_OPERATIONS = 500_000
#: Largest number of scores: hardmax blocks compute tokens × tokens floats.
_MAX_SCORES = 30_000_000
#: Largest number of floats computed for attention along a line.
_MAX_FLOATS = 50_000_000


@dataclass(frozen=True, eq=False)
class Slice:
    """Formula, model and error along one variable or over two, the others held fixed.

    Attributes
    ----------
    output : which of the model's outputs, from 0.
    variables : one or two names.
    axes : the grid's coordinates, one array a variable; floats of the model's dtype, inside the box.
    held : the other variables' values.
    formula, model, error : arrays of the grid's shape; ``error`` is model − formula, NaN where the formula
        is undefined.
    accurate : whether the formula's values are correctly rounded (almost); else they are plain float64 NumPy,
        and ``error`` carries their rounding.
    """

    output: int
    variables: tuple[str, ...]
    axes: tuple[FloatArray, ...]
    held: dict[str, float]
    formula: FloatArray
    model: FloatArray
    error: FloatArray
    accurate: bool = True

    @property
    def worst(self) -> float:
        """The largest |error| seen; NaN if the formula is defined nowhere on the grid."""
        sizes = np.abs(self.error[np.isfinite(self.error)])
        return float(sizes.max()) if sizes.size else math.nan


def slice_through(
    model: Model,
    output: int = 0,
    variables: Sequence[str] | None = None,
    at: Mapping[str, float] | None = None,
    points: int | None = None,
) -> Slice:
    """Evaluate formula and model on a grid over one or two variables.

    Parameters
    ----------
    model : Model
        Not a memorised one: that has samples, not a formula.
    output : int
        Which output, from 0.
    variables : sequence of str, optional
        One or two of the box's variables; default: those the output uses, the first two at most.
    at : mapping, optional
        Where to hold the others (and, harmlessly, these); default: the middle of the box.
    points : int, optional
        Grid points per variable; default 401 for a curve, 61 for a surface.

    Examples
    --------
    >>> import transformula as tf
    >>> curve = slice_through(tf.compile("x**2 + y", on="x=-1..1, y=0..4"), variables=["x"])
    >>> curve.held, curve.formula.shape, float(curve.formula.min())
    ({'y': 2.0}, (401,), 2.0)
    """
    expr = _output(model, output)
    names = model.box.variables
    chosen = tuple(variables) if variables is not None else default_variables(model, output)
    if unknown := [v for v in chosen if v not in names]:
        raise InputError(f"the box has no variable {', '.join(map(str, unknown))}: it has {', '.join(names)}")
    if len(set(chosen)) not in (1, 2) or len(set(chosen)) != len(chosen):
        raise InputError(f"a slice runs along one variable or two different ones, not {list(chosen)}")
    count = points or (CURVE_POINTS if len(chosen) == 1 else SURFACE_POINTS)
    if count < 2 or count ** len(chosen) > MAX_POINTS:
        raise InputError(f"a slice takes from 2 to {MAX_POINTS} points in all, not {points}")
    centre = point_in_box(model, at)
    axes = tuple(axis_points(model, name, count) for name in chosen)
    grid = dict(zip(chosen, np.meshgrid(*axes, indexing="ij"), strict=True))
    shape = tuple(len(axis) for axis in axes)
    columns = [grid.get(n, np.broadcast_to(axes[0].dtype.type(centre[n]), shape)).ravel() for n in names]
    modelled = _outputs(model, np.stack(columns, axis=1))[:, output].astype(float).reshape(shape)
    arguments = [column.astype(float) for column in columns]
    used = [(n, a) for n, a in zip(names, arguments, strict=True) if n in _used(expr)] or [(names[0], arguments[0])]
    accurate = sum(1 for _ in walk(expr)) * len(arguments[0]) <= _ACCURATE_OPERATIONS
    exact = _values(expr, used, accurate).reshape(shape)
    with np.errstate(invalid="ignore"):
        error = modelled - exact
    held = {n: float(v) for n, v in centre.items() if n not in chosen}
    return Slice(output, chosen, axes, held, exact, modelled, error, accurate)


def _output(model: Model, output: int) -> Expr:
    if not isinstance(model.formula, Formula):
        raise InputError("a memorised model has samples, not a formula: there is nothing to slice")
    if not 0 <= output < len(model.formula.outputs):
        raise InputError(f"there is no output {output}: the model has {len(model.formula.outputs)}, from 0")
    return model.formula.outputs[output]


def _used(expr: Expr) -> frozenset[str]:
    return frozenset(str(node.value) for node in walk(expr) if node.op == "variable")


def default_variables(model: Model, output: int = 0) -> tuple[str, ...]:
    """The first two variables an output depends on, the box's first where it depends on none."""
    used = _used(_output(model, output))
    return tuple(n for n in model.box.variables if n in used)[:2] or model.box.variables[:1]


def _values(expr: Expr, used: list[tuple[str, FloatArray]], accurate: bool) -> FloatArray:
    names, arguments = zip(*used, strict=True)
    if accurate:
        return evaluate_accurately(expr, names, arguments)
    values = evaluate(expr, names, arguments)
    return np.where(np.isfinite(values), values, np.nan)


def axis_points(model: Model, name: str, count: int) -> FloatArray:
    """Equispaced floats of the model's dtype across one interval of the box, none outside it."""
    low, high = model.box.floats()[model.box.variables.index(name)]
    return _inside(np.linspace(low, high, count), low, high, model.weights.dtype)


def _inside(values: FloatArray, low: float, high: float, dtype: str) -> FloatArray:
    """Rounded to the dtype; what that carries across an end is taken back by one float."""
    cast = values.astype(dtype)
    kind = cast.dtype.type
    cast = np.where(cast.astype(float) > high, np.nextafter(cast, kind(-np.inf)), cast)
    return np.where(cast.astype(float) < low, np.nextafter(cast, kind(np.inf)), cast)


def point_in_box(model: Model, at: Mapping[str, float] | None = None) -> dict[str, float]:
    """A value for every variable: the one given, else the middle; rounded to the model's dtype."""
    given = dict(at or {})
    if unknown := [str(name) for name in given if name not in model.box.variables]:
        raise InputError(f"the box has no variable {', '.join(unknown)}")
    point = {}
    for name, (low, high) in zip(model.box.variables, model.box.floats(), strict=True):
        try:
            value = float(given.get(name, low / 2 + high / 2))
        except (TypeError, ValueError):
            raise InputError(f"{name} must be held at a number, not {given[name]!r}") from None
        if not math.isfinite(value):
            raise InputError(f"{name} must be held at a finite number, not {value}")
        if low <= value <= high:
            point[name] = float(_inside(np.array([value]), low, high, model.weights.dtype)[0])
        else:
            point[name] = float(np.dtype(model.weights.dtype).type(value))
    return point


def _outputs(model: Model, rows: FloatArray) -> FloatArray:
    """The model's outputs in the shape samples × outputs."""
    answers: FloatArray = np.asarray(model(rows)).reshape(len(rows), -1)
    return answers


@dataclass(frozen=True, eq=False)
class HeadAttention:
    """The attention of one head at one point, for the query of one token.

    Attributes
    ----------
    block, head : where it is, from 0.
    name : the summand or sub-expression its table stands for, if known, else "".
    query : name of the asking token.
    tokens : labels of the tokens it may attend to: its own table's, or all for hardmax. Other tables' tokens
        stand behind a gate (weight e^gate, proven negligible) and are left out.
    weights : the attention; for hardmax the one score that is kept. Along a line: points × tokens.
    values : what each token offers, before it is weighted; of several slots, the one asked for.
    writes : the slot that is written.
    kind : softmax or hardmax.
    """

    block: int
    head: int
    name: str
    query: str
    tokens: tuple[str, ...]
    weights: FloatArray
    values: FloatArray
    writes: str = ""
    kind: str = "softmax"

    @property
    def contributions(self) -> FloatArray:
        """weights · values: their sum is what the head writes."""
        product: FloatArray = self.weights * self.values
        return product


def attention_at(model: Model, point: Mapping[str, float], output: int = 0, query: int = 0) -> list[HeadAttention]:
    """Every head's attention at one point, computed by the definition (`runtime.reference`).

    Parameters
    ----------
    model : Model
    point : mapping
        Variables that are missing are held at the middle of the box.
    output : int
        Whose values to report where a head writes several outputs at once.
    query : int
        Which of the data tokens asks, from 0: a sequence has one per position, a polynomial one per direction.

    Examples
    --------
    >>> import transformula as tf
    >>> model = tf.compile("sin(x) + cos(y)", on="x=0..3, y=0..3", eps=1e-4)
    >>> heads = attention_at(model, {"x": 1.0})
    >>> [h.name for h in heads], [round(float(h.weights.sum()), 9) for h in heads]
    (['sin(x)', 'cos(y)'], [1.0, 1.0])
    """
    held = point_in_box(model, point)
    rows = np.array([[held[name] for name in model.weights.inputs]], dtype=model.weights.dtype)
    return [replace(h, weights=h.weights[0], values=h.values[0]) for h in _attention(model, rows, output, query)]


def attention_along(
    model: Model,
    variable: str,
    at: Mapping[str, float] | None = None,
    points: int = 41,
) -> tuple[FloatArray, list[HeadAttention]]:
    """Every head's attention while one variable runs through its interval, the others held.

    Returns the variable's values and the heads, whose ``weights`` and ``values`` are points × tokens. Very
    large models get fewer points, or an `InputError` where even a few are too many.

    Examples
    --------
    >>> import transformula as tf
    >>> axis, (head,) = attention_along(tf.compile("sin(x)", on="x=0..3", eps=1e-4), "x")
    >>> head.weights.shape == (len(axis), len(head.tokens))
    True
    """
    if variable not in model.box.variables:
        raise InputError(f"the box has no variable {variable}: it has {', '.join(model.box.variables)}")
    points = min(points, int(_MAX_FLOATS / _floats_a_point(model.weights)))
    if points < 5:
        raise InputError(f"{model.tokens} tokens are too many to follow their attention")
    axis = axis_points(model, variable, points)
    held = point_in_box(model, at)
    columns = [axis if n == variable else np.full_like(axis, held[n]) for n in model.weights.inputs]
    return axis.astype(float), _attention(model, np.stack(columns, axis=1), 0, 0)


def _floats_a_point(weights: Weights) -> int:
    return weights.tokens * (weights.width + len(weights.data_tokens))


def _attention(model: Model, rows: FloatArray, output: int, query: int) -> list[HeadAttention]:
    """The blocks as `runtime.reference` defines them, with only the data tokens asking."""
    weights, data = model.weights, model.weights.data_tokens
    if not 0 <= query < max(len(data), 1):
        raise InputError(f"there is no data token {query}: the model has {len(data)}, from 0")
    if len(data) * weights.tokens > _MAX_SCORES:
        raise InputError(f"{weights.tokens} tokens that all ask are too many to show their attention")
    names, labels = head_names(model), model.token_labels
    plans: list[tuple[HeadAttention, IntArray, FloatArray]] = []  # heads still without numbers
    for b, block in enumerate(weights.blocks):
        for h, head in enumerate(block.attention.heads):
            gated = block.attention.kind == "softmax" and len(data) < weights.tokens
            own = own_tokens(head, weights) if gated else np.arange(weights.tokens, dtype=np.int32)
            row, slot = _written(head, weights, output)
            empty = np.zeros((0, len(own)))
            blank = HeadAttention(
                b, h, names.get((b, h), ""), labels[int(data[query])], tuple(labels[t] for t in own.tolist()),
                empty, empty, slot, block.attention.kind,
            )  # fmt: skip
            plans.append((blank, own, head.value.dense(weights.dtype)[row]))
    found: list[tuple[list[FloatArray], list[FloatArray]]] = [([], []) for _ in plans]
    step = max(1, reference.CHUNK_FLOATS // _floats_a_point(weights))
    for start in range(0, len(rows), step):
        stream = reference.embed(weights, rows[start : start + step])
        for b, block in enumerate(weights.blocks):
            finished, patterns = reference.run_block(block, stream, data)
            for (blank, own, row_of_value), (seen, offered) in zip(plans, found, strict=True):
                if blank.block == b:
                    seen.append(patterns[blank.head][:, query, own].astype(float))
                    offered.append((stream[:, own] @ row_of_value).astype(float))
            # Memory tokens change too, but never in slots that keys or values read (`kernel.structures`).
            stream[:, data] = finished
    return [
        replace(blank, weights=np.concatenate(seen), values=np.concatenate(offered))
        for (blank, _, _), (seen, offered) in zip(plans, found, strict=True)
    ]


def own_tokens(head: Head, weights: Weights) -> IntArray:
    """Indices of the tokens whose gate a table head leaves open."""
    last = head.key.rows == head.key.shape[0] - 1
    closed = head.key.cols[last]
    gates = np.isin(weights.memory.cols, closed)
    shut = np.unique(weights.memory.rows[gates])
    return np.setdiff1d(np.arange(weights.tokens), np.union1d(shut, weights.data_tokens)).astype(np.int32)


def _written(head: Head, weights: Weights, output: int) -> tuple[int, str]:
    """A row of a head's values, that of the output if there is one, and the slot that it is written to."""
    if head.output is not None:
        return int(head.output.cols[0]), weights.slots[int(head.output.rows[0])]
    rows = np.unique(head.value.rows).tolist()
    wanted = [r for r in rows if weights.slots[r] == f"y{output + 1}"]
    row = int((wanted or rows)[0])
    return row, weights.slots[row]


def head_names(model: Model) -> dict[tuple[int, int], str]:
    """(block, head) → the summand or sub-expression its table stands for, where that is clear."""
    if model.family is CIRCUIT_FAMILY:
        return {place: short_text(meaning) for place, meaning in head_meanings(model).items()}
    if model.family is not TABLE_FAMILY or not isinstance(model.formula, Formula):
        return {}
    heads = len(model.weights.blocks[0].attention.heads) if model.weights.blocks else 0
    return {(0, h): text for h, text in enumerate(summands(model.formula, heads)) if text}


def head_meanings(model: Model) -> dict[tuple[int, int], Expr]:
    """(block, head) of a circuit → its table's result as an expression of the inputs, from the stored circuit."""
    meanings = zip(model.circuit.wires, model.wires.meanings, strict=True)
    return {w.place[:2]: meaning for w, meaning in meanings if w.function is not None and w.place is not None}
