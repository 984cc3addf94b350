"""A typed formula in Coq's words, node by node: the half of `transcription` that reads formulas.

Trusted like it: the standard library alone, nothing of the generator. Numbers are folded, all else is kept.
"""

import ast
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

WORD = re.compile(r"\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[A-Za-z_]\w*", re.ASCII)
CALLS = {name: name for name in ("sin", "cos", "tan", "atan", "exp", "ln", "sqrt", "tanh", "sinh", "cosh")}
CALLS |= {"log": "ln", "abs": "Rabs", "min": "Rmin", "max": "Rmax"}
SIGNS: dict[Any, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "^"}
NUMBERED = re.compile(r"(\w*?)(\d+)\s*\.\.\s*\1(\d+)")
DOMAINS = {"ln": "0 < {}", "Rpower": "0 < {}", "sqrt": "0 <= {}", "tan": "(cos ({})) <> 0"}


def shown(value: Any) -> str:
    """A number or a term in Coq."""
    if not isinstance(value, Fraction):
        return str(value)
    top = f"(- {-value.numerator})" if value < 0 else str(value.numerator)
    return top if value.denominator == 1 else f"({top} / {value.denominator})"


class TranscribedTerm:
    """A typed formula in Coq: numbers are folded, all else is kept; ``conditions`` say where it is defined."""

    def __init__(self, text: str, names: list[str]) -> None:
        self.conditions: dict[str, None] = {}
        self.text = WORD.sub(lambda m: f"v_{m[0]}" if m[0] in names else m[0], text.replace("^", "**")).strip()
        self.atoms = {f"v_{n}": f"v_{n}" for n in names} | {"pi": "PI", "E": "(exp (1))", "e": "(exp (1))"}
        self.coq = shown(self._read(ast.parse(self.text, mode="eval").body))

    def _node(self, name: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, Fraction), isinstance(right, Fraction)
        if name == "/" and not (numbers[1] and right):
            self.conditions[f"{shown(right)} <> 0"] = None
        if name == "/" and all(numbers):
            return left / right
        if (name == "^" and not numbers[1]) or (name == "^" and right.denominator > 2):
            return self._call("Rpower", left, right)
        if name != "^" or (right.denominator == 1 and right >= 0):
            return f"({shown(left)} {name} {shown(right)})"
        if right < 0:
            return self._node("/", Fraction(1), self._node("^", left, -right))
        root, whole = self._call("sqrt", left), right - Fraction(1, 2)
        return self._node("*", self._node("^", left, whole), root) if whole else root

    def _call(self, name: str, *parts: Any) -> Any:
        if name in DOMAINS:
            self.conditions[DOMAINS[name].format(shown(parts[0]))] = None
        nested = parts if len(parts) < 3 else (parts[0], self._call(name, *parts[1:]))
        return f"({name} {' '.join(f'({shown(part)})' for part in nested)})"

    def _read(self, node: Any) -> Any:
        if isinstance(node, ast.Constant):
            return Fraction(str(ast.get_source_segment(self.text, node)))
        if isinstance(node, ast.Name):
            return self.atoms[node.id]
        if isinstance(node, ast.BinOp):
            return self._node(SIGNS[type(node.op)], self._read(node.left), self._read(node.right))
        if isinstance(node, ast.UnaryOp):
            inner = self._read(node.operand)
            minus = {ast.USub: True, ast.UAdd: False}[type(node.op)]  # type: ignore[index]
            return inner if not minus else -inner if isinstance(inner, Fraction) else f"(- {inner})"
        assert (len(node.args) == 1) != (node.func.id in ("min", "max")) and not node.keywords
        return self._call(CALLS[node.func.id], *map(self._read, node.args))


def transcribed_box(text: str) -> Iterator[tuple[str, str, str]]:
    """The variables of a box as typed, with their ends in Coq."""
    for part in re.split(r",(?![^()]*\))", text):
        names, ends = (side.strip() for side in part.split("="))
        low, high = (TranscribedTerm(end, []).coq for end in ends.split(".."))
        many = NUMBERED.fullmatch(names)
        for k in range(int(many[2]), int(many[3]) + 1) if many else [0]:
            yield f"{many[1]}{k:0{len(many[2])}d}" if many else names, low, high
