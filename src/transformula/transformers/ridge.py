"""Fang's blocks read back as what they compute: Σ_k Σ_s β_{k,s} (ξ_k·x)^s + b.

`read_ridge` walks through the blocks of a weights object and checks, entry by entry, that each head is
the product head of Lemma 3.1; nothing is assumed about where the weights came from. If one entry is
out of place it answers with the reason instead. The fast path then needs no n × n array: T = X Fᵀ and
a sweep over its powers, O(n (d + q)) a sample.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq
from threadpoolctl import threadpool_limits

from transformula.errors import ModelFileError
from transformula.transformers.weights import (
    Block,
    FeedForward,
    FloatArray,
    Head,
    Matrix,
    Weights,
    named_matrices,
    to_rational,
)


class NotRidgeError(ModelFileError):
    """The weights are not those of Theorem 3.5; the message names the entry that is not."""


@dataclass(frozen=True)
class Monomial:
    """The content of a slot in every token: ``coefficient`` · t^``power``."""

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
    """What the blocks compute, and the product heads whose gaps a proof has to check.

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
    def fast(self) -> FastRidge:
        """The arrays of the fast path."""
        return FastRidge.of(self)


#: Everywhere else the floats are the entries, so float and rational runs can not drift apart.
_MAY_BE_RATIONAL = ("embedding", "readout", "bias")


def read_ridge(weights: Weights) -> Ridge:
    """Read the polynomial out of the weights, or raise `NotRidgeError`."""
    for name, matrix in named_matrices(weights):
        _require(
            matrix.exact is None or name in _MAY_BE_RATIONAL,
            f"{name} holds rationals beside its floats",
        )
    layout = _Layout.of(weights)
    state = {layout.t: Monomial(fmpq(1), 1), layout.one: Monomial(fmpq(1), 0)}
    heads = []
    for block in weights.blocks:
        products = _read_block(block, layout, state)
        heads.append(tuple(products.values()))
        state.update(
            (
                slot,
                Monomial(-p.left.coefficient * p.right.coefficient, p.left.power + p.right.power),
            )
            for slot, p in products.items()
        )
    bias = [fmpq(0)] * weights.outputs
    for output, _, value in weights.bias.entries():
        bias[output] = value
    terms: dict[tuple[int, int], dict[int, fmpq]] = {}
    for output, column, value in weights.readout.entries():
        token, slot = divmod(column, weights.width)
        _require(slot in state, f"the readout uses slot {weights.slots[slot]}, which holds no power")
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
class _Layout:
    """Where the tokens keep t, the constant 1 and their one-hot."""

    tokens: int
    t: int
    one: int
    hot: tuple[int, ...]
    directions: tuple[Mapping[int, fmpq], ...]

    @classmethod
    def of(cls, weights: Weights) -> _Layout:
        slots = np.unique(weights.embedding.rows % weights.width)
        _require(len(slots) == 1, "the embedding does not write to exactly one slot")
        t = int(slots[0])
        _require(weights.memory.nonzeros == 2 * weights.tokens, "the tokens carry no one-hot and 1")
        directions: list[dict[int, fmpq]] = [{} for _ in range(weights.tokens)]
        for row, column, value in weights.embedding.entries():
            directions[row // weights.width][column] = value
        memory = weights.memory
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
        return cls(weights.tokens, t, one, tuple(hot.tolist()), tuple(directions))


def _read_block(block: Block, layout: _Layout, state: Mapping[int, Monomial]) -> dict[int, ProductHead]:
    _require(block.attention.kind == "hardmax", "a block does not use hardmax")
    _require(block.attention.scale == 1, "a block scales its scores")
    _require(block.feed_forward is not None, "a block has no feed-forward layer")
    products: dict[int, ProductHead] = {}
    for head in block.attention.heads:
        slot, product = _read_head(head, layout, state)
        _require(slot not in state and slot not in products, "a head writes to a slot in use")
        _require(slot not in layout.hot, "a head writes to the one-hot part")
        products[slot] = product
    assert block.feed_forward is not None
    _check_feed_forward(block.feed_forward, products)
    return products


def _read_head(head: Head, layout: _Layout, state: Mapping[int, Monomial]) -> tuple[int, ProductHead]:
    left, offset = _split_scores(head.query, layout)
    right, unit = _split_scores(head.key, layout)
    _require(unit == 1, "a key's one-hot part is not the identity")
    _require(left in state and right in state, "a head multiplies slots that hold no power of t")
    written = list(head.value.entries())
    _require(
        head.output is None and len(written) == 1 and written[0][1:] == (layout.one, fmpq(1)),
        "a head's value is not the constant 1 in one slot",
    )
    return written[0][0], ProductHead(state[left], state[right], offset)


def _split_scores(matrix: Matrix, layout: _Layout) -> tuple[int, fmpq]:
    """Slot of the product row, and the common entry of the one-hot rows."""
    first = matrix.rows == 0
    _require(int(first.sum()) == 1 and bool(matrix.values[first][0] == 1), "row 0 is not a slot")
    rows, cols = matrix.rows[~first], matrix.cols[~first]
    _require(
        bool(np.array_equal(np.sort(rows), np.arange(1, layout.tokens + 1)))
        and matrix.exact is None
        and bool(np.array_equal(cols[np.argsort(rows)], np.array(layout.hot))),
        "the one-hot rows of a query or key are out of place",
    )
    values = matrix.values[~first]
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


@dataclass(frozen=True, eq=False)
class FastRidge:
    """Arrays for the sweep: tokens sorted by their powers, so that alike ones stay together.

    ``directions`` is tokens × inputs; ``coefficients[s]`` is outputs × tokens and belongs to t^s, of
    which only the first ``active[s]`` tokens have power s or more.
    """

    directions: FloatArray
    coefficients: FloatArray
    active: tuple[int, ...]
    bias: FloatArray

    @classmethod
    def of(cls, ridge: Ridge) -> FastRidge:
        """Sort the tokens and round the rationals."""
        dtype = ridge.weights.dtype
        top = np.zeros(len(ridge.directions), dtype=int)
        low = np.full(len(ridge.directions), ridge.degree)
        for (_, token), powers in ridge.terms.items():
            top[token] = max(top[token], *powers)
            low[token] = min(low[token], *powers)
        order = np.lexsort((low, -top))
        place = np.argsort(order)
        shape = (ridge.degree + 1, ridge.outputs, len(order))
        exact = np.zeros(shape, dtype=dtype)
        for (output, token), powers in ridge.terms.items():
            for s, value in powers.items():
                exact[s, output, place[token]] = _as_float(value, dtype)
        directions = np.zeros((len(order), len(ridge.weights.inputs)), dtype=dtype)
        for token, direction in enumerate(ridge.directions):
            for column, value in direction.items():
                directions[place[token], column] = _as_float(value, dtype)
        active = tuple(int((top >= s).sum()) for s in range(ridge.degree + 1))
        bias = np.array([_as_float(b, dtype) for b in ridge.bias], dtype=dtype)
        return cls(directions, exact, active, bias)

    @cached_property
    def blocks(self) -> tuple[FastBlock, ...]:
        """The tokens in groups that fit the cache."""
        starts = range(0, len(self.directions), BLOCK_TOKENS)
        return tuple(FastBlock.of(self, slice(start, start + BLOCK_TOKENS)) for start in starts)


@dataclass(frozen=True, eq=False)
class FastBlock:
    """A few tokens: their directions, and for each output (coefficients, tokens used by each power)."""

    directions: FloatArray
    terms: tuple[tuple[FloatArray, tuple[int, ...]], ...]

    @classmethod
    def of(cls, fast: FastRidge, tokens: slice) -> FastBlock:
        """Cut out some tokens and leave the powers that none of them has."""
        terms = []
        for output in range(fast.coefficients.shape[1]):
            table = np.ascontiguousarray(fast.coefficients[:, output, tokens])
            used = [int(np.flatnonzero(row).max(initial=-1)) + 1 for row in table]
            degree = max((s for s, count in enumerate(used) if count), default=0)
            terms.append((table[: degree + 1], tuple(used[: degree + 1])))
        return cls(np.ascontiguousarray(fast.directions[tokens]), tuple(terms))


def _as_float(value: fmpq, dtype: str) -> Any:
    return np.dtype(dtype).type(int(value.p) / int(value.q))


#: Tokens in a block of the sweep, and floats of T in a block: small enough for the cache of one core.
BLOCK_TOKENS = 256
BLOCK_FLOATS = 1 << 17
#: Below this many floats of T a second thread is not worth starting.
THREAD_FLOATS = 1 << 22


def run_fast(fast: FastRidge, x: FloatArray) -> FloatArray:
    """Evaluate samples × inputs to samples × outputs without building any n × n array."""
    x = np.ascontiguousarray(x, dtype=fast.directions.dtype)
    outputs, tokens = fast.coefficients.shape[1:]
    out = np.zeros((outputs, len(x)), dtype=x.dtype)
    step = max(64, BLOCK_FLOATS // min(max(tokens, 1), BLOCK_TOKENS))
    threads = _cores() if len(x) * tokens > THREAD_FLOATS else 1
    share = -(-len(x) // threads) or 1
    pieces = [slice(start, min(start + share, len(x))) for start in range(0, len(x), share)]

    def work(piece: slice) -> None:
        _sweep(fast, x[piece], out[:, piece], step)

    if threads == 1:
        for piece in pieces:
            work(piece)
    else:
        # BLAS must not start threads of its own beside ours
        with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, pieces))
    return (out + fast.bias[:, None]).T


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _sweep(fast: FastRidge, x: FloatArray, out: FloatArray, step: int) -> None:
    """Add every block's share to out, a few points at a time, in two buffers that stay in the cache."""
    height = min(BLOCK_TOKENS, len(fast.directions))
    buffers = [np.empty((height, step), dtype=x.dtype) for _ in range(2)]
    for start in range(0, len(x), step):
        columns = np.ascontiguousarray(x[start : start + step].T)
        for block in fast.blocks:
            t, power = (b[: len(block.directions), : columns.shape[1]] for b in buffers)
            np.matmul(block.directions, columns, out=t)
            for output, (coefficients, used) in enumerate(block.terms):
                if len(used) > 1:
                    out[output, start : start + step] += _power_sum(coefficients, used, t, power)


def _power_sum(
    coefficients: FloatArray, used: tuple[int, ...], t: FloatArray, power: FloatArray
) -> FloatArray:
    """Σ_s Σ_k c_{s,k} t_k^s for s ≥ 1; only the first used[s] tokens have power s.

    Like Horner's rule it takes one product a power and token, but the coefficients enter through BLAS.
    """
    degree = len(used) - 1
    if not any(used[:degree]):
        alone: FloatArray = coefficients[degree] @ _raised(t, degree, power)
        return alone
    total: FloatArray = coefficients[1, : used[1]] @ t[: used[1]]
    base = t
    for s in range(2, degree + 1):
        base = np.multiply(base, t, out=power)
        total += coefficients[s, : used[s]] @ power[: used[s]]
    return total


def _raised(t: FloatArray, degree: int, power: FloatArray) -> FloatArray:
    """t^degree by repeated squaring."""
    base = t
    for bit in f"{degree:b}"[1:]:
        base = np.multiply(base, base, out=power)
        if bit == "1":
            power *= t
    return base


def run_fast_torch(fast: FastRidge, x: Any) -> Any:
    """The same sweep on tensors, differentiable in x; the result is on x's device."""
    import torch

    def like(array: FloatArray) -> Any:
        return torch.as_tensor(array).to(dtype=x.dtype, device=x.device)

    t = x @ like(fast.directions).T
    outputs = []
    for output in range(fast.coefficients.shape[1]):
        total = torch.zeros_like(t)
        for s in range(len(fast.active) - 1, 0, -1):
            total = (total * t) + like(fast.coefficients[s, output])
        outputs.append((total * t).sum(dim=1) + float(fast.bias[output]))
    return torch.stack(outputs, dim=1)
