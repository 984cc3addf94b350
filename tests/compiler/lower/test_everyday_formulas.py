"""Formulas as engineers write them, on boxes that touch edges, corners and diagonals: which the kernel sees as defined.

Here no table is fitted: the steps and signs that the compiler finds are judged by the kernel.
"""

import pytest

from transformula.compiler.evidence.finder import Finder
from transformula.compiler.prepare import Prepared
from transformula.errors import NotProvenError
from transformula.kernel.derivations.derivation_steps import Facts
from transformula.kernel.syntax.boxes import Formula

DEFINED = [
    ("acos(sin(a)*sin(b) + cos(a)*cos(b)*cos(c))", "a=0..1, b=0..1, c=0..1"),
    ("1/(1/x+1/y)", "x=0.1..1, y=0.1..1"),
    ("where(x*x - x >= 0, x*x-x, 0)", "x=-1..2"),
    ("where(x*x - x >= 0, x*x, x)", "x=-1..2"),
    ("where(x*x >= 1, x*x, 1)", "x=-2..2"),
    ("where(x^2 < 4, 4 - x^2, 0)", "x=-3..3"),
    ("(exp(x)-exp(y))/(x-y)", "x=0..1, y=0..1"),
    ("(x^3-y^3)/(x-y)", "x=0..1, y=0..1"),
    ("(sin(x)-sin(y))/(x-y)", "x=0..1, y=0..1"),
    ("(log(x)-log(y))/(x-y)", "x=1..2, y=1..2"),
    ("(x-y)/log(x/y)", "x=1..2, y=1..2"),
    ("(x-y)/(log(x)-log(y))", "x=1..2, y=1..2"),
    ("(T1-T2)/log(T1/T2)", "T1=10..50, T2=10..50"),
    ("r*(1+r)^n/((1+r)^n-1)", "r=0..0.1, n=12..360"),
    ("r/(1-(1+r)^(-n))", "r=0..0.1, n=1..30"),
    ("log(1-x)/log(1+x)", "x=-0.5..0.5"),
    ("(1-cos(x))/x^2", "x=-1..1"),
    ("(x-sin(x))/x^3", "x=-1..1"),
    ("expm1(x)/x", "x=-1..1"),
    ("x/tanh(x)", "x=-1..1"),
    ("x/tan(x)", "x=-1..1"),
    ("x/(exp(x)-1)", "x=-1..1"),
    ("x*coth(x)-1", "x=-1..1"),
    ("1/tanh(x)-1/x", "x=-1..1"),
    ("1/x-1/(exp(x)-1)", "x=-1..1"),
    ("1/sin(x)-1/x", "x=-1..1"),
    ("sqrt(1-x^2)", "x=-1..1"),
    ("acos(x)", "x=-1..1"),
    ("asin(x)/x", "x=-1..1"),
    ("acos(x)^2", "x=-1..1"),
    ("x^x", "x=0..1"),
    ("x*log(x)", "x=0..1"),
    ("x^2*log(x)", "x=0..1"),
    ("x*log(x)^2", "x=0..1"),
    ("sqrt(x)*log(x)", "x=0..1"),
    ("-p*log(p)-(1-p)*log(1-p)", "p=0..1"),
    ("-p*log(p)-q*log(q)-(1-p-q)*log(1-p-q)", "p=0..0.5, q=0..0.5"),
    ("p*log(p/q)+(1-p)*log((1-p)/(1-q))", "p=0..1, q=0.1..0.9"),
    ("x^y", "x=0..1, y=1..2"),
    ("x^y", "x=0..1, y=0.5..2"),
    ("x^2.5*(1-x)^1.5", "x=0..1"),
    ("x^a*(1-x)^b", "x=0..1, a=1..3, b=1..3"),
    ("atan2(y, x)", "x=0.1..1, y=-1..1"),
    ("atan(y/x)", "x=0.1..1, y=-1..1"),
    ("sin(x)/x*sin(2*x)/x", "x=-1..1"),
    ("(sin(5*x)/(5*sin(x)))^2", "x=-0.5..0.5"),
    ("sin(4*x)/sin(x)", "x=-1..1"),
    ("sin(10*x)/(10*sin(x))", "x=-3..3"),
    ("tan(x)/x", "x=-1..1"),
    ("sin(x)*sin(2*x)*sin(3*x)*sin(4*x)", "x=0..pi"),
    ("sin(x) + sin(2*x)/2 + sin(3*x)/3 + sin(4*x)/4 + sin(5*x)/5 + sin(6*x)/6", "x=0..2*pi"),
    ("cos(x) + cos(sqrt(2)*x) + cos(pi*x)", "x=0..20"),
    ("sin(100*x)", "x=0..10"),
    ("cos(3*x)*cos(5*y) + sin(7*x*y)", "x=0..2, y=0..2"),
    ("sin(x)*exp(-0.1*x)*cos(20*x)", "x=0..10"),
    ("cos(5*acos(x))", "x=-1..1"),
    ("sin(3*asin(x))", "x=-1..1"),
    ("sqrt(x^2+y^2)", "x=-1..1, y=-1..1"),
    ("sqrt(x^2+y^2-2*x*y*cos(t))", "x=0..1, y=0..1, t=0..pi"),
    ("sqrt(a^2+b^2-2*a*b*cos(c))", "a=1..2, b=1..2, c=-pi..pi"),
    ("sqrt(1-cos(x))", "x=-pi..pi"),
    ("sqrt(2-2*cos(x))", "x=-pi..pi"),
    ("sqrt(1-sin(x)^2)", "x=-pi..pi"),
    ("sqrt((1+cos(x))/2)", "x=-pi..pi"),
    ("sqrt(1-sin(x)^2*sin(y)^2)", "x=-pi..pi, y=-pi..pi"),
    ("sqrt(1 - (x^2+y^2)/2)", "x=-1..1, y=-1..1"),
    ("asin(sin(a)*cos(b) + cos(a)*sin(b))", "a=0..1, b=0..0.5"),
    ("asin(2*x/(1+x^2))", "x=-2..2"),
    ("acos((1-x^2)/(1+x^2))", "x=-2..2"),
    ("acos(-tan(l)*tan(d))", "l=-1.1..1.1, d=-0.409..0.409"),
    ("acosh(x)", "x=1..3"),
    ("sqrt(x*(1-x))", "x=0..1"),
    ("sqrt(x-x^2)*asin(sqrt(x))", "x=0..1"),
    ("(sqrt(1+x)-1)/x", "x=-1..1"),
    ("(sqrt(1+x)-sqrt(1-x))/x", "x=-1..1"),
    ("(1-sqrt(1-x^2))/x", "x=-1..1"),
    ("(sqrt(x)-sqrt(y))/(x-y)", "x=1..2, y=1..2"),
    ("((1+x)^n-1)/x", "x=-0.5..0.5, n=1..10"),
    ("(x^a-1)/a", "x=1..2, a=-1..1"),
    ("(1-exp(-k*t))/k", "k=0..1, t=0..10"),
    ("(exp(-a*t)-exp(-b*t))/(b-a)", "a=0.1..1, b=0.1..1, t=0..10"),
    ("(1-g^n)/(1-g)", "g=0.5..1.5, n=1..10"),
    ("(1-M^(1))/(1-M^(2))", "M=0.5..1.5"),
    ("(1-exp(-N*(1-C)))/(1-C*exp(-N*(1-C)))", "N=0.1..5, C=0..1"),
    ("(1-exp(-NTU*(1-Cr)))/(1-Cr*exp(-NTU*(1-Cr)))", "NTU=0..5, Cr=0..0.9"),
    ("(1-x)/(1+x)*log((1+x)/(1-x))", "x=0..0.9"),
    ("x^2/(x^2+y^2)", "x=0..1, y=0.1..1"),
    ("sin(x*y)/(x*y)", "x=-1..1, y=-1..1"),
    ("sin(x+y)/(x+y)", "x=-1..1, y=-1..1"),
    ("sin(sqrt(x^2+y^2))/sqrt(x^2+y^2)", "x=-8..8, y=-8..8"),
    ("(exp(x*y)-1)/x", "x=-1..1, y=-1..1"),
    ("besselj(1,x)/x", "x=0..10"),
    ("2*besselj(1,x)/x", "x=-10..10"),
    ("(2*besselj(1,x)/x)^2", "x=-10..10"),
    ("(3*(sin(x)-x*cos(x))/x^3)^2", "x=0..10"),
    ("x^2*exp(x)/(exp(x)-1)^2", "x=0..5"),
    ("x^3/(exp(x)-1)", "x=0..10"),
    ("1/(exp(x/T)-1) - T/x", "x=0..5, T=1..2"),
    ("log(1+x)/x", "x=0..1"),
    ("log(x)/(x-1)", "x=0.5..2"),
    ("x*log(x)/(x-1)", "x=0..1"),
    ("x/log(1+x)", "x=0..1"),
    ("sqrt(x)*sqrt(1-x)*cos(x)", "x=0..1"),
    ("sqrt(x^3-3*x+2)", "x=-2..2"),
    ("sqrt(x*y*(1-x-y))", "x=0..0.5, y=0..0.5"),
    ("abs(sin(x))", "x=-10..10"),
    ("abs(x-y)^1.5", "x=0..1, y=0..1"),
    ("(x+y-abs(x-y))/2", "x=-1..1, y=-1..1"),
    ("erf(x)/x", "x=-1..1"),
    ("x*log(3*x)", "x=0..1"),
    ("(exp(-a*t) - exp(-b*t))/(b - a)", "a=0.1..1, b=0.1..1, t=0..10"),
    ("where(abs(x) < 1, (1 - x^2)^2, 0)", "x=-2..2"),
    ("where(x - 1 < 0, 1, x)", "x=0..2"),
    ("where(x^3 > x, x^3, x)", "x=-2..2"),
    ("(cos(x) - cos(y))/(x - y)", "x=0..1, y=0..1"),
    ("(tan(x) - sin(x))/x^3", "x=-1..1"),
    (
        "2*asin(sqrt(sin((b-a)/2)^2 + cos(a)*cos(b)*sin((d-c)/2)^2))",
        "a=-pi/2..pi/2, b=-pi/2..pi/2, c=-pi..pi, d=-pi..pi",
    ),
    ("ka/(ka - ke)*(exp(-ke*t) - exp(-ka*t))", "ka=0.5..2, ke=0.1..1, t=0..10"),
]
#: What is refused today: limits at a corner, of exponentials and arc tangents at infinity, of products of two logarithms,
#: and roots that vanish at an end of the box that is no rational number.
REFUSED = [
    ("x*y/(x+y)", "x=0..1, y=0..1"),
    ("x*y/sqrt(x^2+y^2)", "x=0..1, y=0..1"),
    ("1/(1/x+1/y)", "x=0..1, y=0..1"),
    ("acos(x)/sqrt(1-x^2)", "x=0..1"),
    ("x*log(x)*log(1-x)", "x=0..1"),
    ("log(x)*log(1-x)", "x=0..1"),
    ("y*exp(-x/y)", "x=0..1, y=0..1"),
    ("exp(-1/x^2)", "x=-1..1"),
    ("x*exp(-1/x)", "x=0..1"),
    ("atan(y/x)", "x=0..1, y=0.1..1"),
    ("atan(1/x)", "x=0..1"),
    ("x*atan(1/x)", "x=-1..1"),
    ("x^3/(x^2+y^2)", "x=-1..1, y=-1..1"),
    ("x^2*y/(x^2+y^2)", "x=-1..1, y=-1..1"),
    ("log(x)/(1-x)", "x=0..1"),
    ("(x-1)/log(x)", "x=0..1"),
    ("sqrt(sin(x))", "x=0..pi"),
    ("sqrt(cos(x))", "x=-pi/2..pi/2"),
    ("gamma(x)*x", "x=0..1"),
]


def judged(text, box):
    formula = Formula.of(text, box)
    ground = Prepared(formula)
    return Facts(formula, ground.stored(ground.signs), Finder(trees=ground.signs))


@pytest.mark.parametrize(("text", "box"), DEFINED)
def test_is_seen_to_be_defined(text, box):
    assert judged(text, box).known


@pytest.mark.parametrize(("text", "box"), REFUSED)
def test_is_refused_with_a_place(text, box):
    with pytest.raises(NotProvenError, match="undefined or unbounded near") as error:
        judged(text, box)
    assert error.value.place
