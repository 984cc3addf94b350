"""What every table rule needs: how little other tokens leak in, and how far rounding moves a score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from flint import arb, fmpq

from transformula.certificates.proof import RefutedError
from transformula.certificates.rounding import FloatFormat
from transformula.formulas.boxes import Box
from transformula.formulas.enclosures import round_up
from transformula.transformers.one_layer import TableHead

#: exp(−SILENT) is below every format's smallest number: in floats such a token's weight is zero.
SILENT = 760.0


def head_leak(head: TableHead, ranges: Sequence[arb], column: int, form: FloatFormat, box: Box) -> arb:
    """Bound of |softmax over all tokens − softmax over the head's own tokens| applied to the values.

    Own scores reach at least ``best`` somewhere, foreign ones stay below ``worst``; the foreign share of the
    weight is at most n e^{worst − best}, and it moves the result by at most the spread of values. This
    holds for real and for computed scores: arguments may be off by their rounding, and scores by theirs.
    """
    if not len(head.foreign_gates):
        return arb(0)
    off = [form.gamma(len(linear) + 3) * argument_size(linear, box) for linear in head.forms]
    reach = [float((abs(r) + wrong).upper()) * (1 + 1e-15) for r, wrong in zip(ranges, off, strict=True)]
    own = (head.offsets - np.abs(head.slopes) * reach).sum(axis=1).max()
    foreign = head.foreign_gates + (np.abs(head.foreign_offsets) + np.abs(head.foreign_slopes) * reach).sum(
        axis=1
    )
    # the sums above have a few roundings each, and so have the scores, relative to what they add up
    largest = float((np.abs(head.offsets) + np.abs(head.slopes) * reach).sum(axis=1).max())
    farthest = float(np.abs(foreign - head.foreign_gates).max()) + 2 * float(np.abs(head.foreign_gates).max())
    gap = own - float(foreign.max()) - score_slack(1 + largest + farthest, 2 * head.axes + 3, form)
    if not gap > SILENT:
        raise RefutedError("a head is not kept to its own table: the gate is too weak")
    share = arb(len(head.foreign_gates)) * (-arb(float(gap))).exp()
    spread = float(np.abs(head.values[:, column]).max() + np.abs(head.foreign_values[:, column]).max())
    return (share * arb(math.nextafter(spread, math.inf))).upper()


def score_slack(size: float, roundings: int, form: FloatFormat) -> float:
    """How far computed scores, and the float64 sums of a checker, can be off that add up to ``size``."""
    return (round_up(form.gamma(roundings)) + 1e-14) * size * (1 + 1e-14)


def score_error(head: TableHead, ranges: Sequence[arb], form: FloatFormat, box: Box) -> arb:
    """Largest |computed − real| score of the head's own tokens, inputs rounded once."""
    total = np.zeros(head.tokens)
    for k, (linear, ball) in enumerate(zip(head.forms, ranges, strict=True)):
        reach = float(abs(ball).upper())
        total += np.abs(head.slopes[:, k]) * reach + np.abs(head.offsets[:, k])
        if is_computed(linear):
            total += np.abs(head.slopes[:, k]) * float(argument_size(linear, box).upper()) * (len(linear) + 1)
    # input, product and sums; the factor covers the roundings of the float sums above
    return form.gamma(2 * head.axes + 2) * arb(float(total.max())) * (1 + arb(2) ** -20)


def is_computed(linear: Mapping[int, fmpq]) -> bool:
    """Whether a linear form is more than an input as it is, so that forming it rounds."""
    return len(linear) != 1 or any(v != 1 for v in linear.values())


def argument_size(linear: Mapping[int, fmpq], box: Box) -> arb:
    """Σ |coefficient| sup|x|: what the rounding of a linear form is relative to."""
    return sum((abs(arb(v)) * box.magnitude(i) for i, v in linear.items()), arb(0))
