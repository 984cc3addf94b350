"""Stored weights evaluated in balls, written from the definition and from nothing else of the library.

z_i = embedding·x + memory_i; ẑ_i = z_i + Σ_h V_h Z softmax(scale (Q_h z_i)ᵀ K_h Z);
z'_i = ẑ_i + W₂ ReLU(W₁ ẑ_i + b₁) + b₂; outputs = readout·z' + bias. Where a matrix has rationals beside its
floats, the rationals count.
"""

from __future__ import annotations

from functools import lru_cache

from flint import arb, ctx

BITS = 300


def _rows(matrix):
    rows = {}
    for r, c, v in matrix.entries():
        rows.setdefault(r, []).append((c, arb(v)))
    return rows


class BallTransformer:
    """T_w at float points, as narrow balls."""

    def __init__(self, weights):
        before, ctx.prec = ctx.prec, BITS
        self.weights = weights
        width = weights.width
        self.read = sorted({c // width for c in weights.readout.cols.tolist()})
        self.embedding = _rows(weights.embedding)
        self.readout, self.bias = _rows(weights.readout), _rows(weights.bias)
        self.memory = _rows(weights.memory)
        self.blocks = [_block(block) for block in weights.blocks]
        ctx.prec = before

    def __call__(self, point):
        """Outputs at one point of numbers that are exact as they are (floats, ints, arbs)."""
        before, ctx.prec = ctx.prec, BITS
        try:
            return self._run([v if isinstance(v, arb) else arb(float(v)) for v in point])
        finally:
            ctx.prec = before

    def _run(self, x):
        weights = self.weights
        width = weights.width
        stream = [dict(self.memory.get(i, ())) for i in range(weights.tokens)]
        for row, terms in self.embedding.items():
            token, slot = divmod(row, width)
            stream[token][slot] = stream[token].get(slot, arb(0)) + sum((v * x[c] for c, v in terms), arb(0))
        last = len(self.blocks) - 1
        for k, block in enumerate(self.blocks):  # nobody looks at the other tokens after the last block
            new = _run_block(block, stream, self.read if k == last else range(weights.tokens))
            stream = [new.get(i, z) for i, z in enumerate(stream)]
        outputs = []
        for o in range(weights.outputs):
            total = sum((v for _, v in self.bias.get(o, ())), arb(0))
            for c, v in self.readout.get(o, ()):
                total += v * stream[c // width].get(c % width, arb(0))
            outputs.append(total)
        return outputs


def _block(block):
    attention, layer = block.attention, block.feed_forward
    assert all(h.output is None for h in attention.heads)
    heads = [tuple(_rows(m) for m in (h.query, h.key, h.value)) for h in attention.heads]
    parts = layer and (layer.hidden, layer.hidden_bias, layer.output, layer.output_bias)
    return heads, attention.scale, layer and tuple(_rows(m) for m in parts)


def _run_block(block, stream, wanted):
    """The wanted tokens after the block."""
    heads, scale, layer = block
    new = {i: dict(stream[i]) for i in wanted}
    for query, key, value in heads:
        keys = [_apply(key, z) for z in stream]
        values = [_apply(value, z) for z in stream]
        for i in wanted:
            q = _apply(query, stream[i])
            scores = [sum((v * k[r] for r, v in q.items() if r in k), arb(0)) for k in keys]
            top = max(scores, key=lambda s: float(s.mid()))
            powers = [((s - top) * scale).exp() for s in scores]
            total = sum(powers, arb(0))
            for p, v in zip(powers, values, strict=True):
                for slot, entry in v.items():
                    new[i][slot] = new[i].get(slot, arb(0)) + p * entry / total
    if layer:
        hidden, hidden_bias, output, output_bias = layer
        for z in new.values():
            units = _apply(hidden, z)
            for r, terms in hidden_bias.items():
                units[r] = units.get(r, arb(0)) + terms[0][1]
            units = {r: v.max(arb(0)) for r, v in units.items()}
            change = _apply(output, units)
            for r, terms in output_bias.items():
                change[r] = change.get(r, arb(0)) + terms[0][1]
            for slot, v in change.items():
                z[slot] = z.get(slot, arb(0)) + v
    return new


def _apply(rows, vector):
    return {
        r: sum((v * vector[c] for c, v in terms if c in vector), arb(0))
        for r, terms in rows.items()
        if any(c in vector for c, _ in terms)
    }


@lru_cache(maxsize=64)
def balls_of(weights):
    return BallTransformer(weights)
