"""Regions: exact ends, trees that cover whatever their numbers, and hostile trees."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from flint import arb, fmpq

from transformula.compiler.evidence.range_trees import sub_region
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures import regions
from transformula.kernel.enclosures.balls import float_above, float_below, from_float
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.syntax.boxes import Box


def region_of(text):
    return Region.of_box(Box.of(text))


def random_tree(rng, axes, depth):
    if depth == 0 or rng.random() < 0.2:
        return [-1]
    return [rng.randrange(axes), *random_tree(rng, axes, depth - 1), *random_tree(rng, axes, depth - 1)]


def test_ends_are_exact_where_they_are_rational_and_outward_elsewhere():
    region = region_of("x=-1/3..0.1, y=sqrt(4)..2*pi, z=-pi..E")
    assert region.ends["x"] == (fmpq(-1, 3), fmpq(1, 10))
    assert region.ends["y"][0] == 2
    with precision(300):
        assert 0 < arb(region.ends["y"][1]) - 2 * arb.pi() < arb(2) ** -48
        assert 0 < -arb.pi() - arb(region.ends["z"][0]) < arb(2) ** -48
        assert 0 < arb(region.ends["z"][1]) - arb.const_e() < arb(2) ** -48
    lower, upper = region.floats
    for k, name in enumerate(region.names):
        low, high = region.ends[name]
        assert from_float(lower[k]) <= low < from_float(np.nextafter(lower[k], np.inf))
        assert from_float(upper[k]) >= high > from_float(np.nextafter(upper[k], -np.inf))


@pytest.mark.parametrize("seed", range(5))
def test_floats_around_rationals_are_the_nearest(seed):
    rng = random.Random(seed)
    for _ in range(300):
        scale = fmpq(2) ** rng.randint(-1200, 1100)
        value = fmpq(rng.randint(-(10**20), 10**20), rng.randint(1, 10**20)) * scale
        low, high = float_below(value), float_above(value)
        assert low == -np.inf or from_float(low) <= value
        assert high == np.inf or from_float(high) >= value
        assert low == high or math.nextafter(low, math.inf) == high
    assert str(float_below(fmpq(0))) == str(float_above(fmpq(0))) == "0.0"


@pytest.mark.parametrize("seed", range(8))
def test_leaves_cover_the_region_and_do_not_overlap(seed):
    rng = random.Random(seed)
    region = region_of("x=0.1..1/3, y=-pi..7, z=1e-20..1e20")
    tree = random_tree(rng, 3, 7)
    lower, upper = region.leaves(tree)
    assert lower.shape == upper.shape == (3, tree.count(-1)) and (lower < upper).all()
    leaves = [region.exact(lower[:, k], upper[:, k]) for k in range(lower.shape[1])]
    for _ in range(200):
        point = {n: a + (b - a) * fmpq(rng.randint(0, 1000), 1000) for n, (a, b) in region.ends.items()}
        inside = [leaf for leaf in leaves if all(a <= point[n] <= b for n, (a, b) in leaf.items())]
        assert inside
    volume = sum(np.prod([float(b - a) for a, b in leaf.values()]) for leaf in leaves)
    whole = np.prod([float(b - a) for a, b in region.ends.values()])
    assert abs(volume - whole) <= 1e-9 * whole


def test_leaves_come_in_preorder_and_get_exact_ends_at_the_border():
    region = region_of("x=0.1..1.1, y=0..1")
    lower, upper = region.leaves([0, -1, 1, -1, -1])
    assert region.exact(lower[:, 0], upper[:, 0])["x"][0] == fmpq(1, 10)
    assert lower[0, 0] < 0.1 + 1e-9 and upper[0, 0] == lower[0, 1] == lower[0, 2]
    assert upper[1].tolist() == [1.0, 0.5, 1.0]
    assert region.exact(lower[:, 2], upper[:, 2])["x"][1] == fmpq(11, 10)


def test_a_part_of_the_variables():
    part = sub_region(region_of("x=0..1, y=2..3, z=4..5"), ["z", "x"])
    assert part.names == ("z", "x") and part.ends == {"z": (4, 5), "x": (0, 1)}


@pytest.mark.parametrize(
    "tree",
    [
        [], [0], [0, -1], [-1, -1], [0, -1, -1, -1], [2, -1, -1], [-2], [True, -1, -1], [0.0, -1, -1],
        ["0", -1, -1], [None], [[0], -1, -1], None, 3, "[-1]", {"0": -1}, (-1,), [10**30], [float("nan")],
        [0] * 2000 + [-1] * 2001, [-1] + [0] * 10,
    ],
)  # fmt: skip
def test_what_is_no_tree_is_refused(tree):
    with pytest.raises(RefutedError):
        region_of("x=0..1, y=0..1").leaves(tree)


def test_hostile_sizes_are_refused_before_anything_is_made():
    region = region_of("x=0..1")
    with pytest.raises(RefutedError, match="1 to"):
        region.leaves([-1] * (regions.MAX_NODES + 1))
    wide = Region.of_box(Box.of("x1..x900=0..1"))
    with pytest.raises(RefutedError, match="too large"):
        wide.leaves([0] * 100_000)


def test_intervals_that_are_too_narrow_or_too_wide_for_floats():
    narrow = Region(("x",), (fmpq(1),), (1 + fmpq(1, 2**60),))
    assert narrow.leaves([-1])[1][0, 0] > 1
    with pytest.raises(RefutedError, match="too small"):
        narrow.leaves([0, -1, -1])
    sliver = Region(("x",), (1 + fmpq(1, 2**60),), (1 + fmpq(1, 2**59),))
    lower, upper = sliver.leaves([-1])
    assert sliver.exact(lower[:, 0], upper[:, 0]) == sliver.ends
    huge = region_of("x=0..10**400")
    with pytest.raises(RefutedError):
        huge.leaves([0, -1, -1])
    with pytest.raises(RefutedError, match="too large for floats"):
        huge.exact(*(ends for ends in huge.floats))
