"""Folders that kept the checker busy for minutes, or took gigabytes."""

import random
from math import prod

import numpy as np
import pytest
from flint import fmpq

from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures import intervals
from transformula.kernel.enclosures.intervals import try_range
from transformula.kernel.exceptions import ModelFileError
from transformula.kernel.folder.description import Description
from transformula.kernel.folder.model_files import _Unpacker
from transformula.kernel.folder.weights import Attention, Block, Head, Weights
from transformula.kernel.gallery import local_rule as local
from transformula.kernel.structures.network import read_network
from transformula.kernel.syntax.expression import walk
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_error import lattice
from transformula.runtime.matrices import matrix_of

#: FLINT takes 0.4 s to factor this, and 6 s for degrees 45 and 30.
SPARSE = "x**28*y**15 + x**23*y**21 - x**21*y**30 - x**16*y**36 + x**12 + x**7*y**6 - x**5*y**15 - y**21"
COLUMNS = 300


def test_few_terms_of_high_degrees_are_not_factored():
    algebra = Algebra(("x", "y"))
    _, found = algebra.factors(algebra.of(parse(SPARSE, ("x", "y"))).num)
    assert len(found) == 1


def test_factoring_in_two_variables_is_counted():
    algebra = Algebra(("x", "y"))
    _, found = algebra.factors(algebra.of(parse("(x**18*y**17 + 1)*(x**2 - y**3)", ("x", "y"))).num)
    assert len(found) == 2 and algebra.products >= 1_500_000


def test_a_quotient_that_would_be_long_is_not_made():
    """4 atoms of degree 25: 16 terms over 16 terms are 390,625 terms, and 6 atoms of degree 16 are 17 millions."""
    names = "xyzw"
    above, below = ("*".join(f"({v}**{n} - 1)" for v in names) for n in (25, 1))
    assert len(Algebra(names).of(parse(f"{above}/({below})", names)).num) == 16
    short = Algebra("xy").of(parse("(x**9 - y**9)/(x - y)", "xy"))
    assert len(short.num) == 9 and short.den == 1


def _layers(columns: int) -> Weights:
    """A head with one column, one with many, and in a second block one that reads them all and writes them all."""
    names = ("x", "one", "slope", "offset", "gate", "value")
    slots = (*names, *(f"s{k}" for k in range(columns)))
    width, tokens, written = len(slots), 3, range(len(names), len(slots))
    query = matrix_of((3, width), [(0, 0, 1.0), (1, 1, 1.0), (2, 1, 1.0)])
    wide = matrix_of((3, width), [*((0, k, 1.0) for k in written), (1, 1, 1.0), (2, 1, 1.0)])
    key = matrix_of((3, width), [(0, 2, 1.0), (1, 3, 1.0), (2, 4, -2000.0)])
    one, many = (matrix_of((width, width), [(k, 5, 1.0) for k in slots]) for slots in (written[:1], written))
    blocks = (Head(query, key, one), Head(query, key, many)), (Head(wide, key, many),)
    memory = matrix_of((tokens, width), [(0, 1, 1.0), (1, 2, 1.0), (1, 5, 2.0), (2, 5, 1.0)])
    return Weights(
        ("x",), slots, tokens, matrix_of((tokens * width, 1), [(0, 0, 1.0)]), memory,
        tuple(Block(Attention(heads)) for heads in blocks),
        matrix_of((1, tokens * width), [(0, 6, 1.0)]), matrix_of((1, 1), []),
    )  # fmt: skip


def test_the_columns_of_a_head_share_what_they_ask_for():
    network = read_network(_layers(COLUMNS))
    more = [wire.arguments[0] for wire in network.wires[-COLUMNS:]]
    assert len(more[0].terms) == COLUMNS + 1 and all(form is more[0] for form in more)
    rest, _ = local._taken_apart(network, network, 0)
    moved = [wire.arguments[0] for wire in rest.wires[-COLUMNS:]]
    assert len(moved[0].terms) == COLUMNS + 1 and all(form is moved[0] for form in moved)


def test_tokens_in_any_order_are_seen_to_form_a_grid():
    axis = np.arange(40.0)
    slopes = np.stack([a.ravel() for a in np.meshgrid(axis, -axis, indexing="ij")], axis=1)
    grid = lattice(slopes[::-1], -(slopes[::-1] ** 2))
    assert grid is not None
    assert [a.tolist() for a in grid.slopes] == [axis.tolist(), (-axis[::-1]).tolist()]
    assert [a.tolist() for a in grid.offsets] == [(-(axis**2)).tolist(), (-(axis[::-1] ** 2)).tolist()]
    assert np.array_equal(grid.arranged(slopes[::-1])[3, 5], [3.0, -34.0])
    assert lattice(np.vstack([slopes[:-1], slopes[:1]]), np.zeros_like(slopes)) is None  # one twice, one missing


def test_an_entry_that_stands_twice_is_refused_in_a_large_matrix():
    """np.unique took ten seconds for what a file may hold."""
    count = 3000
    rows, cols = np.divmod(np.random.default_rng(0).permutation(count).astype(np.int32), 60)
    arrays = {"m.rows": rows, "m.cols": cols, "m.values": np.ones(count)}
    plain = Description("lookup", shapes={"m": [50, 60]}, slots=["one"])
    assert _Unpacker(plain, arrays)._matrix("m", (50, 60)).nonzeros == count
    arrays["m.rows"], arrays["m.cols"] = np.append(rows[:-1], rows[0]), np.append(cols[:-1], cols[0])
    with pytest.raises(ModelFileError, match="malformed"):
        _Unpacker(plain, arrays)._matrix("m", (50, 60))


def test_nested_constants_are_bounded_once(monkeypatch):
    """More constants on each level than are remembered: every level asked for all below it again, for seconds."""
    text, calls = "2", []
    for level in range(3):
        text = "atan(" + "".join(f"sqrt({4500 * level + k} + 1/3) + " for k in range(4500)) + f"{text})"
    expr, apply = parse(f"x + {text}", ["x"]), intervals._apply
    monkeypatch.setattr(intervals, "_apply", lambda *args: calls.append(0) or apply(*args))
    assert try_range(expr, {"x": (fmpq(0), fmpq(1))}) is not None
    assert len(calls) <= sum(1 for _ in walk(expr))


def test_coefficients_over_one_long_denominator_count_as_flint_holds_them():
    """FLINT holds 900 coefficients of some hundred bits as numbers of 16,000."""
    algebra, primes = Algebra(("x", "y")), [p for p in range(1_000, 5_000) if all(p % q for q in range(2, 71))]
    parts = ["+".join(f"{v}**{k}/{prod(primes[s + k :: 30])}" for k in range(30)) for v, s in (("x", 0), ("y", 250))]
    form = algebra.of(parse(f"({parts[0]})*({parts[1]})", ("x", "y")))
    assert len(form.num) == 900 and algebra.bits(form.num) > 7_000


def test_a_common_factor_of_long_numbers_is_counted():
    """A gcd of numbers of 20,000 bits takes 15 ms in two variables; 0.002 s were counted, in each of 20,000 wires."""
    algebra, r = Algebra(("x", "y")), random.Random(0)
    a, b, g = ("({}*x + {}*y)".format(*(r.getrandbits(9_900) | 1 for _ in range(2))) for _ in range(3))
    above, below = (algebra.of(parse(text, ("x", "y"))) for text in (f"{a}*{g}", f"{b}*{g}"))
    before = algebra.products
    assert len(algebra.form(above.num, below.num).num) == 2
    assert algebra.products - before > 20_000
