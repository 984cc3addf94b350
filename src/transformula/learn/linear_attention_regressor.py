"""Regression by linear attention, found by least squares and factored into heads."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from transformula.compiler.attempts import Built, Options, known_dtype
from transformula.compiler.certify import package
from transformula.compiler.constructions import LINEAR_ATTENTION
from transformula.compiler.gallery.prompt_models import attention_weights
from transformula.errors import NotProvenError, RefutedError
from transformula.kernel.syntax.boxes import Formula
from transformula.learn.base import COUNT, NOT_NEGATIVE, PolynomialEstimator, seed_of
from transformula.learn.distinct_rows import Floats
from transformula.learn.linear_attention_fit import AttentionFit, factor, features, missed, solve
from transformula.learn.solvers.lowrank_fit import few_threads
from transformula.model import Model


@dataclass(repr=False, eq=False)
class LinearAttentionRegressor(MultiOutputMixin, RegressorMixin, PolynomialEstimator):  # type: ignore[misc]
    r"""Learn multi-head linear attention from data by convex regression (Yau et al., 2410.10101).

    The model is y = Σ_h V_h Z Zᵀ Q_h z_n for tokens Z = (z_1 … z_n).

    Parameters
    ----------
    positions : int
        Tokens n of a sequence. A row of X holds them one after the other; X may also have the shape (rows, n, d).
    each : bool
        Whether every token asks, and a row of y holds the outputs at all positions one after the other (y may have
        the shape (rows, n, outputs)); otherwise only the last token does.
    constant : bool
        Whether tokens are extended by a 1, so that the map has terms of lower degree and a constant.
    heads : int, optional
        The number of heads. By default the fewest that were found to carry the fitted map; fewer than a singular value
        decomposition gives are looked for only where the map fits the data to rounding.
    ridge : float, optional
        Penalty on squared coefficients of features of variance 1, relative to the total weight. Default: chosen by
        leave-one-out.
    random_state : int or RandomState, optional
        Seed of the search for few heads; None is 0.

    Attributes
    ----------
    values_ : (heads, outputs, d) array
        V of each head; d counts the 1 of ``constant``.
    queries_ : (heads, d, d) array
        Q of each head, keys and queries in one.
    n_heads_ : int
    residual_ : float
        Distance of the heads' map from the one that least squares found, as a share of its norm; `predict` uses the
        heads, `to_formula` writes the map.
    ridge_ : float
        The penalty that was used.
    n_features_told_ : int
        How many of the features of degree 3 the rows tell apart, of `n_cubic_features_`. Where it is less, many maps
        fit equally well, and the one with the smallest coefficients is taken.
    n_cubic_features_ : int

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(300, 5, 2))
    >>> y = np.einsum("rib,ric,rc->rb", Z, Z, Z[:, -1] @ [[0, 1], [2, 0]])[:, 0]
    >>> model = LinearAttentionRegressor(positions=5, constant=False).fit(Z, y)
    >>> model.n_heads_, bool(np.abs(model.predict(Z) - y).max() < 1e-10)
    (1, True)
    """

    positions: int = 1
    _: KW_ONLY
    each: bool = False
    constant: bool = True
    heads: int | None = None
    ridge: float | None = None
    random_state: Any = None
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "positions": [COUNT],
        "heads": [None, COUNT],
        "ridge": [None, NOT_NEGATIVE],
        "random_state": ["random_state"],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearAttentionRegressor:
        """Solve for the map, then factor it into heads.

        Parameters
        ----------
        X : (rows, positions * d) or (rows, positions, d) numbers.
        y : (rows,), (rows, outputs), or with ``each`` the outputs at all positions.
        sample_weight : (rows,) non-negative weights; a weight of k counts as k equal rows.
        """
        self._check_parameters()
        if getattr(y, "ndim", 1) == 3:
            y = np.asarray(y).reshape(len(y), -1)
        rows = self._training_rows(self._flat(X), y, sample_weight)
        if rows.X.shape[1] % self.positions:
            raise ValueError(f"X has {rows.X.shape[1]} columns, which do not divide into {self.positions} tokens")
        asking = self.positions if self.each else 1
        if rows.Y.shape[1] % asking:
            raise ValueError(f"y has {rows.Y.shape[1]} columns, which do not divide into {asking} positions")
        self._measure_targets(rows)
        tokens = rows.X.reshape(len(rows), self.positions, -1)
        phi = features(tokens, self.constant, self.each)
        Y, weight = rows.Y.reshape(len(phi), -1), np.repeat(rows.weight, asking)
        with few_threads(phi.size):
            found = solve(phi, Y, weight, tokens.shape[2] + self.constant, self.ridge, self.constant)
            heads = factor(found, self.constant, self.heads, seed_of(self.random_state))
        self.values_ = heads.values
        self.queries_ = heads.queries
        self.n_heads_ = len(heads)
        self.residual_ = missed(found.tensor, heads)
        self.ridge_ = found.ridge
        self.n_features_told_ = found.told
        self.n_cubic_features_ = phi.shape[1]
        self.fitted_ = AttentionFit(heads, found.tensor, self.positions, self.each)
        return self

    def predict(self, X: Any) -> Floats:
        """Attend with the heads: shaped as y was, three axes as two."""
        return self._shaped(self._scores(self._flat(X)))

    def to_transformer(self, box: Any = None, tolerance: float = 1e-9, dtype: str = "float64") -> Model:
        """The heads themselves as one layer of linear attention, which saves, verifies and exports.

        Parameters
        ----------
        box : str, mapping or Box, optional
            Where the certificate is to hold; the training range by default. Give every input an interval.
        tolerance : float
            As for `to_formula`: the certificate says how far the heads are from that text, on the whole box, with
            what the factorisation missed, the text's own rounding and that of the arithmetic.
        dtype : {"float64", "float32"}
            Format of the weights and of the claim.
        """
        full, form = self._box(box), known_dtype(dtype)
        texts, _ = self.written(tolerance, full)
        weights = attention_weights(self.values_, self.queries_, full.variables, self.positions, self.each, form)
        try:
            return package(LINEAR_ATTENTION, Built(weights), Formula.of(texts, full), Options(dtype=form))
        except RefutedError as error:
            raise NotProvenError(
                f"the heads cannot be proven: {error}; take fewer tokens, or fewer numbers in each"
            ) from None

    def _flat(self, X: Any) -> Any:
        """Sequences (rows, n, d) as rows; everything else as it is."""
        if getattr(X, "ndim", 2) != 3:
            return X
        if X.shape[1] != self.positions:
            raise ValueError(f"X has {X.shape[1]} tokens in a row; positions is {self.positions}")
        return np.asarray(X).reshape(len(X), -1)
