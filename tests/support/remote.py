"""Blocks of a table that may be made anywhere but in one process."""

import os

import numpy as np


def block(number, forbidden, target):
    """300 rows of inputs, or their targets; the forbidden process would have gathered them."""
    assert os.getpid() != forbidden, "gathered on the client"
    rng = np.random.default_rng(number)
    X = rng.uniform(1, 3, size=(300, 3))
    return X[:, 0] ** 2 * X[:, 1] - X[:, 2] + 0.1 * rng.normal(size=300) if target else X
