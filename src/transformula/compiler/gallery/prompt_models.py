"""In-context models: an algorithm and the size of its prompts in, weights with a proof out; linear attention."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
from flint import fmpq

from transformula.budget import one_thread
from transformula.compiler import policy
from transformula.compiler.attempts import Built, Options, known_dtype, positive
from transformula.compiler.certify import package
from transformula.compiler.constructions import IN_CONTEXT
from transformula.errors import InputError, NotProvenError, brief
from transformula.formula.given_box import exact_number
from transformula.formula.prompt_target import Prompts
from transformula.kernel.enclosures.balls import to_fmpq, to_fraction
from transformula.kernel.folder.description import MAX_BLOCKS
from transformula.kernel.folder.weights import Attention, Block, FeedForward, FloatArray, Head, Weights
from transformula.kernel.gallery.in_context_blocks import (
    FIELDS,
    MAY_VANISH,
    Layer,
    PromptPlan,
    PromptTask,
    plan_of,
    threshold_entries,
)
from transformula.kernel.gallery.in_context_rule import MAX_ROUNDS, prove_in_context
from transformula.kernel.syntax.boxes import MAX_VARIABLES
from transformula.model import Model
from transformula.runtime.matrices import dense_matrix, matrix_of

#: What may be asked for; ridge with steps is gradient descent.
ALGORITHMS = ("ridge", "lasso", "kernel", "recurrence")
#: The tasks all of whose steps are carried out by the same layers.
LOOPS = ("descent", "lasso")
#: What is taken where nothing is said.
_DEFAULTS: dict[str, Any] = {"penalty": 1, "bandwidth": 1, "a": 1, "b": 1, "x": 1, "y": 1}
_MAX_DIGITS = 60


def in_context(
    algorithm: str,
    *,
    pairs: int | None = None,
    features: int | None = None,
    steps: int | None = None,
    penalty: Any = None,
    rate: Any = None,
    bandwidth: Any = None,
    a: Any = None,
    b: Any = None,
    x: Any = None,
    y: Any = None,
    eps: float | None = None,
    dtype: str = "float64",
    looped: bool = False,
) -> Model:
    """A Transformer that learns from the pairs of its prompt, with a proof over a box of prompts.

    Parameters
    ----------
    algorithm : {"ridge", "lasso", "kernel", "recurrence"}
        Ridge regression, ``steps`` gradient steps or, without ``steps``, its exact solution to a tolerance; ``steps``
        steps of ISTA for the lasso; kernel regression; or a recurrence x → a·x + b, continued ``steps`` times.
    pairs, features : int
        The prompt: the number of pairs (x_i, y_i), and a query with as many features as x_i.
    steps : int, optional
        Steps of the algorithm, exactly: one layer each, two for the lasso.
    penalty : number, optional
        λ of ½|y − Xw|² + ½λ|w|² (ridge) or ½|y − Xw|² + λ|w|₁ (lasso); 1 if nothing is said.
    rate : number, optional
        The length of a step; by default the best for the worst prompt of the box (ridge), or 1/L (lasso).
    bandwidth : number, optional
        h of the kernel exp(q·x/h); 1 if nothing is said.
    a, b : number, optional
        The largest |a| and |b| of a recurrence's prompt; 1 if nothing is said.
    x, y : number, optional
        The largest |entry| of x_i, of the query and of a recurrence's first value, and the largest |y_i|; 1 if nothing
        is said.
    eps : float, optional
        Tolerance for |computed − the algorithm's exact answer| over all prompts of the box. By default 1e-6 where ridge
        is solved exactly; the others claim what is proven.
    dtype : {"float64", "float32"}
        The format of the weights and of the arithmetic the claim is about.
    looped : bool
        Whether all steps share one set of weights, which is stored once and applied again and again. For gradient
        steps and the lasso, whose steps are equal.

    Examples
    --------
    >>> model = in_context("ridge", pairs=16, features=3, steps=8)
    >>> model.layers, model.certificate.approximation
    (8, 0.0)
    >>> loop = in_context("ridge", pairs=16, features=3, steps=8, looped=True)
    >>> loop.certificate.bound == model.certificate.bound, model.parameter_count - loop.parameter_count
    (True, 63)
    >>> model = in_context("recurrence", steps=3)
    >>> model([0.5, 1, 1]).tolist()  # a, b, x
    [1.5, 1.75, 1.875]
    """
    tolerance, form = positive(eps, "eps"), known_dtype(dtype)
    named = {"pairs": pairs, "features": features, "steps": steps}
    numbers = {"penalty": penalty, "rate": rate, "bandwidth": bandwidth, "a": a, "b": b, "x": x, "y": y}
    task = _task(algorithm, {key: value for key, value in (named | numbers).items() if value is not None})
    if looped and task.algorithm not in LOOPS:
        raise InputError(
            f"the layers of {algorithm} are not equal, so they cannot be looped: give ridge or lasso steps"
        )
    with one_thread():
        if task.algorithm == "ridge":
            tolerance = tolerance or policy.DEFAULT_EPS
            built = construct_in_context(task, form, _rounds(task, tolerance, form))
        else:
            built = construct_in_context(task, form, looped=looped)
        return package(IN_CONTEXT, Built(built), Prompts(task), Options(eps=tolerance, dtype=form))


def _task(algorithm: str, given: dict[str, Any]) -> PromptTask:
    """The task that is asked for, with defaults where nothing is said."""
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InputError(f"unknown algorithm {brief(algorithm)}: choose {', '.join(ALGORITHMS)}")
    name = "descent" if algorithm == "ridge" and "steps" in given else algorithm
    counts, numbers = FIELDS[name]
    for key in given:
        if key not in (*counts, *numbers):
            other = ": give steps for gradient descent" if (name, key) == ("ridge", "rate") else ""
            raise InputError(f"{algorithm} takes no {key}{other}")
    most = MAX_BLOCKS // 2 if name == "lasso" else MAX_BLOCKS  # which takes two layers a step
    sizes: dict[str, Any] = {key: _count(given, key, most) for key in counts}
    size = sizes.get("pairs", 0) * sizes.get("features", 0) + sizes.get("pairs", 0) + sizes.get("features", 0)
    if size > MAX_VARIABLES:
        raise InputError(
            f"a prompt of {sizes['pairs']} pairs with {sizes['features']} features has {size} numbers; "
            f"at most {MAX_VARIABLES}"
        )
    exact: dict[str, Any] = {
        key: _number(given.get(key, _DEFAULTS.get(key)), key, name) for key in numbers if key != "rate"
    }
    task = PromptTask(name, **sizes, **exact)
    if "rate" not in numbers:
        return task
    rate = _number(given["rate"], "rate", name) if "rate" in given else default_rate(task)
    return PromptTask(name, **sizes, **exact, rate=rate)


def _count(given: dict[str, Any], key: str, steps: int) -> int:
    value = given.get(key)
    if value is None:
        raise InputError(f"give the number of {key}")
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise InputError(f"{key} must be a whole number above 0, not {brief(value)}")
    if key == "steps" and int(value) > steps:
        raise InputError(f"{value} steps are too many: at most {steps}")
    return int(value)


def _number(value: Any, key: str, name: str) -> fmpq:
    exact = exact_number(value, key).number
    if exact is None:
        raise InputError(f"{key} must be a rational number, not {brief(value)}")
    if exact < 0 or (exact == 0 and (name, key) not in MAY_VANISH):
        most = "at least 0" if (name, key) in MAY_VANISH else "above 0"
        singular = exact == 0 and (name, key) == ("ridge", "penalty")
        hint = ": without a penalty, give steps for gradient descent" if singular else ""
        raise InputError(f"{key} must be {most}, not {value}{hint}")
    if max(len(str(exact.numerator)), len(str(exact.denominator))) > _MAX_DIGITS:
        raise InputError(f"{key} has more than {_MAX_DIGITS} digits")
    return to_fmpq(Fraction(exact))


def _rounds(task: PromptTask, eps: float, dtype: str) -> int:
    """The fewest iterations that are proven to meet the tolerance, or the best there are."""
    best, chosen = float("inf"), 1
    for rounds in range(1, MAX_ROUNDS + 1):
        try:
            proof = prove_in_context(construct_in_context(task, dtype, rounds), task)
        except NotProvenError:  # numbers beyond the format: more layers have larger ones
            break
        if proof.bound < best:
            best, chosen = proof.bound, rounds
        if 1.01 * best <= eps or proof.approximation < proof.rounding / 100:  # rounding only grows from here
            break
    return chosen


#: Bits of the numbers that are chosen here: every format holds them.
_BITS = 12


def short_below(value: Fraction) -> fmpq:
    """A number of few bits just below a positive one."""
    exponent = math.floor(math.log2(value)) - _BITS
    unit = Fraction(2) ** exponent
    return to_fmpq(unit * math.floor(value / unit))


def default_rate(task: PromptTask) -> fmpq:
    """The step that contracts every spectrum of the box best; for ISTA, the largest that is known to descend."""
    most = task.pairs * task.features * task.x**2
    return short_below(to_fraction(1 / most if task.algorithm == "lasso" else 2 / (2 * task.penalty + most)))


def construct_in_context(task: PromptTask, dtype: str, rounds: int = 0, looped: bool = False) -> Weights:
    """The weights of a task; ``rounds`` is how many layers iterate where ridge is solved in closed form.

    With ``looped``, layers that are equal are one block, applied again and again.
    """
    start = default_rate(task) if task.algorithm == "ridge" else fmpq(1)
    return _written(task, plan_of(task, start, rounds), dtype, looped)


def _written(task: PromptTask, plan: PromptPlan, dtype: str, looped: bool = False) -> Weights:
    width = len(plan.slots)
    place = {slot: k for k, slot in enumerate(plan.slots)}
    given = [(t * width + place[s], i, v) for (t, s, i), v in plan.given.items()]
    reads = [(o, t * width + place[s], 1) for o, (t, s) in enumerate(plan.reads)]
    blocks: list[Block] = []
    for k, layer in enumerate(plan.layers):
        first = plan.layers.index(layer) if looped else k
        blocks.append(blocks[first] if first < k else _block(layer, place, dtype))
    return Weights(
        inputs=task.inputs,
        slots=plan.slots,
        tokens=plan.tokens,
        embedding=matrix_of((plan.tokens * width, task.size), given, dtype),
        memory=matrix_of((plan.tokens, width), [(t, place[s], v) for (t, s), v in plan.held.items()], dtype),
        blocks=tuple(blocks),
        readout=matrix_of((task.outputs, plan.tokens * width), reads, dtype),
        bias=matrix_of((task.outputs, 1), dtype=dtype),
        dtype=dtype,
    )


def _block(layer: Layer, place: dict[str, int], dtype: str) -> Block:
    width = len(place)
    rows = len(layer.scores)
    row = {slot: r for r, slot in enumerate(layer.writes)}
    head = Head(
        matrix_of((rows, width), [(r, place[s], layer.factor) for r, (s, _) in enumerate(layer.scores)], dtype),
        matrix_of((rows, width), [(r, place[s], 1) for r, (_, s) in enumerate(layer.scores)], dtype),
        matrix_of((len(row), width), [(row[to], place[of], v) for (to, of), v in layer.adds.items()], dtype),
        matrix_of((width, len(row)), [(place[to], r, 1) for to, r in row.items()], dtype),
    )
    shrinkage = None
    if layer.threshold is not None:
        parts = threshold_entries(place["w"], place["p"], layer.threshold)
        units = len(parts[0])
        shapes = ((units, width), (units, 1), (width, units))
        made = (matrix_of(s, [(*at, v) for at, v in p.items()], dtype) for s, p in zip(shapes, parts, strict=True))
        hidden, bias, output = made
        shrinkage = FeedForward(hidden, bias, output, matrix_of((width, 1), dtype=dtype))
    return Block(Attention((head,), "softmax" if layer.kind == "softmax" else "linear"), shrinkage)


def attention_weights(
    values: FloatArray, queries: FloatArray, inputs: tuple[str, ...], positions: int, each: bool, dtype: str
) -> Weights:
    """One layer of linear attention (Yau et al., 2410.10101), y = Σ_h V_h Z Zᵀ Q_h z, from matrices that were learned.

    V has shape (heads, outputs, d), Q (heads, d, d). Token i carries the numbers z_i of its position in slots z1,
    z2, and so on, and a constant 1 in ``one`` if tokens are extended by it. Head h asks with Q_h z_j, answers with
    z_i as it is, and adds V_h z_i, weighed by the score, to the slots y1, y2, ..: token j then holds Σ_h V_h Σ_i
    z_i (z_iᵀ Q_h z_j). The error is that of the factorisation in floats: the kernel's `linear_attention_rule`
    expands what the heads compute and compares it with the polynomial that least squares found.

    Names of inputs go position by position; a position has d of them, or d − 1 and a constant 1. The outputs of
    ``each`` token are read, or only those of the last.
    """
    count, d = values.shape[1:]
    own = len(inputs) // positions
    slots = (*(f"z{k + 1}" for k in range(own)), *("one",) * (d - own), *(f"y{a + 1}" for a in range(count)))
    width = len(slots)
    given = [(i * width + k, i * own + k, 1) for i in range(positions) for k in range(own)]
    asked = range(positions) if each else [positions - 1]
    reads = [j * width + d + a for j in asked for a in range(count)]
    unit, outer = np.eye(d, width), np.eye(width, count, -d)
    heads = tuple(
        Head(*(dense_matrix(m.astype(dtype), dtype) for m in (Q @ unit, unit, V @ unit, outer)))
        for V, Q in zip(values, queries, strict=True)
    )
    return Weights(
        inputs=inputs,
        slots=slots,
        tokens=positions,
        embedding=matrix_of((positions * width, len(inputs)), given, dtype),
        memory=matrix_of((positions, width), [(i, own, 1) for i in range(positions) if own < d], dtype),
        blocks=(Block(Attention(heads, "linear")),),
        readout=matrix_of((len(reads), positions * width), [(o, at, 1) for o, at in enumerate(reads)], dtype),
        bias=matrix_of((len(reads), 1), dtype=dtype),
        dtype=dtype,
    )
