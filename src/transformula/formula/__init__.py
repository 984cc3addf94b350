"""Formulas in use: evaluated in floats, repeated over positions, searched for their largest values."""

from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse

__all__ = ["Box", "Expr", "Formula", "parse"]
