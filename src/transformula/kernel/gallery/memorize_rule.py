"""The proof for a memorised finite map: a claim about every sample, and about nothing else.

At sample i its own token leads every other score by at least g in real arithmetic, and by g − 2D in floats,
where D bounds the rounding of a score. With n other tokens, values of size at most V, R = max − min of them,

    |T(x_i) − v_i| <= n e^{−g} R.

In floats the largest score is the own one, so its weight is e^0 = 1, and the others add up to at most
r = n (e^{2D − g} (1 + a) + faint)/(1 − a), a = EXP_ULPS·2u, as faint exponentials may be raised (`formats`). A rounded
sum of two floats is never off by more than either of them, because the other one is a float. So, in any order, adding
numbers of total size r to one of size 1 is off by at most E = (1 + 2γ) r, and also by γ (1 + r): take the smaller. The
sum of the weights is off by E, the dot product with the values by E V, each term by a division, before or after, and a
product. (`overflow` looks at the sum of all values.) Thus

    |computed − v_i| <= (r R + E V + ((1 + u)² − 1)(1 + r) V + (1 + u)² E V)/(1 − E) + underflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import ModelFileError, RefutedError
from transformula.kernel.folder.certificate import Proof
from transformula.kernel.folder.weights import Weights
from transformula.kernel.rounding.formats import EXP_ULPS, FORMATS, QUERY_FACTOR, FloatFormat, check_memory, check_size
from transformula.kernel.structures.network import read_network
from transformula.kernel.structures.network_wires import HeadTable, wire_form

_CHUNK = 2_000_000
#: Samples times tokens.
MAX_SCORES = 250_000_000


class Memory(NamedTuple):
    """All tokens of the one head: score_j = slopes_j·x + Σ offsets_j, outputs Σ softmax_j values_j.

    Slopes (N, d), offsets (N, c), values (N, outputs).
    """

    slopes: Floats
    offsets: Floats
    values: Floats


def prove_memorize(weights: Weights, samples: Mapping[str, Any], form: FloatFormat | None = None) -> Proof:
    """Prove what the weights give at every sample; ``form`` as in `softmax_rule.prove_softmax`."""
    x, y = read_samples(weights, samples)
    memory = read_memory(weights)  # refuses what is too large
    check_memory(weights)
    return prove_memory(memory, form or FORMATS[weights.dtype], x, y)


def read_samples(weights: Weights, samples: Mapping[str, Any]) -> tuple[Floats, Floats]:
    """Inputs and outputs: (rows, d) and (rows, outputs)."""
    x, y = (_table(samples.get(name)) for name in ("x", "y"))
    if set(samples) != {"x", "y"} or len(x) != len(y):
        raise ModelFileError("model.json states samples that are not x and y with as many rows")
    if (x.shape[1], y.shape[1]) != (len(weights.inputs), weights.outputs):
        raise RefutedError("the samples have not the weights' numbers of inputs and outputs")
    check_size(FORMATS[weights.dtype], QUERY_FACTOR * arb(float(np.abs(x).max())))  # of inputs that nobody reads too
    return x, y


def _table(rows: object) -> Floats:
    if isinstance(rows, list) and rows and all(isinstance(r, list) and len(r) == len(rows[0]) for r in rows):
        numbers = all(type(v) is float or (type(v) is int and abs(v) < 2**53) for r in rows for v in r)
        if numbers and rows[0] and np.isfinite(table := np.array(rows, dtype=np.float64)).all():
            return table
    raise ModelFileError("model.json states samples that are not tables of finite numbers")


def read_memory(weights: Weights) -> Memory:
    """The tokens of a one-layer, one-head softmax model whose outputs are its table's columns as they are."""
    network = read_network(weights)
    inputs, wires = network.inputs, network.wires
    arguments = tuple(wire_form(k) for k in range(inputs))
    tables = [wire.table for wire in wires if wire.table is not None and wire.arguments == arguments]
    plain = (
        (network.blocks, network.positions) == (1, 1)
        and weights.blocks[0].feed_forward is None
        and len(weights.blocks[0].attention.heads) == 1
        and network.outputs == tuple(wire_form(inputs + k) for k in range(len(wires)))
    )
    if not plain or not tables or len(tables) != len(wires):
        raise RefutedError("a memorised model is one head over all inputs, read out as it is")
    return all_tokens(tables)


def all_tokens(tables: Sequence[HeadTable]) -> Memory:
    """The tokens of one head, its own first; ``tables`` are its columns, which share everything but the values."""
    first = tables[0]
    gates = np.concatenate([np.zeros(len(first.slopes)), first.gates])
    return Memory(
        np.concatenate([first.slopes, first.foreign_slopes]),
        np.column_stack([np.concatenate([first.offsets, first.foreign_offsets]), gates]),
        np.column_stack([np.concatenate([t.values, t.foreign_values]) for t in tables]),
    )


def prove_memory(memory: Memory, form: FloatFormat, x: Floats, y: Floats) -> Proof:
    """The bounds of the theorem, at all samples (rows, d) → (rows, outputs)."""
    gap, wrong, owner = smallest_gap(memory, x, form)
    if not gap > 2 * wrong:
        raise RefutedError("two samples are too close to be told apart by the scores")
    u, others = form.unit_roundoff, len(memory.slopes) - 1
    gamma, ulps = form.gamma(others + 1), 2 * EXP_ULPS * u
    share = others * (-gap).exp()
    computed = others * ((2 * wrong - gap).exp() * (1 + ulps) + form.faint) / (1 - ulps)
    off = (gamma * (1 + computed)).min((1 + 2 * gamma) * computed)
    if not off < 1:
        raise RefutedError("the other tokens of a sample weigh too much")
    twice = (1 + u) ** 2
    exact = 1 + arb(2) ** -52  # a float64 difference is within 2^-53 of the real one, relatively
    approximation = rounding = arb(0)
    for column in range(y.shape[1]):
        values = memory.values[:, column]
        missed = arb(float(np.abs(values[owner] - y[:, column]).max())) * exact
        spread = arb(float(np.ptp(values))) * exact
        size = arb(float(np.abs(values).max()))
        sums = off * size * (1 + twice) + (twice - 1) * (1 + computed) * size
        lost = 2 * (others + 1) * form.tiny * (1 + size) * (1 + gamma)  # underflow of divisions and products
        lost += form.value_slip
        approximation = approximation.max(missed + share * spread)
        rounding = rounding.max((computed * spread + sums) / (1 - off) + lost + share * spread)
    return Proof(round_up(approximation), round_up(rounding))


def smallest_gap(memory: Memory, x: Floats, form: FloatFormat) -> tuple[arb, arb, NDArray[np.intp]]:
    """Smallest lead of each sample's own token, the largest rounding of a score in the format, the owners."""
    slopes, (tokens, axes) = memory.slopes, memory.slopes.shape
    offsets, sizes = memory.offsets.sum(axis=1), np.abs(memory.offsets).sum(axis=1)
    smallest, size = np.inf, 0.0
    owner = np.empty(len(x), dtype=np.intp)
    if len(x) * tokens > MAX_SCORES:
        raise RefutedError(f"the samples have over {MAX_SCORES} scores: they are too many")
    step = max(1, _CHUNK // tokens)
    for start in range(0, len(x), step):
        part = x[start : start + step]
        scores = part @ slopes.T + offsets
        size = float(np.max([size, (np.abs(part) @ np.abs(slopes.T) + sizes).max()]))
        owner[start : start + step] = scores.argmax(axis=1)
        if tokens > 1:
            best = np.partition(scores, -2, axis=1)
            smallest = float(np.min([smallest, (best[:, -1] - best[:, -2]).min()]))
    if np.isnan(smallest) or not 4 * QUERY_FACTOR * arb(size) < form.largest:
        raise RefutedError(f"the scores at the samples are beyond {form.name}'s range")
    count, double = axes + memory.offsets.shape[1], FORMATS["float64"]
    # the float64 sums here: |computed − real| <= γ S + d·tiny for a score of terms of total size S, and S itself
    real = (arb(size) + count * double.tiny) / (1 - double.gamma(count))
    slack = 2 * (double.gamma(count + 1) * real + count * double.tiny)
    gap = arb(smallest) * (1 - double.unit_roundoff) - slack if tokens > 1 else form.largest
    # in the format: an input, a product, the sums, and the difference to the largest score, which is 2u S
    lost = 2 * form.tiny * (count + axes * arb(float(np.abs(slopes).max())))
    return gap.lower(), (form.gamma(count + 4) * real + lost + form.score_slip).upper(), owner
