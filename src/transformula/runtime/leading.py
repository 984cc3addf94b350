"""Which tokens an executor has to carry for every sample, and which stay as they are in memory.

Memory tokens attend too, but what attention writes into them is often read by nobody. Let the first
``lead`` tokens include every token that depends on the inputs or is read out. If no block writes a slot
that a *later* block's keys or values read, the tokens after them answer with their constant part in every
block, so they need not ask, and one copy serves all samples. This looks at which entries are zero and
computes nothing: the function of the weights is the same in exact arithmetic, and so is every number
that is read, up to the order of summation.
"""

from __future__ import annotations

import numpy as np

from transformula.kernel.folder.weights import Block, IntArray, Weights


def read_tokens(weights: Weights) -> IntArray:
    """Indices of the tokens that the readout uses."""
    return np.unique(weights.readout.cols // weights.width).astype(np.int32)


def leading_tokens(weights: Weights) -> int:
    """How many tokens, from the first on, depend on the inputs; the others are constants to all blocks."""
    asked: set[int] = set()
    for block in reversed(weights.blocks):
        if _written(block) & asked:
            return weights.tokens
        asked |= _answered(block)
    used = (*weights.data_tokens.tolist(), *read_tokens(weights).tolist())
    return 1 + max(used, default=0)


def _written(block: Block) -> set[int]:
    rows = {int(r) for h in block.attention.heads for r in (h.value if h.output is None else h.output).rows}
    layer = block.feed_forward
    if layer is not None:
        rows |= {*layer.output.rows.tolist(), *layer.output_bias.rows.tolist()}
    return rows


def _answered(block: Block) -> set[int]:
    return {int(c) for head in block.attention.heads for m in (head.key, head.value) for c in m.cols}
