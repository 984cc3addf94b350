"""One layer of linear attention (Yau et al., 2410.10101): y = Σ_h V_h Z Zᵀ Q_h z, from matrices that were learned.

Token i carries the numbers z_i of its position in slots z1, z2, ..., and a constant 1 in ``one`` if tokens are extended
by it. Head h asks with Q_h z_j, answers with z_i as it is, and adds V_h z_i, weighed by the score, to the slots y1, y2,
...: token j then holds Σ_h V_h Σ_i z_i (z_iᵀ Q_h z_j). The readout takes them from the last token, or from all.
The error is that of the factorisation in floats: the kernel's `linear_attention_rule` expands what the heads compute,
and compares it with the polynomial that least squares found.
"""

from __future__ import annotations

import numpy as np

from transformula.kernel.folder.weights import Attention, Block, FloatArray, Head, Weights
from transformula.runtime.matrices import dense_matrix, matrix_of


def attention_weights(
    values: FloatArray, queries: FloatArray, inputs: tuple[str, ...], positions: int, each: bool, dtype: str
) -> Weights:
    """One layer of linear attention.

    Parameters
    ----------
    values, queries : V (heads, outputs, d) and Q (heads, d, d).
    inputs : names of the inputs, position by position; a position has d of them, or d − 1 and a constant 1.
    positions : how many tokens there are.
    each : whether the outputs of all tokens are read, or only those of the last.
    dtype : format of the weights.
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
