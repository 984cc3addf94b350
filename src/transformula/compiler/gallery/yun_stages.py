r"""A function that is nearly constant on cells: quantisation, contextual mapping, value mapping (Yun et al. 2020).

*Are Transformers universal approximators of sequence-to-sequence functions?* (1912.10077, Theorem 3; section 4 of Fang
et al. describes it). The n variables are a sequence of n tokens with one number each. Three stages follow one another:

* *Quantisation*, by feed-forward layers. Token i carries its variable, scaled to [0, 1], plus a positional encoding
  that keeps the tokens' ranges apart. With thresholds t_1 < t_2 < .. for all tokens and slope κ,

      z = Σ_j ReLU(1 − ReLU(κ (t_j − x)))

  is the number of x's cell, except on seams t_j − 1/κ < x < t_j, where it goes from one number to the next.
* *Contextual mapping*, by attention. A selective shift adds s (max_j z_j − min_j z_j) to the token whose z lies between
  b and b': its two heads have the scores β (z_i − b) z_j and β (z_i − b') z_j, so each finds the largest z if z_i is
  above its threshold and the smallest if it is below, and their difference is max − min between b and b' and 0
  elsewhere. After one shift for each token, in their order, the last token's z tells all contexts (q_1, .., q_n) apart;
  s is the smallest whole number for which it does. Softmax instead of the paper's hardmax costs a multiple of e^{−β/2},
  far less than the next layer rounds off.
* *Value mapping*, by feed-forward layers. With the contexts' numbers in order, c_1 < c_2 < .., and values v_1, v_2, ..,
  v_1 + Σ_k (v_{k+1} − v_k) ReLU(1 − ReLU(4 (c_{k+1} − 1/4 − z))) is v_k at every z within 1/4 of c_k.

Two more layers keep the output between the smallest and the largest value, on the seams too: with low and high for
these, the output is high − ReLU(high − low − ReLU(v − low)).

*Error.* On a cell it is at most half the range of f, on a seam at most the range; seams are a part of about
Σ_k (N_k − 1)/κ of the box, and only rounding limits κ. So the theorem holds in L^p for p < ∞ and *not* uniformly: eps
is a tolerance for the mean of |computed − f| over the box, the paper's d_1 if that is the unit cube. `kernel.yun`
proves it, and says beside it how large the error is outside the seams.

*Size.* A context for each cell of the box: N_1 ⋯ N_n hidden units in the value mapping, at a mean error of about
Σ_k G_k / 4N_k or less, G_k the mean variation of f along axis k: of the order of eps^−n. The paper has one step, one
grid value or one context in each layer: about Σ N_k layers of quantisation, as many of attention and N_1 ⋯ N_n of value
mapping for each token that is read. Here the steps of a stage share two layers, and since positional encodings keep the
tokens apart, one shift for each *token* does what the paper has one for each *grid value* do. The paper's layout is
there too (``narrow``), with two ReLU layers for each of its activations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from transformula.budget import checkpoint
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import YUN
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.gallery.yun_layout import Plan, assemble
from transformula.errors import InputError, NotProvenError
from transformula.formula.evaluation import evaluate
from transformula.kernel.enclosures.balls import float_above, float_below
from transformula.kernel.enclosures.intervals import range_of
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.syntax.boxes import Box, Formula

Floats = NDArray[np.float64]

MAX_CONTEXTS, MAX_TOKENS = 1024, 6
#: What part of eps the cells may take; the rest is for seams, rounding and enclosures that are not tight.
_SHARES = (0.93, 0.85, 0.7, 0.5)
#: What part of eps the seams may take.
_SEAMS = 1 / 32
#: A cell ends so far before a seam, in widths of the seam: more than rounding can move it.
_APART = 0.125
#: Points along an axis where the variation is measured.
_MESH = {1: 4001, 2: 257, 3: 49, 4: 21, 5: 13, 6: 9}
#: Pieces of a cell along an axis, and of all cells together: the mean on a cell is proven piece by piece.
_PIECES, _MAX_PIECES = 8, 40_000


def yun_attempts(task: BuildTask, narrow: bool = False) -> Iterator[Attempt]:
    """Models with ever finer cells, coarsest first; ``narrow`` ones have the paper's many layers."""
    formula, ground = task.formula, task.ground
    if formula.box.dimension > MAX_TOKENS:
        raise InputError(f"the construction yun takes at most {MAX_TOKENS} variables, not {formula.box.dimension}")
    for share in _SHARES:

        def build(share: float = share) -> Built:
            plan = replace(_plan(ground.extended, task.eps, share, task.options.dtype), narrow=narrow)
            finder = Finder(trees=ground.signs)
            finder.written["grid"] = _grid(plan, formula.box)
            return Built(assemble(plan), ground.derivation, finder)

        yield Attempt(YUN, build)


def _plan(formula: Formula, eps: float, share: float, dtype: str) -> Plan:
    box = formula.box
    ends = tuple(box.floats())
    variation = _variation(formula, ends)
    if not np.isfinite(variation).all():
        raise OverflowError("the formula's differences are beyond floats")
    active = np.count_nonzero(variation)
    finer, counts = active / (8 * eps), (1,) * box.dimension
    while True:
        checkpoint()
        counts = tuple(max(1, math.ceil(finer * g)) for g in variation)
        if math.prod(counts) > MAX_CONTEXTS:
            needed = max(math.prod(counts), math.prod(max(1.0, active / (4 * eps) * g) for g in variation))
            about = f" (about {needed:.2g})" if needed > 10 * MAX_CONTEXTS else ""
            raise NotProvenError(
                f"the construction yun would need more than {MAX_CONTEXTS} contexts{about}: ask for a larger eps, or "
                "use another construction"
            )
        values, missed = _cells(formula, ends, counts)
        if missed <= share * eps:
            break
        finer *= 1.05
    values = values.astype(dtype).astype(float)
    flat = values.reshape(-1, values.shape[-1])
    limits = flat.min(axis=0), flat.max(axis=0)
    span = float((limits[1] - limits[0]).max())
    wanted = 4 * (sum(counts) - len(counts)) * span / (_SEAMS * eps)
    # a number up to 2n, scaled and compared, is off by a few roundings; it must stay well within the room at a seam
    most = _APART / 16 / (2 * len(counts) * float(FORMATS[dtype].unit_roundoff))
    sharpness = 2.0 ** math.floor(math.log2(min(max(wanted, 64.0 * max(counts)), most)))
    return Plan(box.variables, ends, counts, values, limits, sharpness, dtype)


def _variation(formula: Formula, ends: tuple[tuple[float, float], ...]) -> Floats:
    """How much the formula varies along each axis on average; the most of all outputs."""
    axes = [np.linspace(low, high, _MESH[len(ends)]) for low, high in ends]
    mesh = np.meshgrid(*axes, indexing="ij")
    total = np.zeros(len(ends))
    for expr in formula.outputs:
        values = _finite(evaluate(expr, formula.box.variables, mesh), mesh[0].shape)
        steps = [np.abs(np.diff(values, axis=k)).sum(axis=k).mean() for k in range(len(ends))]
        total = np.maximum(total, steps)
    return total


def _pieces(counts: tuple[int, ...]) -> int:
    """How many pieces each cell has along each axis."""
    return max(1, min(_PIECES, int((_MAX_PIECES / math.prod(counts)) ** (1 / len(counts)))))


def _cells(formula: Formula, ends: tuple[tuple[float, float], ...], counts: tuple[int, ...]) -> tuple[Floats, float]:
    """The middle of the values seen in each cell, shape (cells, .., outputs), and about how far they are on average.

    The average is that of what the pieces' corners show, as the proof takes the largest distance on each piece.
    """
    pieces, n = _pieces(counts), len(counts)
    inside = [(np.arange(count)[:, None] + np.linspace(0, 1, pieces + 1)) / count for count in counts]
    axes = [low + (high - low) * part.ravel() for (low, high), part in zip(ends, inside, strict=True)]
    mesh = np.meshgrid(*axes, indexing="ij")
    split = [size for count in counts for size in (count, pieces + 1)]
    within = tuple(range(1, 2 * n, 2))
    middles, worst = [], 0.0
    for expr in formula.outputs:
        values = _finite(evaluate(expr, formula.box.variables, mesh), mesh[0].shape).reshape(split)
        middle = (values.min(axis=within, keepdims=True) + values.max(axis=within, keepdims=True)) / 2
        missed = np.abs(values - middle)
        for axis in within:
            first, last = (np.take(missed, side, axis) for side in (range(pieces), range(1, pieces + 1)))
            missed = np.maximum(first, last)
        middles.append(middle.reshape(counts))
        worst = max(worst, float(missed.mean()))
    return np.stack(middles, axis=-1), worst


def _finite(values: Floats, shape: tuple[int, ...]) -> Floats:
    if not np.all(np.isfinite(values)):
        raise NotProvenError("the formula is undefined or unbounded on the box: narrow the box")
    return np.broadcast_to(values, shape)


def _grid(plan: Plan, box: Box) -> dict[str, list[list[float]]]:
    """The intervals between the seams of each axis."""
    found = {}
    for name, (low, high), count, first, last in zip(
        box.variables, plan.ends, plan.counts, box.lower, box.upper, strict=True
    ):
        stops = [low + (high - low) * (k / count - (1 + _APART) / plan.sharpness) for k in range(1, count)]
        starts = [low + (high - low) * (k / count + _APART / plan.sharpness) for k in range(1, count)]
        begin, end = float_above(range_of(first, {})[1]), float_below(range_of(last, {})[0])
        cells = [
            np.linspace(a, b, _pieces(plan.counts) + 1) for a, b in zip([begin, *starts], [*stops, end], strict=True)
        ]
        if not all(np.all(np.diff(edges) > 0) for edges in cells):
            raise NotProvenError(f"{name} has hardly any numbers in a cell: ask for a larger eps")
        found[name] = [edges.tolist() for edges in cells]
    return found
