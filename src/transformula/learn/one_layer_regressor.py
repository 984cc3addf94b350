"""Regression with one trained layer of attention (Gumaan 2025, section VI; eq. 5–8).

Random weights are laid out as `Weights`, so a trained layer runs in every runtime.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions

from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.learn.base import COUNT, TrainedEstimator, seed_of
from transformula.learn.distinct_rows import Floats, Rows
from transformula.learn.gradient import ALMOST_NOTHING, LinearStart, Standardization, TrainingRows
from transformula.learn.training import squared_error, train
from transformula.model import Model
from transformula.runtime.matrices import dense_matrix, matrix_of, sinusoidal
from transformula.runtime.one_layer_module import OneLayerModule, trained_weights

#: Rows that are evaluated at a time.
_CHUNK_ROWS = 4096
_EPOCHS = 100


POSITIONS = ("learned", "sinusoidal", "none")
TOKENS = ("one", "each")


def random_weights(shape: OneLayerTransformerRegressor, inputs: int, outputs: int, rng: np.random.Generator) -> Weights:
    """A random start of an estimator's sizes: unit-size tokens, scores of order one, small outputs."""
    data = 1 if shape.tokens == "one" else inputs
    total = data + shape.memory_tokens
    w, k = shape.width, shape.key_width

    def normal(rows: int, columns: int, size: float) -> Matrix:
        return dense_matrix(rng.normal(0.0, size, size=(rows, columns)))

    embedding = np.zeros((total * w, inputs))
    if shape.tokens == "one":
        embedding[:w] = rng.normal(size=(w, inputs)) / inputs**0.5
    else:
        for i in range(inputs):
            embedding[i * w : (i + 1) * w, i] = rng.normal(size=w)
    memory = rng.normal(size=(total, w))
    memory[:data] = 0.0 if shape.positions == "none" else sinusoidal(data, w)
    if shape.positions == "learned":
        memory[:data] = rng.normal(0.0, 0.5, size=(data, w))
    heads = tuple(
        Head(normal(k, w, w**-0.5), normal(k, w, w**-0.5), normal(k, w, w**-0.5), normal(w, k, k**-0.5))
        for _ in range(shape.heads)
    )
    layer = FeedForward(
        normal(shape.hidden, w, (2 / w) ** 0.5),
        normal(shape.hidden, 1, 0.5),
        normal(w, shape.hidden, 0.5 * (1 / shape.hidden) ** 0.5),
        matrix_of((w, 1)),
    )
    readout = np.zeros((outputs, total * w))
    readout[:, : data * w] = rng.normal(0.0, 0.3 * (data * w) ** -0.5, size=(outputs, data * w))
    return Weights(
        inputs=tuple(f"x{i + 1}" for i in range(inputs)),
        slots=tuple(f"s{i + 1}" for i in range(w)),
        tokens=total,
        embedding=dense_matrix(embedding),
        memory=dense_matrix(memory),
        blocks=(Block(Attention(heads, scale=float(k) ** -0.5), layer),),
        readout=dense_matrix(readout),
        bias=matrix_of((outputs, 1)),
    )


def linear_weights(start: Weights, linear: LinearStart) -> Weights:
    """The random start changed to compute a linear function, with almost nothing from attention and ReLU.

    What the readout reads from the embedded inputs becomes the slopes; the rest of it stays random, so that
    the other layers receive gradients.
    """
    embedding, readout = start.embedding.dense(), start.readout.dense()
    wanted = linear.slopes.T - readout @ embedding
    readout += wanted @ np.linalg.pinv(embedding)
    bias = linear.offset - readout @ start.memory.dense().ravel()
    block = start.blocks[0]
    assert block.feed_forward is not None
    heads = tuple(replace(h, output=_fainter(h.output)) for h in block.attention.heads)
    layer = replace(block.feed_forward, output=_fainter(block.feed_forward.output))
    return replace(
        start,
        readout=replace(start.readout, values=readout[start.readout.rows, start.readout.cols]),
        bias=dense_matrix(bias[:, None]),
        blocks=(Block(replace(block.attention, heads=heads), layer),),
    )


def _fainter(matrix: Matrix | None) -> Matrix:
    assert matrix is not None
    return dense_matrix(matrix.dense() * ALMOST_NOTHING)


def absorb_scaling(weights: Weights, inputs: Standardization, targets: Standardization) -> Weights:
    """Weights on standardised inputs and targets, as weights on the original ones."""
    embedding, readout = weights.embedding, weights.readout
    memory = weights.memory.dense()
    values = embedding.values / inputs.scale[embedding.cols]
    shift = np.zeros(memory.size)
    np.add.at(shift, embedding.rows, values * inputs.center[embedding.cols])
    bias = weights.bias.dense()[:, 0] * targets.scale + targets.center
    return replace(
        weights,
        embedding=replace(embedding, values=values),
        memory=dense_matrix(memory - shift.reshape(memory.shape)),
        readout=replace(readout, values=readout.values * targets.scale[readout.rows]),
        bias=dense_matrix(bias[:, None]),
    )


@dataclass(repr=False, eq=False)
class OneLayerTransformerRegressor(MultiOutputMixin, RegressorMixin, TrainedEstimator):  # type: ignore[misc]
    r"""A single layer of softmax attention and ReLU, trained by Adam.

    Data tokens embed the inputs and attend to each other and to trained memory tokens; the feed-forward layer
    and a linear readout follow. Theorem 1 of Gumaan says that some such layer is as close as wanted;
    training need not find it (``transformula reproduce existence-vs-training``). Parameters that are not listed here
    are those of `PolynomialTransformerRegressor` with ``solver="adam"``, but 100 epochs.

    Parameters
    ----------
    heads : int
        Attention heads.
    width : int
        Width of the residual stream.
    key_width : int
        Width of queries and keys.
    memory_tokens : int
        Trained memory tokens.
    hidden : int
        ReLUs of the feed-forward layer.
    tokens : {"one", "each"}
        All inputs in one data token, or one input in each.
    positions : {"learned", "sinusoidal", "none"}
        Encoding added to the data tokens so that attention can tell them apart; trained in every case, from
        random numbers ("learned"), from Vaswani's encoding ("sinusoidal") or from zero ("none").
    warm_start_from : Model or Weights, optional
        Compiled one-layer weights to start from, instead of random ones; sizes and scaling are then theirs.

    Attributes
    ----------
    weights_ : Weights
        The trained layer on unscaled inputs, for every executor of `transformula.runtime`.
    history_ : History
        Losses of every epoch.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6.28, size=(400, 1))
    >>> model = OneLayerTransformerRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.98
    True
    """

    heads: int = 2
    width: int = 16
    key_width: int = 8
    memory_tokens: int = 16
    hidden: int = 32
    _: KW_ONLY
    tokens: str = "one"
    positions: str = "learned"
    init: str = "linear"
    warm_start_from: Model | Weights | None = None
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **TrainedEstimator._parameter_constraints,
        **{key: [COUNT] for key in ("heads", "width", "key_width", "hidden")},
        "memory_tokens": [Interval(Integral, 0, None, closed="left")],
        "tokens": [StrOptions(set(TOKENS))],
        "positions": [StrOptions(set(POSITIONS))],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OneLayerTransformerRegressor:
        """Train the layer.

        Parameters
        ----------
        X : (rows, features) numbers.
        y : (rows,) or (rows, outputs) numbers.
        sample_weight : (rows,) non-negative weights; a weight of k counts as k equal rows.
        """
        self._check_parameters()
        rows = self._training_rows(X, y, sample_weight)
        warm = self.warm_start_from is not None
        schedule = self.schedule(len(rows), _EPOCHS)
        data = TrainingRows.of(rows, self, schedule, inputs=not warm, targets=not warm)
        start = self._start(rows)
        linear = not warm and self.init == "linear"
        if linear:
            start = linear_weights(start, LinearStart.of(data.training))
        module = OneLayerModule(start).to(data.training.x.device)
        self.history_ = train(module, data.training, squared_error, schedule, data.validation)
        found = trained_weights(start, module)
        if linear and data.kept_the_start(self.history_):
            found = linear_weights(found, LinearStart.of(data.everything))
        self.weights_ = absorb_scaling(found, data.inputs, data.targets)
        return self

    def predict(self, X: Any) -> Floats:
        """Evaluate the layer: (rows,) or (rows, outputs) as y had it."""
        inputs = torch.from_numpy(self._inputs(X))
        module = OneLayerModule(self.weights_)
        with torch.no_grad():
            return self._shaped(torch.cat([module(part) for part in inputs.split(_CHUNK_ROWS)]).numpy())

    def _start(self, rows: Rows) -> Weights:
        """The random layer to start from, or the given one."""
        inputs, outputs = rows.X.shape[1], rows.Y.shape[1]
        given = self.warm_start_from
        if given is None:
            return random_weights(self, inputs, outputs, np.random.default_rng(seed_of(self.random_state)))
        weights = given.weights if isinstance(given, Model) else given
        if (len(weights.inputs), weights.outputs) != (inputs, outputs):
            raise ValueError(
                f"warm_start_from has {len(weights.inputs)} inputs and {weights.outputs} outputs, the data "
                f"{inputs} and {outputs}"
            )
        return weights
