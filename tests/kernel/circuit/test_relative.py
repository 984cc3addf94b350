"""Arguments that are rounded as a whole (`carrying.Relative`), against exact rounding of random linear forms and ReLUs."""

import random
from fractions import Fraction
from types import SimpleNamespace

from flint import arb, fmpq

from transformula.kernel.circuit.carried_errors import Carrier, Relative
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.structures import network

FORM = FORMATS["float32"]
UNIT, NORMAL = Fraction(1, 2**24), Fraction(1, 2**126)
POWERS = ((-150, -120), (-30, 3), (-130, -110))


def _rounded(value, flush):
    """The nearest float32; below the normal numbers zero, if they are flushed."""
    if value == 0:
        return Fraction(0)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = max(exponent - (Fraction(2) ** exponent > size), -126)
    unit = Fraction(2) ** (exponent - 23)
    near = round(size / unit) * unit
    near = Fraction(0) if flush and near < NORMAL else near
    return near if value > 0 else -near


def _sum(parts, flush, rng):
    """In a random order."""
    while len(parts) > 1:
        rng.shuffle(parts)
        parts.append(_rounded(parts.pop() + parts.pop(), flush))
    return parts[0]


def _factor(rng):
    sign = rng.choice([1, 1, 1, -1])
    return sign * rng.choice(
        [Fraction(2) ** rng.randint(-6, 6), Fraction(rng.randint(1, 2**24), 2**20), Fraction(rng.randint(1, 999), 7)]
    )


def test_what_is_rounded_as_a_whole_is_within_its_roundings():
    rng = random.Random(1)
    bounded, closest = 0, Fraction(0)
    for _ in range(500):
        flush = rng.random() < 0.5
        carrier = Carrier.__new__(Carrier)
        carrier.form, carrier.flush, carrier.values = FORM, FORM.tiny / FORM.unit_roundoff, {}
        slots = []  # what each is as a form, in floats and exactly
        for k in range(2):
            x = Fraction(2) ** rng.randint(*rng.choice(POWERS)) * Fraction(rng.randint(2**40, 2**41), 2**41)
            signed = rng.random() < 0.4
            x = -x if signed and rng.random() < 0.5 else x
            carrier.values[k] = SimpleNamespace(nonnegative=not signed, relative=Relative(1, carrier.flush))
            slots.append((network.wire_form(k), _rounded(x, flush), x))
        for _ in range(4):
            row = [(slots[rng.randrange(len(slots))], _factor(rng)) for _ in range(rng.randint(1, 3))]
            forms, products = [], []
            for (form, computed, _), c in row:
                number = fmpq(c.numerator, c.denominator)
                forms.append(form.times(number, network.roundings(number, FORM)))
                products.append(_rounded(_rounded(c, False) * computed, flush))
            form, computed = network.total(forms), _sum(products, flush, rng)
            exact = sum(c * meant for (_, _, meant), c in row)
            signs = all(t.coefficient == t.size > 0 and carrier.values[k].nonnegative for k, t in form.terms.items())
            assert not signs or (computed >= 0 and exact >= 0)
            relative = carrier._relative(form.terms, form, signs)
            if relative is not None:
                within = relative.roundings * UNIT / (1 - relative.roundings * UNIT) * abs(exact)
                within += Fraction(round_up(relative.lost))
                assert abs(computed - exact) <= within
                bounded, closest = bounded + 1, max(closest, abs(computed - exact) / within)
            if rng.random() < 0.6:
                k = len(carrier.values)
                carrier.values[k] = SimpleNamespace(nonnegative=True, relative=relative)
                form, computed, exact = network.wire_form(k), max(computed, 0), max(exact, 0)
            slots.append((form, Fraction(computed), Fraction(exact)))
    assert bounded > 500 and closest > Fraction(1, 2)


def test_what_may_cancel_or_has_a_constant_is_not_rounded_as_a_whole():
    carrier = Carrier.__new__(Carrier)
    carrier.form, carrier.flush = FORM, FORM.tiny / FORM.unit_roundoff
    once = Relative(1, arb(0))
    carrier.values = {0: SimpleNamespace(nonnegative=True, relative=once), 1: SimpleNamespace(relative=None)}
    plain, constant = network.wire_form(0), network.wire_form(network.ONE)
    assert carrier._relative(plain.terms, plain, True) == once
    cancelled = network.total([plain.times(fmpq(3), 1), plain.times(fmpq(-2), 0)])
    for form in (
        cancelled,
        network.total([plain, constant]),
        constant,
        network.ZERO,
        network.wire_form(1),
    ):
        assert carrier._relative(form.terms, form, form is not cancelled) is None
