r"""Two softmax layers and no feed-forward layer (after Hu et al. 2025, arXiv 2504.15956).

*Layer 1* is the paper's key step: a head whose tokens are anchors L_i on a line, with scores β(L_i u − L_i²/2) and the
anchors as values, interpolates u ↦ u. The paper lets β grow, so that the nearest anchor counts: an error of O(1/p)
with p anchors. With β = 1/(sΔ)² for anchors Δ apart the weights are Gaussians around u, and by Poisson's summation
formula the error is about 4π s² Δ e^{−2π²s²}: it falls exponentially with s, once the anchors reach some
s²Δ beyond the range. A dozen anchors do what the theorem does with thousands.

*Layer 2* is a softmax over a grid of cells, whose scores are lines in what the first layer wrote, with f's values
(`partition`): one head for each summand of the formula, over the linear forms that it depends on.

Affine summands are read off the stream by the readout, and |affine| is a table like any other: there is no ReLU. For a
Lipschitz f on d variables the tokens grow like ε^{−d}.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from flint import fmpq

from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import ATTENTION_ONLY
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.layout import Design, HeadSpec, Reads, TableTokens, assembled, midpoint, places
from transformula.compiler.lower.additive import Decomposition, Form, Part
from transformula.compiler.lower.lowered_circuit import ARGUMENT
from transformula.compiler.lower.store_circuit import stored_linear
from transformula.compiler.partition import check_forms, fit_partition, form_range
from transformula.compiler.prepare import Prepared, proven_signs
from transformula.compiler.tables.softmax_table import softmax_weights
from transformula.kernel.enclosures.balls import to_fmpq
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, substitute, to_text

_POINTS = np.linspace(-1, 1, 2001)


def attention_only_attempts(task: BuildTask) -> Iterator[Attempt]:
    """Models with ever finer cells, coarsest first."""
    for finer in policy.FINER_CELLS:
        yield Attempt(ATTENTION_ONLY, partial(_built, task.ground, task.eps / finer, task.options.dtype))


def _built(ground: Prepared, eps: float, dtype: str) -> Built:
    box, splits = ground.extended.box, ground.splits
    wanted = [_parts(split) for split in splits]
    lines: dict[Form, int] = {}
    tables: list[TableTokens] = []
    choices: list[HeadSpec] = []
    wires: list[dict[str, Any]] = []
    narrowest = math.inf
    fitted: list[tuple[Part, TableTokens]] = []
    for parts in wanted:
        for part in parts:
            check_forms(part, ground.extended)
            ranges = [form_range(form, box) for form in part.forms]
            fitted.append((part, fit_partition(part, ranges, eps / len(parts), dtype)))
            for form in part.forms:
                lines.setdefault(form, len(lines))
            narrowest = min(narrowest, *(_narrowest(fitted[-1][1], k, ends) for k, ends in enumerate(ranges)))
    ends = {form: _scaled(form_range(form, box)) for form in lines}
    if lines:
        tables.append(anchors(max(policy.LINE_ERROR * narrowest, policy.TABLE_FLOOR[dtype]), dtype))
    heads = [_line(form, k, ends[form], box.variables) for form, k in lines.items()]
    for part, table in fitted:
        tables.append(table)
        reads = tuple(_unscaled(f"line{lines[form] + 1}", ends[form]) for form in part.forms)
        reach = tuple(2 * max(map(abs, form_range(form, box))) for form in part.forms)
        choices.append(HeadSpec(1, len(tables) - 1, reads, reach, (f"y{len(choices) + 1}",)))
    at = places([head.block for head in (*heads, *choices)])
    first = box.dimension
    for form, k in lines.items():
        middle, radius = ends[form]
        terms = [(i, ex.number(v / radius)) for i, v in enumerate(form) if v]
        argument = stored_linear(terms, ex.number(-middle / radius))
        wires.append({"table": "u", "of": [argument], "from": [*at[k], 0]})
    for n, (part, _) in enumerate(fitted):
        of = [stored_linear([(first + lines[f], ex.number(ends[f][1]))], ex.number(ends[f][0])) for f in part.forms]
        function = substitute(part.expr, {ex.variable("u1"): ARGUMENT}) if len(of) == 1 else part.expr
        wires.append({"table": to_text(function), "of": of, "from": [*at[len(lines) + n], 0]})
    readout = []
    outputs = []
    n = 0
    for split, parts in zip(splits, wanted, strict=True):
        own = range(n, n := n + len(parts))
        inside = {f"x.{name}": to_fmpq(v) for name, v in zip(box.variables, split.affine.form, strict=True) if v}
        readout.append((inside | {f"y{k + 1}": fmpq(1) for k in own}, midpoint(split.affine.constant)))
        terms = [(i, ex.number(v)) for i, v in enumerate(split.affine.form) if v]
        terms += [(first + len(lines) + k, ex.number(1)) for k in own]
        outputs.append(stored_linear(terms, split.affine.constant))
    signs = proven_signs([], ground)
    circuit = {"wires": wires, "outputs": outputs, **ground.stored(signs)}
    weights = assembled(Design(box.variables, tables, [*heads, *choices], readout), dtype)
    return Built(weights, circuit, Finder(follow=False, trees=signs, far_bits=policy.FAR_BITS[dtype] - 1))


def _parts(split: Decomposition) -> list[Part]:
    """The summands that need a table; absolute values are tables of |u + constant|."""
    absolutes = [
        Part(
            (absolute.inside.form,),
            ex.mul(absolute.coefficient, _abs_of(absolute.inside.constant)),
            ex.call("abs", ARGUMENT),
        )
        for absolute in split.abs_terms
    ]
    return [*split.parts, *absolutes]


def _abs_of(constant: Expr) -> Expr:
    return ex.call("abs", ex.add(ex.variable("u1"), constant))


def anchors(error: float, dtype: str) -> TableTokens:
    """Tokens that interpolate u on −1..1 within an error, anchors as values.

    Examples
    --------
    >>> [len(anchors(error, "float64").values) for error in (1e-3, 1e-6, 1e-9)]
    [11, 15, 19]
    """
    goal = error
    while True:
        tail = math.log(20 / goal)
        width = math.sqrt(tail / (2 * math.pi**2))  # s
        number = 1 + math.ceil(width * math.sqrt(2 * tail))  # anchors are 1 apart on a line that is scaled to −1..1
        places = np.arange(-number, number + 1.0)
        slopes = (places / width**2).astype(dtype).astype(float)
        offsets = (-(places**2) / (2 * width**2)).astype(dtype).astype(float)
        if np.abs(softmax_weights(_POINTS, slopes, offsets) @ places - _POINTS).max() < error or goal < 1e-16:
            return TableTokens(slopes[:, None], offsets[:, None], places[:, None])
        goal /= 4


def _scaled(ends: tuple[float, float]) -> tuple[Fraction, Fraction]:
    """A middle and a radius, short rationals, such that (u − middle)/radius stays within −1..1."""
    low, high = ends
    radius = 2.0 ** math.ceil(math.log2((high - low) / 2 * (1 + 1e-6)))
    step = radius / 2.0**20
    return Fraction(round((low + high) / 2 / step) * step), Fraction(radius)


def _line(form: Form, number: int, scale: tuple[Fraction, Fraction], variables: Sequence[str]) -> HeadSpec:
    """The head that interpolates a linear form of the inputs, scaled."""
    middle, radius = scale
    reads = {f"x.{name}": to_fmpq(v / radius) for name, v in zip(variables, form, strict=True) if v}
    return HeadSpec(0, 0, (reads | {"one": to_fmpq(-middle / radius)},), (2.0,), (f"line{number + 1}",))


def _unscaled(slot: str, scale: tuple[Fraction, Fraction]) -> Reads:
    return {slot: to_fmpq(scale[1]), "one": to_fmpq(scale[0])}


def _narrowest(table: TableTokens, axis: int, ends: tuple[float, float]) -> float:
    """The narrowest cell of an axis, in units of half the range."""
    lines = np.unique(np.stack([table.slopes[:, axis], table.offsets[:, axis]]), axis=1)
    edges = np.concatenate([[ends[0]], -np.diff(lines[1]) / np.diff(lines[0]), [ends[1]]])
    return float(np.diff(edges).min() / (ends[1] - ends[0]) * 2)
