"""Formulas in LaTeX, read by sympy's parser in a process of its own with little time and memory.

Only commands that the parser understands are let through: it takes any other for a product of letters. What comes back
is a formula in our own notation, to be looked at before it is compiled.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

from transformula.errors import FormulaError
from transformula.optional import require

MAX_LENGTH, MAX_DEPTH = 4_000, 40
#: Seconds of processor time, and of waiting, that reading one formula may take.
CPU_SECONDS, WAIT_SECONDS = 20, 60
MAX_BYTES = 2**31

_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_LETTERS = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho varrho sigma "
    "tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_FUNCTIONS = "sin cos tan csc sec cot arcsin arccos arctan sinh cosh tanh arsinh arcosh artanh exp log ln sqrt min max"
_SIGNS = "frac dfrac tfrac cdot times div left right lvert rvert quad qquad"
_KNOWN = frozenset(f"{_LETTERS} {_FUNCTIONS} {_SIGNS}".split()) | set(",;:! ")
#: Written the way the parser reads it.
_PLAIN = {"left": "", "right": "", "lvert": "|", "rvert": "|", "tfrac": "\\frac", "dfrac": "\\frac"}
_PLAIN |= dict.fromkeys([*",;:! ", "quad", "qquad"], " ")


def from_latex(text: str) -> str:
    r"""A formula in LaTeX as a formula in our own notation. Names keep their subscripts: ``x_{1}`` becomes ``x_1``.

    Parameters
    ----------
    text : str
        Such as ``\frac{\sin x}{1 + x^2}``, without dollar signs.

    Returns
    -------
    str

    Raises
    ------
    transformula.errors.FormulaError
        A command is not known, or the formula is too long, too deep or no formula.
    """
    if not isinstance(text, str):
        raise FormulaError(f"a formula in LaTeX is text, not {type(text).__name__}")
    require("reading LaTeX", "sympy", "antlr4")
    answer = _asked(_checked(text.strip().strip("$")))
    if "text" not in answer:
        raise FormulaError(f"cannot read the LaTeX {text[:60]!r}: {answer.get('error', 'the reader failed')}")
    return str(answer["text"])


def _checked(text: str) -> str:
    """The text with plain brackets and spaces, if it is short, shallow and made of known commands."""
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"the formula has {len(text)} characters; in LaTeX at most {MAX_LENGTH}")
    if not text.strip():
        raise FormulaError("the formula is empty")
    depth = deepest = 0
    for char in text:
        depth += (char in "{([") - (char in "})]")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH or len(re.findall(r"[\^_-]", text)) > 10 * MAX_DEPTH:
        raise FormulaError(f"the formula is nested more than {MAX_DEPTH} levels deep, or has too many powers")
    for command in _COMMAND.findall(text):
        if command not in _KNOWN:
            raise FormulaError(f"the LaTeX command \\{command[:40]} is not known: see docs/notations.md")
    return _COMMAND.sub(lambda found: _PLAIN.get(found[1], found[0]), text)


def _asked(text: str) -> dict[str, object]:
    """What the reader, a process that can do no harm to this one, makes of a text."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "transformula.formulas.latex_reader"]
    try:
        done = subprocess.run(
            command, input=text.encode(), capture_output=True, timeout=WAIT_SECONDS, env=environment, check=False
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": "it takes too long"}
    except ValueError:
        return {"error": "it takes too much time or memory"}
    return answer if isinstance(answer, dict) else {}
