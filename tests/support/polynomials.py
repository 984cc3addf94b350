"""Random rational polynomials and an oracle that knows nothing of the library: Python fractions."""

import random
from fractions import Fraction

from hypothesis import strategies as st

Terms = dict[tuple[int, ...], Fraction]


def names_of(count: int) -> tuple[str, ...]:
    return tuple(f"x{k + 1}" for k in range(count))


def text_of(terms: Terms) -> str:
    """The polynomial as a user would type it; every variable occurs."""
    width = len(next(iter(terms)))
    pieces = []
    for exponents, value in terms.items():
        powers = [f"{n}**{e}" for n, e in zip(names_of(width), exponents, strict=True) if e]
        pieces.append("*".join([f"({value})", *powers]))
    return " + ".join(pieces)


def value_of(terms: Terms, point) -> Fraction:
    total = Fraction(0)
    for exponents, value in terms.items():
        for x, e in zip(point, exponents, strict=True):
            value = value * x**e
        total += value
    return total


def cover(terms: Terms) -> Terms:
    """Add x_k for every variable that does not occur, so that the box may name all of them."""
    width = len(next(iter(terms)))
    covered = dict(terms)
    for k in range(width):
        if not any(e[k] for e in covered):
            covered[tuple(int(i == k) for i in range(width))] = Fraction(1)
    return covered


fractions = st.builds(Fraction, st.integers(-60, 60), st.sampled_from([1, 1, 2, 3, 7, 10, 64]))
nonzero = fractions.filter(bool)


@st.composite
def polynomials(draw, variables=(1, 6), degree=(1, 8), terms=5) -> Terms:
    """Sparse polynomials; high degrees touch few variables, so that the proof stays quick."""
    width = draw(st.integers(*variables))
    chosen: Terms = {}
    for _ in range(draw(st.integers(1, terms))):
        total = draw(st.integers(*degree))
        reach = {1: width, 2: width, 3: 4, 4: 3, 5: 3}.get(total, 2)
        support = draw(st.permutations(range(width)))[:reach]
        exponents = [0] * width
        for _ in range(total):
            exponents[draw(st.sampled_from(support))] += 1
        chosen[tuple(exponents)] = draw(nonzero)
    return cover(chosen)


def dense(rng: random.Random, variables: int, degree: int, homogeneous: bool = False) -> Terms:
    """Every monomial up to the degree, with small random coefficients that are never zero."""
    return {
        e: Fraction(rng.choice([-1, 1]) * rng.randint(1, 9), rng.randint(1, 9))
        for e in all_exponents(variables, degree)
        if sum(e) == degree or not homogeneous
    }


def all_exponents(variables: int, degree: int) -> list[tuple[int, ...]]:
    if variables == 0:
        return [()]
    return [(e, *rest) for e in range(degree + 1) for rest in all_exponents(variables - 1, degree - e)]
