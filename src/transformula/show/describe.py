"""Descriptions of a model as plain data: its facts, its sections for the terminal, its layers and heads in rows."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from transformula.compiler.constructions import CIRCUIT_FAMILY, RIDGE_FAMILY, TABLE_FAMILY
from transformula.compiler.gallery.memories import stored_words
from transformula.compiler.gallery.yun import stages
from transformula.formula.sample_target import shown
from transformula.internals import tables_of
from transformula.kernel.folder.weights import Block, Matrix, block_matrices
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.proven import stated
from transformula.runtime.matrices import nonzeros
from transformula.show.circuit_view import LONGEST, circuit_lines, table_lines
from transformula.show.page_parts import counted

#: Largest number of rows printed as text.
MAX_LINES = 12
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


def describe(model: Model, full: bool = False) -> dict[str, dict[str, Any]]:
    """The sections ``show`` prints; ``full`` cuts no text and leaves out no row."""
    facts = summary(model)
    claim = (*stated(model.certificate), "dtype", "status")
    sections = {
        "formula": {key: facts[key] for key in ("formula", "box", "unused") if facts[key]},
        model.status: {key: facts[key] for key in claim},
        "Transformer": {key: facts[key] for key in ("construction", "layers", "heads")}
        | {"most_heads_in_a_block": model.most_heads, "tokens": model.tokens, "memory_tokens": model.memory_tokens}
        | {"width": model.weights.width, "slots": _slots(model), "blocks": _blocks(model)},
    }
    return sections | _inside(model, sys.maxsize if full else LONGEST, sys.maxsize if full else MAX_LINES)


def _inside(model: Model, longest: int, rows: int) -> dict[str, dict[str, Any]]:
    """The size of a model, and its tables, wires, layers or heads in lines."""
    if model.family is RIDGE_FAMILY:
        return {THEOREM: _theorem(model)}
    size = {"size": {"parameters": model.parameter_count, "nonzeros": nonzeros(model.weights)}}
    if model.family is CIRCUIT_FAMILY:
        return size | {"circuit": {"wires": circuit_lines(model, longest)}}
    if model.family is TABLE_FAMILY:
        return size | (
            {"tables": {"tables": table_lines(model, longest)}} if isinstance(model.formula, Formula) else {}
        )
    listed = listing(model)
    name = listed.title.lower()
    return size | {name: {**listed.facts, name: listed.lines(rows)}}


@dataclass(frozen=True)
class Listing:
    """Layers, heads or words of a model, one in a row: a table of a page, or lines of text.

    ``pattern`` makes a line of a row; ``facts`` are numbers to print before the lines, ``note`` is a sentence to show
    above the table, ``numeric`` are the columns to set to the right.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    pattern: str
    numeric: tuple[int, ...] = ()
    note: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def lines(self, most: int) -> list[str]:
        """The first rows as text, and the number of the others."""
        lines = [self.pattern.format(*row) for row in self.rows]
        return lines[:most] + ([f"and {len(lines) - most} more"] if len(lines) > most else [])


def listing(model: Model) -> Listing:
    """The layers, heads, stages or words of a model from the gallery."""
    return _LISTINGS[model.family.name](model)


def _linear_heads(model: Model) -> Listing:
    """The query, the key and the added value of each head of linear attention, in the slots of a token."""
    slots, rows = model.weights.slots, []
    for h, head in enumerate(head for block in model.weights.blocks for head in block.attention.heads):
        query, key = ("; ".join(_forms(m, slots).values()) for m in (head.query, head.key))
        adds = "; ".join(f"{form} to y{row + 1}" for row, form in _forms(head.value, slots).items())
        rows.append((str(h), f"query {query}, key {key}, adds {adds}"))
    return Listing("Heads", ("head", "what it does at every token z"), rows, "{}: {}")


def _forms(matrix: Matrix, slots: tuple[str, ...]) -> dict[int, str]:
    """Each row of a matrix as a linear form of the slots, to four digits."""
    forms: dict[int, list[str]] = {}
    for row, column, value in zip(matrix.rows.tolist(), matrix.cols.tolist(), matrix.values.tolist(), strict=True):
        forms.setdefault(row, []).append(slots[column] if value == 1 else f"{value:.4g}*{slots[column]}")
    return {row: _summed(form) for row, form in forms.items()}


def _summed(terms: list[str]) -> str:
    return " + ".join(terms).replace("+ -", "- ")


def _softmax_heads(model: Model) -> Listing:
    """The layer of each softmax head, its tokens, its arguments and the slots it writes."""
    rows = [(str(t.block), str(len(t.slopes)), ", ".join(t.arguments), ", ".join(t.writes)) for t in tables_of(model)]
    return Listing("Heads", ("block", "tokens", "reads", "writes"), rows, "{}: {} tokens at {}, written to {}", (0, 1))


def _words(model: Model) -> Listing:
    """The runs of a compact memory: number, word in bits, and the bucket at which the run begins."""
    found = stored_words(model.weights)
    pairs = zip(found.words, found.offsets, strict=True)
    rows = [(str(k), f"{word:0{found.bits}b}", f"{offset:g}") for k, (word, offset) in enumerate(pairs)]
    note = f"{len(rows)} runs of neighbouring samples, {found.bits} buckets each; a bit is the label of a bucket."
    facts = {"runs": len(rows), "bits": found.bits}
    return Listing("Words", ("run", "word", "begins at bucket"), rows, "{}: {}, from {}", (0, 2), note, facts)


def _yun_stages(model: Model) -> Listing:
    rows = [(stage.layers, stage.name, stage.what) for stage in stages(model.weights)]
    return Listing("Stages", ("layers", "stage", "size"), rows, "{}: {}, {}")


def _prompt_layers(model: Model) -> Listing:
    """The layers of an in-context model, slot by slot; consecutive equal ones in one row."""
    texts = [_layer_text(block, model.weights.slots) for block in model.weights.blocks]
    rows, first = [], 0
    for text, equal in groupby(texts):
        last = first + len(list(equal)) - 1
        rows.append((str(first) if last == first else f"{first} to {last}", text))
        first = last + 1
    return Listing("Blocks", ("block", "what it does at every token"), rows, "{}: {}")


def _layer_text(block: Block, slots: tuple[str, ...]) -> str:
    head = block.attention.heads[0]
    query, key = (", ".join(slots[c] for c in m.cols[np.argsort(m.rows)]) for m in (head.query, head.key))
    output = head.output
    assert output is not None, "every layer of a prompt has its output matrix"
    written = dict(zip(output.cols.tolist(), (slots[k] for k in output.rows), strict=True))
    forms: dict[str, list[str]] = {}
    for row, of, value in head.value.entries():
        forms.setdefault(written[row], []).append(f"{value}*{slots[of]}" if value != 1 else slots[of])
    adds = "; ".join(f"{_summed(form)} to {to}" for to, form in forms.items())
    relu = "; ReLU shrinks w by the threshold and clears p" if block.feed_forward is not None else ""
    return f"{block.attention.kind} attention with query {query} and key {key} adds {adds}{relu}"


_LISTINGS: dict[str, Callable[[Model], Listing]] = {
    "prompts": _prompt_layers,
    "words": _words,
    "stages": _yun_stages,
    "heads": _linear_heads,
    "layers": _softmax_heads,
}


def _slots(model: Model) -> str:
    """The names of the slots; of a long row of numbered ones the first and the last."""
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
        heads = counted(len(block.attention.heads), f"{block.attention.kind} head")
        again = f", applied {places.count(k)} times" if places.count(k) > 1 else ""
        lines.append(f"{k}: {heads}, {count} non-zeros{again}")
    return lines


def _theorem(model: Model) -> dict[str, Any]:
    """Lemma 3.1 counts 2n + 8 non-zeros a block; Theorem 3.5 bounds parameters and non-zeros.

    For one output and one head. With more outputs the share of β and b is counted for each; at d = 1
    the theorem's "less than" is an equality (docs/theory.md).
    """
    weights = model.weights
    d = len(weights.inputs)
    q = model.degree
    outputs = weights.outputs
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
        "lemma_nonzeros_per_head": 2 * weights.tokens + 8,
        "nonzeros_per_head": [
            sum(m.nonzeros for _, m in block_matrices(b)) / len(b.attention.heads) for b in weights.blocks
        ],
    }
