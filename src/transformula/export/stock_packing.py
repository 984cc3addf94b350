"""Weights packed into the shapes of torch.nn, as an export to torch writes them.

torch.nn.MultiheadAttention gives every head embed_dim / heads coordinates and divides scores by the
square root of that number D. So the stream is padded with empty slots to heads · D, every head's query,
key and value rows are padded with zeros to D, and the query is multiplied by √D. D is a power of 16 (16,
rarely 256): then √D and also D^¼, by which torch's plain kernel scales queries and keys each, are powers
of two, and nothing is rounded. A head that writes more than D slots becomes several heads with the same
query and key.

*With LayerNorm.* A pre-norm layer reads LN(z) instead of z. Its ε and its gain switch off the division, and two more
slots the subtraction of the mean: balance, minus the sum of all other slots, and zero. Whatever reads the stream reads
differences to zero. `export.norm_rounding` chooses the gain and proves what remains.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from transformula.errors import ExportError
from transformula.export.norm_rounding import Norms
from transformula.export.norm_sizes import CENTRE_SLOTS, gate_of, gate_power, gate_slots
from transformula.kernel.folder.description import WEIGHTS_FILE
from transformula.kernel.folder.weights import Attention, Block, FloatArray, Head, Weights
from transformula.model_folder import LOADER_FILE
from transformula.optional import require
from transformula.runtime.matrices import leading_tokens, read_tokens

if TYPE_CHECKING:
    import torch

    from transformula.export import stock_torch

#: Possible numbers of coordinates of a head: powers of 16.
HEAD_DIMS = (16, 256, 4096)
#: Largest number of stored numbers.
_MAX_NUMBERS = 250_000_000

State = dict[str, FloatArray]
Piece = tuple[Head, FloatArray, FloatArray]  # a head, rows of its value (D' × width), and where they go


def pack_stock(
    weights: Weights,
    sequence: tuple[int, int] | None = None,
    norms: Norms | None = None,
    extra: int = 0,
    loops: bool = True,
) -> tuple[dict[str, Any], State]:
    """The configuration and the state_dict of `stock_torch.Transformer` for some weights.

    ``norms`` switches LayerNorm off, for weights that are its own; None leaves LayerNorm out.
    ``extra`` empty slots follow the others. Without ``loops`` all blocks of a loop are written out.
    """
    pieces = [_pieces(weights, block.attention) for block in weights.blocks]
    dim, heads = _head_shape(weights, pieces, norms is not None)
    if norms is not None or extra:
        heads = _room(weights, dim, heads, extra)
    width = dim * heads if heads else weights.width
    lead, read = leading_tokens(weights), read_tokens(weights).tolist() or [0]
    numbers = width * (lead * len(weights.inputs) + weights.tokens + 4 * width * len(weights.blocks))
    if numbers > _MAX_NUMBERS:
        raise ExportError(f"as torch.nn modules this model takes {numbers:,} numbers: compile a smaller one")
    state: State = {}
    outlines: list[Any] = []
    for b, (block, parts, first) in enumerate(zip(weights.blocks, pieces, weights.first_places, strict=True)):
        if first < b and loops:
            outlines.append(first)
            continue
        if block.attention.kind != "softmax":
            outline, arrays = _scored(block.attention, parts, width)
        else:
            outline, arrays = _stock(block.attention, parts, dim, heads)
        units, layer = _feed_forward(block, width)
        outlines.append({"kind": block.attention.kind, **outline, "units": units})
        state |= {f"blocks.{b}.self_attn.{name}": array for name, array in arrays.items()}
        state |= {f"blocks.{b}.{name}": array for name, array in layer.items()}
    state |= _ends(weights, width, lead, read)
    if norms is not None:
        _add_norms(state, outlines, norms, dim, pieces)
    config = {
        "inputs": len(weights.inputs),
        "outputs": weights.outputs,
        "width": width,
        "tokens": lead,
        "memory": weights.tokens - lead,
        "read": read,
        "shape": None if sequence is None else list(sequence),
        "blocks": outlines,
    }
    return config, {name: np.ascontiguousarray(a, dtype=weights.dtype) for name, a in state.items()}


def stock_files(
    weights: Weights,
    sequence: tuple[int, int] | None = None,
    norms: Norms | None = None,
    claim: Mapping[str, str] | None = None,
) -> dict[str, bytes | str]:
    """The two files of the export: a plain state_dict with its claim, and the code that loads it."""
    from safetensors.numpy import save

    config, state = pack_stock(weights, sequence, norms)
    config["claim"] = dict(claim or {})
    loader = Path(__file__).with_name("stock_torch.py").read_text(encoding="utf-8")
    return {WEIGHTS_FILE: save(state, {"config": json.dumps(config)}), LOADER_FILE: loader}


def stock_module(
    weights: Weights, sequence: tuple[int, int] | None = None, norms: Norms | None = None
) -> stock_torch.Transformer:
    """The module that the exported code would load."""
    require("an export to torch", "torch")
    import torch

    from transformula.export import stock_torch

    config, state = pack_stock(weights, sequence, norms)
    tensors: dict[str, torch.Tensor] = {name: torch.from_numpy(array) for name, array in state.items()}
    return stock_torch.build(config, tensors)


def _pieces(weights: Weights, attention: Attention) -> list[Piece]:
    """Heads with the rows of their values that are not empty; heads without any are left out."""
    pieces = []
    for head in attention.heads:
        rows = np.unique(head.value.rows)
        output = np.eye(weights.width, dtype=weights.dtype) if head.output is None else head.output.dense()
        if len(rows):
            pieces.append((head, head.value.dense()[rows], output[:, rows]))
    return pieces


def _head_shape(weights: Weights, pieces: list[list[Piece]], normed: bool) -> tuple[int, int]:
    """Coordinates of a head, one more with LayerNorm, and heads of a block; no heads if no block is softmax."""
    stock = [p for block, p in zip(weights.blocks, pieces, strict=True) if block.attention.kind == "softmax"]
    if not stock:
        return HEAD_DIMS[0], 0
    longest = max((head.query.shape[0] for parts in stock for head, _, _ in parts), default=1) + normed
    fitting = [d for d in HEAD_DIMS if d >= longest]
    if not fitting:
        raise ExportError(f"a head's query has {longest} rows; at most {HEAD_DIMS[-1]} can be packed")
    dim = fitting[0]
    most = max(sum(math.ceil(len(value) / dim) for _, value, _ in parts) for parts in stock)
    return dim, max(most, math.ceil(weights.width / dim), 1)


def _stock(attention: Attention, pieces: list[Piece], dim: int, heads: int) -> tuple[dict[str, int], State]:
    width = dim * heads
    projection = np.zeros((3, heads, dim, width))
    output = np.zeros((width, heads, dim))
    place = 0
    for head, value, writes in pieces:
        query = head.query.dense() * (attention.scale * math.sqrt(dim))
        rows, slots = query.shape
        for start in range(0, len(value), dim):
            part = slice(start, start + dim)
            projection[0, place, :rows, :slots] = query
            projection[1, place, :rows, :slots] = head.key.dense()
            projection[2, place, : len(value[part]), :slots] = value[part]
            output[:slots, place, : len(value[part])] = writes[:, part]
            place += 1
    arrays: State = {
        "in_proj_weight": projection.reshape(3 * width, width),
        "out_proj.weight": output.reshape(width, width),
    }
    return {"heads": heads}, arrays


def _scored(attention: Attention, pieces: list[Piece], width: int) -> tuple[dict[str, int], State]:
    keys = max((head.query.shape[0] for head, _, _ in pieces), default=1)
    values = max((len(value) for _, value, _ in pieces), default=1)
    heads = max(len(pieces), 1)
    arrays: State = {
        "query": np.zeros((heads, width, keys)),
        "key": np.zeros((heads, width, keys)),
        "value": np.zeros((heads, width, values)),
        "output": np.zeros((heads, values, width)),
    }
    for h, (head, value, writes) in enumerate(pieces):
        rows, slots = head.query.shape
        arrays["query"][h, :slots, :rows] = head.query.dense().T * attention.scale
        arrays["key"][h, :slots, :rows] = head.key.dense().T
        arrays["value"][h, :slots, : len(value)] = value.T
        arrays["output"][h, : len(value), :slots] = writes.T
    return {"heads": heads, "keys": keys, "values": values}, arrays


def _feed_forward(block: Block, width: int) -> tuple[int, State]:
    layer = block.feed_forward
    units = 1 if layer is None else max(1, layer.hidden.shape[0])  # torch wants at least one, if empty
    state: State = {
        "linear1.weight": np.zeros((units, width)),
        "linear1.bias": np.zeros(units),
        "linear2.weight": np.zeros((width, units)),
        "linear2.bias": np.zeros(width),
    }
    if layer is not None:
        used, slots = layer.hidden.shape
        state["linear1.weight"][:used, :slots] = layer.hidden.dense()
        state["linear1.bias"][:used] = layer.hidden_bias.dense()[:, 0]
        state["linear2.weight"][:slots, :used] = layer.output.dense()
        state["linear2.bias"][:slots] = layer.output_bias.dense()[:, 0]
    return units, state


def normed_width(weights: Weights, extra: int = 0) -> int:
    """The width of a layer with LayerNorm: room for the stream, `CENTRE_SLOTS`, gates and further slots."""
    dim, heads = _head_shape(weights, [_pieces(weights, block.attention) for block in weights.blocks], True)
    return dim * _room(weights, dim, heads, extra)


def _room(weights: Weights, dim: int, heads: int, extra: int) -> int:
    """Heads of a layer that also has room for what LayerNorm needs."""
    slots = weights.width + CENTRE_SLOTS + len(gate_slots(weights)) + extra
    return max(heads, math.ceil(slots / dim))


def _gate_rows(pieces: list[Piece], dim: int) -> Iterator[tuple[int, Head]]:
    """The row of the packed keys that is a head's gate, for every place of the head."""
    place = 0
    for head, value, _ in pieces:
        for _ in range(0, len(value), dim):
            yield place * dim + head.key.shape[0] - 1, head
            place += 1


def _add_norms(state: State, outlines: list[dict[str, Any]], norms: Norms, dim: int, pieces: list[list[Piece]]) -> None:
    """Turn packed blocks into stock pre-norm layers, in place: zero, balance, gates, scales, gains and biases."""
    weights, width, one = norms.weights, state["memory"].shape[1], norms.weights.slot("one")
    zero, balance, asks, sink = range(weights.width, weights.width + CENTRE_SLOTS)
    first = sink + 1
    gates, constants = gate_slots(weights), weights.memory.dense(np.float64)
    scales, lead = np.ones(width), len(state["embedding.bias"]) // width
    scales[: weights.width] = norms.scales
    root = math.sqrt(dim)
    embedding = state["embedding.weight"].reshape(-1, width, state["embedding.weight"].shape[1])
    embedding *= scales[None, :, None]
    embedding[:, balance] = -embedding.sum(axis=1)  # of one power of two for each input
    held = np.array([*gates.values()]).reshape(-1, weights.tokens)
    for tokens, own in (
        (state["embedding.bias"].reshape(-1, width), held[:, :lead]),
        (state["memory"], held[:, lead:]),
    ):
        tokens *= scales
        tokens[:, first : first + len(gates)] = own.T
    state["memory"][:, asks] = state["memory"][-1, sink] = 1.0
    for tokens in (state["embedding.bias"].reshape(-1, width), state["memory"]):
        tokens[:, balance] = negated_sums(tokens)
    state["readout.weight"].reshape(weights.outputs, -1, width)[...] /= scales
    places = {key: first + k for k, key in enumerate(gates)}
    for b, outline in enumerate(outlines):
        if isinstance(outline, int):
            continue
        name = f"blocks.{b}"
        projection = state[f"{name}.self_attn.in_proj_weight"]
        bias = np.zeros(3 * width)
        bias[:width] = projection[:width, one]  # a query that reads 1 reads it exactly
        projection[:width, one] = 0.0
        projection /= scales
        for row, head in _gate_rows(pieces[b], dim):
            gate = gate_of(head, constants)
            projection[width + row] = np.eye(1, width, places[gate.tobytes()]) * gate_power(gate)
            half = norms.sink // 2
            projection[row + 1, asks] = 2.0 ** (norms.sink - half) * root
            projection[width + row + 1, sink] = 2.0**half
        state[f"{name}.self_attn.in_proj_bias"] = bias
        state[f"{name}.self_attn.out_proj.bias"] = np.zeros(width)
        state[f"{name}.linear1.weight"] /= scales
        for reads in (projection, state[f"{name}.linear1.weight"]):
            reads[:, zero] = negated_sums(reads)
        for writes in ("self_attn.out_proj.weight", "linear2.weight", "linear2.bias"):
            columns = state[f"{name}.{writes}"].reshape(width, -1)
            columns *= scales[:, None]
            columns[balance] = negated_sums(columns.T)
        for norm in ("norm1", "norm2"):
            state[f"{name}.{norm}.weight"] = np.full(width, norms.gain)
            state[f"{name}.{norm}.bias"] = np.zeros(width)
        outline |= {"kind": "layer norm", "eps": norms.gain**2}
    _check_scaled(state, weights.dtype)


def _check_scaled(state: State, dtype: str) -> None:
    """Scaling is exact while nothing leaves the format's range."""
    normal = np.finfo(dtype)
    for array in state.values():
        sizes = np.abs(array[array != 0])
        if sizes.size and not (normal.tiny <= sizes.min() and sizes.max() <= normal.max):
            raise ExportError(f"the weights of this model are too far apart for LayerNorm in {dtype}")


def negated_sums(rows: FloatArray) -> FloatArray:
    """Minus the sum of each row, correctly rounded."""
    return np.array([-math.fsum(row[row != 0].tolist()) for row in rows])


def _ends(weights: Weights, width: int, lead: int, read: list[int]) -> State:
    """Embedding, constant tokens and readout, on the padded stream."""
    constants = np.zeros((weights.tokens, width))
    constants[:, : weights.width] = weights.memory.dense()
    embedding = np.zeros((lead, width, len(weights.inputs)))
    tokens, slots = np.divmod(weights.embedding.rows, weights.width)
    embedding[tokens, slots, weights.embedding.cols] = weights.embedding.values
    readout = np.zeros((weights.outputs, len(read), width))
    tokens, slots = np.divmod(weights.readout.cols, weights.width)
    readout[weights.readout.rows, np.searchsorted(read, tokens), slots] = weights.readout.values
    return {
        "embedding.weight": embedding.reshape(lead * width, -1),
        "embedding.bias": constants[:lead].reshape(-1),
        "memory": constants[lead:],
        "readout.weight": readout.reshape(weights.outputs, -1),
        "readout.bias": weights.bias.dense()[:, 0],
    }
