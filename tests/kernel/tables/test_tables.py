"""Bounds of table minus function on given pieces: true under attack, tight, empty where nothing is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb

from support.kernel_tables import attack as attack_table
from support.kernel_tables import fit_geometric, fit_table, one_axis
from support.prover import random_formula
from transformula.compiler.evidence.table_pieces import find_pieces
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.syntax.expression import add, mul, number, variable
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_error import SoftmaxTable, TablePieces, table_error

LOG = np.logspace(-7, 0.1, 19)
UNIT = [(arb(0), arb(1))]


def attack(expr, low, high, table, seed=0):
    return attack_table(expr, ["u"], [(low, high)], table, seed)


def proven(table, expr, low, high, name="u"):
    ends = (arb(low), arb(high)) if isinstance(low, float) else (low, high)
    return table_error(table, expr, [name], [ends], find_pieces(table, expr, ends))


ONE = [  # formula, low, high, centres or tokens
    ("sin(u)", "0", "2*pi", 20),
    ("sin(20*pi*u)", "0", "1", 100),
    ("1/(1+25*u**2)", "-1", "1", 64),
    ("sqrt(u)", "0", "1", np.concatenate([[0.0], LOG])),
    ("abs(u)**(1/3)", "-1", "1", np.concatenate([-LOG, [0.0], LOG])),
    ("u**0.7", "0", "1", 30),
    ("asin(u)", "-1", "1", 30),
    ("sqrt(1-u**2)", "-1", "1", 30),
    ("log(u)", "0.01", "1", 40),
    ("abs(u-1/3)", "-1", "1", 40),
    ("max(sin(3*u), cos(2*u))", "-1", "2", 30),
]


@pytest.mark.parametrize(("text", "low", "high", "tokens"), ONE, ids=[c[0] for c in ONE])
def test_one_axis_is_tight(text, low, high, tokens):
    expr, ends = parse(text), (enclose(parse(low)), enclose(parse(high)))
    box = [float(e) for e in ends]
    table = fit_table(expr, *box, tokens) if isinstance(tokens, int) else fit_geometric(expr, *box, tokens)
    found = attack(expr, *box, table)
    assert found <= proven(table, expr, *ends) <= 1.35 * found


@pytest.mark.parametrize("seed", range(30))
def test_random_formulas_and_spoilt_tables(seed):
    rng = np.random.default_rng(seed)
    expr = random_formula(1000 + seed, ["u"])
    table = fit_table(expr, -1.0, 1.5, int(rng.integers(9, 30)))
    if seed % 3 == 2:
        arrays = [table.slopes[0].copy(), table.offsets[0].copy(), table.values.copy()]
        for array in arrays:
            some = rng.random(len(array)) < 0.4
            array[some] *= 1 + rng.normal(size=some.sum()) * 10 ** rng.uniform(-4, 1)
        table = one_axis(*arrays)
    if seed % 2:  # the linear terms count as part of the function
        expr = add(expr, mul(number(-3) if seed % 4 == 1 else number(7), variable("u")), number(2))
    bound = proven(table, expr, -1.0, 1.5)
    found = attack(expr, -1.0, 1.5, table, seed)
    assert found <= bound <= 3 * found + 1e-10, str(expr)


def test_a_sharp_table_of_many_tokens():
    centres = (np.arange(400) + 0.5) / 400
    table = one_axis(4e5 * centres, -2e5 * centres**2, np.sin(3 * centres))
    found = attack(parse("sin(3*u)"), 0.0, 1.0, table)
    assert found <= proven(table, parse("sin(3*u)"), 0.0, 1.0) <= 1.5 * found


def test_the_bound_holds_on_whatever_pieces_are_given():
    """Bad pieces make a bound larger, never false."""
    expr = parse("sin(u)")
    table = fit_table(expr, 0.0, 6.0, 18)
    found, ends = attack(expr, 0.0, 6.0, table), [(arb(0), arb(6))]
    edges = np.concatenate([[-3.0], np.sort(np.random.default_rng(1).uniform(0, 6, 40)), [8.0]]).tolist()
    bounds = [table_error(table, expr, ["u"], ends, p) for p in ([0.0, 6.0], [0.0, 1e-9, 6.0], edges)]
    assert all(b >= found for b in bounds) and bounds[0] > 10 * found


@pytest.mark.parametrize("seed", range(30))
def test_remainders_count_on_wide_pieces(seed):
    """One piece for all: the tails of the series are as large as the error itself."""
    rng = np.random.default_rng(seed)
    tokens, function = int(rng.integers(2, 5)), random_formula(seed, ["u"], smooth=True)
    table = one_axis(rng.uniform(-4, 4, tokens), rng.uniform(-3, 3, tokens), rng.normal(size=tokens))
    for expr in (function, parse("0*u"), parse("exp(3*u)"), parse("sin(4*u)")):
        bound = table_error(table, expr, ["u"], [(arb(-1), arb(1))], [-1.0, 1.0])
        assert attack(expr, -1.0, 1.0, table) <= bound


def test_a_series_cut_short_too_early_would_show():
    """e**(7u) and a sharp step need many terms on the whole of -1..1: finite bounds that contain the truth."""
    step = one_axis(np.array([-4.0, 4.0]), np.zeros(2), np.array([-1.0, 1.0]))
    for text, table in (("exp(7*u)", step), ("0*u", step), ("tanh(4*u)", step)):
        bound = table_error(table, parse(text), ["u"], [(arb(-1), arb(1))], [-1.0, 1.0])
        assert attack(parse(text), -1.0, 1.0, table) <= bound < math.inf


def test_linear_terms_at_a_singular_end():
    table = one_axis(np.zeros(1), np.zeros(1), np.zeros(1))
    for text in ("sqrt(1 - u) + 7*u + 1", "1 + 7*u + max(0, u - 9/10)"):
        bound = table_error(table, parse(text), ["u"], UNIT, [0.0, 0.75, 1.0])
        assert 8 <= bound < 9


def test_a_changed_weight_is_noticed():
    expr = parse("sin(u)")
    table = fit_table(expr, 0.0, 6.0, 18)
    pieces = find_pieces(table, expr, (arb(0), arb(6)))
    values = table.values.copy()
    values[9] += 1e-5
    changed = one_axis(table.slopes[0], table.offsets[0], values)
    assert table_error(table, expr, ["u"], [(arb(0), arb(6))], pieces) < 1e-6
    assert table_error(changed, expr, ["u"], [(arb(0), arb(6))], pieces) > 1e-6


BAD = [
    None, {}, "0 1", [], [0.0], [0.0, 0.5], [0.1, 1.0], [0.0, 0.0, 1.0], [0.0, 0.7, 0.6, 1.0], [1.0, 0.0],
    [0.0, math.nan, 1.0], [0.0, math.inf], [-math.inf, 1.0], [0.0, "1"], [False, True], [0.0, 1.0, None],
    [0.0] * 400_002, [[0.0, 1.0]], [0.0, 1 - 2.0**-53],
]  # fmt: skip


@pytest.mark.parametrize("pieces", BAD, ids=[str(b)[:20] for b in BAD])
def test_pieces_that_do_not_cover_are_refused(pieces):
    with pytest.raises(RefutedError):
        table_error(fit_table(parse("sin(u)"), 0.0, 1.0, 9), parse("sin(u)"), ["u"], UNIT, pieces)


def test_the_exact_ends_are_covered():
    """The float next to 2*pi lies below it: pieces that end there miss a part."""
    table, expr = fit_table(parse("sin(u)"), 0.0, 7.0, 12), parse("sin(u)")
    ends = [(arb(0), enclose(parse("2*pi")))]
    with pytest.raises(RefutedError):
        table_error(table, expr, ["u"], ends, [0.0, 2 * math.pi])
    assert table_error(table, expr, ["u"], ends, [0.0, math.nextafter(2 * math.pi, 7)]) < math.inf


@pytest.mark.parametrize("text", ["v", "u + v"])
def test_another_variable_is_refused(text):
    table = fit_table(parse("sin(u)"), 0.0, 1.0, 9)
    with pytest.raises(RefutedError):
        table_error(table, parse(text), ["u"], UNIT, [0.0, 1.0])


@pytest.mark.parametrize("field", [0, 1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_numbers_are_no_table(field, bad):
    table = fit_table(parse("sin(u)"), 0.0, 1.0, 9)
    arrays = [table.slopes[0].copy(), table.offsets[0].copy(), table.values.copy()]
    arrays[field][4] = bad
    with pytest.raises(RefutedError):
        one_axis(*arrays)


def test_shapes_that_do_not_fit_are_no_table():
    three, four = np.zeros(3), np.zeros(4)
    for slopes, offsets, values in (
        ((three,), (four,), three), ((three,), (three,), four), ((three, four), (three, four), three),
        ((three,), (three,), np.zeros((3, 1))), ((), (), np.zeros(())),
        ((np.zeros(0),), (np.zeros(0),), np.zeros(0)),
        ((three,), (three,), np.zeros(3, dtype=np.float32)), ((three,), (), three),
    ):  # fmt: skip
        with pytest.raises(RefutedError):
            SoftmaxTable(slopes, offsets, values)


@pytest.mark.parametrize(("text", "low"), [
    ("sqrt(u)", -1e-3), ("sqrt(u)", -5e-324), ("1/u", -1.0), ("log(u)", 0.0), ("asin(1 + u)", 0.0),
    ("0*log(u)", -1.0), ("sqrt(u) - sqrt(u)", -1.0), ("u**(1/3)", -1.0), ("tan(2*u)", 0.0),
    ("acos(2*u)", 0.0),
])  # fmt: skip
def test_nothing_is_claimed_where_the_function_is_undefined(text, low):
    """Taylor models and ranges cut at the end of a domain; a bound must not rest on what is beyond it."""
    table, expr, ends = one_axis(np.zeros(1), np.zeros(1), np.zeros(1)), parse(text), (arb(low), arb(1))
    cuts = sorted({low, *np.linspace(low, 1.0, 41).tolist(), *([0.0, 1e-9] if low < 0 else [])})
    assert table_error(table, expr, ["u"], [ends], cuts) == math.inf
    try:
        assert table_error(table, expr, ["u"], [ends], find_pieces(table, expr, ends)) == math.inf
    except NotProvenError as error:
        assert "undefined" in str(error) or "could not be bounded" in str(error)


@pytest.mark.parametrize("text", ["sqrt(u)", "u**(7/10)", "asin(u)", "sqrt(1 - u)", "acos(1 - u)", "abs(u)", "u**u"])
def test_an_end_of_the_domain_is_inside(text):
    table = one_axis(np.zeros(1), np.zeros(1), np.zeros(1))
    expr = parse(text)
    edges = np.linspace(0, 1, 33).tolist()
    bound = table_error(table, expr, ["u"], UNIT, edges)
    assert bound == math.inf if text == "u**u" else 0.99 < bound < 1.7


def test_a_range_of_one_point():
    table = fit_table(parse("sin(u)"), 0.0, 1.0, 9)
    bound = proven(table, parse("sin(u)"), arb(0.5), arb(0.5))
    assert bound <= proven(table, parse("sin(u)"), 0.0, 1.0)


def test_what_a_piece_reaches_is_reached():
    expr = parse("exp(u)")
    table = one_axis(np.array([0.0, 3.0]), np.zeros(2), np.array([1.0, 2.0]))
    piece = TablePieces(table, expr, "u", arb(0), arb(1)).on(0.0, 1.0)
    assert piece.reached <= attack(expr, 0.0, 1.0, table) * (1 + 1e-12) <= piece.error * (1 + 1e-12)
