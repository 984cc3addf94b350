"""A memorised map in the kernel: proven at every sample, attacked in floats, refused where tokens are too close."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

from support.kernel_models import memory_weights
from transformula.kernel.arithmetic import precision
from transformula.kernel.check import prove
from transformula.kernel.exceptions import ModelFileError, RefutedError, TransformulaError
from transformula.kernel.folder.description import Description
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.gallery.memorize_rule import Memory, prove_memory, read_memory
from transformula.kernel.rounding.formats import FORMATS
from transformula.runtime.matrices import matrix_of
from transformula.runtime.reference import run

NONE = Evidence({})


def _samples(count, inputs, outputs, seed=0):
    rng = np.random.default_rng(seed)
    grid = rng.permutation(4**inputs)[:count]
    x = np.stack([grid // 4**k % 4 for k in range(inputs)], axis=1) + rng.uniform(-0.1, 0.1, (count, inputs))
    return x, rng.normal(size=(count, outputs)) * 10


def _described(x, y):
    return Description("memorize", samples={"x": np.asarray(x).tolist(), "y": np.asarray(y).tolist()})


def _real(memory, point):
    """T(point) in balls."""
    with precision(300):
        scores = []
        for slopes, offsets in zip(memory.slopes.tolist(), memory.offsets.tolist(), strict=True):
            scores.append(
                sum((arb(a) * arb(x) for a, x in zip(slopes, point, strict=True)), sum(map(arb, offsets), arb(0)))
            )
        weights = [s.exp() for s in scores]
        total = sum(weights, arb(0))
        columns = memory.values.T.tolist()
        return [sum((w * arb(v) for w, v in zip(weights, c, strict=True)), arb(0)) / total for c in columns]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("count", "inputs", "scale"), [(1, 1, 1.0), (4, 1, 20.0), (16, 2, 30.0), (40, 3, 60.0)])
def test_the_bounds_hold_at_every_sample(dtype, count, inputs, scale):
    x, y = _samples(count, inputs, 2)
    weights = memory_weights(x, y, scale, dtype)
    proof = prove(weights, _described(x, y), NONE)
    memory = read_memory(weights)
    assert memory.slopes.shape == (count + 1, inputs) and memory.values.shape == (count + 1, 2)
    computed = run(weights, x)
    for point, want, got in zip(x.tolist(), y.tolist(), computed.tolist(), strict=True):
        for real, w, g in zip(_real(memory, point), want, got, strict=True):
            assert not abs(real - arb(w)) > proof.approximation
            assert not abs(real - arb(g)) > proof.rounding


def test_the_bounds_are_not_absurdly_loose():
    x, y = _samples(40, 3, 2)
    proof = prove(memory_weights(x, y, 300.0), _described(x, y), NONE)
    assert proof.approximation < 1e-20 and proof.rounding < 100 * 2.0**-53
    rough = prove(memory_weights(x, y, 30.0), _described(x, y), NONE)
    gap = 30.0 * min(np.sum((a - b) ** 2) for k, a in enumerate(x) for b in x[:k]) / 2
    assert np.exp(-gap) < rough.approximation < 4000 * np.exp(-gap)


def test_rounding_does_not_grow_with_the_number_of_tokens():
    """A sum of many tiny weights and one of size 1 is off by the tiny ones at most."""
    x = np.arange(3000.0)[:, None]
    y = np.sin(x)
    memory = Memory(400 * x, -200 * x**2, y)
    with pytest.raises(RefutedError, match="told apart"):  # scores of 2·10^9 are too large for float32
        prove_memory(memory, FORMATS["float32"], x, y)
    near = Memory(400 * (x - 1500), -200 * (x - 1500) * (x + 1500), y)
    proof = prove_memory(near, FORMATS["float64"], x, y)
    assert proof.approximation < 1e-60 and proof.rounding < 4 * 2.0**-53


def test_every_sample_is_checked():
    x, y = _samples(16, 2, 1)
    weights = memory_weights(x, y, 200.0)
    assert prove(weights, _described(x, y), NONE).approximation < 1e-9
    for row in (0, 7, 15):
        other = y.copy()
        other[row] += 1e-3
        assert prove(weights, _described(x, other), NONE).approximation == pytest.approx(1e-3, rel=1e-6)
    twice, both = np.vstack([x, x[:1]]), np.vstack([y, y[:1] + 2])  # the same input with two outputs
    assert prove(weights, _described(twice, both), NONE).approximation >= 2


def test_missed_values_are_rounded_up():
    """y − v is not a float: the bound is at least the real difference."""
    values, wanted = np.array([[1.0]]), np.array([[2.0**-60]])
    proof = prove_memory(
        Memory(np.zeros((1, 1)), np.zeros((1, 1)), values), FORMATS["float64"], np.zeros((1, 1)), wanted
    )
    assert Fraction(proof.approximation) >= 1 - Fraction(1, 2**60)


def test_one_token_needs_no_gap():
    memory = Memory(np.zeros((1, 1)), np.zeros((1, 2)), np.array([[3.0]]))
    with precision(128):
        proof = prove_memory(memory, FORMATS["float64"], np.array([[0.5]]), np.array([[3.0]]))
    assert proof.approximation == 0 and 0 < proof.rounding < 10 * 2.0**-53


@pytest.mark.parametrize(
    ("slopes", "offsets"),
    [
        ([[0.0], [0.0]], [[0.0], [0.0]]),
        ([[1.0], [1.0]], [[0.0], [0.0]]),
        ([[1e16], [1e16]], [[0.0], [1.0]]),  # the lead is lost in the scores' size
        ([[1e308], [-1e308]], [[0.0], [0.0]]),
        ([[1e300], [-1e300]], [[1e308], [1e308]]),
    ],
)
def test_tokens_that_cannot_be_told_apart_are_refused(slopes, offsets):
    memory = Memory(np.array(slopes), np.array(offsets), np.array([[0.0], [1.0]]))
    x, y = np.array([[1.0]]), np.array([[0.0]])
    with np.errstate(all="ignore"), pytest.raises(RefutedError):
        prove_memory(memory, FORMATS["float64"], x, y)


def test_a_gap_that_floats_lose_is_refused_for_that_format_only():
    memory = Memory(np.array([[2.0**26], [0.0]]), np.array([[30.0], [2.0**26]]), np.array([[0.0], [1.0]]))
    x, y = np.array([[1.0]]), np.array([[0.0]])
    assert prove_memory(memory, FORMATS["float64"], x, y).approximation < 1e-12
    with pytest.raises(RefutedError, match="told apart"):
        prove_memory(memory, FORMATS["float32"], x, y)


def _changed(weights, **parts):
    (block,) = weights.blocks
    (head,) = block.attention.heads
    head = replace(head, **parts)
    return replace(weights, blocks=(replace(block, attention=replace(block.attention, heads=(head,))),))


def test_what_is_not_such_a_model_is_refused():
    x, y = _samples(4, 1, 1)
    weights = memory_weights(x, y, 50.0)
    (block,) = weights.blocks
    (head,) = block.attention.heads
    slot = weights.slot("y0")
    forged = {
        "scale": replace(weights, blocks=(replace(block, attention=replace(block.attention, scale=2.0)),)),
        "hardmax": replace(weights, blocks=(replace(block, attention=replace(block.attention, kind="hardmax")),)),
        "two heads": replace(weights, blocks=(replace(block, attention=replace(block.attention, heads=(head, head))),)),
        "two blocks": replace(weights, blocks=(block, block)),
        "none": replace(weights, blocks=()),
        "query": _changed(weights, query=replace(head.query, values=head.query.values * 2)),
        "value": _changed(weights, value=replace(head.value, values=head.value.values * 2)),
        "readout": replace(weights, readout=replace(weights.readout, values=weights.readout.values * 2)),
        "bias": replace(weights, bias=matrix_of((1, 1), [(0, 0, 1)])),
        "input beside": replace(weights, readout=matrix_of(weights.readout.shape, [(0, slot, 1), (0, 0, 1)])),
        "memory read": replace(weights, readout=matrix_of(weights.readout.shape, [(0, slot + weights.width, 1)])),
    }
    description = _described(x, y)
    assert prove(weights, description, NONE)
    for name, model in forged.items():
        with pytest.raises(TransformulaError):
            pytest.fail(f"{name}: {prove(model, description, NONE)}")


def test_an_open_gate_lets_the_data_token_in():
    x, y = _samples(4, 1, 1)
    open_ = prove(memory_weights(x, y, 50.0, gate=1000.0), _described(x, y), NONE)
    assert open_.approximation >= np.abs(y).max()
    weak = prove(memory_weights(x, y, 200.0, gate=-20.0), _described(x, y), NONE).approximation
    assert weak > 1e-9 > prove(memory_weights(x, y, 200.0, gate=-4000.0), _described(x, y), NONE).approximation


@pytest.mark.parametrize(
    "samples",
    [{}, {"x": [[0.0]]}, {"x": [], "y": []}, {"x": [[0.0]], "y": [[1.0], [2.0]]},
     {"x": [[0.0], [1.0, 2.0]], "y": [[1.0]] * 2},
     {"x": [["0"]], "y": [[1.0]]}, {"x": [[True]], "y": [[1.0]]}, {"x": [[10**400]], "y": [[1.0]]}, {"x": 3, "y": 4},
     {"x": [[0.0]], "y": [[1.0]], "z": 1}, {"x": [[]], "y": [[]]}, {"x": [[None]], "y": [[1.0]]},
     {"x": [[[0.0]]], "y": [[1.0]]}],
)  # fmt: skip
def test_malformed_samples_are_refused(samples):
    weights = memory_weights([[0.0]], [[1.0]], 1.0)
    with pytest.raises(ModelFileError, match="samples"):
        prove(weights, Description("memorize", samples=samples), NONE)
    with pytest.raises(RefutedError, match="numbers of inputs"):
        prove(weights, Description("memorize", samples={"x": [[0.0, 1.0]], "y": [[1.0]]}), NONE)
