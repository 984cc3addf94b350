"""Regression with one trained layer of attention (Gumaan 2025, section VI)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from transformula.kernel.folder.weights import Weights
from transformula.learn.base import seed_of
from transformula.learn.checked_arguments import check_count
from transformula.learn.distinct_rows import Floats, Range, Rows, regression_rows
from transformula.learn.estimator_options import check_init, check_training, plan_of
from transformula.learn.gradient import standardization, torch_device
from transformula.learn.linear_start import LinearStart
from transformula.learn.one_layer_module import (
    POSITIONS,
    TOKENS,
    OneLayerModule,
    Shape,
    absorb_scaling,
    linear_weights,
    random_weights,
    trained_weights,
)
from transformula.learn.training import Batchable, squared_error, train
from transformula.model import Model

_CHUNK_ROWS = 4096
_EPOCHS = 100


class OneLayerTransformerRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""A single layer of softmax attention and ReLU, trained by Adam.

    Data tokens embed the inputs and attend to each other and to trained memory tokens; the feed-forward layer
    and a linear readout follow. Theorem 1 of Gumaan says that some such layer is as close as wanted;
    training need not find it (``transformula reproduce existence-vs-training``).

    Parameters
    ----------
    heads, width, key_width, memory_tokens, hidden : int
        Attention heads, width of the residual stream, of queries and keys, number of trained memory tokens,
        and units of the feed-forward layer.
    tokens : {"one", "each"}
        All inputs in one data token, or one input in each.
    positions : {"learned", "sinusoidal", "none"}
        What is added to the data tokens so that attention can tell them apart; trained in every case, from
        random numbers ("learned"), from Vaswani's encoding ("sinusoidal") or from zero ("none").
    epochs, batch_size, learning_rate, start_rate, clip, weight_decay, early_stopping, validation_fraction,
    n_iter_no_change, init, checkpoint, checkpoint_every, device, random_state, verbose
        As for `PolynomialTransformerRegressor` with ``solver="adam"``, but 100 epochs.
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

    def __init__(
        self,
        heads: int = 2,
        width: int = 16,
        key_width: int = 8,
        memory_tokens: int = 16,
        hidden: int = 32,
        *,
        tokens: str = "one",
        positions: str = "learned",
        epochs: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.02,
        start_rate: float | None = None,
        clip: float | None = 1.0,
        weight_decay: float = 0.01,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        init: str = "linear",
        warm_start_from: Model | Weights | None = None,
        checkpoint: str | None = None,
        checkpoint_every: int = 10,
        device: str = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.heads = heads
        self.width = width
        self.key_width = key_width
        self.memory_tokens = memory_tokens
        self.hidden = hidden
        self.tokens = tokens
        self.positions = positions
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.start_rate = start_rate
        self.clip = clip
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.init = init
        self.warm_start_from = warm_start_from
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OneLayerTransformerRegressor:
        """Train the layer.

        Parameters
        ----------
        X : (rows, features) numbers.
        y : (rows,) or (rows, outputs) numbers.
        sample_weight : (rows,) non-negative weights; a weight of k counts as k equal rows.
        """
        self._check()
        rows, self._single = regression_rows(self, X, y, sample_weight)
        self.range_ = Range.of(rows.X)
        warm = self.warm_start_from is not None
        inner, outer = (
            standardization(rows.X, rows.weight, not warm),
            standardization(rows.Y, rows.weight, not warm),
        )
        device = torch_device(self.device)
        data = Batchable(
            torch.from_numpy((rows.X - inner[0]) / inner[1]).to(device),
            torch.from_numpy((rows.Y - outer[0]) / outer[1]).to(device),
            torch.from_numpy(rows.weight / rows.weight.mean()).to(device),
        )
        everything, validation = data, None
        plan = plan_of(self, len(rows), _EPOCHS)
        if plan.patience is not None:
            data, validation = data.split(self.validation_fraction, plan.seed)
        start, linear = self._start(rows), not warm and self.init == "linear"
        if linear:
            start = linear_weights(start, LinearStart.of(data))
        module = OneLayerModule(start).to(device)
        self.history_ = train(module, data, squared_error, plan, validation)
        found = trained_weights(start, module)
        if linear and validation is not None and self.history_.best_epoch < 0:
            found = linear_weights(found, LinearStart.of(everything))
        self.weights_ = absorb_scaling(found, *inner, *outer)
        return self

    def predict(self, X: Any) -> Floats:
        """Evaluate the layer: (rows,) or (rows, outputs) as y had it."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        far = self.range_.far_outside(X)
        if far is not None:
            warnings.warn(
                f"{far[0]} of {len(X)} rows lie far outside the training range: nothing was learned there",
                UserWarning,
                stacklevel=2,
            )
        module = OneLayerModule(self.weights_)
        with torch.no_grad():
            parts = [module(torch.from_numpy(X[k : k + _CHUNK_ROWS])).numpy() for k in range(0, len(X), _CHUNK_ROWS)]
        values = np.concatenate(parts)
        return values[:, 0] if self._single else values

    def _start(self, rows: Rows) -> Weights:
        given = self.warm_start_from
        if given is None:
            shape = Shape(
                rows.X.shape[1],
                rows.Y.shape[1],
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
        if (len(weights.inputs), weights.outputs) != (rows.X.shape[1], rows.Y.shape[1]):
            raise ValueError(
                f"warm_start_from has {len(weights.inputs)} inputs and {weights.outputs} outputs, the data "
                f"{rows.X.shape[1]} and {rows.Y.shape[1]}"
            )
        return weights

    def _check(self) -> None:
        for name, least in (
            ("heads", 1),
            ("width", 1),
            ("key_width", 1),
            ("memory_tokens", 0),
            ("hidden", 1),
        ):
            check_count(name, getattr(self, name), least)
        for name, allowed in (("tokens", TOKENS), ("positions", POSITIONS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}: choose {', '.join(allowed)}")
        check_init(self.init)
        check_training(self)
