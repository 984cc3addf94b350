"""Fang's blocks read back as what they compute: Σ_k Σ_s β_{k,s} (ξ_k·x)^s + b.

`read_ridge` walks through the blocks of a weights object and checks, entry by entry, that each head is
the product head of Lemma 3.1; nothing is assumed about where the weights came from. If one entry is
out of place it answers with the reason instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from flint import fmpq

from transformula.kernel.exceptions import ModelFileError
from transformula.kernel.folder.weights import Block, FeedForward, Head, Matrix, Weights, named_matrices, to_rational

#: The largest power of t, and how many product heads there may be: one for each power.
MAX_DEGREE = 100
#: Everywhere else the floats are the entries, so float and rational runs cannot drift apart.
_MAY_BE_RATIONAL = ("embedding", "readout", "bias")


class NotRidgeError(ModelFileError):
    """The weights are not those of Theorem 3.5; the message names the entry that is not."""


@dataclass(frozen=True)
class Monomial:
    """The content of a slot in every token: ``coefficient`` · t^``power``; the coefficient is 1 or −1."""

    coefficient: fmpq
    power: int


@dataclass(frozen=True)
class ProductHead:
    """A head that stores left · right: its scores are z_i[left] z_j[right] + offset·(i = j)."""

    left: Monomial
    right: Monomial
    offset: fmpq


@dataclass(frozen=True, eq=False)
class Ridge:
    """The function of the blocks, and the product heads whose gaps a proof has to check.

    ``terms[(output, token)]`` maps a power of t to its coefficient. ``directions[token]`` maps an input's
    index to its coefficient in t.
    """

    outputs: int
    degree: int
    directions: tuple[Mapping[int, fmpq], ...]
    terms: Mapping[tuple[int, int], Mapping[int, fmpq]]
    bias: tuple[fmpq, ...]
    heads: tuple[tuple[ProductHead, ...], ...]
    weights: Weights = field(repr=False)

    @cached_property
    def by_output(self) -> list[dict[int, Mapping[int, fmpq]]]:
        """The terms of each output, by token."""
        found: list[dict[int, Mapping[int, fmpq]]] = [{} for _ in range(self.outputs)]
        for (output, token), powers in self.terms.items():
            found[output][token] = powers
        return found


def read_ridge(weights: Weights) -> Ridge:
    """Read the polynomial out of the weights, or raise `NotRidgeError`."""
    for name, matrix in named_matrices(weights):
        plain = matrix.exact is None or name in _MAY_BE_RATIONAL
        _require(plain, f"{name} holds rationals beside its floats")
    count = sum(len(block.attention.heads) for block in weights.blocks)
    _require(count <= MAX_DEGREE, f"there are more than {MAX_DEGREE} heads")
    layout = _RidgeLayout.of(weights)
    state = {layout.t: Monomial(fmpq(1), 1), layout.one: Monomial(fmpq(1), 0)}
    heads = []
    for block in weights.blocks:
        products = _read_block(block, layout, state)
        heads.append(tuple(products.values()))
        for slot, p in products.items():
            power = p.left.power + p.right.power
            _require(power <= MAX_DEGREE, f"a slot holds a power of t above {MAX_DEGREE}")
            state[slot] = Monomial(-p.left.coefficient * p.right.coefficient, power)
    bias = [fmpq(0)] * weights.outputs
    for output, _, value in weights.bias.entries():
        bias[output] = value
    terms: dict[tuple[int, int], dict[int, fmpq]] = {}
    for output, column, value in weights.readout.entries():
        token, slot = divmod(column, weights.width)
        _require(slot in state, "the readout uses a slot that holds no power")
        content = state[slot]
        _require(content.power > 0, "the readout uses the constant slot instead of the bias")
        powers = terms.setdefault((output, token), {})
        # two slots with one power could cancel each other, exactly in rationals but not in floats
        _require(content.power not in powers, "the readout takes one power of t from two slots")
        powers[content.power] = value * content.coefficient
    degree = max((s for powers in terms.values() for s in powers), default=0)
    return Ridge(weights.outputs, degree, layout.directions, terms, tuple(bias), tuple(heads), weights)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise NotRidgeError(message)


@dataclass(frozen=True)
class _RidgeLayout:
    """Slots of t, of the constant 1 and of the tokens' one-hot."""

    tokens: int
    t: int
    one: int
    hot: tuple[int, ...]
    directions: tuple[Mapping[int, fmpq], ...]

    @classmethod
    def of(cls, weights: Weights) -> _RidgeLayout:
        slots = np.unique(weights.embedding.rows % weights.width)
        _require(len(slots) == 1, "the embedding does not write to exactly one slot")
        t = int(slots[0])
        memory = weights.memory
        _require(memory.nonzeros == 2 * weights.tokens, "the tokens carry no one-hot and 1")
        _require(bool(np.all(memory.values == 1)), "the constant parts of the tokens are not all 1")
        counts = np.bincount(memory.cols, minlength=weights.width)
        full = np.flatnonzero(counts == weights.tokens)
        if weights.tokens == 1:  # the one-hot and the constant look the same: tell them by name
            full = full[full == weights.slots.index("one")] if "one" in weights.slots else full[-1:]
        _require(len(full) == 1, "the tokens have no single slot for the constant 1")
        one = int(full[0])
        rest = memory.cols != one
        hot = np.full(weights.tokens, -1)
        hot[memory.rows[rest]] = memory.cols[rest]
        fits = np.all(hot >= 0) and len(np.unique(hot)) == weights.tokens == int(rest.sum())
        _require(bool(fits) and t not in hot and t != one, "the tokens carry no one-hot vectors")
        directions: list[dict[int, fmpq]] = [{} for _ in range(weights.tokens)]
        for row, column, value in weights.embedding.entries():
            directions[row // weights.width][column] = value
        return cls(weights.tokens, t, one, tuple(hot.tolist()), tuple(directions))


def _read_block(block: Block, layout: _RidgeLayout, state: Mapping[int, Monomial]) -> dict[int, ProductHead]:
    _require(block.attention.kind == "hardmax", "a block does not use hardmax")
    _require(block.attention.scale == 1, "a block scales its scores")
    products: dict[int, ProductHead] = {}
    for head in block.attention.heads:
        slot, product = _read_head(head, layout, state)
        _require(slot not in state and slot not in products, "a head writes to a slot in use")
        _require(slot not in layout.hot, "a head writes to the one-hot part")
        products[slot] = product
    if block.feed_forward is None:
        raise NotRidgeError("a block has no feed-forward layer")
    _check_feed_forward(block.feed_forward, products)
    return products


def _read_head(head: Head, layout: _RidgeLayout, state: Mapping[int, Monomial]) -> tuple[int, ProductHead]:
    left, offset = _split_scores(head.query, layout)
    right, unit = _split_scores(head.key, layout)
    _require(unit == 1, "a key's one-hot part is not the identity")
    _require(left in state and right in state, "a head multiplies slots that hold no power of t")
    written = list(head.value.entries())
    plain = head.output is None and len(written) == 1 and written[0][1:] == (layout.one, fmpq(1))
    _require(plain, "a head's value is not the constant 1 in one slot")
    return written[0][0], ProductHead(state[left], state[right], offset)


def _split_scores(matrix: Matrix, layout: _RidgeLayout) -> tuple[int, fmpq]:
    """Slot of the product row, and the common entry of the one-hot rows."""
    first = matrix.rows == 0
    _require(int(first.sum()) == 1 and bool(matrix.values[first][0] == 1), "row 0 is not a slot")
    rows = matrix.rows[~first]
    cols = matrix.cols[~first]
    values = matrix.values[~first]
    _require(
        bool(np.array_equal(np.sort(rows), np.arange(1, layout.tokens + 1)))
        and bool(np.array_equal(cols[np.argsort(rows)], np.array(layout.hot))),
        "the one-hot rows of a query or key are out of place",
    )
    _require(bool(np.all(values == values[0])), "the one-hot rows have different offsets")
    return int(matrix.cols[first][0]), to_rational(values[0])


def _check_feed_forward(layer: FeedForward, products: Mapping[int, ProductHead]) -> None:
    """Each written slot v must become −v + offset: v − 2 ReLU(v) + 2 ReLU(−v) + offset."""
    _require(layer.hidden_bias.nonzeros == 0, "a hidden bias is not zero")
    reads = {(r, c): v for r, c, v in layer.hidden.entries()}
    writes = {(r, c): v for r, c, v in layer.output.entries()}
    biases = {r: v for r, _, v in layer.output_bias.entries()}
    slope: dict[tuple[int, int], fmpq] = {}
    for (unit, slot), sign in reads.items():
        _require(sign in (1, -1), "a hidden unit does not read plus or minus one slot")
        _require((slot, int(sign.p)) not in slope, "two hidden units read the same slot alike")
        slope[slot, int(sign.p)] = writes.pop((slot, unit), fmpq(0))
    _require(len({unit for unit, _ in reads}) == len(reads), "a hidden unit reads two slots")
    _require(not writes, "the feed-forward layer writes where it does not read")
    _require({slot for slot, _ in slope} == set(products) == set(biases), "a slot is left as it was")
    for slot, product in products.items():
        ok = slope.get((slot, 1)) == -2 and slope.get((slot, -1)) == 2
        _require(ok and biases[slot] == product.offset, "the feed-forward layer is not v -> C - v")
