"""Nothing overflows where values are added up, or in the memory tokens' own streams.

*Values.* No exponential of a softmax is above 1 while the largest score is subtracted, so a head that divides last adds
up at most N·Y for N tokens with |values| ≤ Y, its own or not: a kernel that takes the tokens in blocks subtracts the
largest score of those it has seen, which may all be foreign ones. Computed sums are at most twice as large.

*Memory tokens* attend and are bent like data tokens. Nobody reads what they compute, but a dense product
multiplies it by zero, and zero times infinity is not a number. They carry no input and no 1; softmax weights
add up to one, so a head adds at most the largest value of any token. Real numbers are bounded here, and
computed ones are at most twice as large, or γ would not be small: that is what the factor 2 is for.
"""

from __future__ import annotations

import numpy as np
from flint import arb

from transformula.kernel.folder.weights import Matrix, Weights
from transformula.kernel.rounding.formats import FORMATS, QUERY_FACTOR, check_size


def check_memory(weights: Weights) -> None:
    """Refuse weights whose memory tokens might overflow, or heads that add up their values."""
    form = FORMATS[weights.dtype]
    constants = np.abs(weights.memory.dense(np.float64))
    largest = [arb(float(v)) for v in constants.max(axis=0, initial=0.0)]
    held = [arb(float(v)) for v in constants[len(weights.data_tokens) :].max(axis=0, initial=0.0)]

    def product(matrix: Matrix, slots: list[arb], bias: Matrix | None = None) -> list[arb]:
        sums = [arb(0)] * matrix.shape[0]
        for row, column, value in matrix.entries():
            sums[row] += abs(arb(value)) * slots[column]
        for row, _, value in bias.entries() if bias is not None else ():
            sums[row] += abs(arb(value))
        for size in sums:
            check_size(form, 2 * size)
        return sums

    for block in weights.blocks:
        added = [arb(0)] * weights.width
        for head in block.attention.heads:
            asked, keys = product(head.query, held), product(head.key, largest)
            check_size(form, QUERY_FACTOR * arb(float(np.abs(head.query.values).max(initial=0.0))))
            check_size(form, 4 * sum((q * k for q, k in zip(asked, keys, strict=True)), arb(0)))
            for row, column, value in head.value.entries():
                added[row] += abs(arb(value)) * largest[column]
                check_size(form, 2 * weights.tokens * abs(arb(value)) * largest[column])
        held = [2 * a + 2 * b for a, b in zip(held, added, strict=True)]
        layer = block.feed_forward
        if layer is not None:
            hidden = product(layer.hidden, held, layer.hidden_bias)
            bent = product(layer.output, [2 * h for h in hidden], layer.output_bias)
            held = [2 * a + 2 * b for a, b in zip(held, bent, strict=True)]
        for size in held:
            check_size(form, size)
