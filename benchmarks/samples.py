"""What several benchmarks share: gravity, and points of a model's box."""

from __future__ import annotations

from typing import Any

import numpy as np

import transformula as tf

GRAVITY = "G*m1*m2/((x2-x1)**2+(y2-y1)**2+(z2-z1)**2)"
GRAVITY_BOX = "G=1..2, m1=1..2, m2=1..2, x1=3..4, x2=1..2, y1=3..4, y2=1..2, z1=3..4, z2=1..2"


def points_of(model: tf.Model, count: int, seed: int) -> Any:
    """Points of the box, a tenth of their coordinates at an end."""
    rng = np.random.default_rng(seed)
    low, high = np.array(model.box.floats()).T
    t = rng.random((count, len(low)))
    return low + (high - low) * np.where(rng.random(t.shape) < 0.1, np.round(t), t)
