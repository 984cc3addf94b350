"""Text to expressions on a box, and what can be said about them."""

from transformula.formulas.boxes import Box
from transformula.formulas.expression import Expr
from transformula.formulas.formula import Formula
from transformula.formulas.parsing import parse

__all__ = ["Box", "Expr", "Formula", "parse"]
