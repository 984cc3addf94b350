"""Tasks of in-context models, the blocks that carry them out, and the check that weights are these blocks.

*Tasks:* an algorithm, the size of its prompts, and the box they lie in. A prompt is n pairs (x_i, y_i) and a query q;
x_i and q have d features, |x_i|, |q| <= ``x`` entry by entry and |y_i| <= ``y``. X is the matrix of the rows x_i. The
answer is one number:

- ``descent``: q·w_k, w_0 = 0 and w_{t+1} = w_t − rate·(XᵀX w_t − Xᵀy + penalty·w_t), k = ``steps``.
- ``ridge``: q·w with (XᵀX + penalty·I) w = Xᵀy.
- ``lasso``: q·w_k, w_0 = 0 and w_{t+1} = S(w_t − rate·(XᵀX w_t − Xᵀy)), where S(u) = sign(u)·max(|u| − rate·penalty, 0)
  in every coordinate (ISTA for ½|y − Xw|² + penalty·|w|₁), k = ``steps``.
- ``kernel``: Σ_i e^{q·x_i/bandwidth} y_i / Σ_i e^{q·x_i/bandwidth} (Nadaraya and Watson's regression).

For ``recurrence`` a prompt is three numbers with |a| <= ``a``, |b| <= ``b``, |x| <= ``x``, and the answers are
x_1, ..., x_k, k = ``steps``: x_0 = x and x_{t+1} = a·x_t + b.

*Blocks.* A linear head has no softmax: with scores s_jm = Σ_r z_j[asks_r] z_m[answers_r], token j gets Σ_m s_jm v_m.
Tokens are the pairs, the query, and d constant ones, the l-th of them e_l for short. A slot that is not named for a
token is 0.

*descent.* Slots x (x_i, q, e_l), k (x_i, 0, penalty·e_l), y (y_i, 0, 0) and p. A layer asks with x, answers with k
and adds rate·(y − p) to p: p_j += rate·x_j·Σ_m k_m (y_m − p_m). If p_m = x_m·w at every token, the sum is Xᵀy − XᵀXw
− penalty·w, so p_j becomes x_j·w' after one gradient step, and e_l holds the coordinate w'_l. Each layer is one step.

*ridge.* A = XᵀX + penalty·I = Σ_m k_m x_mᵀ. Every token carries Q x_m in q, at first Q = start·I; before layer t as
2⁻ᵗ Q x_m, so that nothing has to be doubled. The layer asks and answers with q and adds −2ᵗ⁻¹ k to q: Q x_j becomes
2 Q x_j − Σ_m k_m (Q x_m)ᵀ(Q x_j) = (2I − A Q) Q x_j, as Q is a polynomial in A: Newton and Schulz's iteration. The
last layer asks with q, answers with k and adds 2ᵗ y to p: at the query its features times Q Xᵀy.

*lasso.* Slots x (x_i, q, 0), e (0, 0, e_l), k (x_i, 0, 0), y, w and p; e_l holds w_l in w. The first layer of a step
asks with e, answers with k and adds rate·(y − p) to w: w_l += rate·Σ_i x_il (y_i − p_i). Its feed-forward layer adds
relu(w − t) − relu(−w − t) − relu(w) + relu(−w) = S(w) − w to w, t = rate·penalty, and −relu(p) + relu(−p) = −p to p.
The second layer asks with x, answers with e and adds w to p, which was 0: p_j = x_j·w.

*kernel.* One softmax layer over the pairs alone: the query's features stand in slots z of the first pair's token,
which asks with them. *recurrence.* One token with slots a, b, one, x0, x1, ...: it asks itself with (a, b) and
answers with (x_t, one), so that it adds a·x_t + b to x_{t+1}, which is 0 before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from flint import fmpq

from transformula.kernel.exceptions import ModelFileError, RefutedError
from transformula.kernel.folder.description import MAX_BLOCKS, is_count, require
from transformula.kernel.folder.weights import Block, Matrix, Weights
from transformula.kernel.syntax.boxes import MAX_VARIABLES

_SIZES, _ENDS = ("pairs", "features"), ("x", "y")
#: What each algorithm is stated by: whole numbers, then rationals.
FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "descent": ((*_SIZES, "steps"), ("penalty", "rate", *_ENDS)),
    "ridge": (_SIZES, ("penalty", *_ENDS)),
    "lasso": ((*_SIZES, "steps"), ("penalty", "rate", *_ENDS)),
    "kernel": (_SIZES, ("bandwidth", *_ENDS)),
    "recurrence": (("steps",), ("a", "b", "x")),
}
#: The rationals that may be zero.
MAY_VANISH = {("descent", "penalty"), ("lasso", "penalty")}
_ZERO = fmpq(0)
_NUMBER = re.compile(r"[0-9]{1,60}(/[0-9]{1,60})?", re.ASCII)


@dataclass(frozen=True)
class PromptTask:
    """An algorithm with its numbers; what it does not have is zero."""

    algorithm: str
    pairs: int = 0
    features: int = 0
    steps: int = 0
    penalty: fmpq = _ZERO
    rate: fmpq = _ZERO
    bandwidth: fmpq = _ZERO
    a: fmpq = _ZERO
    b: fmpq = _ZERO
    x: fmpq = _ZERO
    y: fmpq = _ZERO

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> PromptTask:
        """A task as model.json states it; whatever does not fit is refused."""
        name = body.get("algorithm")
        if not isinstance(name, str) or name not in FIELDS:
            raise ModelFileError("model.json names an unknown algorithm")
        counts, numbers = FIELDS[name]
        require(set(body) == {"algorithm", *counts, *numbers}, f"model.json does not state what {name} needs")
        for key in counts:
            most = MAX_BLOCKS if key == "steps" else MAX_VARIABLES
            require(is_count(body[key], most, 1), f"model.json: {key} is not a whole number from 1 to {most}")
        exact: dict[str, Any] = {key: _rational(body[key]) for key in numbers}
        for key, value in exact.items():
            require(value > 0 or (name, key) in MAY_VANISH, f"model.json: {key} is not above 0")
        task = cls(name, **{key: body[key] for key in counts}, **exact)
        require(task.size <= MAX_VARIABLES, f"a prompt has {task.size} numbers; at most {MAX_VARIABLES}")
        return task

    @property
    def size(self) -> int:
        """Number of numbers in a prompt."""
        return 3 if self.algorithm == "recurrence" else self.pairs * self.features + self.pairs + self.features

    @property
    def inputs(self) -> tuple[str, ...]:
        """The numbers of a prompt, by name: the pairs' features, row by row, their targets, and the query."""
        if self.algorithm == "recurrence":
            return ("a", "b", "x")
        rows, columns = range(1, self.pairs + 1), range(1, self.features + 1)
        pairs = (*(f"x{i}_{k}" for i in rows for k in columns), *(f"y{i}" for i in rows))
        return (*pairs, *(f"q{k}" for k in columns))

    @property
    def outputs(self) -> int:
        """Number of numbers in the answer."""
        return self.steps if self.algorithm == "recurrence" else 1


def _rational(text: object) -> fmpq:
    require(isinstance(text, str) and _NUMBER.fullmatch(text), "model.json has a number of a task that is malformed")
    top, _, bottom = str(text).partition("/")
    require(int(bottom or 1) != 0, "model.json has a number of a task that divides by 0")
    return fmpq(int(top), int(bottom or 1))


ONE = fmpq(1)
Entries = Mapping[tuple[int, int], fmpq]


@dataclass(frozen=True)
class Layer:
    """One head: (asking slot, answering slot) pairs, and {(written slot, read slot): factor}, by written slot.

    The value has a row for each written slot, and the output carries it there. Scores are multiplied by ``factor``.
    With a ``threshold`` t the feed-forward layer makes S(w) of w, and 0 of p.
    """

    scores: tuple[tuple[str, str], ...]
    adds: Mapping[tuple[str, str], fmpq]
    kind: str = "linear"
    factor: fmpq = ONE
    threshold: fmpq | None = None

    @property
    def writes(self) -> list[str]:
        """The slots that are written, each once."""
        return list(dict.fromkeys(to for to, _ in self.adds))


@dataclass(frozen=True)
class PromptPlan:
    """Slots; what tokens hold at first, of inputs {(token, slot, input): factor} and constants; layers; outputs."""

    slots: tuple[str, ...]
    tokens: int
    given: dict[tuple[int, str, int], fmpq] = field(default_factory=dict)
    held: dict[tuple[int, str], fmpq] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    reads: list[tuple[int, str]] = field(default_factory=list)


def plan_of(task: PromptTask, start: fmpq = ONE, rounds: int = 0) -> PromptPlan:
    """The blocks of a task; ``start`` and ``rounds`` are those of Newton and Schulz's iteration."""
    return _PLANS[task.algorithm](task, start, rounds)


def _names(letter: str, task: PromptTask) -> list[str]:
    return [f"{letter}{k + 1}" for k in range(task.features)]


def _prompt(
    task: PromptTask, groups: str, others: tuple[str, ...], asks: Mapping[str, fmpq], answers: str
) -> PromptPlan:
    """Pairs, query, constant tokens: slots of ``asks`` hold factor·x_i and factor·q, those of ``answers`` x_i alone."""
    n, d = task.pairs, task.features
    plan = PromptPlan((*(s for g in groups for s in _names(g, task)), *others), n + 1 + d, reads=[(n, "p")])
    for i in range(n):
        plan.given[i, "y", n * d + i] = ONE
        for group, factor in {**asks, answers: ONE}.items():
            plan.given.update({(i, s, i * d + k): factor for k, s in enumerate(_names(group, task))})
    for group, factor in asks.items():
        plan.given.update({(n, s, n * d + n + k): factor for k, s in enumerate(_names(group, task))})
    return plan


def _hold(plan: PromptPlan, task: PromptTask, group: str, value: fmpq) -> None:
    for k, slot in enumerate(_names(group, task)):
        if value != 0:
            plan.held[task.pairs + 1 + k, slot] = value


def _pairs(task: PromptTask, asks: str, answers: str) -> tuple[tuple[str, str], ...]:
    return tuple(zip(_names(asks, task), _names(answers, task), strict=True))


def _descent(task: PromptTask, start: fmpq, rounds: int) -> PromptPlan:
    plan = _prompt(task, "xk", ("y", "p"), {"x": ONE}, "k")
    _hold(plan, task, "x", ONE)
    _hold(plan, task, "k", task.penalty)
    step = Layer(_pairs(task, "x", "k"), {("p", "y"): task.rate, ("p", "p"): -task.rate})
    plan.layers.extend([step] * task.steps)
    return plan


def _ridge(task: PromptTask, start: fmpq, rounds: int) -> PromptPlan:
    plan = _prompt(task, "qk", ("y", "p"), {"q": start}, "k")
    _hold(plan, task, "q", start)
    _hold(plan, task, "k", task.penalty)
    for t in range(rounds):
        written = {pair: -(fmpq(2) ** (t - 1)) for pair in _pairs(task, "q", "k")}
        plan.layers.append(Layer(_pairs(task, "q", "q"), written))
    plan.layers.append(Layer(_pairs(task, "q", "k"), {("p", "y"): fmpq(2) ** rounds}))
    return plan


def _lasso(task: PromptTask, start: fmpq, rounds: int) -> PromptPlan:
    plan = _prompt(task, "xek", ("y", "w", "p"), {"x": ONE}, "k")
    _hold(plan, task, "e", ONE)
    moved = {("w", "y"): task.rate, ("w", "p"): -task.rate}
    gather = Layer(_pairs(task, "e", "k"), moved, threshold=task.rate * task.penalty)
    predict = Layer(_pairs(task, "x", "e"), {("p", "w"): ONE})
    plan.layers.extend([gather, predict] * task.steps)
    return plan


def _kernel(task: PromptTask, start: fmpq, rounds: int) -> PromptPlan:
    n, d = task.pairs, task.features
    plan = PromptPlan((*_names("x", task), *_names("z", task), "y", "p"), n, reads=[(0, "p")])
    for i in range(n):
        plan.given[i, "y", n * d + i] = ONE
        plan.given.update({(i, s, i * d + k): ONE for k, s in enumerate(_names("x", task))})
    plan.given.update({(0, s, n * d + n + k): ONE for k, s in enumerate(_names("z", task))})
    plan.layers.append(Layer(_pairs(task, "z", "x"), {("p", "y"): ONE}, "softmax", 1 / task.bandwidth))
    return plan


def _recurrence(task: PromptTask, start: fmpq, rounds: int) -> PromptPlan:
    states = [f"x{t}" for t in range(task.steps + 1)]
    plan = PromptPlan(("a", "b", "one", *states), 1, {(0, s, k): ONE for k, s in enumerate(("a", "b", "x0"))})
    plan.held[0, "one"] = ONE
    plan.layers.extend(Layer((("a", now), ("b", "one")), {(then, "one"): ONE}) for now, then in pairwise(states))
    plan.reads.extend((0, state) for state in states[1:])
    return plan


_PLANS = {"descent": _descent, "ridge": _ridge, "lasso": _lasso, "kernel": _kernel, "recurrence": _recurrence}


def check_plan(weights: Weights, plan: PromptPlan) -> None:
    """Every entry of every matrix is the plan's, or `RefutedError` names the matrix that is not."""
    sizes = weights.slots == plan.slots and weights.tokens == plan.tokens and len(weights.blocks) == len(plan.layers)
    _require(sizes, "slots, tokens or layers")
    place = {slot: k for k, slot in enumerate(plan.slots)}
    width = len(plan.slots)
    _same("embedding", weights.embedding, {(t * width + place[s], i): v for (t, s, i), v in plan.given.items()})
    _same("memory", weights.memory, {(t, place[s]): v for (t, s), v in plan.held.items()})
    _same("readout", weights.readout, {(o, t * width + place[s]): ONE for o, (t, s) in enumerate(plan.reads)})
    _same("bias", weights.bias, {})
    for b, (block, layer) in enumerate(zip(weights.blocks, plan.layers, strict=True)):
        _check_block(f"blocks.{b}", block, layer, place)


def _check_block(name: str, block: Block, layer: Layer, place: Mapping[str, int]) -> None:
    attention, feed_forward = block.attention, block.feed_forward
    plain = attention.kind == layer.kind and attention.scale == 1 and len(attention.heads) == 1
    _require(plain, f"{name}: the kind of its heads, or how many there are")
    head, written = attention.heads[0], {slot: r for r, slot in enumerate(layer.writes)}
    output = head.output
    if output is None:
        raise RefutedError(f"the blocks are not those of the algorithm: {name} has no output matrix")
    shapes = head.query.shape[0] == len(layer.scores) and output.shape[1] == len(written)
    _require(shapes, f"{name}: the rows of its query or value")
    _same(f"{name}.query", head.query, {(r, place[asks]): layer.factor for r, (asks, _) in enumerate(layer.scores)})
    _same(f"{name}.key", head.key, {(r, place[answers]): ONE for r, (_, answers) in enumerate(layer.scores)})
    _same(f"{name}.value", head.value, {(written[to], place[of]): v for (to, of), v in layer.adds.items()})
    _same(f"{name}.output", output, {(place[to], r): ONE for to, r in written.items()})
    if feed_forward is None or layer.threshold is None:
        _require(feed_forward is None and layer.threshold is None, f"{name}: its feed-forward layer")
        return
    reads, biases, writes = threshold_entries(place["w"], place["p"], layer.threshold)
    _require(feed_forward.hidden.shape[0] == len(reads), f"{name}: the units of its feed-forward layer")
    _same(f"{name}.hidden", feed_forward.hidden, reads)
    _same(f"{name}.hidden_bias", feed_forward.hidden_bias, biases)
    _same(f"{name}.output", feed_forward.output, writes)
    _same(f"{name}.output_bias", feed_forward.output_bias, {})


def threshold_entries(w: int, p: int, threshold: fmpq) -> tuple[Entries, Entries, Entries]:
    """Hidden weights, their biases and output weights of the feed-forward layer that makes S(w) of w and 0 of p."""
    units = [(w, 1, 1), (w, -1, -1), (w, 1, -1), (w, -1, 1), (p, 1, -1), (p, -1, 1)]  # slot, sign, what goes back
    reads = {(u, slot): fmpq(sign) for u, (slot, sign, _) in enumerate(units)}
    biases = {(u, 0): -threshold for u in (0, 1) if threshold != 0}
    return reads, biases, {(slot, u): fmpq(back) for u, (slot, _, back) in enumerate(units)}


def _same(name: str, matrix: Matrix, wanted: Entries) -> None:
    _require({(row, column): value for row, column, value in matrix.entries()} == dict(wanted), name)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise RefutedError(f"the blocks are not those of the algorithm: {what}")
