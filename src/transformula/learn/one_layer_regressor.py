"""Regression with one trained layer of attention (Gumaan 2025, section VI)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions

from transformula.kernel.folder.weights import Weights
from transformula.learn.base import COUNT, TrainedEstimator, seed_of
from transformula.learn.distinct_rows import Floats, Rows
from transformula.learn.gradient import LinearStart, TrainingRows
from transformula.learn.one_layer_module import (
    POSITIONS,
    TOKENS,
    LayerShape,
    OneLayerModule,
    absorb_scaling,
    linear_weights,
    random_weights,
    trained_weights,
)
from transformula.learn.training import squared_error, train
from transformula.model import Model

#: Rows that are evaluated at a time.
_CHUNK_ROWS = 4096
_EPOCHS = 100


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
            shape = LayerShape(
                inputs,
                outputs,
                self.heads,
                self.width,
                self.key_width,
                self.memory_tokens,
                self.hidden,
                self.tokens,
                self.positions,
            )
            return random_weights(shape, np.random.default_rng(seed_of(self.random_state)))
        weights = given.weights if isinstance(given, Model) else given
        if (len(weights.inputs), weights.outputs) != (inputs, outputs):
            raise ValueError(
                f"warm_start_from has {len(weights.inputs)} inputs and {weights.outputs} outputs, the data "
                f"{inputs} and {outputs}"
            )
        return weights
