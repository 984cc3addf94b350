"""The proof for a memorised finite map: a claim about every sample, and about nothing else.

At sample i the token of sample i leads every other by a gap that is computed with an error bound. With
g the smallest gap, N tokens and R the largest |y_j − y_i|, |T(x_i) − y_i| ≤ |v_i − y_i| + N e^{−g} R, and the
computed value differs from T(x_i) by at most N e^{−g}(1 + e^{2D}) R plus the rounding of the sums.
"""

from __future__ import annotations

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.certificates.leaks import head_leak
from transformula.certificates.one_layer import read_one_layer
from transformula.certificates.one_layer_rounding import output_rounding
from transformula.certificates.proof import Proof, RefutedError
from transformula.certificates.rounding import EXP_ULPS, FORMATS, FloatFormat
from transformula.formulas.enclosures import precision, round_up
from transformula.formulas.samples import Samples
from transformula.transformers.one_layer import TableHead
from transformula.transformers.weights import Weights

Floats = NDArray[np.float64]
_CHUNK = 2_000_000


def prove_memorize(weights: Weights, samples: Samples) -> Proof:
    """Prove what the weights give at every sample."""
    with precision(128):
        network = read_one_layer(weights, samples.box)
        _check_plain(network.outputs, network.heads, samples)
        (head,) = network.heads
        form = FORMATS[weights.dtype]
        gap, wrong, owner = _smallest_gap(head, samples.x, form)
        share = arb(head.tokens) * (-gap).exp()
        ranges = [samples.box.interval(k) for k in range(head.axes)]
        approximation = arb(0)
        errors = {}
        for column in range(len(head.slots)):
            values = head.values[:, column]
            missed = float(np.abs(values[owner] - samples.y[:, column]).max())
            spread = arb(float(np.ptp(values))) * (1 + form.unit_roundoff)
            leak = head_leak(head, ranges, column, form, samples.box)
            approximation = approximation.max(arb(missed) * (1 + arb(2) ** -50) + share * spread + leak)
            size = arb(float(np.abs(values).max()))
            blur = share * (1 + (2 * wrong).exp() * (1 + 4 * EXP_ULPS * form.unit_roundoff)) * spread
            sums = form.gamma(head.tokens + 6) * size + (head.tokens + 4) * form.tiny * (1 + size)
            errors[0, column] = (size, (blur + sums + leak).upper())
        rounding = output_rounding(weights, network.heads, errors, samples.box)
        details: dict[str, object] = {"samples": len(samples.x)}
        return Proof(round_up(approximation), max(map(round_up, rounding)), details)


def _check_plain(outputs: object, heads: tuple[TableHead, ...], samples: Samples) -> None:
    if len(heads) != 1 or heads[0].axes != samples.x.shape[1]:
        raise RefutedError("a memorised model has one head over all inputs")
    for k, form in enumerate(heads[0].forms):
        if dict(form) != {k: 1}:
            raise RefutedError("a memorised model's head does not read the inputs as they are")
    for o, output in enumerate(outputs):  # type: ignore[arg-type,var-annotated]
        plain = dict(output.tables) == {(0, o): 1} and not output.kinks
        if not plain or any(v != 0 for v in output.form) or output.constant != 0:
            raise RefutedError("a memorised model adds something to its table")


def _smallest_gap(head: TableHead, x: Floats, form: FloatFormat) -> tuple[arb, arb, NDArray[np.intp]]:
    """Smallest lead of each sample's own token, the largest score error in the dtype, the owners."""
    offsets = head.offsets[:, 0]
    if head.offsets[:, 1:].any():
        raise RefutedError("a memorised model has offsets on more than one axis")
    smallest, size = np.inf, 0.0
    owner = np.empty(len(x), dtype=np.intp)
    step = max(1, _CHUNK // head.tokens)
    for start in range(0, len(x), step):
        part = x[start : start + step]
        scores = part @ head.slopes.T + offsets
        size = max(size, float((np.abs(part) @ np.abs(head.slopes.T) + np.abs(offsets)).max()))
        owner[start : start + step] = scores.argmax(axis=1)
        if head.tokens > 1:
            best = np.partition(scores, -2, axis=1)
            smallest = min(smallest, float((best[:, -1] - best[:, -2]).min()))
    # float64 dot products of d + 1 terms, and one subtraction
    slack = FORMATS["float64"].gamma(2 * head.axes + 6) * arb(size) * 4
    gap = arb(1000 if head.tokens == 1 else smallest) - slack
    if not gap > 0:
        raise RefutedError("two samples are too close to be told apart by the scores")
    return gap, form.gamma(2 * head.axes + 6) * arb(size) * 2, owner
