"""What is drawn must read as what is meant: the MathML is read back by a reader's rules and evaluated."""

import math
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from transformula.formula import parse
from transformula.formula.evaluation import evaluate
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.show.typeset import MAX_TERMS, typeset, typeset_interval, typeset_wrapping

AT = {"x": 0.7, "y": 1.3, "z": 0.4, "x1": 1.9, "rate": 0.6}
TIMES, APPLY, DOT, MINUS = "\u2062", "\u2061", "\u22c5", "\u2212"
FUNCTIONS = {name: getattr(math, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "log")}
FUNCTIONS |= {"arcsin": math.asin, "arccos": math.acos, "arctan": math.atan, "min": min, "max": max}
FUNCTIONS |= {"sinc": lambda u: math.sin(u) / u if u else 1.0}


def element(text):
    return ElementTree.fromstring(text)


class Reader:
    """Reads a row as people do: powers first, then products (also by juxtaposition), then sums.

    ``mrow`` is invisible on the page, so it groups nothing here; only brackets, bars, fractions, roots and
    raised exponents do.
    """

    def __init__(self, row):
        self.tokens = [token for child in row for token in self._flat(child)]
        self.place = 0

    def _flat(self, node):
        bars = [c for c in node if c.tag == "mo" and c.text == "|"]
        if node.tag == "mrow" and len(bars) == 2 and node[0] is bars[0] and node[-1] is bars[1]:
            return [("value", abs(Reader(node[1:-1]).value()))]
        if node.tag in ("mrow", "math"):
            return [token for child in node for token in self._flat(child)]
        if node.tag == "mfrac":
            return [("value", Reader([node[0]]).value() / Reader([node[1]]).value())]
        if node.tag == "msqrt":
            return [("value", math.sqrt(Reader(node).value()))]
        if node.tag == "msup":
            return [*self._flat(node[0]), ("power", Reader([node[1]]).value())]
        if node.tag == "msub":
            return [("value", AT[node[0].text + node[1].text])]
        if node.tag == "mn":
            return [("value", float(node.text))]
        if node.tag in ("mi", "mtext"):
            if node.text in FUNCTIONS:
                return [("function", node.text)]
            return [("value", {"π": math.pi, "e": math.e}.get(node.text) or AT[node.text])]
        return [("sign", node.text)]

    def peek(self):
        return self.tokens[self.place] if self.place < len(self.tokens) else (None, None)

    def take(self):
        self.place += 1
        return self.tokens[self.place - 1]

    def value(self):
        result = self.sum()
        assert self.place == len(self.tokens), self.tokens[self.place :]
        return result

    def sum(self):
        total = 0.0
        sign = 1.0
        if self.peek() == ("sign", MINUS):
            self.take()
            sign = -1.0
        total = sign * self.product()
        while self.peek()[1] in ("+", MINUS):
            sign = -1.0 if self.take()[1] == MINUS else 1.0
            total += sign * self.product()
        return total

    def product(self):
        result = self.power()
        while True:
            kind, what = self.peek()
            if kind == "sign" and what in (TIMES, DOT):
                self.take()
            elif kind not in ("value", "function") and what != "(":
                return result
            result *= self.power()

    def power(self):
        kind, what = self.take()
        raised = 1.0
        if kind == "function":
            if self.peek()[0] == "power":
                raised = self.take()[1]
            assert self.take() == ("sign", APPLY)
            result = FUNCTIONS[what](*self.arguments()) ** raised
        elif kind == "value":
            result = what
        else:
            assert what == "(", (kind, what)
            result = self.sum()
            assert self.take()[1] == ")"
        while self.peek()[0] == "power":
            result = result ** self.take()[1]
        return result

    def arguments(self):
        assert self.take()[1] == "("
        found = [self.sum()]
        while self.take()[1] == ",":
            found.append(self.sum())
        return found


def read(text):
    return Reader(element(text)).value()


def meant(expr):
    names = list(AT)
    return float(evaluate(expr, names, [np.array(AT[name]) for name in names]))


TRICKY = [
    "(-x)**2", "-x**2", "x/(y*z)", "(x/y)**z", "x**(-1/2)", "exp(-(x+y))", "2*(x+1)", "x - (y - z)",
    "x - (-y)", "-(x + y)*z", "-x*(-y)", "2*3**x", "x*3**y", "x**y**z", "(x**y)**z", "(-2)**2*x",
    "(1/2)**x", "sin(x)**2", "sin(x)**(-1)", "sin(x)**(1/2)", "exp(x)**2", "sqrt(x)**3", "abs(x - y)**3",
    "abs(-x)*abs(y)", "min(x, y + 1)*max(x, y, 2)", "1/3*x - 2/7", "x*y/(x + y)", "x/y/z", "x/(y/z)",
    "(x + y)*(x - y)", "pi*x - E**y", "0.001*x + 12.5", "rate*x1*rate", "x*rate",
    "asin(x/4)*acos(z) - atan(y)", "tanh(2*x - 1/2)", "-(x*y)**2/3", "2*x**2*y**(x + 1)",
    "log(x)**2*log(y)", "1/(1 + 25*x**2)", "-1/2", "x*(-1/2)",
]  # fmt: skip


@pytest.mark.parametrize("text", TRICKY)
def test_tricky_formulas_read_as_they_are_meant(text):
    expr = parse(text, list(AT))
    assert read(typeset(expr)) == pytest.approx(meant(expr), rel=1e-12)


numbers = st.fractions(min_value=-9, max_value=9, max_denominator=12).map(ex.number)
leaves = numbers | st.sampled_from([*map(ex.variable, AT), ex.constant("pi"), ex.constant("E")])


def _grown(inner):
    two = st.tuples(inner, inner)
    safe = two.filter(lambda pair: pair[1].number != 0)
    exponents = st.sampled_from([ex.number(v) for v in (2, 3, -1, Fraction(1, 2), Fraction(-3, 2))])
    powers = st.tuples(inner.filter(lambda e: e.number is None), exponents | inner)
    return st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(lambda terms: ex.add(*terms)),
        st.lists(inner, min_size=2, max_size=4).map(lambda factors: ex.mul(*factors)),
        safe.map(lambda pair: ex.div(*pair)),
        powers.map(lambda pair: ex.power(*pair)),
        inner.map(ex.neg),
        st.tuples(st.sampled_from([name for name in ex.FUNCTIONS if name in ex.RESERVED]), inner).map(
            lambda pair: ex.call(*pair)
        ),
        st.tuples(st.sampled_from(ex.VARIADIC), inner, inner).map(lambda t: ex.call(*t)),
    )


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
@given(st.recursive(leaves, _grown, max_leaves=9))
def test_any_formula_reads_as_it_is_meant(expr):
    try:
        value = meant(expr)
        assume(math.isfinite(value) and 1e-9 < abs(value) < 1e9)
        seen = read(typeset(expr))
        assume(isinstance(seen, float))
    except (ValueError, OverflowError, ZeroDivisionError):
        assume(False)
    assert seen == pytest.approx(value, rel=1e-6)


def test_shapes():
    assert "<mfrac><mi>x</mi><mi>y</mi></mfrac>" in typeset(parse("x/y"))
    assert "<msqrt>" in typeset(parse("sqrt(x + 1)"))
    assert "<msub><mi>x</mi><mn>12</mn></msub>" in typeset(parse("x12"))
    assert "θ" in typeset(parse("theta*2")) and "<mi>π</mi>" in typeset(parse("2*pi*x"))
    assert typeset(parse("x"), "f").startswith("<math><mrow><mi>f</mi><mo>=</mo>")


@pytest.mark.parametrize("text", ["2*3**x", "x*3**y", "rate*x", "x*rate**2", "x*2**(-y)"])
def test_digits_and_words_do_not_run_into_what_stands_before_them(text):
    assert "&#x22C5;" in typeset(parse(text)) and "&#x2062;" not in typeset(parse(text))


def test_the_variable_pi_is_not_drawn_as_the_number():
    assert "π" not in typeset(parse("pi*x", ["pi", "x"]))


def test_names_that_would_look_alike_are_written_out():
    drawn = typeset(parse("x1 + x_1"))
    assert "<mtext>x1</mtext>" in drawn and "<mtext>x_1</mtext>" in drawn


def test_long_sums_numbers_and_formulas_are_cut_and_say_so():
    terms = " + ".join(f"x**{k}" for k in range(2, 2 + 2 * MAX_TERMS))
    assert "further terms" in typeset(parse(terms)) and "further terms" in typeset_wrapping(parse(terms))
    assert "…" in typeset(parse("x*" + "7" * 200)) and len(typeset(parse("x*" + "7" * 200))) < 600
    product = "*".join(f"sin({k}*x)" for k in range(2_000))
    assert typeset(parse(product)).startswith("<code>")


def test_everything_is_well_formed_and_escaped():
    for text in TRICKY:
        element(f"<p>{typeset_wrapping(parse(text, list(AT)))}</p>")
    hostile = ex.variable("<script>alert(1)</script>")
    wrapped = typeset_wrapping(ex.add(hostile, ex.variable("x")))
    for drawn in (typeset(hostile), wrapped, typeset(hostile, "<b>")):
        assert "<script" not in drawn and "<b>" not in drawn


def test_an_interval_is_exact():
    drawn = typeset_interval(Box.of("x=-1/3..2*pi"), 0)
    assert "π" in drawn and "<mfrac><mn>1</mn><mn>3</mn></mfrac>" in drawn


def test_every_function_of_the_registry_is_drawn_and_none_like_another():
    names = [*ex.FUNCTIONS, "besselj:0", "besselj:3/2", "besselk:0"]
    drawn = [typeset(ex.call(name, ex.variable("x"))) for name in names]
    assert len(set(drawn)) == len(names) and all(ElementTree.fromstring(text).tag == "math" for text in drawn)
