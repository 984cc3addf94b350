r"""Textbook formulas and what they mean, each against NumPy by hand; and those that no reader can be sure of.

The meanings are evaluated at random points by an independent function, so a formula that is read as another one fails.
"""

from __future__ import annotations

import math
import re
import zlib
from itertools import combinations

import numpy as np
import pytest
import scipy.special as sp

import transformula as tf
from transformula.errors import InputError
from transformula.formula.evaluation import evaluate
from transformula.kernel.syntax.parsing import parse

exp, log, sin, cos, tan, sqrt, pi, e = np.exp, np.log, np.sin, np.cos, np.tan, np.sqrt, np.pi, np.e

#: LaTeX, its variables, the function of these that it means.
MEANINGS = [
    # letters, numbers, signs
    (r"x", "x", lambda x: x),
    (r"$x + y$", "x y", lambda x, y: x + y),
    (r"\(x - y\)", "x y", lambda x, y: x - y),
    (r"\[ x y \]", "x y", lambda x, y: x * y),
    (r"$$ 2x^2 - 3x + 1. $$", "x", lambda x: 2 * x**2 - 3 * x + 1),
    (r"abc", "a b c", lambda a, b, c: a * b * c),
    (r"a b c", "a b c", lambda a, b, c: a * b * c),
    (r"a\,b\;c\!d~f\quad g", "a b c d f g", lambda a, b, c, d, f, g: a * b * c * d * f * g),
    (r"1.5x", "x", lambda x: 1.5 * x),
    (r".5x", "x", lambda x: 0.5 * x),
    (r"1{,}5x", "x", lambda x: 1.5 * x),
    (r"0{,}125x", "x", lambda x: 0.125 * x),
    (r"6.022 \times 10^{23} x", "x", lambda x: 6.022e23 * x),
    (r"1.6 \cdot 10^{-19} x", "x", lambda x: 1.6e-19 * x),
    (r"-x^2", "x", lambda x: -(x**2)),
    (r"(-x)^2", "x", lambda x: x**2),
    (r"-2^2 x", "x", lambda x: -4 * x),
    (r"+x", "x", lambda x: x),
    (r"x \cdot y", "x y", lambda x, y: x * y),
    (r"x \times y", "x y", lambda x, y: x * y),
    (r"x * y", "x y", lambda x, y: x * y),
    (r"x \div y", "x y", lambda x, y: x / y),
    (r"2 \cdot (-x)", "x", lambda x: -2 * x),
    (r"x % the rest is a comment", "x", lambda x: x),
    ("x + % first\n y % second", "x y", lambda x, y: x + y),
    (r"\alpha + \beta\gamma", "alpha beta gamma", lambda a, b, c: a + b * c),
    (r"\varepsilon \epsilon", "varepsilon epsilon", lambda a, b: a * b),
    (r"\ell \hbar \omega", "ell hbar omega", lambda a, b, c: a * b * c),
    (r"\pi x", "x", lambda x: pi * x),
    (r"\pi x", "pi x", lambda p, x: p * x),
    (r"e^x", "x", lambda x: exp(x)),
    (r"e x", "e x", lambda a, x: a * x),
    (r"e^{-x} y", "x y", lambda x, y: exp(-x) * y),
    (r"\mathrm{e}^{-x}", "x", lambda x: exp(-x)),
    (r"\mathrm e^{x} + e", "e x", lambda a, x: exp(x) + a),
    (r"2\mathrm{e}x", "x", lambda x: 2 * e * x),
    (r"i x", "i x", lambda i, x: i * x),
    # fractions
    (r"\frac{x}{y}", "x y", lambda x, y: x / y),
    (r"\dfrac{x}{y} + \tfrac12", "x y", lambda x, y: x / y + 0.5),
    (r"\frac12 x", "x", lambda x: 0.5 * x),
    (r"\frac 1 2 x", "x", lambda x: 0.5 * x),
    (r"\frac1{1+x}", "x", lambda x: 1 / (1 + x)),
    (r"\frac\pi2 x", "x", lambda x: pi / 2 * x),
    (r"\frac xy z", "x y z", lambda x, y, z: x / y * z),
    (r"\frac{x}{y}z", "x y z", lambda x, y, z: x / y * z),
    (r"\frac{a}{b} \frac{c}{d}", "a b c d", lambda a, b, c, d: a / b * c / d),
    (r"\frac{\frac{a}{b}}{\frac{c}{d}}", "a b c d", lambda a, b, c, d: (a / b) / (c / d)),
    (r"\cfrac{1}{1 + \cfrac{1}{x}}", "x", lambda x: 1 / (1 + 1 / x)),
    (r"\frac{a}{b}/c", "a b c", lambda a, b, c: a / b / c),
    (r"a/\frac{b}{c}", "a b c", lambda a, b, c: a / (b / c)),
    (r"2\frac{x}{y}", "x y", lambda x, y: 2 * x / y),
    (r"x/2 + y/3", "x y", lambda x, y: x / 2 + y / 3),
    (r"xy/2", "x y", lambda x, y: x * y / 2),
    (r"x/(yz)", "x y z", lambda x, y, z: x / (y * z)),
    (r"x/y^2", "x y", lambda x, y: x / y**2),
    (r"1/\sqrt{x}", "x", lambda x: 1 / sqrt(x)),
    (r"1/\sin x", "x", lambda x: 1 / sin(x)),
    (r"n(n+1)/2", "n", lambda n: n * (n + 1) / 2),
    (r"-x/y", "x y", lambda x, y: -x / y),
    (r"(x/y)z", "x y z", lambda x, y, z: x / y * z),
    # powers and roots
    (r"x^2y", "x y", lambda x, y: x**2 * y),
    (r"x^{10}", "x", lambda x: x**10),
    (r"x^{-1}", "x", lambda x: 1 / x),
    (r"x^{1/2}", "x", lambda x: sqrt(x)),
    (r"x^\frac12", "x", lambda x: sqrt(x)),
    (r"x^\alpha", "x alpha", lambda x, a: x**a),
    (r"x^ab", "x a b", lambda x, a, b: x**a * b),
    (r"2^{3^x}", "x", lambda x: 2 ** (3**x)),
    (r"{x}^{2}", "x", lambda x: x**2),
    (r"{(x+1)}^2", "x", lambda x: (x + 1) ** 2),
    (r"(x+1)^2(x-1)", "x", lambda x: (x + 1) ** 2 * (x - 1)),
    (r"(a+b)(a-b)", "a b", lambda a, b: a * a - b * b),
    (r"x(1-x)", "x", lambda x: x * (1 - x)),
    (r"2(x+1)", "x", lambda x: 2 * (x + 1)),
    (r"x^{(y+z)}", "x y z", lambda x, y, z: x ** (y + z)),
    (r"10^{-3}x", "x", lambda x: x / 1000),
    (r"\sqrt{x}", "x", lambda x: sqrt(x)),
    (r"\sqrt2 x", "x", lambda x: math.sqrt(2) * x),
    (r"\sqrt x y", "x y", lambda x, y: sqrt(x) * y),
    (r"\sqrt[3]{x}", "x", lambda x: np.cbrt(x)),
    (r"\sqrt[n]{x}", "x n", lambda x, n: x ** (1 / n)),
    (r"\sqrt[4]{x^2 + 1}", "x", lambda x: (x**2 + 1) ** 0.25),
    (r"\sqrt{x}^3", "x", lambda x: x**1.5),
    (r"\sqrt{1 - v^2/c^2}", "v c", lambda v, c: sqrt(1 - v**2 / c**2)),
    (r"x_1^2 + x_2^2", "x_1 x_2", lambda a, b: a**2 + b**2),
    (r"x^2_1", "x_1", lambda a: a**2),
    # brackets, bars, floors
    (r"\left( x + 1 \right) y", "x y", lambda x, y: (x + 1) * y),
    (r"\bigl( x + 1 \bigr)\Big( y - 1 \Big)", "x y", lambda x, y: (x + 1) * (y - 1)),
    (r"\lbrack 1 - (1 - x)^2 \rbrack y", "x y", lambda x, y: (1 - (1 - x) ** 2) * y),
    (r"\left\{ 1 - \left[ 1 - (1 - x) \right] \right\} y", "x y", lambda x, y: (1 - x) * y),
    (r"\left[ 1 + x \right]^2", "x", lambda x: (1 + x) ** 2),
    (r"|x - y|", "x y", lambda x, y: abs(x - y)),
    (r"|x| + |y|", "x y", lambda x, y: abs(x) + abs(y)),
    (r"|x| - 2|y|", "x y", lambda x, y: abs(x) - 2 * abs(y)),
    (r"|x||y|", "x y", lambda x, y: abs(x * y)),
    (r"2|-x|", "x", lambda x: 2 * abs(x)),
    (r"||x - 1| - |y - 1||", "x y", lambda x, y: abs(abs(x - 1) - abs(y - 1))),
    (r"|x - |y - 1||", "x y", lambda x, y: abs(x - abs(y - 1))),
    (r"|x - 1|^3", "x", lambda x: abs(x - 1) ** 3),
    (r"\left| x - 1 \left| y - 1 \right| \right|", "x y", lambda x, y: abs(x - abs(y - 1))),
    (r"\lvert x - y \rvert z", "x y z", lambda x, y, z: abs(x - y) * z),
    (r"\lVert x - y \rVert", "x y", lambda x, y: abs(x - y)),
    (r"\| x - y \|", "x y", lambda x, y: abs(x - y)),
    (r"\vert x - y \vert", "x y", lambda x, y: abs(x - y)),
    (r"\bigl| x - y \bigr|", "x y", lambda x, y: abs(x - y)),
    (r"\lfloor 3x \rfloor + \lceil 2y \rceil", "x y", lambda x, y: np.floor(3 * x) + np.ceil(2 * y)),
    (r"x - \left\lfloor x \right\rfloor", "x", lambda x: x - np.floor(x)),
    # factorials
    (r"5! x", "x", lambda x: 120 * x),
    (r"x!", "x", lambda x: sp.gamma(x + 1)),
    (r"2n!", "n", lambda n: 2 * sp.gamma(n + 1)),
    (r"(n+1)!", "n", lambda n: sp.gamma(n + 2)),
    (r"n!^2", "n", lambda n: sp.gamma(n + 1) ** 2),
    (r"\frac{n!}{k!(n-k+2)!}", "n k", lambda n, k: sp.gamma(n + 1) / sp.gamma(k + 1) / sp.gamma(n - k + 3)),
    (r"1/n!", "n", lambda n: 1 / sp.gamma(n + 1)),
    # functions with brackets
    (r"\sin(x)", "x", lambda x: sin(x)),
    (r"\sin\left(x + y\right)", "x y", lambda x, y: sin(x + y)),
    (r"\sin(x) y", "x y", lambda x, y: sin(x) * y),
    (r"\sin(x)/y", "x y", lambda x, y: sin(x) / y),
    (r"\sin(x) \cdot (y + 1)", "x y", lambda x, y: sin(x) * (y + 1)),
    (r"\ln(x)/x", "x", lambda x: log(x) / x),
    (r"\ln[x(1+x)]", "x", lambda x: log(x * (1 + x))),
    (r"\exp\left[-\frac{x^2}{2}\right]", "x", lambda x: exp(-(x**2) / 2)),
    (r"\exp\{-x/y\}", "x y", lambda x, y: exp(-x / y)),
    (r"\max(x, y)", "x y", lambda x, y: np.maximum(x, y)),
    (r"\min\{x, y, z\}", "x y z", lambda x, y, z: np.minimum(x, np.minimum(y, z))),
    (r"\max\left\{0,1-\frac{x}{y}\right\}", "x y", lambda x, y: np.maximum(0, 1 - x / y)),
    (r"\max(0, x - 1)^2", "x", lambda x: np.maximum(0, x - 1) ** 2),
    (r"\operatorname{erf}(x)", "x", lambda x: sp.erf(x)),
    (r"\operatorname{erf}(x)^2", "x", lambda x: sp.erf(x) ** 2),
    (r"\mathrm{erf}\left(\frac{x}{\sqrt2}\right)", "x", lambda x: sp.erf(x / math.sqrt(2))),
    (r"\operatorname{arsinh}(x)", "x", lambda x: np.arcsinh(x)),
    (r"\operatorname{arcosh}(1 + x)", "x", lambda x: np.arccosh(1 + x)),
    (r"\operatorname{artanh}(x/2)", "x", lambda x: np.arctanh(x / 2)),
    (r"\operatorname{atan2}(y, x)", "x y", lambda x, y: np.arctan2(y, x)),
    (r"\operatorname{besselj}(0, x)", "x", lambda x: sp.j0(x)),
    (r"\operatorname{sgn}(x - 1)", "x", lambda x: np.sign(x - 1)),
    (r"\operatorname{relu}(x - 1)", "x", lambda x: np.maximum(x - 1, 0)),
    (r"\operatorname{Si}(x)", "x", lambda x: sp.sici(x)[0]),
    (r"\Gamma(x)", "x", lambda x: sp.gamma(x)),
    (r"\frac{\Gamma(a)\Gamma(b)}{\Gamma(a+b)}", "a b", lambda a, b: sp.beta(a, b)),
    (r"\zeta(1 + x)", "x", lambda x: sp.zeta(1 + x)),
    (r"\zeta \cdot (1 + x)", "zeta x", lambda z, x: z * (1 + x)),
    # functions without brackets
    (r"\sin x", "x", lambda x: sin(x)),
    (r"\sin{x}", "x", lambda x: sin(x)),
    (r"\sin 2x", "x", lambda x: sin(2 * x)),
    (r"\sin 2 x", "x", lambda x: sin(2 * x)),
    (r"\sin 2\pi x", "x", lambda x: sin(2 * pi * x)),
    (r"\sin \pi x", "x", lambda x: sin(pi * x)),
    (r"\cos 3\theta", "theta", lambda t: cos(3 * t)),
    (r"\sin x^2", "x", lambda x: sin(x**2)),
    (r"\sin x_1^2", "x_1", lambda x: sin(x**2)),
    (r"\sin 2x^2", "x", lambda x: sin(2 * x**2)),
    (r"\ln x^2", "x", lambda x: log(x**2)),
    (r"\ln 2x", "x", lambda x: log(2 * x)),
    (r"\ln 2\pi + x", "x", lambda x: log(2 * pi) + x),
    (r"\sin x + 1", "x", lambda x: sin(x) + 1),
    (r"x\sin x", "x", lambda x: x * sin(x)),
    (r"2 \sin x \cos x", "x", lambda x: sin(2 * x)),
    (r"\sin x \cdot \cos y", "x y", lambda x, y: sin(x) * cos(y)),
    (r"\sin 2\theta\cos\theta", "theta", lambda t: sin(2 * t) * cos(t)),
    (r"\sin x / \cos x", "x", lambda x: tan(x)),
    (r"\ln x / \ln 2", "x", lambda x: np.log2(x)),
    (r"\sin\cos x", "x", lambda x: sin(cos(x))),
    (r"\ln\cosh x", "x", lambda x: log(np.cosh(x))),
    (r"\ln|x - 2|", "x", lambda x: log(abs(x - 2))),
    (r"\sin\sqrt{x}", "x", lambda x: sin(sqrt(x))),
    (r"\tan\frac{x}{2}", "x", lambda x: tan(x / 2)),
    (r"\exp x", "x", lambda x: exp(x)),
    (r"\sin e^x", "x", lambda x: sin(exp(x))),
    (r"\ln\Gamma(x)", "x", lambda x: sp.gammaln(x)),
    (r"\ln 2^x", "x", lambda x: x * math.log(2)),
    (r"\cot x + \sec x + \csc x", "x", lambda x: 1 / tan(x) + 1 / cos(x) + 1 / sin(x)),
    (r"\sinh x + \cosh x + \tanh x + \coth x", "x", lambda x: exp(x) + np.tanh(x) + 1 / np.tanh(x)),
    (r"\arcsin\frac x2 + \arccos\frac x2 + \arctan x", "x", lambda x: pi / 2 + np.arctan(x)),
    # powers of functions, logarithms
    (r"\sin^2 x + \cos^2 x", "x", lambda x: x * 0 + 1),
    (r"\sin^2(x)", "x", lambda x: sin(x) ** 2),
    (r"\cos^2x\sin^2y", "x y", lambda x, y: cos(x) ** 2 * sin(y) ** 2),
    (r"\sin^n x", "n x", lambda n, x: sin(x) ** n),
    (r"\sin^2 2x", "x", lambda x: sin(2 * x) ** 2),
    (r"\sin^2 x^2", "x", lambda x: sin(x**2) ** 2),
    (r"\sin^{-1}\frac x2", "x", lambda x: np.arcsin(x / 2)),
    (r"\tan^{-1}(x)", "x", lambda x: np.arctan(x)),
    (r"\cosh^{-1}(1+x)", "x", lambda x: np.arccosh(1 + x)),
    (r"\ln^2 x", "x", lambda x: log(x) ** 2),
    (r"(\ln x)^2", "x", lambda x: log(x) ** 2),
    (r"\operatorname{sech}^2 x", "x", lambda x: 1 / np.cosh(x) ** 2),
    (r"\log_2 x", "x", lambda x: np.log2(x)),
    (r"\log_{10}(x)", "x", lambda x: np.log10(x)),
    (r"\log_{10}{x}", "x", lambda x: np.log10(x)),
    (r"\log_b x", "b x", lambda b, x: log(x) / log(b)),
    (r"\log_2^3 x", "x", lambda x: np.log2(x) ** 3),
    (r"\log_e x", "x", lambda x: log(x)),
    (r"\operatorname{lb} x", "x", lambda x: np.log2(x)),
    # names
    (r"x_1 + x_{12}", "x_1 x_12", lambda a, b: a + b),
    (r"T_{\mathrm{max}} - T_{\min}", "T_max T_min", lambda a, b: a - b),
    (r"x_\text{in} x_\mathrm{out}", "x_in x_out", lambda a, b: a * b),
    (r"\mathrm{pressure} \cdot \mathit{volume}", "pressure volume", lambda a, b: a * b),
    (r"\text{m1} + \mathrm{m\_2}", "m1 m_2", lambda a, b: a + b),
    (r"a_{ij} b_{i,j} c_{\alpha\beta}", "a_ij b_i_j c_alphabeta", lambda a, b, c: a * b * c),
    (r"\bar{x} - \hat\mu + \tilde{y}_1 \dot m", "x_bar mu_hat y_tilde_1 m_dot", lambda a, b, c, d: a - b + c * d),
    (r"v_\infty + x_{k_1}", "v_inf x_k_1", lambda a, b: a + b),
    (r"E_0 + \pi_1 + e_1", "E_0 pi_1 e_1", lambda a, b, c: a + b + c),
    (r"\frac{E}{R}", "E R", lambda a, b: a / b),
    (r"\lambda \Lambda", "lambda Lambda", lambda a, b: a * b),
    # left sides
    (r"f(x) = x^2", "x", lambda x: x**2),
    (r"y = mx + b", "m x b", lambda m, x, b: m * x + b),
    (r"E = mc^2", "m c", lambda m, c: m * c**2),
    (r"f(x; \mu, \sigma) = \frac{x - \mu}{\sigma}", "x mu sigma", lambda x, m, s: (x - m) / s),
    (r"\hat{y} = \beta_0 + \beta_1 x", "beta_0 beta_1 x", lambda a, b, x: a + b * x),
    (r"\mathrm{pH} = -\log_{10} c", "c", lambda c: -np.log10(c)),
    (r"T_{\mathrm{out}} = T_{\mathrm{in}} + 1", "T_in", lambda t: t + 1),
    # cases
    (r"\begin{cases} x^2 & x < 1 \\ 2x - 1 & x \ge 1 \end{cases}", "x", lambda x: np.where(x < 1, x**2, 2 * x - 1)),
    (
        r"\begin{cases} 0, & \text{if } x < \frac12 \\[4pt] x - \frac12, & \text{otherwise.} \end{cases}",
        "x",
        lambda x: np.maximum(x - 0.5, 0),
    ),
    (
        r"\begin{cases} x & x < 0.5 \\ 0.5 & 0.5 \le x < 1 \\ x - 0.5 & x \ge 1 \end{cases}",
        "x",
        lambda x: np.where(x < 0.5, x, np.where(x < 1, 0.5, x - 0.5)),
    ),
    (
        r"2 + 3\begin{cases} 1 - (x-1)^2 & \frac12 \leq x \leq \frac32 \\ \frac34 & \text{else} \end{cases}",
        "x",
        lambda x: 2 + 3 * np.where(abs(x - 1) < 0.5, 1 - (x - 1) ** 2, 0.75),
    ),
    (
        r"\begin{cases} y & \text{for}\: x > y \\ x & \text{otherwise} \end{cases}",
        "x y",
        lambda x, y: np.minimum(x, y),
    ),
    # mechanics and relativity
    (r"x_0 + v_0 t + \frac{1}{2} a t^2", "x_0 v_0 t a", lambda x, v, t, a: x + v * t + a * t**2 / 2),
    (r"\frac{1}{2}mv^2 + mgh", "m v g h", lambda m, v, g, h: m * v**2 / 2 + m * g * h),
    (r"G\frac{m_1 m_2}{r^2}", "G m_1 m_2 r", lambda g, a, b, r: g * a * b / r**2),
    (r"2\pi\sqrt{\frac{L}{g}}", "L g", lambda a, g: 2 * pi * sqrt(a / g)),
    (r"2\pi\sqrt{L/g}", "L g", lambda a, g: 2 * pi * sqrt(a / g)),
    (r"\frac{v_0^2 \sin 2\theta}{g}", "v_0 theta g", lambda v, t, g: v**2 * sin(2 * t) / g),
    (r"A\cos(\omega t + \varphi)", "A omega t varphi", lambda a, w, t, p: a * cos(w * t + p)),
    (r"A e^{-\gamma t}\cos(\omega t)", "A gamma t omega", lambda a, g, t, w: a * exp(-g * t) * cos(w * t)),
    (r"\frac{1}{\sqrt{1 - \frac{v^2}{c^2}}}", "v c", lambda v, c: 1 / sqrt(1 - v**2 / c**2)),
    (r"\sqrt{p^2c^2 + m^2c^4}", "p c m", lambda p, c, m: sqrt(p**2 * c**2 + m**2 * c**4)),
    (r"\frac{2GM}{c^2}", "G M c", lambda g, m, c: 2 * g * m / c**2),
    (r"mg\left(1 - \frac{\rho_f}{\rho_s}\right)", "m g rho_f rho_s", lambda m, g, a, b: m * g * (1 - a / b)),
    (r"\frac{u + v}{1 + uv/c^2}", "u v c", lambda u, v, c: (u + v) / (1 + u * v / c**2)),
    (r"P + \tfrac{1}{2}\rho v^2 + \rho gh", "P rho v g h", lambda p, r, v, g, h: p + r * v**2 / 2 + r * g * h),
    (r"\frac{4}{3}\pi r^3", "r", lambda r: 4 / 3 * pi * r**3),
    (r"4\pi r^2", "r", lambda r: 4 * pi * r**2),
    (r"\pi r\left(r + \sqrt{h^2 + r^2}\right)", "r h", lambda r, h: pi * r * (r + sqrt(h**2 + r**2))),
    # electricity, waves, quanta
    (r"\frac{1}{4\pi\varepsilon_0}\frac{q_1q_2}{r^2}", "varepsilon_0 q_1 q_2 r", lambda s, a, b, r: a * b / (4 * pi * s * r**2)),
    (r"V_0\left(1 - e^{-t/(RC)}\right)", "V_0 t R C", lambda v, t, r, c: v * (1 - exp(-t / (r * c)))),
    (r"\sqrt{R^2 + \left(\omega L - \frac{1}{\omega C}\right)^2}", "R omega L C", lambda r, w, a, c: sqrt(r**2 + (w * a - 1 / (w * c)) ** 2)),
    (r"I_s\left(e^{\frac{V}{nV_T}} - 1\right)", "I_s V n V_T", lambda i, v, n, t: i * (exp(v / (n * t)) - 1)),
    (r"20\log_{10}\frac{V}{V_0}", "V V_0", lambda v, u: 20 * np.log10(v / u)),
    (r"\frac{R_1R_2}{R_1 + R_2}", "R_1 R_2", lambda a, b: a * b / (a + b)),
    (r"\frac{8\pi h\nu^3}{c^3}\frac{1}{e^{h\nu/(k_BT)} - 1}", "h nu c k_B T", lambda h, n, c, k, t: 8 * pi * h * n**3 / c**3 / (exp(h * n / (k * t)) - 1)),
    (r"\frac{\hbar^2k^2}{2m}", "hbar k m", lambda h, k, m: h**2 * k**2 / (2 * m)),
    (r"\hbar\omega\left(n + \tfrac12\right)", "hbar omega n", lambda h, w, n: h * w * (n + 0.5)),
    (r"\sqrt{\frac{2}{L}}\sin\frac{n\pi x}{L}", "L n x", lambda a, n, x: sqrt(2 / a) * sin(n * pi * x / a)),
    (r"\left(\frac{\sin x}{x}\right)^2", "x", lambda x: (sin(x) / x) ** 2),
    (r"\frac{n_1 - n_2}{n_1 + n_2}", "n_1 n_2", lambda a, b: (a - b) / (a + b)),
    (r"\arcsin\left(\frac{n_1}{n_2 + 2}\right)", "n_1 n_2", lambda a, b: np.arcsin(a / (b + 2))),
    # heat, chemistry, biology
    (r"\frac{nRT}{V - nb} - \frac{an^2}{V^2}", "n R T V b a", lambda n, r, t, v, b, a: n * r * t / (v - n * b) - a * n**2 / v**2),
    (r"k_BT\ln\Omega", "k_B T Omega", lambda k, t, o: k * t * log(o)),
    (r"nRT\ln\frac{V_2}{V_1}", "n R T V_2 V_1", lambda n, r, t, a, b: n * r * t * log(a / b)),
    (r"A\exp\left(-\frac{E_a}{RT}\right)", "A E_a R T", lambda a, x, r, t: a * exp(-x / (r * t))),
    (r"\frac{V_{\max}S}{K_m + S}", "V_max S K_m", lambda v, s, k: v * s / (k + s)),
    (r"\frac{x^n}{K^n + x^n}", "x n K", lambda x, n, k: x**n / (k**n + x**n)),
    (r"\frac{K}{1 + \left(\frac{K - N_0}{N_0}\right)e^{-rt}}", "K N_0 r t", lambda k, n, r, t: k / (1 + (k - n) / n * exp(-r * t))),
    (r"N_0 \cdot 2^{-t/T}", "N_0 t T", lambda n, t, a: n * 2 ** (-t / a)),
    (r"N_0e^{-\lambda t}", "N_0 lambda t", lambda n, a, t: n * exp(-a * t)),
    (r"\sigma\varepsilon A(T^4 - T_0^4)", "sigma varepsilon A T T_0", lambda s, v, a, t, u: s * v * a * (t**4 - u**4)),
    (r"4\varepsilon\left[\left(\frac{\sigma}{r}\right)^{12} - \left(\frac{\sigma}{r}\right)^6\right]", "varepsilon sigma r", lambda v, s, r: 4 * v * ((s / r) ** 12 - (s / r) ** 6)),
    # statistics and learning
    (r"\frac{1}{\sqrt{2\pi\sigma^2}} e^{-\frac{(x-\mu)^2}{2\sigma^2}}", "x mu sigma", lambda x, m, s: exp(-((x - m) ** 2) / (2 * s**2)) / sqrt(2 * pi * s**2)),
    (r"\frac{1}{\sigma\sqrt{2\pi}}\exp\left(-\frac{1}{2}\left(\frac{x-\mu}{\sigma}\right)^{2}\right)", "x mu sigma", lambda x, m, s: exp(-0.5 * ((x - m) / s) ** 2) / (s * sqrt(2 * pi))),
    (r"\frac{1}{2}\left[1 + \operatorname{erf}\left(\frac{x-\mu}{\sigma\sqrt{2}}\right)\right]", "x mu sigma", lambda x, m, s: 0.5 * (1 + sp.erf((x - m) / (s * math.sqrt(2))))),
    (r"\frac{\lambda^k e^{-\lambda}}{k!}", "lambda k", lambda a, k: a**k * exp(-a) / sp.gamma(k + 1)),
    (r"\frac{n!}{k!(n-k+1)!}p^k(1-p/2)^{n-k}", "n k p", lambda n, k, p: sp.gamma(n + 1) / sp.gamma(k + 1) / sp.gamma(n - k + 2) * p**k * (1 - p / 2) ** (n - k)),
    (r"\frac{\beta^\alpha}{\Gamma(\alpha)}x^{\alpha-1}e^{-\beta x}", "beta alpha x", lambda b, a, x: b**a / sp.gamma(a) * x ** (a - 1) * exp(-b * x)),
    (r"\frac{x^{a-1}(2-x)^{b-1}}{\operatorname{beta}(a, b)}", "x a b", lambda x, a, b: x ** (a - 1) * (2 - x) ** (b - 1) / sp.beta(a, b)),
    (r"\frac{k}{\lambda}\left(\frac{x}{\lambda}\right)^{k-1}e^{-(x/\lambda)^k}", "k lambda x", lambda k, a, x: k / a * (x / a) ** (k - 1) * exp(-((x / a) ** k))),
    (r"\frac{1}{\pi\gamma\left[1 + \left(\frac{x - x_0}{\gamma}\right)^2\right]}", "gamma x x_0", lambda g, x, a: 1 / (pi * g * (1 + ((x - a) / g) ** 2))),
    (r"\frac{1}{2b}\exp\left(-\frac{|x-\mu|}{b}\right)", "b x mu", lambda b, x, m: exp(-abs(x - m) / b) / (2 * b)),
    (r"-p\log_2 p - (2-p)\log_2(2-p)", "p", lambda p: -p * np.log2(p) - (2 - p) * np.log2(2 - p)),
    (r"\frac{\bar{x} - \mu_0}{s/\sqrt{n}}", "x_bar mu_0 s n", lambda x, m, s, n: (x - m) / (s / sqrt(n))),
    (r"\sigma(x) = \frac{1}{1 + e^{-x}}", "x", lambda x: 1 / (1 + exp(-x))),
    (r"\ln(1 + e^x)", "x", lambda x: log(1 + exp(x))),
    (r"\frac{e^x - e^{-x}}{e^x + e^{-x}}", "x", lambda x: np.tanh(x)),
    (r"0.5x\left(1 + \tanh\left[\sqrt{2/\pi}\left(x + 0.044715x^3\right)\right]\right)", "x", lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / pi) * (x + 0.044715 * x**3)))),
    (r"\max(0, 1 - yt)", "y t", lambda y, t: np.maximum(0, 1 - y * t)),
    # mathematics, finance, engineering
    (r"\frac{-b + \sqrt{b^2 + 4ac}}{2a}", "a b c", lambda a, b, c: (-b + sqrt(b**2 + 4 * a * c)) / (2 * a)),
    (r"\sqrt{(x_2 - x_1)^2 + (y_2 - y_1)^2}", "x_1 x_2 y_1 y_2", lambda a, b, c, d: np.hypot(b - a, d - c)),
    (r"\frac{a(1 - q^n)}{1 - q}", "a q n", lambda a, q, n: a * (1 - q**n) / (1 - q)),
    (r"\frac{n(n+1)(2n+1)}{6}", "n", lambda n: n * (n + 1) * (2 * n + 1) / 6),
    (r"\sqrt{2\pi n}\left(\frac{n}{e}\right)^n", "n", lambda n: sqrt(2 * pi * n) * (n / e) ** n),
    (r"a^2 + b^2 - 2ab\cos\gamma", "a b gamma", lambda a, b, g: a**2 + b**2 - 2 * a * b * cos(g)),
    (r"\sqrt{s(s-a)(s-b)(s-c)}", "s a b c", lambda s, a, b, c: sqrt(s * (s - a) * (s - b) * (s - c))),
    (r"P\left(1 + \frac{r}{n}\right)^{nt}", "P r n t", lambda p, r, n, t: p * (1 + r / n) ** (n * t)),
    (r"\frac{Pr(1+r)^n}{(1+r)^n - 1}", "P r n", lambda p, r, n: p * r * (1 + r) ** n / ((1 + r) ** n - 1)),
    (r"\frac{\ln(S/K) + (r + \sigma^2/2)T}{\sigma\sqrt{T}}", "S K r sigma T", lambda s, k, r, v, t: (log(s / k) + (r + v**2 / 2) * t) / (v * sqrt(t))),
    (r"\frac{1}{n}R_h^{2/3}S^{1/2}", "n R_h S", lambda n, r, s: r ** (2 / 3) * sqrt(s) / n),
    (r"\frac{\rho vD}{\mu}", "rho v D mu", lambda r, v, d, m: r * v * d / m),
    (r"\frac{bh^3}{12}", "b h", lambda b, h: b * h**3 / 12),
    (r"\frac{5wL^4}{384EI}", "w L E I", lambda w, a, y, i: 5 * w * a**4 / (384 * y * i)),
    (r"-2\log_{10}\left(\frac{\varepsilon}{3.7D} + \frac{2.51}{\mathrm{Re}\sqrt f}\right)", "varepsilon D Re f", lambda v, d, r, f: -2 * np.log10(v / (3.7 * d) + 2.51 / (r * sqrt(f)))),
    (r"100(y - x^2)^2 + (1 - x)^2", "x y", lambda x, y: 100 * (y - x**2) ** 2 + (1 - x) ** 2),
    (r"x\sin\sqrt{|x|}", "x", lambda x: x * sin(sqrt(abs(x)))),
    (r"20 + e - 20\exp\left(-0.2\sqrt{\tfrac12(x^2 + y^2)}\right)", "x y", lambda x, y: 20 + e - 20 * exp(-0.2 * sqrt((x**2 + y**2) / 2))),
]  # fmt: skip

#: LaTeX that is refused, words of the refusal, and the variables (none: not known).
REFUSALS = [
    # functions without brackets
    (r"\sin x y", r"\sin(x) \cdot y or \sin(x \cdot y)"),
    (r"\sin xy", r"\sin(x) \cdot y or \sin(x \cdot y)"),
    (r"\sin x / y", r"\sin(x) / y or \sin(x / y)"),
    (r"\ln x / x", r"\ln(x) / x or \ln(x / x)"),
    (r"\ln x \cdot y", r"\ln(x) \cdot y or \ln(x \cdot y)"),
    (r"\sin x \times y", r"\sin(x) \times y or \sin(x \times y)"),
    (r"\sin{x}y", r"\sin(x) \cdot y or \sin(x \cdot y)"),
    (r"\sin{xy}", r"\sin(x) \cdot y or \sin(x \cdot y)"),
    (r"\sin\omega t", r"\sin(\omega) \cdot t or \sin(\omega \cdot t)"),
    (r"\sin 2\pi f t", r"\sin(2\pi f) \cdot t or \sin(2\pi f \cdot t)"),
    (r"\sin x (y + 1)", r"\sin(x) \cdot (y + 1) or \sin(x \cdot (y + 1))"),
    (r"\sin 2(x + 1)", r"\sin(2) \cdot (x + 1) or \sin(2 \cdot (x + 1))"),
    (r"\sin(x)(y + 1)", r"\sin(x) \cdot (y + 1) or \sin((x) \cdot (y + 1))"),
    (r"\sin x \sqrt{y}", r"\sin(x) \cdot \sqrt{y} or \sin(x \cdot \sqrt{y})"),
    (r"\sin\frac12 x", r"\sin(\frac12) \cdot x or \sin(\frac12 \cdot x)"),
    (r"\ln 2 x", r"\ln(2) \cdot x or \ln(2 \cdot x)"),
    (r"\ln 2\,x", r"\ln(2) \cdot x or \ln(2 \cdot x)"),
    (r"\sin 2\,x", r"\sin(2) \cdot x or \sin(2 \cdot x)"),
    (r"\sin 2\cos x", r"\sin(2) \cdot \cos x or \sin(2 \cdot \cos x)"),
    (r"\ln\sin x\cos x", r"\ln(\sin(x)) \cdot \cos x or \ln(\sin(x) \cdot \cos x)"),
    (r"\sin\cos x / 2", r"\sin(\cos(x)) / 2 or \sin(\cos(x) / 2)"),
    (r"\sin(x)^2", r"(\sin(x))^2 or \sin((x)^2)"),
    (r"\sin{(x)}^2", r"(\sin(x))^2 or \sin((x)^2)"),
    (r"\ln\left(1+x\right)^2", r"(\ln\left(1+x\right))^2 or \ln(\left(1+x\right)^2)"),
    (r"\ln|x|^2", r"(\ln(|x|))^2 or \ln((|x|)^2)"),
    (r"\sin x!", r"(\sin(x))! or \sin((x)!)"),
    (r"\sin(x)!", r"(\sin(x))! or \sin((x)!)"),
    (r"\sin\frac{x}{2}^2", r"(\sin(\frac{x}{2}))^2 or \sin((\frac{x}{2})^2)"),
    (r"\sin -x", r"write \sin(-x)"),
    (r"\log x", r"\ln x or \log_{10} x"),
    (r"\operatorname{log}(x)", r"\ln x or \log_{10} x"),
    (r"\lg x", r"\log_{10} x or \log_{2} x"),
    (r"\ln^{-1} x", r"read in two ways"),
    (r"\sin^{-2} x", r"read in two ways"),
    (r"\exp^2 x", r"read in two ways"),
    (r"\csc^{-1} x", r"read in two ways"),
    (r"\operatorname{erf} x", r"needs brackets"),
    (r"\sin + x", r"a sign follows \sin"),
    (r"\sin", r"\sin has no argument"),
    (r"\sin^2", r"\sin^2 has no argument"),
    (r"\sin_1 x", r"only \log takes"),
    (r"\sin(x, y)", r"takes one argument"),
    # quotients
    (r"1/2x", r"\frac{1}{2} \cdot x or \frac{1}{2 \cdot x}"),
    (r"x/yz", r"\frac{x}{y} \cdot z or \frac{x}{y \cdot z}"),
    (r"a/b/c", r"\frac{a}{b} / c or \frac{a}{b / c}"),
    (r"a/b \cdot c", r"\frac{a}{b} \cdot c or \frac{a}{b \cdot c}"),
    (r"a/b(c+d)", r"\frac{a}{b} \cdot (c+d) or \frac{a}{b \cdot (c+d)}"),
    (r"h\nu/k_BT", r"\frac{h\nu}{k_B} \cdot T or \frac{h\nu}{k_B \cdot T}"),
    (r"1/\sin x\cos x", r"\frac{1}{\sin x} \cdot \cos x or \frac{1}{\sin x \cdot \cos x}"),
    (r"a \div b c", r"\frac{a}{b} \cdot c or \frac{a}{b \cdot c}"),
    (r"1/{2x}", r"\frac{1}{2} \cdot x or \frac{1}{2 \cdot x}"),
    (r"dy/dx", r"\frac{dy}{d} \cdot x or \frac{dy}{d \cdot x}"),
    # powers and factorials
    (r"x^2!", r"(x^2)! or x^{(2)!}"),
    (r"x^10", r"x^{10} or x^{1} \cdot 0"),
    (r"x_12", r"x_{12} or x_{1} \cdot 2"),
    (r"x^-1", r"x^{-1}"),
    (r"x^1/2", r"x^{1/2} for a root or x / 2"),
    (r"x^2^3", r"two exponents"),
    (r"x_1_2", r"two exponents or two indices"),
    (r"\frac{a}{b}^2", r"(\frac{a}{b})^2 or \frac{(a)^2}{b}"),
    (r"{ab}^2", r"braces { } are not printed"),
    (r"{x^2}^3", r"braces { } are not printed"),
    (r"n!!", r"(n!)!"),
    (r"x^{(2)}", r"^{2} or _{2}"),
    (r"x'", r"a prime is not read"),
    # numbers
    (r"3 4", r"34 or 3 \cdot 4"),
    (r"1\,000", r"1000 or 1 \cdot 000"),
    (r"1{,}000", r"1.000 or 1000"),
    (r"1.5.2", r"more than one decimal point"),
    (r"1{2}", r"12 or 1 \cdot 2"),
    (r"x2", r"x \cdot 2, x_{2} or x^{2}"),
    (r"3\frac{1}{2}", r"3 + \frac{1}{2} for a mixed number or 3 \cdot \frac{1}{2}"),
    (r"2e-3", r"2 \cdot 10^{-3} or 2 \cdot \mathrm{e} -3"),
    (r"\max(1,5,2)", r"1{,}5 for a decimal comma or 1, 5 for two arguments"),
    (r"50% x", r"% begins a comment"),
    # braces, bars and brackets
    (r"{a+b}c", r"braces { } are not printed"),
    (r"|a|b|c|", r"in more than one way"),
    (r"[x]", r"\lfloor ... \rfloor"),
    (r"\{x\}", r"fractional part"),
    (r"(x]", r"meets ] where ) is expected"),
    (r"(x", r"meets the end where ) is expected"),
    (r"x)", r") closes nothing"),
    (r"P(x|y)", r"has no partner"),
    (r"\left. x \right|", r"\left. is not read"),
    (r"()", r"something is missing"),
    # names
    (r"sin(x)", r"write \sin or s \cdot i \cdot n"),
    (r"x_{max} + x_{\mathrm{max}}", r"would both become the variable x_max"),
    (r"\alpha + \mathrm{alpha}", r"would both become the variable alpha"),
    (r"x + \mathrm{x}", r"would both become the variable x"),
    (r"x_{i+1}", r"an index is a name"),
    (r"E", r"E alone a constant"),
    (r"\mathrm{i} x", r"imaginary unit"),
    (r"\mathrm{d} x", r"differential"),
    (r"\frac{dy}{dx}", r"could be a derivative"),
    (r"\zeta(x)", r"\operatorname{zeta}(...) or \zeta \cdot (...)"),
    (r"\mathrm{foo}(x)", r"no known function"),
    # equations
    (r"x = x^2", r"an equation for x"),
    (r"x = 3", r"could be an equation for x"),
    (r"x^2 + y^2 = 1", r"the left side is no name"),
    (r"a = b = c", r"not a relation"),
    (r"x < 1", r"not a relation"),
    # commands
    (r"\int_0^1 x\,dx", r"integrals cannot be compiled"),
    (r"\sum_{i=1}^n x_i", r"write every term"),
    (r"\prod_i x_i", r"write every factor"),
    (r"\lim_{x\to0} x", r"write the limit itself"),
    (r"\partial x", r"derivatives cannot be compiled"),
    (r"x_1 + \dots + x_n", r"write every term"),
    (r"a \pm b", r"once with + and once with -"),
    (r"\binom{n}{k}", r"factorials"),
    (r"\infty", r"finite numbers"),
    (r"30^\circ", r"write degrees"),
    (r"30^{\circ}", r"write degrees"),
    (r"\vec{x}", r"vectors cannot be compiled"),
    (r"\foo", r"the command \foo is not known"),
    (r"\alphax", r"the command \alphax is not known"),
    (r"\def\a{\a\a}\a", r"the command \def is not known"),
    (r"\begin{matrix} x \end{matrix}", r"the environment matrix is not read"),
    (r"x \\ y", r"has no place here"),
    (r"x & y", r"has no place here"),
    (r"a − b", r"write - for the character"),
    # cases
    (r"\begin{cases} x & x > 0 \\ -x & x < 0 \end{cases}", r"no row of the cases holds where x < 0 does not"),
    (r"\begin{cases} x & y > 0 \\ 2x & x > 0 \\ 0 & \text{else} \end{cases}", r"may overlap"),
    (r"\begin{cases} \frac{\sin x}{x} & x \ne 0 \\ 1 & x = 0 \end{cases}", r"a condition at a single point"),
    (r"\begin{cases} 1 & \text{otherwise} \\ x & x > 0 \end{cases}", r"leaves nothing"),
    (r"\begin{cases} x & x \end{cases}", r"a condition of the cases is a comparison"),
    (r"\begin{cases} x & x > 0 \\ 1 & \text{else} \end{cases} + 1", r"nothing may stand after"),
]  # fmt: skip
#: The same on a box.
ON_A_BOX = [
    (r"\frac{V_{\max}[S]}{K_m + [S]}", "V_max S K_m", r"\lfloor ... \rfloor"),
    (r"\mathrm{pK_a}", "pKa", "an index stands after the word"),
    (r"N_0 2^{-t/T}", "N_0 t T", r"N_{02}^{-t/T} or N_{0} \cdot 2^{-t/T}"),
    (r"\theta^\top", "theta top", r"the command \top is not known"),
    (r"\frac{2.51}{Re\sqrt f}", "Re f", r"\mathrm{Re} or R \cdot e"),
    (r"ab", "a b ab", r"\mathrm{ab} or a \cdot b"),
    (r"m1 x", "m1 x", r"\mathrm{m1} or m \cdot 1"),
    (r"m_1 x", "m1 x", r"the box has m1, which is \mathrm{m1}"),
    (r"mu", "mu", r"\mathrm{mu} or m \cdot u"),
    (r"x + y", "x", "the box has no interval for y: add y=low..high"),
    (r"\frac{E}{R}", "R", "the box has no interval for E"),
    (r"e^{ix}", "x", "complex numbers cannot be compiled"),
    (r"f(x)", "x", "the box has no interval for f"),
    (r"\Gamma(x)", "x Gamma", r"\operatorname{gamma}(...) or \Gamma \cdot (...)"),
    (r"\zeta(x)", "x zeta", r"\operatorname{zeta}(...) or \zeta \cdot (...)"),
    (r"\mathrm{beta}(x, y)", "x y beta", r"\operatorname{beta}(...) or \mathrm{beta} \cdot (...)"),
    (r"\frac{\Delta x}{t}", "x t", r"such as x_{\Delta}"),
    (r"x = 3", "x", "an equation for x"),
    (r"y = 2x", "x y", "an equation for y"),
]  # fmt: skip


def value_of(text, names, columns):
    return evaluate(parse(text, names, jumps=True), names, columns)


def points(latex, names):
    """Random points for a formula, the same in every run."""
    rng = np.random.default_rng(zlib.crc32(latex.encode()))
    columns = [rng.uniform(0.3, 1.7, 40) for _ in names]
    if {"v", "c"} <= set(names):  # slower than light
        columns[names.index("c")] += 2
    return columns


@pytest.mark.parametrize(("latex", "names", "meaning"), MEANINGS, ids=[row[0] for row in MEANINGS])
def test_a_formula_means_what_is_read(latex, names, meaning):
    names = names.split()
    columns = points(latex, names)
    with np.errstate(invalid="ignore"):
        ours, expected = value_of(tf.from_latex(latex, names), names, columns), meaning(*columns)
    assert np.isfinite(ours).sum() >= 10
    np.testing.assert_allclose(ours, np.broadcast_to(expected, ours.shape), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("latex", "said"), REFUSALS, ids=[row[0] for row in REFUSALS])
def test_what_is_read_in_two_ways_is_refused_with_both(latex, said):
    with pytest.raises(InputError) as caught:
        tf.from_latex(latex)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("latex", "names", "said"), ON_A_BOX)
def test_what_a_box_gives_another_meaning_is_refused(latex, names, said):
    with pytest.raises(InputError) as caught:
        tf.from_latex(latex, names.split())
    assert said in str(caught.value) and "\n" not in str(caught.value)


SPELLED = [(latex, re.split(r", (?=x)| or ", said)) for latex, said in REFUSALS if " or " in said and "..." not in said]
SPELLED = [(latex, [re.sub(r" for an? .*", "", one) for one in readings]) for latex, readings in SPELLED]
SPELLED = [
    row
    for row in SPELLED
    if "indices" not in row[1][-1]
    and row[0] not in (r"\max(1,5,2)", r"x^{(2)}", "sin(x)", r"\log x", r"\operatorname{log}(x)")
]


@pytest.mark.parametrize(("latex", "readings"), SPELLED, ids=[row[0] for row in SPELLED])
def test_the_readings_of_a_refusal_are_read_and_differ(latex, readings):
    texts = [tf.from_latex(one) for one in readings]
    names = sorted(set().union(*(parse(text).names for text in texts)) | {"x"})
    values = [value_of(text, names, points(latex, names)) for text in texts]
    assert len(texts) > 1 and not any(np.allclose(a, b, equal_nan=True) for a, b in combinations(values, 2))


def test_the_tables_are_long():
    assert len(MEANINGS) >= 200 and len(REFUSALS) >= 100 and len(SPELLED) >= 50
