"""Circuits made to keep the checker busy are refused, or out of resources."""

import numpy as np

from support.limited_checks import is_stopped
from support.nets import Layer, Net, linear
from support.watching import ends
from transformula.compiler.certify import pack
from transformula.kernel.check import verify_files
from transformula.kernel.folder.description import Certificate, Description
from transformula.kernel.rounding.formats import describe

INPUTS, DIGITS, UNITS = 60, 4_000, 40


def numbers():
    """1/n for numbers n of many digits that have nothing in common."""
    rng = np.random.default_rng(1)
    return [f"1/{''.join(map(str, rng.integers(1, 10, DIGITS - 1)))}{k % 5 * 2 + 1}" for k in range(INPUTS)]


def reasons(wires, lower=None, units=1):
    names = [f"x{k}" for k in range(INPUTS)]
    layer = Layer([], [({"x.x0": 1.0}, 0, {}) for _ in range(units)])
    weights = Net(names, ["u"], [], [layer], [{(0, "x.x0"): 1.0}]).weights()
    box = ", ".join(f"{name}={low}..1" for name, low in zip(names, lower or ["0"] * INPUTS, strict=True))
    stated = Description("circuit", formulas=["x0"], box=box, circuit={"wires": wires, "outputs": [linear((0, "1"))]})
    packed = pack(weights, stated, {"defined": [[-1]], "signs": [], "ranges": {}})
    model = describe(weights.dtype)
    claim = Certificate("circuit", 1.0, 1.0, 3.0, weights.dtype, model, **packed.hashes)
    with ends():
        return verify_files(packed, claim.to_json()).reasons


def places(count, first=0):
    return [[0, first + k, 0] for k in range(count)]


ALL = linear(*((k, "1") for k in range(INPUTS)))
ONE = linear((0, "1"))


def test_many_lengths():
    (reason,) = reasons([{"norm": [ONE, ONE], "folds": [[0, 0, 0]] * UNITS}] * 260)
    assert reason == "the wires of the circuit are not those of the weights"


def test_a_length_on_a_box_with_long_ends():
    """It takes a while, and the claim is true."""
    assert not reasons([{"norm": [ALL, ONE], "folds": places(UNITS)}], numbers(), UNITS)


def test_units_on_a_box_with_long_ends():
    wires = [{"relu": ALL, "from": place} for place in places(UNITS)]
    assert is_stopped(lambda: reasons(wires, numbers(), UNITS))


def test_coefficients_without_a_common_denominator():
    side = linear(*enumerate(numbers()))
    (reason,) = reasons([{"norm": [side, ONE], "folds": places(UNITS)}], units=UNITS)
    assert reason.startswith("a normal form is too long")
