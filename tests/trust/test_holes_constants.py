"""Forged folders whose numbers have no value: a normal form of what is undefined says anything."""

import pytest

from support.nets import Layer, Net, forge, linear
from transformula.errors import RefutedError

#: √(3 − π)³ is (3 − π)√(3 − π): a ring that does not know the sign of π − 3 finds S in U, one that does finds 1.
U, S = "abs(sqrt(3 - pi)**3)/abs(sqrt(3 - pi))**3", "abs(3 - pi)/(3 - pi)"


@pytest.mark.parametrize("factor", [U, f"0*log(-1) + {U}"])
def test_a_factor_that_is_undefined(factor):
    """A product is read from its total only, here −x, so nobody evaluated its factors; it was taken for 1·x."""
    net = Net(["x"], ["r"], [], [Layer([], [({"x.x": 1}, 0, {"r": 1})])], [{(0, "x.x"): -1}])
    product = {"product": [linear(plus=factor), linear((0, "1"))], "squares": [], "sum": linear((0, S))}
    relu = {"relu": linear((0, "1")), "from": [0, 0, 0]}
    circuit = {"wires": [relu, product], "outputs": [linear((2, "1"))], "signs": ["pi - 3"]}
    with pytest.raises(RefutedError, match="not seen to be defined"):
        forge(net.weights(), ["x"], "x=-1..10", circuit)
