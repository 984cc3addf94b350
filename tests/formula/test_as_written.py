"""Formulas and boxes as engineers write them: what is read, and the hint on what is not."""

import numpy as np
import pytest

import transformula as tf
from transformula.cli.arguments import FormulaFile
from transformula.errors import FormulaError, InputError
from transformula.formula.constants import as_box
from transformula.formula.notations import given_formula

BOX = "x=0..1, x1=0..1, x2=0..1, y=0..1, Re=1000..4000"

READ = [
    ("x² + π", "x**2 + pi"),
    ("x⁻¹", "x**(-1)"),
    ("x¹²", "x**12"),
    ("2·x − 3×y ÷ 4", "2*x - 3*y/4"),
    ("√x + √(x + 1) + √2", "sqrt(x) + sqrt(x + 1) + sqrt(2)"),
    ("x₁·x₂", "x1*x2"),
    ("½*x", "(1/2)*x"),
    ("where(x ≤ y, x, y)", "where(x <= y, x, y)"),
    ("d = x/y; exp(-d²/2)", "exp(-(x/y)**2/2)"),
    ("a = x + 1; b = a*y; b - a", "((x + 1)*y) - (x + 1)"),
    ("E = 210e9; E*x", "210e9*x"),
    ("a := x + y\n2*a", "2*(x + y)"),
    ("clip(x, 0, 1/2)", "min(max(x, 0), 1/2)"),
    ("clamp(x, 0, 1/2)", "min(max(x, 0), 1/2)"),
    ("radians(x) + deg2rad(y)", "x*pi/180 + y*pi/180"),
    ("degrees(x) + rad2deg(y)", "x*180/pi + y*180/pi"),
    ("Phi(x) + normcdf(y)", "(1 + erf(x/sqrt(2)))/2 + (1 + erf(y/sqrt(2)))/2"),
    ("sum(x, y, 1)", "x + y + 1"),
    ("prod(x, y, 2)", "x*y*2"),
    ("sum(x)", "x"),
    ("∛x + ∛(x + 1)", "cbrt(x) + cbrt(x + 1)"),
    ("x + 1  # a comment", "x + 1"),
    ("d = x/y  # a ratio\nmax(\n  d,\n  1\n)", "max(x/y, 1)"),
    ("¼*x + x⁄2", "(1/4)*x + x/2"),
    ("x\u00a0+\u20091", "x + 1"),
    ("\ufeffx * \u200by", "x*y"),
    ("ｘ＋１", "x + 1"),
    ("𝑥 + 𝑦", "x + y"),
]

MISTAKES = [
    ("np.sin(x)", "write sin(x)"),
    ("numpy.exp(x)", "write exp(x)"),
    ("math.sqrt(x)", "write sqrt(x)"),
    ("np.pi*x", "write pi"),
    ("np.maximum(x, 0)", "write max(x, 0)"),
    ("np.square(x)", "write (x)**2"),
    ("norm.cdf(x)", "write Phi(x)"),
    ("scipy.stats.norm.cdf(x)", "write Phi(x)"),
    ("sin^2(x)", "write sin(x)^2"),
    ("cos**2(x)", "write cos(x)^2"),
    ("sin^2 x", "write sin(x)^2"),
    ("sin^-1(x)", "write asin(x) for the inverse function"),
    ("exp^x", "write exp(x)"),
    ("e(x)", "write exp(x)"),
    ("x if x > 0 else 0", "write where(x > 0, x, 0)"),
    ("if x > 0 then x else 0", "write where(x > 0, x, 0)"),
    ("x > 0 ? x : 0", "write where(x > 0, x, 0)"),
    ("if(x > 0, x, 0)", "write where(x > 0, x, 0)"),
    ("e^(i*pi*x)", "formulas are real: write cos(u) and sin(u)"),
    ("x1 x2", "write x1*x2"),
    ("x1x2", "write x1*x2"),
    ("lnx", "write ln(x)"),
    ("(x + 1) y", "write (x + 1)*y"),
    ("2x", "write 2*x"),
    ("2π", "write 2*pi"),
    ("πx", "write pi*x"),
    ("2(x + 1)", "write 2*(x + 1)"),
    ("x(1 + y)", "write x*(1 + y)"),
    ("sin x", "write sin(x)"),
    ("log(x, 10)", "write log10(x)"),
    ("log(x, 2)", "write log2(x)"),
    ("log(x, 7)", "write log(x)/log(7)"),
    ("log_2(x)", "write log2(x)"),
    ("1,5*x", "write 1.5 with a decimal point"),
    ("20%*x", "write 20/100"),
    ("x % 2", "write mod(x, 2)"),
    ("T[0]*x", "write T0, with T0=low..high in the box"),
    ("Sin[x]", "write sin(x) with round brackets"),
    ("[x + 1]*2", "use round brackets only"),
    ("{x}", "use round brackets only"),
    ("|x|", "write abs(x)"),
    ("x!", "write factorial(x)"),
    ("30°*x", "write radians(30)"),
    ("SIN(x)", "write sin(x)"),
    ("tg(x)", "write tan(x)"),
    ("ctg(x)", "write cot(x)"),
    ("arctg(x)", "write atan(x)"),
    ("lg(x)", "write log10(x)"),
    ("sqr(x)", "write (x)**2"),
    ("mean(x, y)", "write (x + y)/2"),
    ("avg(sin(x), max(y, 1), 2)", "write (sin(x) + max(y, 1) + 2)/3"),
    ("2*lg(sin(x) + 1)", "write log10(sin(x) + 1)"),
    ("sind(x + 30)", "write sin(radians(x + 30))"),
    ("x*cosd(45)", "write cos(radians(45))"),
    ("tand(x)", "write tan(radians(x))"),
    ("atan2d(y, x)", "write degrees(atan2(y, x))"),
    ("arccot(x + y)", "write atan(1/(x + y))"),
    ("x degC", "leave out degC if it is a unit, or write x*degC, with degC=low..high in the box"),
    ("x °C + 1", "leave out the units"),
    ("20 °C*x", "leave out the units"),
    ("6.674x10^-11*x", "write 6.674e-11"),
    ("x + 6.02 x 10**23", "write 6.02e23"),
    ("1.38 10^(-23)*x", "write 1.38e-23"),
    ("x*cos(2pi*y) + 3x2", "write x*cos(2*pi*y) + 3*x2"),
    ("sin (x)*2 y x1", "write sin (x)*2*y*x1"),
    ("x*g", "add g=low..high to the box, or g=9.80665 for the standard acceleration of gravity in m/s²"),
    ("exp(-x/(k_B*300))", "or k_B=1.380649e-23 for the Boltzmann constant in J/K"),
    ("x*epsilon_0", "or epsilon_0=8.8541878128e-12 for the vacuum electric permittivity"),
    ("x/(2 g)", "leave out the units: write 2"),
    ("xyg", "write x*y*g, with g=9.80665 for the standard acceleration of gravity in m/s²"),
    ("exp(-5/Rx)", "write R*x, with R=8.31446261815324 for the molar gas constant"),
    ("x_1 + 1", "write x1, as in the box"),
    ("gamma*x", "add gamma=low..high to the box"),
    ("4.7k*x", "write 4.7e3 if k is a prefix, else 4.7*k"),
    ("5 kΩ*x", "leave out the units: write 5"),
    ("1 000 000*x", "write 1000000 without the space"),
    ("1 + x + ... + x^9", "write all terms out"),
    ("x ± y", "write two formulas, one with + and one with -"),
    ("norm.ppf(x)", "there is no inverse of Phi here"),
    ("NORM.S.DIST(x)", "write Phi(..)"),
    ("gama(x)", "the nearest function is gamma"),
    ("∫x", "write the result as a formula"),
    ("diff(x, x)", "write the result as a formula"),
    ("Sum(x, y)", "write the terms out: sum(a, b, c)"),
    ("x and y", "nest where"),
    ("x == 1", "compare with < <= > >="),
    ("x < y", "a comparison stands inside where"),
    ("inf*x", "only finite numbers"),
    ("1_000*x", "write 1000"),
    ("1 000*x", "write 1000 without the space"),
    ("0x10*x", "write the number in decimal digits"),
    ("1.2.3*x", "a number has one decimal point"),
    ("'x'", "leave out the quotation marks"),
    ("x***2", "write one ** or one ^"),
    ("x ^^ 2", "write one ** or one ^"),
    ("(x + 1", "1 bracket not closed"),
    ("x + 1)", "1 bracket too many"),
    ("x, y", "give several formulas as separate arguments"),
    ("f(x) = x^2", "write the right-hand side alone: x^2"),
    ("z = x^2", "write x^2 alone"),
    ("y = x^2", "y is a variable of the box"),
    ("a = x; a = y; a", "a already has a meaning"),
    ("sin = x; sin", "sin already has a meaning"),
    ("a = ; a", "write what a is"),
    ("lambda x: x**2", "write x**2"),
    ("x -> x^2", "write x^2 alone"),
    ("for i in range(3): x", "loops and statements are not read"),
    (r"\frac{x}{2}", "read with --latex"),
    ("$x$", "read with --latex"),
    ("x + q", "add q=low..high to the box"),
    ("α*x", "add alpha=low..high to the box"),
    ("x.^2", "write x^ without the dot"),
    ("x mod 2", "write mod(x, 2)"),
    ("x // 2", "write floor(x/2)"),
    ("1e-3x", "write 1e-3*x"),
    ("x² y", "write x**2*y"),
    ("max(x; y)", "separate the arguments of a function by commas"),
    ("if x<1: 0 else: x", "write where(x<1, 0, x)"),
    ("torch.sigmoid(x)", "write sigmoid(x)"),
    ("x.in - 3", "a name has letters, digits and _: write x_in"),
    ("softmax(x)", "write exp(x1)/(exp(x1) + exp(x2))"),
    ("gaussian(x)", "write exp(-(x)**2/2)"),
    ("N(x)", "write Phi(x)"),
    ("norm(x)", "write sqrt(x**2 + y**2) or hypot(x, y)"),
    ("√x²", "can be read in two ways: write sqrt(x)^.. or sqrt(x^..)"),
    ("x' + 1", "a derivative is written out"),
    ("dx/dt", "write the result as a formula"),
    ("sin(x*deg)", "write radians(x)"),
    ("x + 1 = 0", "an equation is no formula: solve it, or write the difference (x + 1) - (0)"),
    ("x => x^2", "write x^2 alone"),
    ("x = 3", "or hold it in the box with x=value"),
    ("ReLU(x)", "write relu(x)"),
    ("3(x+1)", "write 3*(x+1)"),
    ("(x+1)(x+2)", "write (x+1)*(x+2)"),
    ("sin(x)cos(x)", "write sin(x)*cos(x)"),
    ("√2x", "write sqrt(2)*x"),
    ("1/2x", "write /(2*x) if both divide, or /2*x if only 2 does"),
    (".5x", "write .5*x"),
    ("sin 2x", "put the argument of sin in brackets, all of it, as in sin(2)"),
    ("sin x^2", "put the argument of sin in brackets"),
    ("tan x/2", "put the argument of tan in brackets"),
    ("1j*x", "formulas are real"),
    ("Pi*x", "write pi"),
    ("PI()*x", "write pi without brackets"),
    ("X**2", "write x, as in the box"),
    ("=x*2", "write x*2 without the = in front"),
    ("x %% 2", "write mod(x, 2)"),
    ("x %/% 2", "write floor(x/2)"),
    ("x %*% y", "write the entries of matrices out"),
    ("if(x>0){x}else{0}", "write where(x>0, x, 0)"),
    ("1,000*x", "write 1000 without the comma, or 1.000 with a decimal point"),
    ("1.500,5*x", "write 1500.5"),
    ("1'000*x", "write 1000"),
    ("x%", "write x/100"),
    ("5 m/s * x", "leave out the units"),
    ("9.81 m/s^2 * x", "leave out the units: write 9.81"),
    ("x [m]", "leave out the units"),
    ("x_{1}", "write x_1, with x_1=low..high in the box"),
    ("x^{2}", "write ^(2)"),
    ("[x, y]", "write x; y for several formulas"),
    ("x & y", "to join conditions"),
    ("x ≠ 1", "compare with < <= > >="),
    ("sum(i, 1, 3)", "write the terms out"),
    ("int(x)", "write trunc(x)"),
    ("print(x)", "loops and statements are not read"),
    ("x→0", "it has no value at a point"),
    ("Rational(1, 2)*x", "write 1/2"),
    ("x*S(1)/2", "write (1)"),
    ("Add(x, 1)", "write x + 1"),
    ("np.multiply(x, y)", "write x*y"),
    ("x.sin()", "write sin(x)"),
    ("x.pow(2)", "write pow(x, 2)"),
    ("xsin(x)", "write x*sin(x)"),
    ("é*x", "names have the letters a to z, digits and _"),
    ("where(Re < 2300, 64/Re, 0.3)", "a ramp such as min(max((Re - 2300)/30, 0), 1)"),
]

BOXES = [
    ("x=[0, 1]", "x=0..1"),
    ("x in [0, 1]", "x=0..1"),
    ("x ∈ [0, 2*pi]", "x=0..2*pi"),
    ("0 <= x <= 1", "x=0..1"),
    ("0 < x < 1, y=0..1", "x=0..1, y=0..1"),
    ("x=0..1; y=0..1", "x=0..1, y=0..1"),
    ("x=0..1\ny=0..1", "x=0..1, y=0..1"),
    ("β=0..1", "beta=0..1"),
    ("x=0..1, c=299792458, a=9..9", "x=0..1"),
    ("x in 0..1", "x=0..1"),
    ("x: 0..1, y=[0..2]", "x=0..1, y=0..2"),
    ("x: [0, 1]", "x=0..1"),
    ("1 >= x >= 0", "x=0..1"),
    ("x=0..1  # metres", "x=0..1"),
    ({"λ": (0, "π/2")}, "lambda=0..1/2*pi"),
]

BAD_BOXES = [
    ("x=0:1", "write x=0..1"),
    ("x=(0, 1)", "write x=0..1"),
    ("x=0 to 1", "write x=0..1"),
    ("x=0-1", "write x=0..1"),
    ("x=5±1", "write x=5-1..5+1"),
    ("x>0", "give both ends, x=0..high"),
    ("[0, 1]", "an interval has a name"),
    ("x=3", "nothing varies on the box"),
    ("x=0..1, x=3", "the box gives x twice"),
    ("x=0..1, sin=3", "cannot be the name of a constant"),
    ("x=0...1", "three dots"),
    ("x=0..90°", "write radians(90) for 90°"),
    ("x=0..1 y=0..1", "separate intervals by commas: x=0..1, y=0..1"),
    ("x=0..1 and y=0..1", "separate intervals by commas: x=0..1, y=0..1"),
    ("x=±1", "write x=-1..1"),
    ("x in (0, 1)", "write x=0..1"),
    ("x=np.linspace(0, 1, 50)", "write x=0..1"),
    ("x, y=0..1", "x has no interval: write x=low..high"),
    ("{x: [0, 1]}", "give a mapping in Python"),
    ("x in ]0, 1[", "write x=0..1"),
    ("x>=0, x<=1", "give both ends, x=0..high"),
    ("x between 0 and 1", "write x=0..1"),
    ("x=y=0..1", "write x=0..1, y=0..1"),
    ("x==0..1", "write x=0..1"),
    ("x=range(0, 1)", "write x=0..1"),
    ("x=-1--0.5, y=0..1", "write name=low..high"),
    ("x=0,5..1,5", "decimal points"),
    ("x=0..1,5", "write decimals with a point"),
    ("x=0..2pi", "write 2*pi for 2pi"),
    ("x=0..1_000", "write numbers without gaps"),
    ("x=0..50%", "write 50/100"),
    ("x=0..90deg", "write radians(90)"),
    ("x=0..5 m", "leave out the units"),
    ("x [m]=0..5", "leave out the units"),
    ("T=20°C..30°C", "leave out the units"),
    ("'x=0..1'", "leave out the quotation marks"),
    ("x=0..∞", "only finite numbers can be used"),
]


@pytest.mark.parametrize(
    ("formula", "ramp"),
    [
        ("where(2300 > Re, 64/Re, 0.3)", "(Re - 2300)/30"),
        ("where(2*x < 1, 0, 1)", "(x - 1/2)/0.01"),
        ("heaviside(x - 0.25)", "(x - 1/4)/0.01"),
        ("round(3*x)*y", "(x - 1/6)/0.01"),
        ("where(x < y, 0, 1)", "(x - y)/0.01"),
        ("where(x < y + 1/3, 0, 1)", "(x - (y + 1/3))/0.01"),
        ("sign(x2 + 0)*(1 + x)", "x2/0.01"),
    ],
)
def test_a_jump_has_a_ramp_at_its_place(formula, ramp):
    box = "x=0..1, y=0..1, x2=-0.5..0.5, Re=1000..4000"
    with pytest.raises(FormulaError) as caught:
        given_formula(formula, box)
    ramp = f"min(max({ramp}, 0), 1)"
    assert str(caught.value).endswith(f"a ramp such as {ramp}")
    assert given_formula(ramp, box).outputs  # which can be compiled


def test_letters_run_together_may_be_constants():
    with pytest.raises(FormulaError, match=r"write R\*T"):
        given_formula("exp(-5/RT)", "R=8.314, T=300..400")


@pytest.mark.parametrize(("text", "means"), READ)
def test_is_read(text, means):
    (found,) = given_formula(text, BOX).outputs
    (wanted,) = given_formula(means, BOX).outputs
    assert found == wanted


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_a_mistake_has_its_hint(text, said):
    with pytest.raises(FormulaError) as caught:
        given_formula(text, BOX)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "means"), BOXES)
def test_a_box_is_read(text, means):
    assert str(given_formula("1", text).box) == means


@pytest.mark.parametrize(("text", "said"), BAD_BOXES)
def test_a_box_that_is_not_read_has_its_hint(text, said):
    with pytest.raises(InputError) as caught:
        given_formula("1", text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gamma(1 + x)", "gamma(..) can be read in two ways"),  # Γ(1 + x), or γ times 1 + x
        ("zeta(x + 2)", "zeta(..) can be read in two ways"),
        ("zeta = 3; zeta(x + 2)", "zeta(..) can be read in two ways"),
        ("γ(1 + x)", "gamma(..) can be read in two ways"),
        ("d = 1,5; sum(d)*x", "d = is followed by '1,5': write what d is"),  # 6*x, not 1.5*x
        ("x\n+ x**2", "'+ x**2' could go on with the line before it"),  # two outputs, not one
        ("d = x\n- x**2\nd", "'- x**2' could go on with the line before it"),
    ],
)
def test_what_a_person_may_mean_otherwise_is_refused(text, said):
    box = "x=0..1, gamma=1..2" if "zeta" not in text else "x=0..1, zeta=3" if "=" not in text else "x=0..1"
    with pytest.raises(FormulaError) as caught:
        given_formula(text, box)
    assert said in str(caught.value)


def test_what_has_one_meaning_is_read():
    assert given_formula("gamma*gamma(x)", "x=1..2, gamma=1..2").texts == ("gamma*gamma(x)",)
    assert given_formula("x\n-x", "x=0..1").texts == given_formula("x; - x", "x=0..1").texts == ("x", "-x")
    assert given_formula("max(\n  x\n  + 1,\n  2)", "x=0..1").texts == ("max(x + 1, 2)",)


def test_constants_of_a_box_are_no_inputs():
    model = tf.compile("c*x + a", {"x": (0, 1), "c": 0.1, "a": "9..9"})
    assert model.formula.typed == ("0.1*x + 9",) and model.formula.box.variables == ("x",)
    assert model([0.5]) == pytest.approx(9.05)
    traced = tf.compile(lambda x, c: np.where(x > c, x, c), "x=0..1, c=0.5")
    assert traced.formula.typed == ("where(x > 0.5, x, 0.5)",)


def test_a_constant_may_have_the_name_of_a_number():
    assert given_formula("E*x + 1e5", "x=0..1, E=210e9").typed == ("210e9*x + 1e5",)


def test_intermediate_values_that_explode_are_refused():
    doubled = "; ".join(f"a{k + 1} = a{k}*a{k}" for k in range(60))
    with pytest.raises(FormulaError, match="once its intermediate values are written out"):
        given_formula(f"a0 = x; {doubled}; a60", "x=0..1")


def test_physical_constants_are_named_on_request_only():
    with pytest.raises(FormulaError, match="unknown name 'kB'"):
        given_formula("kB*T", "T=200..400")
    assert given_formula("kB*T", {"T": (200, 400), **as_box("kB")}).typed == ("1.380649e-23*T",)
    with pytest.raises(InputError, match="there is no constant 'q': known are c, h"):
        as_box("c, q")


def test_a_formula_file_has_settings_values_and_formulas():
    text = "# title\non: x=0..1\non: y=0..1  # more\neps: 1e-3\nd = x*y\n\nd**2\nd + 1\n"
    read = FormulaFile.of(text, "f")
    assert read.settings == {"on": "x=0..1, y=0..1", "eps": "1e-3"} and read.number("eps") == 1e-3
    assert given_formula(read.formulas, read.settings["on"]).typed == ("(x*y)**2", "(x*y) + 1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("size: 3\nx", "line 1: 'size' is no setting"),
        ("eps: 1\neps: 2\nx", "line 2: eps is given twice"),
        ("on: x=0..1", "has no formula"),
        ("on: x=0..1\nx**2\n+ x", r"line 3: '\+ x' could go on with the line before it"),
    ],
)
def test_a_formula_file_is_refused_by_line(text, said):
    with pytest.raises(InputError, match=said):
        FormulaFile.of(text, "f")


@pytest.mark.parametrize("text", ["sum(C/(1 + i)^k, k, 1, 5)", "prod(1 + k*i, k, -1, C)"])
def test_a_sum_over_an_index_is_not_read_as_its_terms(text):
    with pytest.raises(FormulaError, match="has no running index"):
        given_formula(text, "C=10..100, i=0..0.2, k=1..5")
    assert given_formula("sum(C, i*k, k, 1)", "C=10..100, i=0..0.2, k=1..5").outputs
