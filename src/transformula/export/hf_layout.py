"""Softmax models in stock architectures of Hugging Face's transformers: tensors by name, and their configuration.

The blocks are those of `stock_packing`, renamed. Tokens are rows of an embedding table, so a call adds the inputs to
constant rows (`HfLayout.call`), and the last sublayer's reader is the readout.

* t5: `T5ForTokenClassification`, an encoder. No biases: one more slot holds 1 on data tokens, and one more hidden unit
  carries the output's bias. Unscaled scores, so no padding either. In float64 only since transformers took its softmax
  in the model's own dtype, not in float32: 5.22 does.
* gpt2: `GPT2LMHeadModel`, whose logits are the outputs. Causal, so memory tokens come first; LayerNorm, so the caller
  also sets balance.
* llama: `LlamaForCausalLM`, float32 only, as its norms compute in float32. Gated, with gates that are 1; rotated by
  angles that are 0 if all positions are given as 0.
* transformula: blocks of any kind as they are written, without norms, in a file of code (`remote_code`); the only one
  for hardmax and linear attention.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transformula.export.norm_rounding import Norms
from transformula.export.norm_sizes import CENTRE_SLOTS, gate_slots
from transformula.export.stock_packing import State, negated_sums, pack_stock
from transformula.kernel.folder.weights import FloatArray, IntArray, Weights
from transformula.model_folder import HF_CODE
from transformula.runtime.matrices import leading_tokens

#: The architecture with code of its own, and how its file begins.
REMOTE = "transformula"
_REMOTE_HEAD = '''"""A Transformer that was compiled from a formula, for ``trust_remote_code=True``: see README.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput'''
#: Buckets of relative positions in T5, all with bias 0; it needs four.
_BUCKETS = 4


@dataclass(frozen=True, eq=False)
class HfLayout:
    """A model in a stock architecture."""

    #: What config.json says of the computation, the tensors by name, and the class of transformers that loads them.
    config: Mapping[str, Any]
    state: State
    loader: str
    #: Lines of Python that turn ``x`` (rows × inputs) into ``y``.
    call: tuple[str, ...]
    #: The column of each slot of the residual stream, and the power of two it is held times, where that is not 1.
    slots: Mapping[str, int]
    scales: Mapping[str, float]
    #: For every block, the first of the architecture's heads that is head h.
    heads: list[list[int]]
    #: The place of each token in the sequence.
    tokens: list[int]
    #: The rows that inputs are added to: tokens × width; where, which, and times what.
    constants: FloatArray
    entries: tuple[IntArray, IntArray, FloatArray]
    #: The token and the logit of every output.
    outputs: tuple[IntArray, IntArray]

    def embed(self, x: FloatArray) -> FloatArray:
        """The ``inputs_embeds`` of samples × inputs."""
        flat = np.tile(self.constants.reshape(-1), (len(x), 1))
        for place, column, factor in zip(*self.entries, strict=True):
            flat[:, place] += x.dtype.type(factor) * x[:, column]
        return flat.reshape(len(x), *self.constants.shape)

    def read_out(self, logits: FloatArray) -> FloatArray:
        """The outputs in the logits: samples × outputs."""
        return logits[:, self.outputs[0], self.outputs[1]]


def hf_layout(norms: Norms, arch: str, sequence: tuple[int, int] | None = None) -> HfLayout:
    """Lay a softmax model out in a stock architecture whose norms are switched off."""
    return _ARCHITECTURES[arch](_Parts(norms, sequence))


class _Parts:
    """The packed blocks, and the tokens in the order of the architecture."""

    def __init__(self, norms: Norms, sequence: tuple[int, int] | None) -> None:
        weights, centred = norms.weights, norms.scales is not None
        self.weights, self.sequence, self.centred, self.gain = weights, sequence, centred, norms.gain
        self.scales = np.ones(weights.width) if norms.scales is None else norms.scales
        self.packed, self.state = pack_stock(weights, None, norms if centred else None, 1, loops=False)
        self.width = self.packed["width"]
        self.lead, self.tokens = leading_tokens(weights), weights.tokens
        gates = len(gate_slots(weights)) if centred else 0
        self.used = weights.width + (CENTRE_SLOTS + gates if centred else 0) + 1
        self.bias = self.used - 1
        constants = np.concatenate([self.state["embedding.bias"].reshape(self.lead, -1), self.state["memory"]])
        constants[: self.lead, self.bias] = 1.0
        if centred:
            constants[: self.lead, weights.width + 1] -= 1.0
        self.constants = constants
        self.heads = self.packed["blocks"][0]["heads"] if weights.blocks else 1
        self.dim = self.width // self.heads
        written = [[len(np.unique(h.value.rows)) for h in block.attention.heads] for block in weights.blocks]
        parts = [np.cumsum([0, *(math.ceil(rows / self.dim) for rows in block)]) for block in written]
        self.places = [part[:-1].tolist() for part in parts]
        self.used_heads = max([1, *(int(part[-1]) for part in parts)])
        asked = [head.query.shape[0] for block in weights.blocks for head in block.attention.heads]
        self.rows = max([1, *asked, *(min(rows, self.dim) for block in written for rows in block)])
        self.units = max((outline["units"] for outline in self.packed["blocks"]), default=1)

    def block(self, b: int, name: str) -> FloatArray:
        """A packed array of a block."""
        return self.state[f"blocks.{b}.{name}"]

    def readout(self) -> FloatArray:
        """The readout of one token, its bias at the slot that holds 1."""
        whole = self.state["readout.weight"].reshape(self.weights.outputs, -1, self.width)
        rows = whole[: self.labels, 0] if self.repeated else whole.sum(axis=1)  # an output reads one token
        rows = rows.copy()
        rows[:, self.bias] = self.state["readout.bias"][: self.labels]
        return rows

    @property
    def repeated(self) -> bool:
        """Whether all positions of a sequence compute the same from their own inputs."""
        own = int((self.weights.embedding.rows < self.weights.width).sum())
        return self.lead > 1 and own < len(self.weights.inputs)

    @property
    def labels(self) -> int:
        """Number of outputs of a token."""
        return self.weights.outputs // self.lead if self.repeated else self.weights.outputs

    def read(self, first: int) -> str:
        """The answer in the logits, the data tokens starting at ``first``."""
        if self.repeated:
            return f"y = logits[:, {first}:{first + self.lead}]"
        if self.lead == 1:
            return f"y = logits[:, {first}]"
        places = [first + token for token in self._answering()]
        return f"y = logits[:, {places}, range({self.weights.outputs})]"

    def place(self, first: int) -> list[str]:
        """Lines that add the inputs to the data tokens."""
        rows = self.weights.embedding.rows
        slots = [int(r) for r in rows[rows < self.weights.width]]
        order = self.weights.embedding.cols[rows < self.weights.width]
        slots = [slots[k] for k in np.argsort(order)]
        where = f":{len(slots)}" if slots == list(range(len(slots))) else str(slots)
        powers, lines, given = (np.frexp(self.scales[slots])[1] - 1).tolist(), list[str](), "x"
        if any(powers):
            factors, given = ", ".join(f"2.0**{k}" for k in powers), "scaled"
            each = f".repeat({self.lead})" if self.repeated else ""
            lines.append(f"{given} = x * torch.tensor([{factors}], dtype=x.dtype){each}  # about 1")
        what = f"{given}.reshape(len(x), {self.lead}, -1)" if self.repeated else f"{given}[:, None]"
        last = first + self.lead
        lines.append(f"tokens[:, {first}:{last}, {where}] += {what}")
        if self.centred:
            lines.append(f"tokens[:, {first}:{last}, {self.weights.width + 1}] -= {what}.sum(-1)")
        return lines

    def finished(
        self, config: Mapping[str, Any], state: State, loader: str, call: list[str], order: list[int]
    ) -> HfLayout:
        """The layout, its arrays contiguous and in the model's dtype."""
        dtype, slots = self.weights.dtype, dict(zip(self.weights.slots, range(self.weights.width), strict=True))
        first = self.weights.width
        added = ("(zero)", "(balance)", "(memory)", "(sink)") if self.centred else ()
        slots |= {name: first + k for k, name in enumerate(added)}
        arrays = {name: np.ascontiguousarray(a, dtype=dtype) for name, a in state.items()}
        places = [order.index(token) for token in range(self.tokens)]
        shared = {"dtype": dtype, "architectures": [config["architectures"]], "transformers_version": "5.22.0"}
        slots["(one)"] = self.bias
        width = self.width if self.centred or config["model_type"] == "llama" else self.used
        base = np.zeros((self.tokens, width), dtype) if self.centred else self.constants[order, :width].astype(dtype)
        given = self._entries(places, width)
        labels = np.arange(self.weights.outputs, dtype=np.int32) % self.labels
        answers = np.array(places, dtype=np.int32)[self._answering()], np.asarray(labels, dtype=np.int32)
        whole = {**config, **shared}
        scaled = {n: float(d) for n, d in zip(self.weights.slots, self.scales, strict=True) if d != 1}
        return HfLayout(whole, arrays, loader, tuple(call), slots, scaled, self.places, places, base, given, answers)

    def _entries(self, places: list[int], width: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Tokens and slots to which inputs are added; with LayerNorm the balance slot takes what they add."""
        embedding = self.weights.embedding
        tokens, slots = np.divmod(embedding.rows, self.weights.width)
        starts = np.array(places)[tokens] * width
        rows, signs = [starts + slots], [self.scales[slots]]
        if self.centred:
            rows, signs = [*rows, starts + self.weights.width + 1], [*signs, -signs[0]]
        return np.concatenate(rows), np.tile(embedding.cols, len(rows)), np.concatenate(signs)

    def _answering(self) -> list[int]:
        """The token that each output is read from."""
        readout = self.weights.readout
        tokens = dict(zip(readout.rows.tolist(), (readout.cols // self.weights.width).tolist(), strict=True))
        every = range(self.weights.outputs)
        return [output // self.labels if self.repeated else tokens.get(output, 0) for output in every]


def _t5(parts: _Parts) -> HfLayout:
    width, heads, rows, blocks = parts.used, parts.used_heads, parts.rows, len(parts.packed["blocks"])
    units = parts.units + 1
    encoder = "transformer.encoder"
    state: State = {
        "transformer.shared.weight": parts.constants[:, :width],
        f"{encoder}.final_layer_norm.weight": np.full(width, parts.gain),
        "classifier.weight": parts.readout()[:, :width],
        "classifier.bias": np.zeros(parts.labels),
        f"{encoder}.block.0.layer.0.SelfAttention.relative_attention_bias.weight": np.zeros((_BUCKETS, heads)),
    }
    for b in range(blocks):
        attention, dense = (f"{encoder}.block.{b}.layer.{k}" for k in (0, 1))
        projection = parts.block(b, "self_attn.in_proj_weight").reshape(3, -1, parts.dim, parts.width)
        projection = projection[:, :heads, :rows, :width]
        scales = (1 / math.sqrt(parts.dim), 1.0, 1.0)
        for name, matrix, scale in zip("qkv", projection, scales, strict=True):
            state[f"{attention}.SelfAttention.{name}.weight"] = matrix.reshape(-1, width) * scale
        output = parts.block(b, "self_attn.out_proj.weight").reshape(parts.width, -1, parts.dim)
        state[f"{attention}.SelfAttention.o.weight"] = output[:width, :heads, :rows].reshape(width, -1)
        inner, outer = np.zeros((units, width)), np.zeros((width, units))
        used = len(parts.block(b, "linear1.bias"))
        inner[:used] = parts.block(b, "linear1.weight")[:, :width]
        inner[:used, parts.bias] = parts.block(b, "linear1.bias")
        inner[-1, parts.bias] = 1.0
        outer[:, :used] = parts.block(b, "linear2.weight")[:width]
        outer[:, -1] = parts.block(b, "linear2.bias")[:width]
        state |= {f"{dense}.DenseReluDense.wi.weight": inner, f"{dense}.DenseReluDense.wo.weight": outer}
        state |= {f"{name}.layer_norm.weight": np.full(width, parts.gain) for name in (attention, dense)}
    config = {
        "model_type": "t5", "architectures": "T5ForTokenClassification", "vocab_size": parts.tokens, "d_model": width,
        "d_kv": rows, "d_ff": units, "num_layers": blocks, "num_heads": heads, "feed_forward_proj": "relu",
        "layer_norm_epsilon": parts.gain**2, "relative_attention_num_buckets": _BUCKETS, "dropout_rate": 0.0,
        "classifier_dropout": 0.0, "is_encoder_decoder": False, "use_cache": False, "pad_token_id": None,
        "eos_token_id": None, **_labels(parts.labels),
    }  # fmt: skip
    call = [
        "tokens = model.get_input_embeddings().weight.repeat(len(x), 1, 1)",
        *parts.place(0),
        "logits = model(inputs_embeds=tokens).logits",
        parts.read(0),
    ]
    return parts.finished(config, state, "AutoModelForTokenClassification", call, list(range(parts.tokens)))


def _causal(parts: _Parts) -> tuple[list[int], int]:
    """The order of the tokens, memory first, and the place of the first data token."""
    memory = [*range(parts.lead, parts.tokens)]
    sink = [memory.pop()] if parts.centred else []  # which all memory tokens see
    return [*sink, *memory, *range(parts.lead)], parts.tokens - parts.lead


def _gpt2(parts: _Parts) -> HfLayout:
    (order, first), blocks = _causal(parts), len(parts.packed["blocks"])
    readout = parts.readout()
    readout[:, parts.weights.width] = negated_sums(readout)
    state: State = {
        "transformer.wpe.weight": parts.constants[order],
        "transformer.wte.weight": np.zeros((parts.labels, parts.width)),
        "transformer.ln_f.weight": np.full(parts.width, parts.gain),
        "transformer.ln_f.bias": np.zeros(parts.width),
        "lm_head.weight": readout,
    }
    names = {
        "self_attn.in_proj_weight": "attn.c_attn.weight", "self_attn.in_proj_bias": "attn.c_attn.bias",
        "self_attn.out_proj.weight": "attn.c_proj.weight", "self_attn.out_proj.bias": "attn.c_proj.bias",
        "norm1.weight": "ln_1.weight", "norm1.bias": "ln_1.bias", "norm2.weight": "ln_2.weight",
        "norm2.bias": "ln_2.bias", "linear1.weight": "mlp.c_fc.weight", "linear1.bias": "mlp.c_fc.bias",
        "linear2.weight": "mlp.c_proj.weight", "linear2.bias": "mlp.c_proj.bias",
    }  # fmt: skip
    for b in range(blocks):
        for ours, theirs in names.items():
            state[f"transformer.h.{b}.{theirs}"] = _padded(parts.block(b, ours), ours, parts.units).T
    config = {
        "model_type": "gpt2", "architectures": "GPT2LMHeadModel", "vocab_size": parts.labels,
        "n_positions": parts.tokens, "n_embd": parts.width, "n_layer": blocks, "n_head": parts.heads,
        "n_inner": parts.units, "activation_function": "relu", "layer_norm_epsilon": parts.gain**2,
        "scale_attn_weights": True, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "tie_word_embeddings": False, "use_cache": False, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    call = [
        f"tokens = torch.zeros(len(x), {parts.tokens}, {parts.width}, dtype=model.dtype)",
        *parts.place(first),
        "logits = model(inputs_embeds=tokens).logits",
        parts.read(first),
    ]
    return parts.finished(config, state, "AutoModelForCausalLM", call, order)


def _llama(parts: _Parts) -> HfLayout:
    (order, first), blocks = _causal(parts), len(parts.packed["blocks"])
    width, inner, ones = parts.width, parts.heads * parts.dim, np.ones(parts.units)
    vocabulary = max(parts.tokens, parts.labels)  # rows of the embedding are tokens, rows of the readout outputs
    state: State = {
        "model.embed_tokens.weight": np.pad(parts.constants[order], ((0, vocabulary - parts.tokens), (0, 0))),
        "model.norm.weight": np.full(width, parts.gain),
        "lm_head.weight": np.pad(parts.readout(), ((0, vocabulary - parts.labels), (0, 0))),
    }
    for b in range(blocks):
        layer = f"model.layers.{b}"
        projection = parts.block(b, "self_attn.in_proj_weight").reshape(3, inner, width)
        for name, matrix in zip("qkv", projection, strict=True):
            state[f"{layer}.self_attn.{name}_proj.weight"] = matrix
            state[f"{layer}.self_attn.{name}_proj.bias"] = np.zeros(inner)
        arrays = ("linear1.weight", "linear1.bias", "linear2.weight")
        hidden, bias, output = (_padded(parts.block(b, name), name, parts.units) for name in arrays)
        state |= {
            f"{layer}.self_attn.o_proj.weight": parts.block(b, "self_attn.out_proj.weight"),
            f"{layer}.self_attn.o_proj.bias": np.zeros(width),
            f"{layer}.mlp.gate_proj.weight": hidden, f"{layer}.mlp.gate_proj.bias": bias,
            f"{layer}.mlp.up_proj.weight": np.zeros((parts.units, width)), f"{layer}.mlp.up_proj.bias": ones,
            f"{layer}.mlp.down_proj.weight": output, f"{layer}.mlp.down_proj.bias": parts.block(b, "linear2.bias"),
            f"{layer}.input_layernorm.weight": np.full(width, parts.gain),
            f"{layer}.post_attention_layernorm.weight": np.full(width, parts.gain),
        }  # fmt: skip
    config = {
        "model_type": "llama", "architectures": "LlamaForCausalLM", "vocab_size": vocabulary, "hidden_size": width,
        "intermediate_size": parts.units, "num_hidden_layers": blocks, "num_attention_heads": parts.heads,
        "num_key_value_heads": parts.heads, "head_dim": parts.dim, "hidden_act": "relu", "attention_bias": True,
        "mlp_bias": True, "rms_norm_eps": parts.gain**2, "attention_dropout": 0.0, "tie_word_embeddings": False,
        "max_position_embeddings": parts.tokens, "use_cache": False, "bos_token_id": None, "eos_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }  # fmt: skip
    call = [
        f"tokens = model.get_input_embeddings().weight[:{parts.tokens}].repeat(len(x), 1, 1)",
        *parts.place(first),
        "nowhere = torch.zeros(tokens.shape[:2], dtype=torch.long)  # no rotation, and all tokens in one sequence",
        "out = model(inputs_embeds=tokens, position_ids=nowhere, attention_mask=nowhere + 1)",
        f"logits = out.logits[..., :{parts.labels}]",
        parts.read(first),
    ]
    return parts.finished(config, state, "AutoModelForCausalLM", call, order)


def _padded(array: FloatArray, name: str, units: int) -> FloatArray:
    """A block's array with the hidden units of the largest block."""
    missing = {"linear1.weight": (0, 0), "linear1.bias": (0,), "linear2.weight": (1, 1)}.get(name)
    if missing is None:
        return array
    axis = missing[0]
    sizes = [(0, units - array.shape[axis] if k == axis else 0) for k in range(array.ndim)]
    return np.pad(array, sizes)


def _labels(count: int) -> dict[str, Any]:
    names = [f"y{k + 1}" for k in range(count)]
    return {"id2label": {str(k): n for k, n in enumerate(names)}, "label2id": {n: k for k, n in enumerate(names)}}


def remote_layout(weights: Weights, sequence: tuple[int, int] | None) -> HfLayout:
    """Blocks of any kind as they are written, run by a file of code."""
    outline, state = pack_stock(weights, sequence, loops=False)
    classes = {"AutoConfig": "FormulaConfig", "AutoModel": "FormulaModel"}
    config = {
        "model_type": REMOTE, "architectures": ["FormulaModel"], "dtype": weights.dtype, "outline": outline,
        "auto_map": {auto: f"{HF_CODE.removesuffix('.py')}.{name}" for auto, name in classes.items()},
        "transformers_version": "5.22.0",
    }  # fmt: skip
    slots, tokens = {name: k for k, name in enumerate(weights.slots)}, list(range(weights.tokens))
    heads = [list(range(len(block.attention.heads))) for block in weights.blocks]
    none = np.zeros(0, dtype=np.int32)
    arrays = {f"formula.{name}": array for name, array in state.items()}
    call, empty = ("y = model(x).logits",), np.zeros((0, 0))
    return HfLayout(
        config, arrays, "AutoModel", call, slots, {}, heads, tokens, empty, (none, none, empty), (none,) * 2
    )


def remote_code() -> str:
    """The file of code of a folder for `transformula`: the blocks of `stock_torch`, and `remote_model`."""
    parts = [_REMOTE_HEAD]
    for file in ("stock_torch.py", "remote_model.py"):
        text = Path(__file__).with_name(file).read_text(encoding="utf-8")
        nodes = (n for n in ast.parse(text).body if isinstance(n, (ast.ClassDef, ast.FunctionDef)))
        parts += [ast.get_source_segment(text, n) or "" for n in nodes if n.name not in ("load", "build")]
    return "\n\n\n".join(parts) + "\n"


_ARCHITECTURES: dict[str, Callable[[_Parts], HfLayout]] = {"t5": _t5, "gpt2": _gpt2, "llama": _llama}
#: The architectures of an export, the default first.
ARCHITECTURES = (*_ARCHITECTURES, REMOTE)
