"""The reader of Fang's blocks: what it reads is what the blocks compute; one entry out of place is refused."""

from dataclasses import replace

import numpy as np
import pytest
from flint import fmpq

from support.kernel_models import cubic, ridge_weights
from transformula.kernel.folder.weights import Attention, block_matrices, named_matrices
from transformula.kernel.structures.ridge_blocks import MAX_DEGREE, NotRidgeError, read_ridge
from transformula.runtime.exact import run_exact
from transformula.runtime.matrices import matrix_of


def _value(ridge, output, point):
    total = ridge.bias[output]
    for (of, token), powers in ridge.terms.items():
        t = sum((v * point[i] for i, v in ridge.directions[token].items()), fmpq(0))
        total += sum((c * t**s for s, c in powers.items()), fmpq(0)) if of == output else 0
    return total


def test_what_is_read_is_what_the_blocks_compute():
    weights, _ = cubic()
    ridge = read_ridge(weights)
    assert ridge.degree == 3 and ridge.outputs == 1 and len(ridge.heads) == 3
    for point in ([fmpq(1, 3), fmpq(2)], [fmpq(-2), fmpq(-1)], [fmpq(7, 5), fmpq(5, 2)]):
        x, y = point
        assert _value(ridge, 0, point) == run_exact(weights, point)[0] == x**3 / 3 - 5 * x * y + fmpq(1, 7)


def _with(weights, name, matrix):
    """The weights with one matrix replaced, by its name on disk."""
    parts = name.split(".")
    if parts[0] != "blocks":
        return replace(weights, **{name: matrix})
    blocks = list(weights.blocks)
    block = blocks[int(parts[1])]
    if parts[2] == "heads":
        heads = list(block.attention.heads)
        heads[int(parts[3])] = replace(heads[int(parts[3])], **{parts[4]: matrix})
        block = replace(block, attention=replace(block.attention, heads=tuple(heads)))
    else:
        block = replace(block, feed_forward=replace(block.feed_forward, **{parts[3]: matrix}))
    blocks[int(parts[1])] = block
    return replace(weights, blocks=tuple(blocks))


_FREE = ("embedding", "readout", "bias")  # what these hold, the proof compares with the formula


def test_every_entry_of_the_blocks_matters():
    weights, _ = cubic()
    tried = 0
    for name, matrix in named_matrices(weights):
        for k in range(len(matrix.values) if name not in _FREE else 0):
            for new in (matrix.values[k] * (1 + 1e-6), np.nextafter(matrix.values[k], 0), -matrix.values[k]):
                values = matrix.values.copy()
                values[k] = new
                with pytest.raises(NotRidgeError):
                    read_ridge(_with(weights, name, replace(matrix, values=values)))
                tried += 1
    assert tried == 144


def test_every_place_matters():
    weights, _ = cubic()
    before = read_ridge(weights).directions, read_ridge(weights).terms
    tried, others = 0, set()
    for name, matrix in named_matrices(weights):
        for part, limit in (("rows", matrix.shape[0]), ("cols", matrix.shape[1])):
            for k in range(len(matrix.values)):
                moved = getattr(matrix, part).copy()
                moved[k] = (moved[k] + 1) % limit
                if moved[k] == getattr(matrix, part)[k]:
                    continue
                changed = replace(matrix, **{part: moved})
                if len(set(zip(changed.rows.tolist(), changed.cols.tolist(), strict=True))) < len(moved):
                    continue  # two entries in one place never pass the reader of files
                forged = _with(weights, name, changed)
                tried += 1
                try:
                    ridge = read_ridge(forged)
                except (NotRidgeError, IndexError):
                    continue
                assert (ridge.directions, ridge.terms) != before  # another polynomial, and seen to be one
                others.add(name)
    assert tried > 80 and others <= {*_FREE, *(f"blocks.{b}.heads.0.{p}" for b in range(3) for p in ("query", "key"))}


def test_rationals_beside_the_floats_of_a_block_are_refused():
    weights, _ = cubic()
    for name, matrix in named_matrices(weights):
        if name not in _FREE and matrix.nonzeros:
            exact = tuple(fmpq(*float(v).as_integer_ratio()) for v in matrix.values)
            with pytest.raises(NotRidgeError, match="rationals beside its floats"):
                read_ridge(_with(weights, name, replace(matrix, exact=exact)))


@pytest.mark.parametrize("change", [{"kind": "softmax"}, {"scale": 2.0}, {"heads": ()}])
def test_every_field_of_attention_matters(change):
    weights, _ = cubic()
    block = weights.blocks[1]
    forged = replace(block, attention=replace(block.attention, **change))
    with pytest.raises(NotRidgeError):
        read_ridge(replace(weights, blocks=(weights.blocks[0], forged, weights.blocks[2])))
    with pytest.raises(NotRidgeError, match="no feed-forward"):
        read_ridge(replace(weights, blocks=(replace(weights.blocks[0], feed_forward=None),)))


def test_a_readout_that_could_cancel_is_refused():
    """10^20 t - 10^20 t is zero in rationals; in floats it is whatever rounding left."""
    weights = ridge_weights(("x",), [{0: 1}], {(0, 0, 1): 1}, [0])
    t, p1 = weights.slot("t"), weights.slot("p1")
    readout = matrix_of(weights.readout.shape, [(0, t, 10**20), (0, p1, 10**20 - 1)])
    with pytest.raises(NotRidgeError, match="one power of t from two slots"):
        read_ridge(replace(weights, readout=readout))


def test_powers_and_heads_are_bounded():
    """Each block squares the power: after k blocks t^(2^k), which would be a number of 2^k bits."""
    weights = ridge_weights(("x",), [{0: 1}], {(0, 0, MAX_DEGREE): 1}, [0])
    assert read_ridge(weights).degree == MAX_DEGREE
    with pytest.raises(NotRidgeError, match="more than 100 heads"):
        read_ridge(ridge_weights(("x",), [{0: 1}], {(0, 0, MAX_DEGREE + 1): 1}, [0]))
    squares = ridge_weights(("x",), [{0: 1}], {(0, 0, 8): 1}, [0])
    blocks = list(squares.blocks)
    for s in range(2, 9):
        (head,) = blocks[s - 1].attention.heads
        before = squares.slot(f"p{s - 1}")
        query = replace(head.query, cols=np.where(head.query.rows == 0, before, head.query.cols).astype(np.int32))
        blocks[s - 1] = replace(blocks[s - 1], attention=Attention((replace(head, query=query),), "hardmax"))
    with pytest.raises(NotRidgeError, match="power of t above"):
        read_ridge(replace(squares, blocks=tuple(blocks)))
    assert read_ridge(replace(squares, blocks=tuple(blocks[:7]), readout=matrix_of(squares.readout.shape))).heads


def test_an_empty_or_foreign_embedding_is_refused():
    weights, _ = cubic()
    empty = matrix_of(weights.embedding.shape)
    with pytest.raises(NotRidgeError, match="exactly one slot"):
        read_ridge(replace(weights, embedding=empty))
    with pytest.raises(NotRidgeError, match="one-hot"):
        read_ridge(replace(weights, memory=matrix_of(weights.memory.shape)))
    assert sum(1 for _ in block_matrices(weights.blocks[0])) == 7
