"""What there is to say about a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from transformula.compiler.gallery.compact_memory import stored_words
from transformula.compiler.gallery.yun import stages
from transformula.formula.shown_text import shown
from transformula.internals import tables_of
from transformula.kernel.folder.weights import Matrix, block_matrices
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.proven import stated
from transformula.runtime.matrices import nonzeros
from transformula.show.circuit_view import circuit_lines, table_lines

MAX_WORDS = 12
#: One-hot slots of Fang's tokens, and the steps of Yun's stages.
_NUMBERED_SLOTS = ("e", "below", "before")
THEOREM = "size against Fang et al."


def summary(model: Model) -> dict[str, Any]:
    """The facts ``compile`` prints."""
    claim = stated(model.certificate)
    return {
        "formula": shown(model.formula),
        "box": model.where,
        "unused": list(model.unused),
        "construction": model.construction,
        "layers": model.layers,
        "heads": model.heads,
        "tokens": model.tokens,
        "memory_tokens": model.memory_tokens,
        "parameters": model.parameter_count,
        "nonzeros": nonzeros(model.weights),
        "dtype": model.weights.dtype,
        **{name: claim[name] for name in sorted(claim, key=lambda name: not name.endswith("eps"))},
        "status": model.status,
    }


def describe(model: Model) -> dict[str, dict[str, Any]]:
    """The sections ``show`` prints."""
    facts = summary(model)
    claim = (*stated(model.certificate), "dtype", "status")
    sections = {
        "formula": {key: facts[key] for key in ("formula", "box", "unused") if facts[key]},
        model.status: {key: facts[key] for key in claim},
        "Transformer": {key: facts[key] for key in ("construction", "layers", "heads", "tokens", "memory_tokens")}
        | {"width": model.weights.width, "slots": _slots(model), "blocks": _blocks(model)},
    }
    return sections | _INSIDE[model.family.name](model)


def _ridge_sections(model: Model) -> dict[str, dict[str, Any]]:
    return {THEOREM: _theorem(model)}


def _table_sections(model: Model) -> dict[str, dict[str, Any]]:
    tables = {"tables": {"tables": table_lines(model)}} if isinstance(model.formula, Formula) else {}
    return _size(model) | tables


def _circuit_sections(model: Model) -> dict[str, dict[str, Any]]:
    return _size(model) | {"circuit": {"wires": circuit_lines(model)}}


def _prompt_sections(model: Model) -> dict[str, dict[str, Any]]:
    return _size(model) | {"layers": {"layers": layer_lines(model)}}


def _head_sections(model: Model) -> dict[str, dict[str, Any]]:
    return _size(model) | {"heads": {"heads": head_lines(model)}}


def head_lines(model: Model) -> list[str]:
    """The query, the key and the added value of each head of linear attention, in the slots of a token."""
    slots, lines = model.weights.slots, []
    for h, head in enumerate((head for block in model.weights.blocks for head in block.attention.heads), 1):
        asks, answers = ("; ".join(_forms(m, slots).values()) for m in (head.query, head.key))
        adds = "; ".join(f"{form} to y{row + 1}" for row, form in _forms(head.value, slots).items())
        lines.append(f"{h}: query {asks}, key {answers}, adds {adds}")
    return _first(lines)


def _first(lines: list[str]) -> list[str]:
    """As many as are shown, and how many more there are."""
    return lines[:MAX_WORDS] + ([f"and {len(lines) - MAX_WORDS} more"] if len(lines) > MAX_WORDS else [])


def _forms(matrix: Matrix, slots: tuple[str, ...]) -> dict[int, str]:
    """Each row of a matrix as a linear form of the slots, to four digits."""
    forms: dict[int, list[str]] = {}
    for row, column, value in zip(matrix.rows.tolist(), matrix.cols.tolist(), matrix.values.tolist(), strict=True):
        forms.setdefault(row, []).append(slots[column] if value == 1 else f"{value:.4g}*{slots[column]}")
    return {row: " + ".join(form).replace("+ -", "- ") for row, form in forms.items()}


def _word_sections(model: Model) -> dict[str, dict[str, Any]]:
    lines, found = word_lines(model), stored_words(model.weights)
    shown = _first([f"{run}: {word}, from {place}" for run, word, place in lines])
    return _size(model) | {"words": {"runs": len(lines), "bits": found.bits, "words": shown}}


def _layer_sections(model: Model) -> dict[str, dict[str, Any]]:
    lines = [f"{layer}: {tokens} tokens at {of}, written to {to}" for layer, tokens, of, to in softmax_lines(model)]
    return _size(model) | {"heads": {"heads": _first(lines)}}


def softmax_lines(model: Model) -> list[tuple[str, str, str, str]]:
    """For each head of several layers: its layer, its tokens, what it reads and the slots it writes."""
    return [
        (str(t.block + 1), str(len(t.slopes)), ", ".join(t.arguments), ", ".join(t.writes)) for t in tables_of(model)
    ]


def word_lines(model: Model) -> list[tuple[str, str, str]]:
    """For each run of a compact memory: its number, its word in bits, and the bucket at which it begins."""
    bits, words, offsets = stored_words(model.weights)
    return [(str(k), f"{word:0{bits}b}", f"{at:g}") for k, (word, at) in enumerate(zip(words, offsets, strict=True), 1)]


def _stage_sections(model: Model) -> dict[str, dict[str, Any]]:
    lines = [f"{stage.layers}: {stage.name}, {stage.what}" for stage in stages(model.weights)]
    return _size(model) | {"stages": {"stages": lines}}


def layer_lines(model: Model) -> list[str]:
    """What the layers of an in-context model do, slot by slot; equal ones that follow each other in one line."""
    slots = model.weights.slots
    found: list[tuple[int, str]] = []
    for k, block in enumerate(model.weights.blocks):
        head = block.attention.heads[0]
        asks, answers = (", ".join(slots[c] for c in m.cols[np.argsort(m.rows)]) for m in (head.query, head.key))
        output = head.output
        assert output is not None, "every layer of a prompt has its output matrix"
        written = dict(zip(output.cols.tolist(), (slots[k] for k in output.rows), strict=True))
        forms: dict[str, list[str]] = {}
        for row, of, value in head.value.entries():
            forms.setdefault(written[row], []).append(f"{value}*{slots[of]}" if value != 1 else slots[of])
        adds = "; ".join(f"{' + '.join(form).replace('+ -', '- ')} to {to}" for to, form in forms.items())
        text = f"{block.attention.kind} attention with query {asks} and key {answers} adds {adds}"
        if block.feed_forward is not None:
            text += "; ReLU shrinks w by the threshold and clears p"
        if not found or found[-1][1] != text:
            found.append((k, text))
    ends = [first for first, _ in found[1:]] + [len(model.weights.blocks)]
    lines = []
    for (first, text), end in zip(found, ends, strict=True):
        lines.append(f"{first + 1}: {text}" if end == first + 1 else f"{first + 1} to {end}: {text}")
    return lines


def _size(model: Model) -> dict[str, dict[str, Any]]:
    return {"size": {"parameters": model.parameter_count, "nonzeros": nonzeros(model.weights)}}


_INSIDE: dict[str, Callable[[Model], dict[str, dict[str, Any]]]] = {
    "ridge": _ridge_sections,
    "tables": _table_sections,
    "circuit": _circuit_sections,
    "prompts": _prompt_sections,
    "words": _word_sections,
    "stages": _stage_sections,
    "heads": _head_sections,
    "layers": _layer_sections,
}


def _slots(model: Model) -> str:
    """The slots by name; of a long row of numbered ones the first and the last."""
    slots = list(model.weights.slots)
    for name in _NUMBERED_SLOTS:
        row = [s for s in slots if s.startswith(name) and s.removeprefix(name).isdigit()]
        if len(row) > 4:
            first = slots.index(row[0])
            slots[first : first + len(row)] = [f"{row[0]} .. {row[-1]}"]
    return " ".join(slots)


def _blocks(model: Model) -> list[str]:
    lines, places = [], model.weights.first_places
    for k in sorted(set(places)):
        block = model.weights.blocks[k]
        count = sum(matrix.nonzeros for _, matrix in block_matrices(block))
        heads = len(block.attention.heads)
        plural = "s" if heads != 1 else ""
        again = f", applied {places.count(k)} times" if places.count(k) > 1 else ""
        lines.append(f"{k + 1}: {heads} {block.attention.kind} head{plural}, {count} non-zeros{again}")
    return lines


def _theorem(model: Model) -> dict[str, Any]:
    """Lemma 3.1 counts 2n + 8 non-zeros a block; Theorem 3.5 bounds parameters and non-zeros.

    For one output and one head. With more outputs the share of β and b is counted for each; at d = 1
    the theorem's "less than" is an equality (docs/theory.md).
    """
    weights = model.weights
    n, d, outputs = weights.tokens, len(weights.inputs), weights.outputs
    q = model.degree
    free = d ** (q + 1) + outputs * (q * d**q + 1)
    nonzero = d ** (q + 1) + 2 * q * d**q + 8 * q + outputs * (q * d**q + 1)
    return {
        "degree": q,
        "n_q": math.comb(d - 1 + q, q),
        "parameters": model.parameter_count,
        "parameters_bound": free,
        "parameters_within": model.parameter_count <= free,
        "nonzeros": nonzeros(weights),
        "nonzeros_bound": nonzero,
        "nonzeros_within": nonzeros(weights) <= nonzero,
        "lemma_nonzeros_per_head": 2 * n + 8,
        "nonzeros_per_head": [
            sum(m.nonzeros for _, m in block_matrices(b)) / len(b.attention.heads) for b in weights.blocks
        ],
    }
