"""A new runtime runs four kinds of steps: the plainest possible back-end, against the blocks themselves.

docs/architecture.md, "Adding a runtime", shows its first lines.
"""

from itertools import pairwise

import numpy as np
import pytest

import transformula as tf
from transformula.runtime import reference
from transformula.runtime.program.program_steps import AffineStep, GridStep, Powers, Program, Tables

#: Formulas whose programs have all four kinds of steps between them, with tolerances.
FORMULAS = {
    "x**3*y - y**2 + 2": None,
    "exp(x) + sin(3*y)": 1e-4,
    "exp(x)*sin(3*y) + abs(x - y)": 1e-3,
    "sin(x*y)": 1e-2,
}


def run_plainly(program: Program, x: np.ndarray) -> np.ndarray:
    rows = np.concatenate([np.ones((1, len(x))), x.T])
    for step in program.steps:
        rows = np.concatenate([rows, _STEPS[type(step)](step, rows)])
    return rows[program.outputs].T


def _affine(step: AffineStep, rows: np.ndarray) -> np.ndarray:
    made = step.matrix @ rows[step.reads]
    return np.maximum(made, 0) if step.relu else made


def _tables(step: Tables, rows: np.ndarray) -> np.ndarray:
    read = rows[step.reads]
    scores = step.slopes @ (read if step.clamps is None else np.clip(read, *step.clamps[:, :, None]))
    if step.shifted:
        scores = np.concatenate([scores[a:b] - scores[a:b].max(axis=0) for a, b in pairwise(step.starts)])
    powers = np.exp(scores)
    if not step.shifted:  # the anchors, whose scores are zero
        powers = np.concatenate([powers, np.ones_like(rows[:1])])
    above, below = step.sums
    return (above @ powers) / (below @ powers)


def _grid(step: GridStep, rows: np.ndarray) -> np.ndarray:
    result = np.broadcast_to(step.values[..., None], (*step.values.shape, rows.shape[1]))
    for row, slopes, offsets in zip(step.reads, step.slopes, step.offsets, strict=True):
        weights = reference.softmax(np.outer(rows[row], slopes) + offsets).T
        result = np.einsum("js,j...s->...s", weights, result)
    return result


def _powers(step: Powers, rows: np.ndarray) -> np.ndarray:
    t = step.directions @ rows[step.reads]
    return sum(c @ t**s for s, c in enumerate(step.coefficients) if s)


_STEPS = {AffineStep: _affine, Tables: _tables, GridStep: _grid, Powers: _powers}


@pytest.fixture(scope="module")
def models():
    return [tf.compile(text, on="x=-1..1, y=0..1", eps=eps) for text, eps in FORMULAS.items()]


def test_a_back_end_of_four_functions_is_within_the_rounding(models):
    met = set()
    x = np.random.default_rng(0).uniform([-1, 0], [1, 1], (300, 2))
    for model in models:
        met |= {type(step) for step in model.program.steps}
        apart = np.abs(run_plainly(model.program, x) - reference.run(model.weights, x)).max()
        assert apart <= 2 * model.certificate.rounding, model.formula
    assert met == set(_STEPS)
