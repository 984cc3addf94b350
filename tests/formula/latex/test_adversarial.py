r"""Attempts to have a formula misread: what is printed alike is read alike, and nothing ends in a traceback.

Where two sources are printed alike, spaces and braces must not decide between two meanings.
"""

from __future__ import annotations

import random
import re

import pytest

import transformula as tf
from transformula.errors import FormulaError, InputError
from transformula.formula.latex import texts_of
from transformula.kernel.syntax.definitions import FAMILIES, JUMPING, JUMPS, POLYNOMIALS, known
from transformula.kernel.syntax.parsing import parse

#: Sources that tempt a reader, and how they are read; None: refused.
ATTEMPTS = [
    # exponents and indices take one digit
    (r"x^12", None), (r"x^1 2", None), (r"x^{1}2", None), (r"x_12^3", None), (r"x_1 2^3", None), (r"x^23^y", None),
    (r"x^{12}", "x**12"), (r"\frac123", None), (r"\frac 12x", "1/2*x"), (r"\sqrt 12", None), (r"\sqrt23", None),
    (r"2\sqrt34", None), (r"\log_10 x", None), (r"\log_23", None), (r"\log_2 3", "log2(3)"), (r"\sin^23x", None),
    (r"\sin^2 3x", "sin(3*x)**2"), (r"x^0.5", None), (r"x^{0.5}", "x**0.5"), (r"e^-x", None), (r"x^(2)", None),
    # digits that print as one number
    (r"3 2^x", None), (r"32^x", "32**x"), (r"1{}2", None), (r"1\!2", None), ("1%\n2", None), (r"{1}{2}", None),
    (r"1\,000\,000", None), (r"12{,}345", None), (r"1234{,}567", "1234.567"), (r"0{,}125", "0.125"), (r"1.2{,}3", None),
    (r"2 x 3", None), (r"(2)3", None), (r"2(3)", "2*3"), (r"\pi 2", None), (r"1e5", None), (r"1.5E-3", None),
    (r"2e^3", "2*e**3"), (r"2e - 3", "2*e - 3"), (r"3\tfrac{1}{2}", None), (r"3{\frac12}", None), (r"3 \cdot \frac12", "3*1/2"),
    # braces that are not printed
    (r"\sin{x}^2", None), (r"\exp{x}^2", None), (r"\sin{x^2}", "sin(x**2)"), (r"{\sin x}^2", None), (r"{\sin x} y", None),
    (r"\sin {x+1}", None), (r"\exp{-x^2}", None), (r"\ln{x}/{x}", None), (r"{\ln x}/x", None), (r"{\sin}x y", None),
    (r"\sqrt{x}{y}", "sqrt(x)*y"), (r"{x}{y}", "x*y"), (r"z{x+y}", None), (r"z{-x}", None), (r"z/{xy}", None),
    (r"{z/x}y", None), (r"({z/x})y", "z/x*y"), (r"{x_1}_2", None), (r"x{}^2", None), (r"{}^2x", None), (r"x{^2}", None),
    (r"{{x}+{y}}", "x + y"), (r"{x+y}^2", None), (r"2^{x}^{y}", None), (r"\max{x,y}", None), (r"{-x}^2", None),
    # functions
    (r"\sin^{-{1}} x", "asin(x)"), (r"\sin^{(-1)} x", None), (r"\sin^-1 x", None), (r"\sin^{-1}(x)^{-1}", None),
    (r"\sin^{-1}x^{-1}", "asin(x**(-1))"), (r"\arcsin^{-1} x", None), (r"\sin\pi/2", None), (r"\sin\frac\pi2x", None),
    (r"\sin\pi^2x", None), (r"\cos 2\cdot\pi x", None), (r"\cos\cos\cos x", "cos(cos(cos(x)))"), (r"\cos x\cos x y", None),
    (r"\cos x\cos(y) z", None), (r"\cos x\cos(y)/z", None), (r"\sin(x)\cos(y)/z", "sin(x)*cos(y)/z"), (r"\max x, y", None),
    (r"\max(1,5,2)", None), (r"\max(1, 5, 2)", "max(1, 5, 2)"), (r"\min(x;y)", None), (r"\ln_2 x", None),
    (r"\exp(-x)(y)", None), (r"\sin\{x\}", None), (r"\Gamma^2(x)", None), (r"\Gamma x", "Gamma*x"), (r"\operatorname{foo}(x)", None),
    (r"\operatorname*{sin}x", None), (r"\sin\cdot x", None), (r"\sin/2", None), (r"\sin^2", None), (r"\sinx", None),
    (r"\sin x\mathrm{d}x", None), (r"\lnx", None), (r"\ln(x)\ln(y)", "log(x)*log(y)"), (r"\tan x \tan y", "tan(x)*tan(y)"),
    # bars
    (r"|x|y|", None), (r"|x||y||z|", None), (r"|a|b+c|d|", None), (r"|a|-|b|c|d|", None), (r"|{a|b|c}|", None),
    (r"|a{|b|}c|", None), (r"{|a|}b{|c|}", None), (r"\|x|", None), (r"\left|x|\right|", None), (r"|x|_2", None),
    (r"|||x|||", "abs(abs(abs(x)))"), (r"|a+|b|c|", "abs(a + abs(b)*c)"), (r"x|_{y=0}", None), (r"f\big|_0", None),
    # names
    (r"\mathit{ab} + ab", None), (r"ab + \frac{1}{\mathit{ab}}", None), (r"x_{1,2} + x_{1_2}", None), (r"\mathrm{T_max}", None),
    (r"\bar{x}_1 + x_{\mathrm{bar},1}", None), (r"x_{{1}} + x_1", "x_1 + x_1"), (r"x_{ab} + x_{a b}", "x_ab + x_ab"),
    (r"x_\max + x_{\mathrm{max}}", "x_max + x_max"), (r"x_{max} + x_\max", None), (r"log2(x)", None), (r"alpha x", None),
    (r"pi r^2", None), (r"exp(x)", None), (r"\mathrm{E} + 1", None), (r"\mathrm{pi}", None), (r"x_{-1}", None),
    (r"\frac{\mathrm{d}y}{\mathrm{d}x}", None), (r"\frac{d^2y}{dx^2}", None), (r"\frac{d}{d + 1}", "d/(d + 1)"),
    (r"\text{ or } x", None), (r"x^*", None), (r"x''", None), (r"\hat{xy}", None),
    # sentences and equations
    (r"x % 3", None), (r"x%3", None), (r"5%", None), (r"x % a note", "x"), (r"x\% y", None), (r"x..", None), (r"x,", "x"),
    (r"$x$ $y$", None), (r"$x", None), (r"x = e", None), (r"y==x", None), (r"y := x", None), (r"f(2) = 3", None),
    (r"f(x) = f(x) + 1", None), (r"\sin(x) = y", None), (r"f(x_{max}) = x_{\mathrm{max}}", None),
    (r"\begin{equation} x^2 \end{equation}", "x**2"),
    # cases
    (r"\begin{cases} x & x<1 \\ y & x<0 \\ z & \text{else} \end{cases}", None),
    (r"\begin{cases} x & x<a \\ y & x<b \\ z & \text{else} \end{cases}", None),
    (r"\begin{cases} x & 0<x<1 \\ z & 0.5<x<2 \\ y & \text{else} \end{cases}", None),
    (r"\begin{cases} x & x>0 \\ y & x\ge0 \\ z & \text{else} \end{cases}", None),
    (r"\begin{cases} x & x<0 \\ y & x\ge0 \text{ and } y<0 \\ z & y\ge0 \end{cases}", None),
    (r"\begin{cases} x & x<1 \\ y & x>0 \\ z & \text{else} \end{cases}", None),
    (r"\begin{cases} x & x>y \\ y & x<y \end{cases}", None),
    (r"\begin{cases} x & x>y \\ y & x\le y \end{cases}", "where(y < x, x, y)"),
    (r"\begin{cases} x & x<a \\ y & a\le x<b \\ z & x\ge b \end{cases}", "where(x < a, x, where(x < b, y, z))"),
    (r"\begin{cases} x & 0<x>1 \\ z & \text{else} \end{cases}", None),
    (r"\begin{cases} x & x<0 \text{ or } y<0 \\ z & \text{else} \end{cases}", None),
    (r"\begin{cases} x & x<0 \\ 0 & \text{else} \end{cases}^2", None),
    (r"\begin{cases} x & x<0 \\[x] 0 & \text{else} \end{cases}", None),
    (r"\begin{cases} x & x<0 \\ y & x<1 \\ z & \text{else} \end{cases}", "where(x < 0, x, where(x < 1, y, z))"),
    (r"\begin{cases} 0 & |x| > 1 \\ y & |x| \le 1 \end{cases}", "where(-1 <= x, where(x <= 1, y, 0), 0)"),
    (r"\begin{cases} y & x<0 \text{ and } z<0 \\ 0 & \text{else} \end{cases}", "where(x < 0, where(z < 0, y, 0), 0)"),
    # commands that would do something
    (r"\input{/etc/passwd}", None), (r"\newcommand{\sin}{\cos}\sin x", None), (r"\let\sin\cos \sin x", None),
    (r"\phantom{2}x", None), (r"\color{white}2 x", None), (r"\catcode`x=13", None), (r"\csname sin\endcsname x", None),
    ("x\u200by", None), ("х", None), ("x\x00", None), ("²", None),
]  # fmt: skip


@pytest.mark.parametrize(("latex", "text"), ATTEMPTS, ids=[repr(row[0]) for row in ATTEMPTS])
def test_an_attempt_to_be_misread(latex, text):
    if text is not None:
        assert tf.from_latex(latex) == text
        return
    with pytest.raises(FormulaError, match=r"^cannot read the LaTeX") as caught:
        tf.from_latex(latex)
    assert str(caught.value).isprintable()


N = 10_000
LONG = [
    "x" * (N + 1), "(" * N, "{" * N, "[" * N, "|" * N, "|x" * (N // 2), r"\sin" * (N // 4) + "x", "x^" * (N // 2), "x^{" * (N // 3),
    "x_{" * (N // 3), r"\frac{" * (N // 6), r"\left(" * (N // 6), r"\sqrt" * (N // 5), "x" + "!" * (N - 1), "-" * N, "1." * (N // 2),
    "%" * N, "$" * N, "\\" * N, r"\mathrm{" * (N // 8), r"\begin{cases}" * (N // 13), r"\bar" * (N // 4), "x=" * (N // 2), "1e" * (N // 2),
    "\U0001f600" * N, r"\begin{cases}" + r"x&x<1\\" * (N // 8) + r"\end{cases}", "1" * (N - 1) + "e1", "", "$ $",
    r"\begin{cases}" + "".join(rf"x & {2 * k}<x<{2 * k + 1}\\" for k in range(29)) + r"0 & \text{else} \end{cases}",
]  # fmt: skip


@pytest.mark.parametrize("latex", LONG, ids=[repr(text[:12]) for text in LONG])
def test_long_and_deep_sources_end_in_one_short_sentence(latex):
    with pytest.raises(FormulaError) as caught:
        tf.from_latex(latex)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "latex", ["x" * N, "x+" * (N // 2 - 1) + "x", r"\sin x" * (N // 6), r"\max(" + "x," * 4000 + "y)"]
)
def test_long_sources_that_can_be_read_are_read(latex):
    assert parse(tf.from_latex(latex, ["x", "y"]), ["x", "y"]).names <= {"x", "y"}


def test_the_deepest_source_is_read_by_the_kernel_too():
    assert parse(tf.from_latex(r"\sqrt{1+" * 38 + "x" + "}" * 38), ["x"]).names == {"x"}


@pytest.mark.parametrize("given", [7, None, b"x", ["x"]])
def test_what_is_no_text_is_refused(given):
    with pytest.raises(FormulaError, match="a formula in LaTeX is text, not"):
        tf.from_latex(given)


PIECES = [
    "x", "y", "t", "x", "y", "2", "3", "10", ".5", "e", r"\pi ", r"\alpha ", r"\sin ", r"\ln ", r"\exp ", r"\cos^2 ", r"\log_2 ",
    r"\log_{10}", r"\tan^{-1}", r"\max(x,y)", r"\operatorname{erf}(x)", "^2", "^x", "^{-1}", "^{xy}", "_1", "_{12}", "(", ")", "x)",
    "|", "|", "+", "-", "/", r"\cdot ", r"\times ", "!", r"\frac12", r"\frac xy", r"\frac{x}{y}", r"\sqrt{x}", r"\sqrt2", r"\sqrt[3]{y}",
    r"\,", " ", "{", "}", "{x}", "{xy}", "{x+y}", r"\left(x+1\right)", r"\left|y\right|", r"\lfloor x\rfloor", "[x+y]", r"\mathrm{e}^x",
    "dx", "sin", "1{,}5", r"\begin{cases}x&x<1\\1&\text{else}\end{cases}", "=", "y=", "f(x)=", r"\Gamma(x)", ",", "%", "'",
]  # fmt: skip
NAMES = ["x", "y", "t", "d", "f", "s", "i", "n", "alpha", *(f"{name}_{k}" for name in "xytde" for k in ("1", "12"))]


def read(latex):
    try:
        return tf.from_latex(latex, NAMES)
    except InputError as error:
        assert str(error).isprintable()
        return None


def printed_alike(latex, rng):
    """Another source of the same print, or the same source."""
    place = rng.randrange(len(latex) + 1)
    before, after = latex[:place], latex[place:]
    in_command = re.search(r"\\[A-Za-z]*$|\d$", before)
    letters = [m.start() for m in re.finditer(r"(?<![A-Za-z\\])[xyt](?![A-Za-z])", latex)]
    kind = rng.choice(["braces", "empty", "space", "sized", "power"])
    if kind == "braces" and letters:
        place = rng.choice(letters)
        return f"{latex[:place]}{{{latex[place]}}}{latex[place + 1 :]}"
    if (
        kind == "empty"
        and not re.search(r"([\^_{\[}]|frac.{0,3}|sqrt)$", before)
        and not in_command
        and after[:1] not in "^_!'"
    ):
        return f"{before}{{}}{after}"
    if kind == "space" and not in_command:
        return f"{before} {after}"
    if kind == "sized" and "\\left" not in latex and latex.count("(") == latex.count(")") == 1:
        return latex.replace("(", r"\left(").replace(")", r"\right)")
    return re.sub(r"\^([xyt2])", r"^{\1}", latex, count=1)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_printed_alike_is_read_alike_or_refused(seed):
    rng, both = random.Random(seed), 0
    for _ in range(3_000):
        latex = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 8)))
        one, other = read(latex), read(printed_alike(latex, rng))
        assert None in (one, other) or one == other, latex
        if one is not None:
            parse(one, NAMES, jumps=True)
            both += other is not None
    assert both > 200


FUNCTIONS = [name for name in (*known(), *JUMPS, *JUMPING) if name != "log"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_read_as_an_operator(name):
    two = name in (*FAMILIES, *POLYNOMIALS, "min", "max", "pow", "hypot", "atan2", "beta", "mod", "fmod")
    arguments = "2, x" if two else "x, 2, 3" if name == "clip" else "x"
    latex = rf"\operatorname{{{name}}}({arguments})"
    assert parse(tf.from_latex(latex), jumps=True) == parse(f"{name}({arguments})", jumps=True)


def test_formulas_of_one_model_share_their_names():
    assert texts_of([r"x_{max}", r"2x_{max}"]) == ["x_max", "2*x_max"]
    with pytest.raises(FormulaError, match="would both become the variable x_max"):
        texts_of([r"x_{max}", r"x_{\mathrm{max}}"])


def test_the_names_of_a_box_are_a_list():
    with pytest.raises(InputError, match="a list of names"):
        tf.from_latex("x", "xy")
