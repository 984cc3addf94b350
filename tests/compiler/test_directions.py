"""Sums of powers of linear forms: the identity is exact, and the number of forms is pinned."""

import random
from fractions import Fraction

import pytest
from flint import fmpq
from hypothesis import given, settings

import transformula as tf
from support.polynomials import Terms, dense, polynomials, text_of
from transformula.compiler.ridge_directions import (
    RidgeSum,
    compositions,
    lattice_ridge_sum,
    power_terms,
    primitive,
    ridge_sums,
)
from transformula.errors import FormulaError


def _to_flint(terms: Terms):
    return {e: fmpq(v.numerator, v.denominator) for e, v in terms.items() if any(e)}


def _expand(way: RidgeSum, output: int = 0) -> dict:
    total: dict = {}
    for direction, powers in way.powers.items():
        for s, row in powers.items():
            for exponents, value in power_terms(direction, s):
                total[exponents] = total.get(exponents, fmpq(0)) + row[output] * value
    return {e: v for e, v in total.items() if v != 0}


@given(polynomials(variables=(1, 5), degree=(1, 7)))
@settings(max_examples=150)
def test_every_way_is_the_polynomial_exactly(terms):
    wanted = _to_flint(terms)
    for way in ridge_sums([wanted]):
        assert _expand(way) == wanted


@given(polynomials(variables=(3, 3), degree=(1, 5)), polynomials(variables=(3, 3), degree=(1, 5)))
@settings(max_examples=60)
def test_two_outputs_share_directions_and_stay_exact(first, second):
    wanted = [_to_flint(first), _to_flint(second)]
    for way in ridge_sums(wanted):
        assert [_expand(way, k) for k in range(2)] == wanted


@pytest.mark.parametrize(("variables", "degree"), [(1, 6), (2, 7), (3, 5), (4, 4), (6, 3)])
def test_the_lattice_is_exact_with_at_most_n_q_directions(variables, degree):
    wanted = _to_flint(dense(random.Random(variables), variables, degree))
    way = lattice_ridge_sum([wanted])
    assert _expand(way) == wanted
    assert len(way) <= len(compositions(degree, variables))


def test_compositions_are_all_of_them():
    assert len(set(compositions(5, 4))) == 56
    assert all(sum(c) == 5 and len(c) == 4 for c in compositions(5, 4))


def test_parallel_forms_share_a_primitive_direction():
    assert primitive([fmpq(-2, 3), fmpq(4, 3)]) == ((1, -2), fmpq(-2, 3))
    way = RidgeSum(1)
    way.add([1, 1], 3, 0, fmpq(2))
    way.add([-2, -2], 3, 0, fmpq(1, 4))
    assert way.pruned().powers == {}


def _tokens(text, on):
    return tf.compile(text, on=on).tokens


def _tokens_of(terms: Terms) -> int:
    width = len(next(iter(terms)))
    return _tokens(text_of(terms), f"x1..x{width}=-1..1")


def test_f2_takes_eleven_tokens(f2):
    assert (f2.tokens, f2.layers, f2.most_heads) == (11, 5, 1)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("x", 1),
        ("x + y + z", 1),
        ("x*y", 2),
        ("x**2 + y**2", 2),
        ("x*y*z", 4),
        ("(x + 2*y)**3 + (x - y)**4", 2),
        ("(x + 2*y + 3*z)**7", 1),
        ("((x + y)**2 + 1)*(x + y)", 1),
        ("x**7 - 3*x**2 + x/7 - 1", 1),
        ("x**3*y", 4),
        ("x*y + y*z + z*x", 3),
    ],
)
def test_tokens_of_named_formulas(text, tokens):
    names = [n for n in "xyz" if n in text]
    assert _tokens(text, ",".join(f"{n}=-1..1" for n in names)) <= tokens


@pytest.mark.parametrize("seed", range(3))
def test_a_dense_quintic_in_four_variables_takes_at_most_n_q(seed):
    assert _tokens_of(dense(random.Random(seed), 4, 5)) <= 56


@pytest.mark.parametrize("variables", [1, 2, 3, 5, 8])
def test_a_dense_quadratic_takes_one_token_a_variable(variables):
    assert _tokens_of(dense(random.Random(variables), variables, 2)) == variables


def test_a_polynomial_of_one_variable_takes_one_token():
    assert _tokens_of(dense(random.Random(0), 1, 20)) == 1


def test_degree_twelve_in_three_variables_takes_at_most_n_q():
    assert _tokens_of(dense(random.Random(1), 3, 12)) <= 91


@pytest.mark.parametrize("count", [12, 20])
def test_a_product_of_too_many_variables_is_refused(count):
    product = "*".join(f"x{k}" for k in range(1, count + 1))
    with pytest.raises(FormulaError, match="tokens"):
        tf.compile(product, on=f"x1..x{count}=-1..1")


def test_coefficients_of_very_different_size_stay_exact():
    terms = {(2, 1): Fraction(10) ** 40, (1, 1): Fraction(1, 10**40), (0, 3): Fraction(1, 3)}
    wanted = _to_flint(terms)
    for way in ridge_sums([wanted]):
        assert _expand(way) == wanted
