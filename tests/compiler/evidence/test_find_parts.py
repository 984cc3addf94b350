"""Parts of a box that are cut where a bound is largest: they cover the box, and the tree says where they are."""

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from transformula.compiler.evidence.range_trees import cut_parts, find_parts
from transformula.kernel.enclosures.regions import Region


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), dimension=st.integers(1, 4), flat=st.booleans())
def test_parts_cover_the_box(seed, dimension, flat):
    rng = np.random.default_rng(seed)
    lower = rng.normal(size=dimension)
    upper = lower + (rng.random(dimension) + 0.1) * (np.arange(dimension) > 0 if flat else 1)
    at, sharp = rng.normal(size=(dimension, 1)), rng.choice([0.1, 3.0, 30.0])

    def bound(low, high):
        near = np.clip(at, low, high) - at
        return np.exp(-sharp * np.sqrt((near**2).sum(axis=0))) + ((high - low) ** 2).sum(axis=0)

    low, high = cut_parts(bound, lower, upper)
    assert (low <= high).all() and (low >= lower[:, None]).all() and (high <= upper[:, None]).all()
    x = lower + (upper - lower) * rng.random((300, dimension))
    inside = ((x[:, :, None] >= low) & (x[:, :, None] <= high)).all(axis=1)
    assert inside.any(axis=1).all()
    corners = np.stack(np.meshgrid(*zip(lower, upper, strict=True)), axis=-1).reshape(-1, dimension)
    assert ((corners[:, :, None] >= low) & (corners[:, :, None] <= high)).all(axis=1).any(axis=1).all()
    if not flat:
        volume = (high - low).prod(axis=0).sum()
        assert volume == pytest.approx((upper - lower).prod(), rel=1e-9)
    assert bound(low, high).max() <= bound(lower[:, None], upper[:, None]).max()
    ends = ([fmpq(*v.as_integer_ratio()) for v in side.tolist()] for side in (lower, upper))
    region = Region(tuple(f"x{k}" for k in range(dimension)), *map(tuple, ends))
    left, right = region.leaves(find_parts(bound, lower, upper))
    found = np.concatenate([left, right])
    assert sorted(map(tuple, found.T.tolist())) == sorted(map(tuple, np.concatenate([low, high]).T.tolist()))
