"""The inside of a model by name: the residual stream, attention patterns, tables and wires.

Everything is read out of the weights and the stored circuit, or computed by the reference executor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import fmpq

from transformula.compiler.evidence.range_search import function_range, inside_domain
from transformula.compiler.lower.additive import decompose
from transformula.errors import InputError, NotProvenError, brief
from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.kernel.arithmetic import precision
from transformula.kernel.circuit.carried_errors import WireRanges
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import FloatArray, Weights
from transformula.kernel.structures.stored_circuit import Circuit, LinearForm, Wire
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr

if TYPE_CHECKING:
    from transformula.model_parts import ModelParts

Ends = tuple[float, float]
_ANYWHERE = (-math.inf, math.inf)
_BITS = 128


@dataclass(frozen=True, eq=False)
class NamedTrace:
    """The inside of a model at some points.

    Attributes
    ----------
    slots : tuple of str
        Names of the residual stream's coordinates.
    tokens : tuple of str
        A label for every token.
    residuals : tuple of arrays
        Before the first block and after each: samples × tokens × slots.
    patterns : tuple of tuples of arrays
        ``patterns[block][head]`` is samples × asking tokens × answering tokens.
    outputs : array
        Samples × outputs.
    """

    slots: tuple[str, ...]
    tokens: tuple[str, ...]
    residuals: tuple[FloatArray, ...]
    patterns: tuple[tuple[FloatArray, ...], ...]
    outputs: FloatArray

    def __repr__(self) -> str:
        samples, tokens, slots = self.residuals[0].shape
        heads = ", ".join(str(len(block)) for block in self.patterns)
        return f"<trace of {samples} samples: {tokens} tokens, {slots} slots, heads by block: {heads or 'none'}>"

    def residual(self, slot: str, block: int = -1, token: int | str | None = None, before: bool = False) -> FloatArray:
        """A slot by name, after a block or ``before`` it: samples × tokens, or a number per sample for one token."""
        if slot not in self.slots:
            named = ", ".join(self.slots[:20]) + (", .." if len(self.slots) > 20 else "")
            raise InputError(f"there is no slot {brief(slot)}: the slots are {named}")
        states = (self.residuals[:-1] if before else self.residuals[1:]) or self.residuals
        values: FloatArray = states[_place(block, len(states), "block")][:, :, self.slots.index(slot)]
        return values if token is None else values[:, self._token(token)]

    def pattern(self, block: int = 0, head: int = 0, token: int | str = 0) -> FloatArray:
        """Attention of a token to all tokens: samples × tokens, in the order of ``tokens``."""
        heads = self.patterns[_place(block, len(self.patterns), "block")]
        return heads[_place(head, len(heads), "head")][:, self._token(token)]

    def attended(
        self, block: int = 0, head: int = 0, token: int | str = 0, sample: int = 0, most: int = 5
    ) -> list[tuple[str, float]]:
        """The labels of the tokens that get most attention, with their weights."""
        if not isinstance(most, Integral) or int(most) < 0:
            raise InputError(f"most must be a whole number, 0 or more, not {brief(most)}")
        pattern = self.pattern(block, head, token)
        weights = pattern[_place(sample, len(pattern), "sample")]
        order = np.argsort(-np.abs(weights), kind="stable")[:most]
        return [(self.tokens[k], float(weights[k])) for k in order]

    def _token(self, token: int | str) -> int:
        if isinstance(token, str):
            if token not in self.tokens:
                raise InputError(f"there is no token {token!r}: they are named like {self.tokens[-1]!r}")
            return self.tokens.index(token)
        return _place(token, len(self.tokens), "token")


def _place(index: Any, count: int, what: str) -> int:
    """The number of one of several things; a negative one counts from the end."""
    if isinstance(index, Integral) and -count <= int(index) < count:
        return int(index)
    numbered = f"they are numbered 0 to {count - 1}" if count else "there are none"
    raise InputError(f"there is no {what} {brief(index)}: {numbered}")


@dataclass(frozen=True, eq=False)
class ModelTable:
    """The table of one head: softmax over j of (slopes_j · u + offsets_j), times values_j.

    Attributes
    ----------
    block : int
        The block of the head, from 0.
    head : int
        Its number in the block, from 0.
    function : str
        The function that the table stands for, where the formula tells; else empty.
    arguments : tuple of str
        u as linear forms of slots, one per axis.
    ranges : tuple of (float, float)
        Where each u lies for points of the box.
    writes : tuple of str
        The slots its values are written to.
    slopes : array
        Memory tokens × axes.
    offsets : array
        Memory tokens × axes.
    values : array
        Memory tokens × written slots.
    """

    block: int
    head: int
    function: str
    arguments: tuple[str, ...]
    ranges: tuple[Ends, ...]
    writes: tuple[str, ...]
    slopes: FloatArray
    offsets: FloatArray
    values: FloatArray

    @property
    def transitions(self) -> FloatArray:
        """For one axis: where attention passes from a token to the next, in the order of the slopes."""
        if self.slopes.shape[1] != 1:
            raise InputError("transitions are points on one axis; this table has several")
        order = np.argsort(self.slopes[:, 0], kind="stable")
        slopes, offsets = self.slopes[order, 0], self.offsets[order, 0]
        where: FloatArray = -np.diff(offsets) / np.diff(slopes)
        return where

    def __repr__(self) -> str:
        place = f"block {self.block}, head {self.head}"
        axes = " and ".join(
            f"{text} in {low:.4g}..{high:.4g}" if math.isfinite(high - low) else text
            for text, (low, high) in zip(self.arguments, self.ranges, strict=True)
        )
        what = f" {self.function} of" if self.function else ""
        return f"<table at {place}:{what} {axes}, {len(self.slopes)} tokens, writes {', '.join(self.writes)}>"


def token_labels(weights: Weights, data: str) -> tuple[str, ...]:
    """A label for each token: ``data`` or ``position 2``, and ``table 0, token 3`` for memory by its gate.

    ``data`` is what to call the tokens that depend on the input.
    """
    gates = {k: int(name[4:]) - 1 for k, name in enumerate(weights.slots) if re.fullmatch(r"gate[1-9]\d*", name)}
    memory = weights.memory
    marks = {r: gates[c] for r, c in zip(memory.rows.tolist(), memory.cols.tolist(), strict=True) if c in gates}
    depends = set(weights.data_tokens.tolist())
    counts: dict[str, int] = {}
    labels = []
    for token in range(weights.tokens):
        group = data if token in depends else f"table {marks[token]}" if token in marks else "memory"
        number = counts[group] = counts.get(group, -1) + 1
        if token not in depends:
            labels.append(f"{group}, token {number}")
        else:
            labels.append(group if len(depends) == 1 else f"{group} {number}")
    return tuple(labels)


def summands(target: Formula | Samples | Prompts, heads: int) -> list[str]:
    """The summand of the formula that each head of a one-layer model looks up, or "" if that is not clear."""
    parts = []
    if isinstance(target, Formula):
        splits = [decompose(expr, target.box.variables) for expr in target.outputs]
        parts = [str(part.original) for split in splits for part in split.parts]
    return parts if len(parts) == heads else [""] * heads


def tables_of(model: ModelParts) -> Iterator[ModelTable]:
    """The tables of a model, head by head; none where heads look nothing up, as in Fang's blocks."""
    found = _TABLES.get(model.family.name)
    return iter(()) if found is None else found(model)


def _layer_tables(model: ModelParts) -> Iterator[ModelTable]:
    weights, box = model.weights, model.box.floats()
    for h, (head, text) in enumerate(zip(model.reading, summands(model.formula, len(model.reading)), strict=True)):
        arguments = tuple(_text(form, weights.inputs) for form in head.forms)
        ranges = tuple(_range(form, box) for form in head.forms)
        writes = tuple(weights.slots[k] for k in head.slots)
        yield ModelTable(0, h, text, arguments, ranges, writes, head.slopes, head.offsets, head.values)


def _circuit_tables(model: ModelParts) -> Iterator[ModelTable]:
    wires = model.wires
    known: dict[tuple[int, int], tuple[str, Ends]] = {}
    for k, wire in enumerate(wires.circuit.wires):
        if wire.function is not None and wire.place is not None:
            block, head, _ = wire.place
            known[block, head] = str(wire.function), wires.arguments.get(k, _ANYWHERE)
    return _block_tables(model, known)


def _block_tables(model: ModelParts, known: Mapping[tuple[int, int], tuple[str, Ends]]) -> Iterator[ModelTable]:
    """The heads of all blocks; ``known`` has the function and the argument's range of some of them, by place."""
    slots = model.weights.slots
    for b, block in enumerate(model.reading.blocks):
        for h, head in enumerate(block.heads):
            text, ends = known.get((b, h), ("", _ANYWHERE))
            arguments = tuple(_text(form, slots) for form in head.forms)
            writes = tuple(slots[k] for k in head.slots)
            ranges = (ends,) * head.axes
            yield ModelTable(b, h, text, arguments, ranges, writes, head.slopes, head.offsets, head.values)


_TABLES: dict[str, Callable[[ModelParts], Iterator[ModelTable]]] = {
    "tables": _layer_tables,
    "circuit": _circuit_tables,
    "layers": lambda model: _block_tables(model, {}),
}


class Wires:
    """The wires of a stored circuit: their meanings as expressions in the inputs, and the ranges of their arguments."""

    def __init__(self, circuit: Circuit, formula: Formula, stored: Any, evidence: Evidence) -> None:
        self.circuit = circuit
        self.formula = formula
        self.stored = stored
        self.evidence = evidence
        self.meanings: list[Expr] = []
        for k, wire in enumerate(circuit.wires):
            sides = [self.meaning(argument) for argument in wire.arguments]
            self.meanings.append(_meaning(wire, sides) if sides else ex.variable(circuit.variables[k]))

    def meaning(self, linear: LinearForm) -> Expr:
        """A linear form of wires as an expression in the inputs."""
        return ex.add(*(ex.mul(c, self.meanings[k]) for k, c in linear.terms), linear.constant)

    @cached_property
    def arguments(self) -> dict[int, Ends]:
        """Ranges of the arguments of tables and ReLUs for points of the box, as evidence shows them.

        Of a model that does not verify, some are missing.
        """
        found: dict[int, Ends] = {}
        with suppress(NotProvenError), precision(_BITS):
            meanings = Meanings(self.formula, self.circuit, self.stored, self.evidence, floors=True)
            ranges = WireRanges(self.circuit, meanings, self.evidence)
            found = ranges.arguments
            for k, wire in enumerate(self.circuit.wires):
                ranges.add(k)
                if wire.function is not None:
                    ends = inside_domain(wire.function, found.get(k, _ANYWHERE))
                    if k in found:
                        found[k] = ends
                    bounded = math.isfinite(ends[1] - ends[0])
                    low, high = function_range(wire.function, *ends) if bounded else _ANYWHERE
                    ranges.found(k, (np.asarray(low), np.asarray(high)))
        return found


def written_slot(weights: Weights, wire: Wire) -> int:
    """The slot that a wire's head or unit writes."""
    assert wire.place is not None
    b, part, column = wire.place
    block = weights.blocks[b]
    if wire.function is not None:
        return int(block.attention.heads[part].value.rows[column])
    assert block.feed_forward is not None
    output = block.feed_forward.output
    return int(output.rows[output.cols == part][0])


def _meaning(wire: Wire, sides: Sequence[Expr]) -> Expr:
    if wire.is_norm:
        return ex.call("sqrt", ex.add(*(ex.power(side, ex.number(2)) for side in sides)))
    if wire.total is not None:
        return ex.mul(*sides)
    if wire.function is None:
        return ex.call("max", sides[0], ex.number(0))
    return ex.substitute(wire.function, dict(zip(map(ex.variable, wire.names), sides, strict=True)))


def _text(form: Mapping[int, fmpq], names: Sequence[str]) -> str:
    terms = []
    for k, coefficient in form.items():
        value = int(coefficient.p) / int(coefficient.q)
        name = names[k].removeprefix("x.")
        terms.append(name if value == 1 else f"{value:.6g}" if name == "one" else f"{value:.6g}*{name}")
    return " + ".join(terms).replace("+ -", "- ") or "0"


def _range(form: Mapping[int, fmpq], box: Sequence[Ends]) -> Ends:
    ends = np.array([np.multiply(int(c.p) / int(c.q), box[k]) for k, c in form.items()])
    return float(ends.min(axis=1).sum()), float(ends.max(axis=1).sum())
