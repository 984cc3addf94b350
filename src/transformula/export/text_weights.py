"""A text layout as the arrays and the configuration of a stock GPT-2.

*LayerNorm.* With eps = 2**400 and gain 2**200 it divides by exactly 1 and only subtracts the mean: variance + eps is
eps in floats while the variance is below 2**345, and all factors are powers of two. Two slots are added, one that is
always 0 and one that balances every token, so that its sum is 0; a row that reads Σ w_i z_i also reads −Σ w_i of the
former, so that whatever mean is subtracted cancels.

Queries are multiplied by √D, a power of two, as GPT-2 divides scores by it.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from transformula.errors import ExportError
from transformula.export.text_grammar import ANCHOR, END, PAD
from transformula.export.text_layout import Heads, TextLayer, TextLayout
from transformula.kernel.folder.weights import FloatArray

#: Gain of every LayerNorm; its eps is the square.
GAIN = 2.0**200
#: Dimensions of a head whose roots are powers of two.
_DIMENSIONS = (4, 16, 64, 256)


class TextShape:
    """Dimension and number of heads, width of the stream and of the feed-forward layers."""

    def __init__(self, layout: TextLayout) -> None:
        heads = [head for block in layout.blocks for head in block.heads]
        rows = max(max(q.shape[0], v.shape[0]) for q, _, v, _ in heads)
        self.slots = len(layout.names)
        self.dimension = next((d for d in _DIMENSIONS if d >= rows), 0)
        if not self.dimension:
            raise ExportError(f"a head of the model has {rows} rows; a text model has room for {_DIMENSIONS[-1]}")
        most = max(len(block.heads) for block in layout.blocks)
        self.heads = max(most, math.ceil((self.slots + 2) / self.dimension))
        self.width = self.heads * self.dimension
        self.units = max(len(block.layer.hidden_bias) for block in layout.blocks if block.layer)

    def read(self, rows: FloatArray) -> FloatArray:
        """Rows over the slots, as rows over the stream."""
        wide = np.zeros((len(rows), self.width))
        wide[:, : self.slots] = rows
        wide[:, self.slots] = [-math.fsum(row) for row in rows]
        return wide

    def written(self, rows: FloatArray) -> FloatArray:
        """Vectors of slots, as vectors of the stream whose sums are 0."""
        wide = np.zeros((len(rows), self.width))
        wide[:, : self.slots] = rows
        wide[:, self.slots + 1] = [-math.fsum(row) for row in rows]
        return wide


def text_arrays(layout: TextLayout) -> dict[str, FloatArray]:
    """The parameters of GPT2LMHeadModel by their names."""
    shape = TextShape(layout)
    places = np.zeros((layout.positions, shape.slots))
    places[:, layout.names.index("text.pos")] = np.arange(layout.positions)
    arrays = {
        "transformer.wte.weight": shape.written(layout.embedding),
        "transformer.wpe.weight": shape.written(places),
        "lm_head.weight": shape.read(layout.head),
    }
    norms = ["transformer.ln_f"]
    for b, block in enumerate(layout.blocks):
        name = f"transformer.h.{b}"
        norms += [f"{name}.ln_1", f"{name}.ln_2"]
        arrays |= {f"{name}.attn.{key}": value for key, value in _attention(block.heads, shape).items()}
        arrays |= {f"{name}.mlp.{key}": value for key, value in _feed_forward(block.layer, shape).items()}
    for name in norms:
        arrays[f"{name}.weight"], arrays[f"{name}.bias"] = np.full(shape.width, GAIN), np.zeros(shape.width)
    return {name: np.ascontiguousarray(array) + 0.0 for name, array in arrays.items()}  # + 0.0: no -0


def _attention(heads: Heads, shape: TextShape) -> dict[str, FloatArray]:
    packed = np.zeros((3, shape.heads, shape.dimension, shape.width))
    outputs = np.zeros((shape.heads, shape.dimension, shape.width))
    for h, (query, key, value, output) in enumerate(heads):
        packed[0, h, : len(query)] = shape.read(query) * math.sqrt(shape.dimension)
        packed[1, h, : len(key)] = shape.read(key)
        packed[2, h, : len(value)] = shape.read(value)
        outputs[h, : len(value)] = shape.written(output.T)
    return {
        "c_attn.weight": packed.reshape(-1, shape.width).T,
        "c_attn.bias": np.zeros(3 * shape.width),
        "c_proj.weight": outputs.reshape(-1, shape.width),
        "c_proj.bias": np.zeros(shape.width),
    }


def _feed_forward(layer: TextLayer | None, shape: TextShape) -> dict[str, FloatArray]:
    hidden, bias = np.zeros((shape.units, shape.width)), np.zeros(shape.units)
    output, added = np.zeros((shape.units, shape.width)), np.zeros(shape.width)
    if layer is not None:
        used = len(layer.hidden_bias)
        hidden[:used], bias[:used] = shape.read(layer.hidden), layer.hidden_bias
        output[:used], added[:] = shape.written(layer.output.T), shape.written(layer.output_bias[None])[0]
    return {"c_fc.weight": hidden.T, "c_fc.bias": bias, "c_proj.weight": output, "c_proj.bias": added}


def text_config(layout: TextLayout, claim: dict[str, Any]) -> dict[str, str]:
    """config.json and generation_config.json."""
    shape, grammar = TextShape(layout), layout.grammar
    ids = {token.text: number for number, token in enumerate(grammar.tokens)}
    special = {"bos_token_id": ids[ANCHOR], "eos_token_id": ids[END], "pad_token_id": ids[PAD]}
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "dtype": "float64",
        "vocab_size": len(ids),
        "n_positions": layout.positions,
        "n_embd": shape.width,
        "n_layer": len(layout.blocks),
        "n_head": shape.heads,
        "n_inner": shape.units,
        "activation_function": "relu",
        "layer_norm_epsilon": GAIN**2,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "scale_attn_weights": True,
        "tie_word_embeddings": False,
        **special,
        "transformula": claim,
    }
    steps = max(grammar.lengths) + grammar.places + 1
    generation = {"do_sample": False, "max_new_tokens": steps, **special}
    pairs = (("config.json", config), ("generation_config.json", generation))
    return {name: json.dumps(data, indent=2, ensure_ascii=False) + "\n" for name, data in pairs}
