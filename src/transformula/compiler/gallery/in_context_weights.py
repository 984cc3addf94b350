"""Learning in context: blocks that carry out an algorithm on the pairs of their prompt.

Von Oswald et al. (2212.07677) show that a layer of linear attention can take a gradient step; here the weights are
written down. `kernel.in_context_plan` states the blocks and why they compute what they do; this module chooses their
free numbers and writes the matrices.

- *Gradient steps* are the algorithm's own, one layer each: approximation 0. The paper's token holds one prediction and
  its target together; with the prediction in its own slot and constant tokens e_l that answer with penalty·e_l, ridge
  regression needs no feed-forward layer, and the learned weights can be read off the constant tokens.
- *Ridge in closed form* by Newton and Schulz's iteration, whose remainder squares in each layer: with condition number
  κ, about log₂(κ ln(1/eps)/2) layers, where gradient steps need κ ln(1/eps)/2 of them. It starts with start·I, start a
  short number just below 2/(2·penalty + n d x²), the best for the spectrum that the box allows.
- *Loops.* Gradient steps are one layer, and ISTA's steps two, applied again and again: looped, a model of any number of
  steps has the parameters of one step.
- Limits: the bounds hold for *every* prompt of the box, so they go by the worst spectrum, n d x² + penalty, which few
  prompts have; and ridge in closed form needs a penalty above 0.
"""

from __future__ import annotations

import math
from fractions import Fraction

from flint import fmpq

from transformula.kernel.enclosures.balls import to_fmpq, to_fraction
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Weights
from transformula.kernel.gallery.in_context_blocks import Layer, PromptPlan, bend_entries, plan_of
from transformula.kernel.gallery.prompt_tasks import PromptTask
from transformula.runtime.matrices import matrix_of

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
    width, rows, row = len(place), len(layer.scores), {slot: r for r, slot in enumerate(layer.writes)}
    head = Head(
        matrix_of((rows, width), [(r, place[s], layer.factor) for r, (s, _) in enumerate(layer.scores)], dtype),
        matrix_of((rows, width), [(r, place[s], 1) for r, (_, s) in enumerate(layer.scores)], dtype),
        matrix_of((len(row), width), [(row[to], place[of], v) for (to, of), v in layer.adds.items()], dtype),
        matrix_of((width, len(row)), [(place[to], r, 1) for to, r in row.items()], dtype),
    )
    bend = None
    if layer.threshold is not None:
        parts = bend_entries(place["w"], place["p"], layer.threshold)
        units = len(parts[0])
        shapes = ((units, width), (units, 1), (width, units))
        made = (matrix_of(s, [(*at, v) for at, v in p.items()], dtype) for s, p in zip(shapes, parts, strict=True))
        hidden, bias, output = made
        bend = FeedForward(hidden, bias, output, matrix_of((width, 1), dtype=dtype))
    return Block(Attention((head,), "softmax" if layer.kind == "softmax" else "linear"), bend)
