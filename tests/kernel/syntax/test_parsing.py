"""Text to trees: precedence, exactness, names, and refusals in one sentence."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.watching import ends
from transformula.kernel.exceptions import FormulaError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import variables_of
from transformula.kernel.syntax.parsing import parse


def _python_value(text, **values):
    return eval(text, {"__builtins__": {}}, values)


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2*3",
        "2*3**2",
        "-2**2",
        "(-2)**2",
        "2**3**2",
        "2**-1",
        "8/4/2",
        "8/4*2",
        "1 - 2 - 3",
        "1 - (2 - 3)",
        "--3",
        "+-+3",
        "2*-3",
        "-(1+2)*3",
        "10 - 4/2**2*3",
        "((((5))))",
        "(-1)**7",
        " 1\t+\n2 ",
    ],
)
def test_numbers_fold_as_in_python(text):
    assert parse(text).number == Fraction(_python_value(" ".join(text.split()))).limit_denominator(10**6)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", Fraction(1, 10)),
        (".5", Fraction(1, 2)),
        ("3.", Fraction(3)),
        ("1e-3", Fraction(1, 1000)),
        ("2.5E+2", Fraction(250)),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("1/3", Fraction(1, 3)),
        ("0.30000000000000004", Fraction(30000000000000004, 10**17)),
        ("123456789012345678901234567890", Fraction(123456789012345678901234567890)),
    ],
)
def test_decimals_are_exact(text, value):
    assert parse(text).number == value


def test_minus_binds_weaker_than_power():
    assert parse("-x**2") == ex.neg(ex.power(ex.variable("x"), ex.number(2)))
    assert parse("x**-2") == ex.power(ex.variable("x"), ex.number(-2))
    assert parse("x**y**z") == parse("x**(y**z)") != parse("(x**y)**z")
    assert parse("a - b - c") == parse("(a - b) - c") != parse("a - (b - c)")
    assert parse("a/b/c") != parse("a/(b/c)")


def test_a_declared_variable_wins_over_a_constant():
    assert parse("pi", ["x"]) == ex.constant("pi")
    assert parse("pi*E", ["pi"]) == ex.mul(ex.variable("pi"), ex.constant("E"))
    assert variables_of(parse("pi + E", ["E", "pi"])) == {"pi", "E"}


@pytest.mark.parametrize(
    "name", ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "sqrt", "abs"]
)
def test_every_function_of_one_argument_is_known(name):
    assert parse(f"{name}(x)", ["x"]) == ex.call(name, ex.variable("x"))
    with pytest.raises(FormulaError, match=f"{name} takes one argument"):
        parse(f"{name}(x, x)", ["x"])


@pytest.mark.parametrize("name", ["min", "max"])
def test_min_and_max_take_two_arguments_or_more(name):
    assert len(parse(f"{name}(x, 1, 2*x)", ["x"]).args) == 3
    with pytest.raises(FormulaError, match="two arguments or more"):
        parse(f"{name}(x)", ["x"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("x +", "something is missing at the end"),
        ("(x", "a '\\)' is missing"),
        ("x)", "unbalanced '\\)' at character 2"),
        ("()", "unexpected '\\)'"),
        ("x y", "unexpected 'y'"),
        ("2x", "unexpected 'x'"),
        ("x ^ ^ 2", "unexpected '\\^'"),
        ("x // 2", "unexpected '/'"),
        ("x % 2", "unexpected '%'"),
        ("y", "unknown name 'y'.*variables are x"),
        ("frobnicate(x)", "unknown function 'frobnicate'"),
        ("sin", "unknown name 'sin'"),
        ("x(2)", "unknown function 'x'"),
        ("sin()", "unexpected '\\)'"),
        ("sin(x", "a '\\)' is missing"),
        ("min(x,)", "unexpected"),
        ("x/0", "divides by zero"),
        ("x/(1-1)", "divides by zero"),
        ("x*0**-1", "divides by zero"),
        ("nan*x", "unknown name 'nan'"),
        ("inf + x", "unknown name 'inf'"),
        ("1e999999999*x", "out of range"),
        ("x; y", "unexpected ';'"),
        ("x = 2", "unexpected '='"),
        ("x if x else x", "unexpected 'if'"),
        ("lambda: x", "unexpected ':'"),
        ("x.real", "unexpected '.'"),
        ("'x'", 'unexpected "\'"'),
        ("x[0]", "unexpected '\\['"),
        ("x²", "unexpected '²' at character 2"),
        ("х + 1", "unexpected 'х' at character 1"),
        ("x\0", "unexpected '.x00'"),
        ("１", "unexpected '１'"),
        ("𝑥", "unexpected"),
    ],
)
def test_a_bad_formula_gets_one_sentence(text, said):
    with pytest.raises(FormulaError, match=said) as caught:
        parse(text, ["x"])
    assert "\n" not in str(caught.value)


HOSTILE = {
    "call": "__import__('os').system('x')",
    "dunder": "__import__",
    "attribute": "x.__class__.__bases__",
    "tower": "9**9**9**9",
    "tower over x": "x**9**9**9**9",
    "power of a fraction": "0.5**99999999",
    "negative tower": "9**-9**9",
    "parentheses": "(" * 10_000 + "x" + ")" * 10_000,
    "open parentheses": "(" * 900_000,
    "signs": "-" * 100_000 + "x",
    "powers": "x**" * 50_000 + "x",
    "functions": "sin(" * 10_000 + "x" + ")" * 10_000,
    "long text": "x+" * 600_000 + "x",
    "long number": "1" * 900_000,
    "long decimal": "0." + "1" * 4_500,
    "product of large numbers": "*".join(["9**4000"] * 50),
    "right-to-left mark": "x\u202e+1",
    "products without end": "9**4000*" * 100_000 + "x",
    "harmonic sum": "+".join(f"1/{k}" for k in range(1, 15_000)),
    "long name": "a" * 900_000,
    "long function": "a" * 900_000 + "(x)",
    "undeclared wire": "#w3 + x",
    "half a wire": "#w + x",
    "called wire": "#w3(x)",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_ends_in_a_sentence_and_soon(text):
    with ends(), pytest.raises(FormulaError) as caught:
        parse(text, ["x"])
    assert len(str(caught.value)) < 400


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text):
    try:
        parse(text)
    except FormulaError as error:
        assert str(error)


@given(st.text(alphabet="x1.e+-*/() ,pisnE", max_size=30))
def test_any_text_of_likely_characters_is_parsed_or_refused(text):
    try:
        assert parse(str(parse(text))) == parse(text)
    except FormulaError as error:
        assert str(error)


def test_a_sum_of_3003_terms_parses_flat():
    expr = parse(" + ".join(f"{k}*x{k % 9}**{k % 5 + 1}" for k in range(2, 3005)))
    assert expr.op == "add" and len(expr.args) == 3003


def test_the_largest_numbers_can_be_written_and_read_back():
    expr = parse("1" * 4_000)
    assert parse(str(expr)) == expr
    with pytest.raises(FormulaError, match="too large"):
        parse("9**4000 * 9**4000")


def test_constants_take_no_variables():
    assert parse("2*pi", ()).is_constant
    with pytest.raises(FormulaError, match="'x' is not a number"):
        parse("x + 1", ())


def test_only_text_is_a_formula():
    with pytest.raises(FormulaError, match="must be text, not int"):
        parse(3)


def test_wires_are_names_only_where_they_are_declared():
    assert parse("2*#w12 + x", ["x", "#w12"]) == ex.add(ex.mul(ex.number(2), ex.variable("#w12")), ex.variable("x"))
    assert str(parse("#w1*#q0**2", ["#w1", "#q0"])) == "#w1*#q0**2"
    for variables in (None, ["x"], ()):
        with pytest.raises(FormulaError):
            parse("#w12", variables)


def test_functions_come_from_the_registry():
    from transformula.kernel.functions.function_table import FUNCTIONS

    assert tuple(FUNCTIONS) == tuple(ex.FUNCTIONS)
    for name in FUNCTIONS:
        assert parse(f"{name}(x)").op == name


def test_shared_trees_are_compared_and_printed_in_linear_time():
    def tower():
        node = ex.variable("x")
        for _ in range(3000):  # as a tree: 2**3000 leaves, 3000 levels
            node = ex.call("min", node, ex.call("sin", node))
        return node

    one, other = tower(), tower()
    assert one == other and hash(one) == hash(other)
    assert one != ex.call("min", one, one) and one != ex.call("sin", other)
    from transformula.kernel.syntax.expression import short_text

    assert len(short_text(one)) <= 300
    assert ex.substitute(one, {ex.variable("x"): ex.variable("y")}) != one
