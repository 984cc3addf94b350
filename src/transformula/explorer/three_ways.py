"""One formula, three ways to a one-layer Transformer: solved tables, sharp cells, training.

The error of a compiled model is the *proven* bound on the whole box. Nothing is proven about a trained one: its
error is the largest seen at many points, a lower bound of the true one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from transformula.api import compile
from transformula.compiler.constructions import LOOKUP, PARTITION, Construction
from transformula.errors import InputError, TransformulaError
from transformula.formula.evaluation import Floats, evaluate, peak
from transformula.kernel.syntax.boxes import Formula

#: Tolerances relative to the formula's largest value.
LOOKUP_STEPS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
PARTITION_STEPS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)
TRAINED = (4, 8, 16, 32, 64)
MAX_PARTITION_TOKENS = 20_000
#: Rows, epochs and test points of a training.
TRAINING_ROWS = 2_000
EPOCHS = 80
MEASURED_POINTS = 20_000
#: Share of the time limit that is planned, so that the last step may take longer than expected.
_SHARE = 0.8
#: Expected ratio of the times of two steps of a series.
_GROWTH = 3.0


class _Series:
    """One curve: its remaining steps, and the time and sizes of the finished ones."""

    def __init__(self, construction: Construction | None, steps: tuple[float, ...]) -> None:
        self.construction, self.steps = construction, list(steps)
        self.name = "trained" if construction is None else construction.name
        self.seconds = 0.0
        self.tokens: list[int] = []

    def stop(self) -> None:
        self.steps.clear()


def compare(formula: Formula, dtype: str, seconds: float) -> Iterator[dict[str, Any]]:
    """Steps (about to begin), points (tokens, error, proven or not) and notes (why a curve ends)."""
    start = time.monotonic()
    ends = start + _SHARE * seconds
    scale = min((p for e in formula.outputs if (p := peak(e, formula.box)) > 0), default=1.0)
    series = [_Series(LOOKUP, LOOKUP_STEPS), _Series(PARTITION, PARTITION_STEPS), _Series(None, TRAINED)]
    total = done = sum(len(s.steps) for s in series)
    while any(s.steps for s in series):
        for one in series:
            if not one.steps:
                continue
            if time.monotonic() + _GROWTH * one.seconds > ends:
                yield _note(one, "the next size would take longer than the time limit")
                one.stop()
                continue
            step = one.steps.pop(0)
            done = total - sum(len(s.steps) for s in series) - 1
            yield {"event": "step", "series": one.name, "done": done, "left": total - done}
            begin = time.monotonic()
            try:
                if one.construction is None:
                    point = _trained(formula, int(step))
                else:
                    point = _compiled(formula, one.construction, step * scale, dtype)
            except TransformulaError as error:
                yield _note(one, str(error))
                one.stop()
                continue
            one.seconds = time.monotonic() - begin
            one.tokens.append(point["tokens"])
            yield {"event": "point", "series": one.name, "seconds": round(one.seconds, 3), **point}
            if one.construction is PARTITION and _next_tokens(one, formula) > MAX_PARTITION_TOKENS:
                if one.steps:
                    yield _note(one, f"the next size would need more than {MAX_PARTITION_TOKENS} tokens")
                one.stop()


def _note(series: _Series, message: str) -> dict[str, Any]:
    return {"event": "note", "series": series.name, "message": message}


def _next_tokens(series: _Series, formula: Formula) -> float:
    """Expected tokens of the next step: a power of the tolerance, extrapolated from two sizes or assumed after one."""
    if len(series.tokens) < 2:
        return series.tokens[-1] * 3.3 ** min(formula.box.dimension, 4)
    return series.tokens[-1] ** 2 / max(series.tokens[-2], 1)


def _compiled(formula: Formula, construction: Construction, eps: float, dtype: str) -> dict[str, Any]:
    model = compile(formula.texts, formula.box, eps, construction.name, dtype)
    return {"tokens": model.memory_tokens, "error": model.certificate.bound, "proven": True}


def _trained(formula: Formula, tokens: int) -> dict[str, Any]:
    from transformula.learn import OneLayerTransformerRegressor
    from transformula.learn.training import AS_IN_PAPERS

    rng = np.random.default_rng(0)
    X, y = _sampled(formula, rng, TRAINING_ROWS)
    regressor = OneLayerTransformerRegressor(memory_tokens=tokens, epochs=EPOCHS, random_state=0, **AS_IN_PAPERS).fit(
        X, y
    )
    places, truth = _sampled(formula, rng, MEASURED_POINTS)
    error = float(np.abs(regressor.predict(places).reshape(truth.shape) - truth).max())
    return {"tokens": tokens, "error": error, "proven": False, "points": len(places)}


def _sampled(formula: Formula, rng: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Points of the box, its corners and faces among them, with the formula's values there."""
    low, high = np.array(formula.box.floats()).T
    t = rng.random((count, len(low)))
    t = np.where(rng.random(t.shape) < 0.1, np.round(t), t)
    X = low + (high - low) * t
    y = np.stack([evaluate(e, formula.box.variables, list(X.T)) for e in formula.outputs], axis=1)
    defined = np.isfinite(y).all(axis=1)
    if defined.mean() < 0.5:
        raise InputError("the formula has no value at most points of the box")
    return X[defined], y[defined]
